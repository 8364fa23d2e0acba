"""Threads that wait, for tasks of asyncio."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Callable, TypeVar

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    _P = ParamSpec("_P")

_T = TypeVar("_T")


class Thread:
    """One thread, which does one thing after the other."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, name)

    async def do(self, act: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """What `act` returns or raises. A task that is cancelled meanwhile takes it back if it has not begun, and otherwise sees the cancellation when it has ended."""
        work = self._executor.submit(act, *args, **kwargs)
        return await to_the_end(asyncio.wrap_future(work), work.cancel)

    def close(self) -> None:
        """It ends when it has done all."""
        self._executor.shutdown(wait=False)


async def to_the_end(work: asyncio.Future[_T], stop: Callable[[], object] = lambda: None) -> _T:
    """Waits for what a thread does also if the task is cancelled meanwhile: `stop` makes it short. Then raises the cancellation."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError as error:
            stop()
            cancelled = error
    if cancelled is not None:
        if not work.cancelled():
            # An error of a wait that was stopped is no news.
            work.exception()
        raise cancelled
    return work.result()
