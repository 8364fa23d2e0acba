"""Distributed locks of a Verbena cluster.

    with verbena.Locks() as locks:
        with locks.acquire("nightly-report", timeout=10) as hold:
            store.write(value, token=hold.token)

`verbena.aio` has the same for asyncio.
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
    Refused,
    WrongThread,
)
from ._native import Hold, Locks

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
    "Refused",
    "WrongThread",
    "aio",
]
