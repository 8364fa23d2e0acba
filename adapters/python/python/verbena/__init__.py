"""Distributed locks of a Verbena cluster, memory that its nodes share, a cache that is told of writes, and networks that are far apart for tests.

    with verbena.Locks() as locks:
        with locks.acquire("nightly-report", timeout=10) as hold:
            store.write(value, token=hold.token)

`verbena.aio` has the same for asyncio.

    with verbena.Memory() as memory:
        table = memory.allocate(64 << 10, "table", coherence="delta(4)")
        table.put(b"...")
        value = memory.find("table").get()
        numpy.frombuffer(value, "f4")

`verbena.aio.Memory` is that for asyncio.

    updates = verbena.Updates()
    with updates.begin("product:7"):
        database.execute("update product set price = 9 where id = 7")
        database.commit()

`verbena.wsgi`, `verbena.asgi`, `verbena.django` and `verbena.flask` do that for every request that writes.

    with verbena.wan(delay="10ms", loss="0.1%") as wan:
        server = wan.b.run(socket.create_server, (wan.b.address, 8000))
        client = wan.a.run(socket.create_connection, (wan.b.address, 8000))
"""

from . import aio
from ._errors import (
    Conflict,
    Deadlock,
    Disconnected,
    Elsewhere,
    Error,
    Exists,
    Failed,
    Forked,
    Gone,
    InUse,
    Late,
    Lost,
    NoAnswer,
    NoHelper,
    NoRoom,
    NotFound,
    NotHeld,
    NotInTime,
    NotOpen,
    NotPermitted,
    NotYours,
    OutOfRange,
    Reclaimed,
    Refused,
    Released,
    RolledBack,
    Unavailable,
    Unconfirmed,
    Unknown,
    WrongThread,
)
from ._native import CheckpointState, Checkpoints, Hold, Joined, Locks, Memory, Segment, Stat, Value, Window
from ._updates import EVERYTHING, Update, Updates
from ._wan import Site, Wan, wan
from ._writes import made_of

__all__ = [
    "CheckpointState",
    "Checkpoints",
    "Conflict",
    "Deadlock",
    "Disconnected",
    "EVERYTHING",
    "Elsewhere",
    "Error",
    "Exists",
    "Failed",
    "Forked",
    "Gone",
    "Hold",
    "InUse",
    "Joined",
    "Late",
    "Locks",
    "Lost",
    "Memory",
    "NoAnswer",
    "NoHelper",
    "NoRoom",
    "NotFound",
    "NotHeld",
    "NotInTime",
    "NotOpen",
    "NotPermitted",
    "NotYours",
    "OutOfRange",
    "Reclaimed",
    "Refused",
    "Released",
    "RolledBack",
    "Segment",
    "Site",
    "Stat",
    "Unavailable",
    "Unconfirmed",
    "Unknown",
    "Update",
    "Updates",
    "Value",
    "Wan",
    "Window",
    "WrongThread",
    "aio",
    "made_of",
    "wan",
]
