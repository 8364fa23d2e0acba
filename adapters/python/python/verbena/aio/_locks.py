"""Locks for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from types import TracebackType
from typing import Callable, Generic, TypeVar, final

from .. import _native
from .._errors import Error
from .._native import Hold, Locks
from ._threads import Thread, to_the_end

# Seconds from one look at whether a lock was lost to the next: a look at memory and at the clock.
_LOOKS_EVERY = 0.005

_Connection = TypeVar("_Connection", bound=_native.Locks | _native.Memory)


def lock(
    name: str | bytes,
    timeout: float | None = None,
    *,
    shared: bool = False,
    path: str | os.PathLike[str] | None = None,
    connect_timeout: float = 5.0,
) -> Lock[Locks]:
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


async def wait_lost(hold: Hold, timeout: float | None = None) -> bool:
    """As Hold.wait_lost, while other tasks run: whether it is no longer held. For a task beside one that works under the lock."""
    until = None if timeout is None else time.monotonic() + timeout
    while hold.held:
        left = _LOOKS_EVERY if until is None else until - time.monotonic()
        if left <= 0:
            return False
        await asyncio.sleep(min(left, _LOOKS_EVERY))
    return True


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


def _drop(connection: _native.Locks | _native.Memory, hold: Hold) -> None:
    # Released and then closed: who is gone is noticed a moment later than who says so.
    with connection, contextlib.suppress(Error):
        hold.release()


@final
class Lock(Generic[_Connection]):
    """What `lock` returns. For one `async with` at a time."""

    def __init__(self, take: Callable[[threading.Event], tuple[_Connection, Hold]]) -> None:
        self._take = take
        self._thread: Thread | None = None
        self._held: tuple[_Connection, Hold] | None = None

    async def __aenter__(self) -> Hold:
        if self._thread is not None:
            raise RuntimeError("this lock is in use: make one for each `async with`")
        self._thread = Thread("verbena-lock")
        stop = threading.Event()
        taking = self._thread.begin(self._take, stop)
        try:
            self._held = await to_the_end(taking, stop.set)
        except BaseException:
            if taking.done() and not taking.cancelled() and taking.exception() is None:
                # It came, and the task was cancelled.
                await to_the_end(self._thread.begin(_drop, *taking.result()))
            self._end()
            raise
        _connection, hold = self._held
        return hold

    async def __aexit__(
        self, why: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._held is not None and self._thread is not None
        (connection, hold), self._held = self._held, None

        def give_back() -> None:
            with connection:
                hold.__exit__(why, raised, trace)

        try:
            await to_the_end(self._thread.begin(give_back))
        finally:
            self._end()

    def _inside(self) -> tuple[Thread, _Connection, Hold]:
        """While it is held: the thread, what it connected, and the hold."""
        assert self._held is not None and self._thread is not None
        connection, hold = self._held
        return self._thread, connection, hold

    def _end(self) -> None:
        if self._thread is not None:
            # It has nothing to do any more.
            self._thread.close()
            self._thread = None
