"""Threads that wait, for tasks of asyncio."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Callable, TypeVar

from .._errors import Disconnected

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    _P = ParamSpec("_P")

_T = TypeVar("_T")


class Thread:
    """One thread, which does one thing after the other."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, name)
        self._is_closed = False

    async def do(self, act: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """What `act` returns or raises. A task that is cancelled meanwhile takes it back if it has not begun, and otherwise sees the cancellation when it has ended."""
        work = self._submit(act, *args, **kwargs)
        return await to_the_end(asyncio.wrap_future(work), work.cancel)

    def begin(self, act: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> asyncio.Future[_T]:
        """The same for who waits for it by `to_the_end`."""
        return asyncio.wrap_future(self._submit(act, *args, **kwargs))

    def _submit(self, act: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        if self._is_closed:
            raise Disconnected("the connection is closed")
        return self._executor.submit(act, *args, **kwargs)

    def close(self) -> None:
        """It ends when it has done all."""
        self._is_closed = True
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
