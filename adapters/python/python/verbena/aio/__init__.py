"""Locks, and memory that nodes share, for asyncio.

    async with verbena.aio.lock("nightly-report", timeout=10) as hold:
        await store.write(value, token=hold.token)

Each lock has a connection and a thread of its own, from when it is asked for until it is released: so thousands of tasks that wait at
once are not what this is for, and a task that asks for what it has waits for itself. A task that is cancelled while it waits has left the
queue, and released what came all the same, before it sees the cancellation; one that is cancelled under the lock releases it as any block does.

    async with verbena.aio.Memory() as memory:
        counter = await memory.find("counter")
        async with counter.lock(timeout=10) as mine:
            value = await mine.get()
            await mine.put(bytes(value)[::-1])

A Memory has one connection, and a thread that asks by it for one task after the other. A task that is cancelled while its call is on its way sees the cancellation when
that has ended, and a put may be done all the same. A lock of a segment is one more connection with a thread, as each lock: what is put under it goes by that.
"""

from ._locks import Lock, lock, remove, wait_lost
from ._memory import Checkpoints, Joined, LockedSegment, Memory, Segment, SegmentLock

__all__ = [
    "Checkpoints",
    "Joined",
    "Lock",
    "LockedSegment",
    "Memory",
    "Segment",
    "SegmentLock",
    "lock",
    "remove",
    "wait_lost",
]
