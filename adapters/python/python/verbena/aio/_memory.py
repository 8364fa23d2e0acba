"""Memory that nodes share, for asyncio."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, final

from .. import _native
from .._errors import Disconnected, NotInTime
from ._locks import Lock
from ._threads import Thread

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import Buffer

# From one look at whether a checkpoint is complete to the next, seconds: at first, and at the most.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02


@final
class Memory:
    """A connection for memory that nodes share, from the beginning of `async with` to its end. Arguments as of verbena.Memory."""

    def __init__(self, path: str | os.PathLike[str] | None = None, timeout: float = 5.0) -> None:
        self._connect = lambda: _native.Memory(path, timeout)
        self._open: tuple[Thread, _native.Memory] | None = None

    async def __aenter__(self) -> Memory:
        if self._open is not None:
            raise RuntimeError("this connection is open: make one for each `async with`")
        thread = Thread("verbena-memory")
        try:
            self._open = thread, await thread.do(self._connect)
        except BaseException:
            thread.close()
            raise
        return self

    async def __aexit__(self, *_why: object) -> None:
        (thread, memory), self._open = self._there(), None
        try:
            await thread.do(memory.close)
        finally:
            thread.close()

    async def allocate(
        self,
        bytes: int,
        name: str | None = None,
        *,
        coherence: str = "strict",
        writers: int = 3,
        copies: int = 1,
        placement: str = "most-free",
    ) -> Segment:
        """As verbena.Memory.allocate."""
        thread, memory = self._there()
        made = await thread.do(
            memory.allocate, bytes, name, coherence=coherence, writers=writers, copies=copies, placement=placement
        )
        return Segment(self._connect, thread, made)

    async def find(self, name: str) -> Segment:
        """The segment of this name. Raises NotFound."""
        thread, memory = self._there()
        return Segment(self._connect, thread, await thread.do(memory.find, name))

    async def list(self, prefix: str = "") -> list[Segment]:
        """As verbena.Memory.list."""
        thread, memory = self._there()
        return [Segment(self._connect, thread, segment) for segment in await thread.do(memory.list, prefix)]

    async def release(self, name: str) -> None:
        """Gives up the segment of this name; of one whose home is gone, the name."""
        thread, memory = self._there()
        await thread.do(memory.release, name)

    async def make_checkpoints(
        self,
        name: str,
        processes: int,
        bytes: int,
        *,
        kept: int = 2,
        copies: int = 1,
        placement: str = "spread",
    ) -> Checkpoints:
        """As verbena.Memory.make_checkpoints."""
        thread, memory = self._there()
        made = await thread.do(
            memory.make_checkpoints, name, processes, bytes, kept=kept, copies=copies, placement=placement
        )
        return Checkpoints(thread, made)

    async def checkpoints(self, name: str) -> Checkpoints:
        """The checkpoints of this name. Raises NotFound."""
        thread, memory = self._there()
        return Checkpoints(thread, await thread.do(memory.checkpoints, name))

    def _there(self) -> tuple[Thread, _native.Memory]:
        if self._open is None:
            raise Disconnected("the connection is closed: it is open within `async with`")
        return self._open


class Segment:
    """A segment, by the connection that found it."""

    def __init__(self, connect: Callable[[], _native.Memory], thread: Thread, segment: _native.Segment) -> None:
        self._connect, self._thread, self._segment = connect, thread, segment

    @property
    def name(self) -> str | None:
        """What it is called; None if it has no name."""
        return self._segment.name

    @property
    def id(self) -> str:
        """Which it is, as text; never another one's."""
        return self._segment.id

    @property
    def size(self) -> int:
        """Bytes of its value."""
        return self._segment.size

    @property
    def coherence(self) -> str:
        """What it promises."""
        return self._segment.coherence

    @property
    def home(self) -> str:
        """The name of the node in whose memory it is."""
        return self._segment.home

    @property
    def owner(self) -> int:
        """The user whose it is."""
        return self._segment.owner

    @property
    def copies(self) -> int:
        """How many nodes are to hold it."""
        return self._segment.copies

    async def get(self, offset: int = 0, length: int | None = None) -> _native.Value:
        """As verbena.Segment.get."""
        return await self._thread.do(self._segment.get, offset, length)

    async def get_into(self, buffer: Buffer | npt.NDArray[Any], offset: int = 0) -> int:
        """As verbena.Segment.get_into."""
        return await self._thread.do(self._segment.get_into, buffer, offset)

    async def put(self, data: Buffer | npt.NDArray[Any], offset: int = 0, over: int | None = None) -> int:
        """As verbena.Segment.put. The data is to stay as it is until then."""
        return await self._thread.do(self._segment.put, data, offset, over)

    async def window(self) -> _native.Window:
        """As verbena.Segment.window. What the window itself is asked waits for nobody."""
        return await self._thread.do(self._segment.window)

    async def stat(self) -> _native.Stat:
        """How old its value is."""
        return await self._thread.do(self._segment.stat)

    async def release(self) -> None:
        """Gives it up: its memory and its name are free."""
        await self._thread.do(self._segment.release)

    async def array(
        self, dtype: npt.DTypeLike, shape: int | tuple[int, ...] | None = None, offset: int = 0
    ) -> npt.NDArray[Any]:
        """As verbena.Segment.array."""
        return await self._thread.do(self._segment.array, dtype, shape, offset)

    async def store(self, array: npt.ArrayLike, offset: int = 0, over: int | None = None) -> int:
        """As verbena.Segment.store. The array is to stay as it is until then."""
        return await self._thread.do(self._segment.store, array, offset, over)

    def lock(self, timeout: float | None = None, *, shared: bool = False) -> SegmentLock:
        """Its lock, to be held by `async with`, which gives the segment by the lock's own connection. What is put by that has arrived, or never will, before others have the
        lock; what is put by another connection may arrive later."""
        return SegmentLock(self._connect, self._segment, timeout, shared)

    def __repr__(self) -> str:
        return repr(self._segment)


@final
class LockedSegment(Segment):
    """A segment whose lock is held, by the connection that holds it."""

    hold: _native.Hold


@final
class SegmentLock:
    """What Segment.lock returns. For one `async with` at a time."""

    def __init__(
        self, connect: Callable[[], _native.Memory], segment: _native.Segment, timeout: float | None, shared: bool
    ) -> None:
        def take(stop: threading.Event) -> tuple[_native.Memory, _native.Hold]:
            memory = connect()
            try:
                return memory, segment.by(memory).lock(timeout, shared=shared, stop=stop)
            except BaseException:
                memory.close()
                raise

        self._connect, self._segment = connect, segment
        self._lock: Lock[_native.Memory] = Lock(take)

    async def __aenter__(self) -> LockedSegment:
        await self._lock.__aenter__()
        thread, memory, hold = self._lock._inside()
        mine = LockedSegment(self._connect, thread, self._segment.by(memory))
        mine.hold = hold
        return mine

    async def __aexit__(
        self, why: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._lock.__aexit__(why, raised, trace)


@final
class Checkpoints:
    """What several processes save together, as verbena.Checkpoints."""

    def __init__(self, thread: Thread, checkpoints: _native.Checkpoints) -> None:
        self._thread, self._checkpoints = thread, checkpoints

    @property
    def name(self) -> str:
        """What they are called."""
        return self._checkpoints.name

    async def join(self, process: int) -> Joined:
        """As verbena.Checkpoints.join."""
        return Joined(self._thread, await self._thread.do(self._checkpoints.join, process))

    async def part(self, process: int, number: int) -> bytes:
        """As verbena.Checkpoints.part."""
        return await self._thread.do(self._checkpoints.part, process, number)

    async def show(self) -> _native.CheckpointState:
        """How the saving stands."""
        return await self._thread.do(self._checkpoints.show)

    async def roll_back(self, number: int) -> None:
        """As verbena.Checkpoints.roll_back."""
        await self._thread.do(self._checkpoints.roll_back, number)

    async def remove(self) -> None:
        """Gives up all checkpoints of this name."""
        await self._thread.do(self._checkpoints.remove)

    def __repr__(self) -> str:
        return repr(self._checkpoints)


@final
class Joined:
    """A process's place among those that save, as verbena.Joined."""

    def __init__(self, thread: Thread, joined: _native.Joined) -> None:
        self._thread, self._joined = thread, joined

    @property
    def process(self) -> int:
        """Which process."""
        return self._joined.process

    @property
    def era(self) -> int:
        """The era that it is in."""
        return self._joined.era

    @property
    def number(self) -> int:
        """The checkpoint that it goes on from; 0 if there is none."""
        return self._joined.number

    @property
    def part(self) -> bytes | None:
        """Its part of that; None if there is none."""
        return self._joined.part

    async def save(self, number: int, data: Buffer | npt.NDArray[Any]) -> int:
        """As verbena.Joined.save. The data is to stay as it is until then."""
        return await self._thread.do(self._joined.save, number, data)

    async def wait(self, number: int, timeout: float | None = None) -> None:
        """As verbena.Joined.wait. Other tasks use the connection meanwhile."""
        until = None if timeout is None else time.monotonic() + timeout
        pause = _SHORTEST_PAUSE
        while True:
            is_over = until is not None and time.monotonic() >= until
            try:
                return await self._thread.do(self._joined.wait, number, 0)
            except NotInTime:
                if is_over:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def __repr__(self) -> str:
        return repr(self._joined)
