"""Locks for asyncio.

    async with verbena.aio.lock("nightly-report", timeout=10) as hold:
        await store.write(value, token=hold.token)

Each lock has a connection and a thread of its own, from when it is asked for until it is released: so thousands of tasks that wait at
once are not what this is for, and a task that asks for what it has waits for itself. A task that is cancelled while it waits has left the
queue, and released what came all the same, before it sees the cancellation; one that is cancelled under the lock releases it as any block does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Callable, final

from ._errors import Error
from ._native import Hold, Locks
from ._threads import Thread, to_the_end


def lock(
    name: str | bytes,
    timeout: float | None = None,
    *,
    shared: bool = False,
    path: str | os.PathLike[str] | None = None,
    connect_timeout: float = 5.0,
) -> Lock:
    """A lock to be held by `async with`, which gives its Hold. Arguments as of Locks and Locks.acquire."""
    return Lock(lambda stop: _take(name, timeout, shared, path, connect_timeout, stop))


async def remove(
    name: str | bytes, *, path: str | os.PathLike[str] | None = None, connect_timeout: float = 5.0
) -> bool:
    """As Locks.remove: whether the lock's home knew it. Raises InUse."""

    def work() -> bool:
        with Locks(path, connect_timeout) as locks:
            return locks.remove(name)

    with contextlib.closing(Thread("verbena-lock")) as thread:
        return await thread.do(work)


def _take(
    name: str | bytes,
    timeout: float | None,
    shared: bool,
    path: str | os.PathLike[str] | None,
    connect_timeout: float,
    stop: threading.Event,
) -> tuple[Locks, Hold]:
    locks = Locks(path, connect_timeout)
    try:
        return locks, locks.acquire(name, timeout, shared=shared, stop=stop)
    except BaseException:
        locks.close()
        raise


def _drop(locks: Locks, hold: Hold) -> None:
    # Released and then closed: who is gone is noticed a moment later than who says so.
    with locks, contextlib.suppress(Error):
        hold.release()


@final
class Lock:
    """What `lock` returns. For one `async with` at a time."""

    def __init__(self, take: Callable[[threading.Event], tuple[Locks, Hold]]) -> None:
        self._take = take
        self._thread: ThreadPoolExecutor | None = None
        self._held: tuple[Locks, Hold] | None = None

    async def __aenter__(self) -> Hold:
        if self._thread is not None:
            raise RuntimeError("this lock is in use: make one for each `async with`")
        self._thread = ThreadPoolExecutor(1, "verbena-lock")
        stop = threading.Event()
        loop = asyncio.get_running_loop()
        taking = loop.run_in_executor(self._thread, self._take, stop)
        try:
            self._held = await to_the_end(taking, stop.set)
        except BaseException:
            if taking.done() and not taking.cancelled() and taking.exception() is None:
                # It came, and the task was cancelled.
                await to_the_end(loop.run_in_executor(self._thread, _drop, *taking.result()))
            self._end()
            raise
        return self._held[1]

    async def __aexit__(
        self, why: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._held is not None and self._thread is not None
        (locks, hold), self._held = self._held, None

        def give_back() -> None:
            with locks:
                hold.__exit__(why, raised, trace)

        try:
            await to_the_end(asyncio.get_running_loop().run_in_executor(self._thread, give_back))
        finally:
            self._end()

    def _end(self) -> None:
        if self._thread is not None:
            # It has nothing to do any more.
            self._thread.shutdown(wait=False)
            self._thread = None
