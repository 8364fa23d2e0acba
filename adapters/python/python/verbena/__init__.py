"""Distributed locks of a Verbena cluster, and networks that are far apart for tests.

    with verbena.Locks() as locks:
        with locks.acquire("nightly-report", timeout=10) as hold:
            store.write(value, token=hold.token)

`verbena.aio` has the same for asyncio.

    with verbena.wan(delay="10ms", loss="0.1%") as wan:
        server = wan.b.run(socket.create_server, (wan.b.address, 8000))
        client = wan.a.run(socket.create_connection, (wan.b.address, 8000))
"""

from . import aio
from ._errors import (
    Deadlock,
    Disconnected,
    Error,
    Failed,
    Forked,
    Lost,
    NoAnswer,
    NoHelper,
    NotHeld,
    NotInTime,
    NotPermitted,
    Refused,
    WrongThread,
)
from ._native import Hold, Locks
from ._wan import Site, Wan, wan

__all__ = [
    "Deadlock",
    "Disconnected",
    "Error",
    "Failed",
    "Forked",
    "Hold",
    "Locks",
    "Lost",
    "NoAnswer",
    "NoHelper",
    "NotHeld",
    "NotInTime",
    "NotPermitted",
    "Refused",
    "Site",
    "Wan",
    "WrongThread",
    "aio",
    "wan",
]
