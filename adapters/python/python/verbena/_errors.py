"""What can go wrong. A wrong argument is a ValueError or a TypeError as everywhere."""


class Error(Exception):
    """Every error of this package."""


class NotInTime(Error, TimeoutError):
    """The lock was not free in time: nothing is held, and nothing is waited for. Or not all had saved a checkpoint in time."""


class InUse(Error):
    """Somebody holds the lock or waits for it: it was not removed."""


class Lost(Error):
    """The lock was not held to the end: others may have had it, and what was done under it may have come too late."""


class Gone(Lost):
    """The segment's home is gone, and the value with it."""


class NotHeld(Error):
    """It was released before."""


class Deadlock(Error):
    """Those who hold the lock wait for locks that this connection holds: it is to release what it holds, and may begin anew."""


class NotFound(Error, LookupError):
    """There is no segment of this name, or no such complete checkpoint."""


class Exists(Error):
    """There is a segment of this name."""


class Released(Error):
    """The segment was released."""


class Reclaimed(Error):
    """The segment's home took its memory back, and the value went with it. Its name is free."""


class RolledBack(Error):
    """Another process began again: all go back to the newest complete checkpoint, so this one is to join again."""


class Conflict(Error):
    """The value is of another version than the one that was to be replaced: of version `current`. Nothing was put."""

    def __init__(self, words: str, current: int) -> None:
        super().__init__(words, current)
        self.current = current

    def __str__(self) -> str:
        return str(self.args[0])


class NoRoom(Error):
    """The segment's home is full, or the user has all that it may have. Nothing was allocated."""


class OutOfRange(Error, IndexError):
    """Bytes that the segment does not have. Nothing was read or put."""


class NotYours(Error, PermissionError):
    """The segment is another user's. Nothing was read or changed."""


class Elsewhere(Error):
    """The segment's value is not in memory that this program can read in place: `get` reads it."""


class Unknown(Error):
    """Nobody knows whether it was done, or will be."""


class Late(Error, TimeoutError):
    """It could not be done in time, and was not done."""


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


class Unavailable(Error):
    """The helper cannot do it now, and nothing was begun: write nothing, and answer 503."""


class Unconfirmed(Error):
    """The write is in the database, and not every cache may know of it: do not tell the client that it is done."""


class NotOpen(Error):
    """The update has ended already: it was open for longer than `pages.longest_transaction`, or its helper was started again."""
