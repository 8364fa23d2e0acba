"""What can go wrong. A wrong argument is a ValueError or a TypeError as everywhere."""


class Error(Exception):
    """Every error of this package."""


class NotInTime(Error, TimeoutError):
    """The lock was not free in time. Nothing is held, and nothing is waited for."""


class Lost(Error):
    """The lock was not held to the end: others may have had it, and what was done under it may have come too late."""


class NotHeld(Error):
    """It was released before."""


class Deadlock(Error):
    """Those who hold the lock wait for locks that this connection holds: it is to release what it holds, and may begin anew."""


class Refused(Error):
    """The helper refuses, and says why."""


class NoHelper(Error, ConnectionError):
    """No helper listens there: start one with `verbena node`."""


class Disconnected(Error, ConnectionError):
    """The connection has ended, and with it all that was held by it."""


class NoAnswer(Error, ConnectionError):
    """The helper did not answer in time. What it was asked may have been done."""


class Forked(Error):
    """The connection, or the WAN, was made by the parent of this process."""


class WrongThread(Error):
    """Another thread made the connection. Each thread that is to exclude others connects for itself."""


class Failed(Error):
    """The helper is of another version, or the system refused something."""


class NotPermitted(Error, PermissionError):
    """Who runs this may not make networks. Nothing was made."""
