"""The helper of this machine, told of writes: what docs/reference/API.md says, in the standard library."""

from __future__ import annotations

import http.client
import json
import logging
import os
import socket
import struct
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Final, Literal

from ._errors import Failed, Late, NoAnswer, NoHelper, NotOpen, Refused, Unavailable, Unconfirmed
from ._place import http_socket

#: Most names of one page or update, and bytes of one name: beyond them it is everything.
MOST_NAMES: Final = 256
LONGEST_NAME: Final = 1024
#: Longer than the helper's own deadline, so that the helper says what is wrong.
TIMEOUT: Final = 10.0

logger = logging.getLogger("verbena")


class _Everything:
    def __repr__(self) -> str:
        return "EVERYTHING"


#: What a page is made of that names nothing, and what a write touches that names nothing.
EVERYTHING: Final = _Everything()

Touched = str | Iterable[str] | _Everything


def names_of(touched: Touched) -> list[str] | None:
    """The names, each once. None for everything, and for what cannot be said by names: never nothing, which would leave stale pages."""
    if isinstance(touched, _Everything):
        return None
    names = dict.fromkeys([touched] if isinstance(touched, str) else touched)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"names of what is touched are text: {touched!r}")
    usable = 0 < len(names) <= MOST_NAMES and all(0 < len(name.encode()) <= LONGEST_NAME for name in names)
    return list(names) if usable else None


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("helper", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
        # In a directory that others may write to, the socket could be another user's.
        user = struct.unpack("3i", self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))[1]
        if user not in (os.geteuid(), 0):
            raise PermissionError(f"the helper there is user {user}'s")


class Updates:
    """The helper of this machine, told of writes.

    `place` is its HTTP socket, `/run/user/1000/verbena/local.http.sock`, or `http://127.0.0.1:9090`; without one it is what the environment variable VERBENA_HELPER says, or what the
    configuration says (VERBENA_CONFIG, `verbena.toml`), or where a helper listens that was told nothing else. No connection is made before it is needed, so that it may be made before a fork. All methods may be called by any thread.
    """

    def __init__(self, place: str | os.PathLike[str] | None = None, timeout: float = TIMEOUT) -> None:
        text = os.fspath(place) if place is not None else os.environ.get("VERBENA_HELPER") or http_socket()
        if timeout <= 0:
            raise ValueError(f"a timeout of {timeout} s: it must be more than 0")
        self._address: tuple[str, int] | None = None
        if text.startswith("http://"):
            host, _, port = text.removeprefix("http://").rstrip("/").rpartition(":")
            if not port.isdigit() or host.strip("[]") not in ("127.0.0.1", "::1"):
                raise ValueError(f"{text!r}: http:// is followed by a loopback address and a port, as 127.0.0.1:9090; a program asks the helper beside it")
            self._address = (host.strip("[]"), int(port))
        elif not text.startswith("/"):
            raise ValueError(f"{text!r} is neither an absolute path nor http://127.0.0.1:PORT")
        self._place, self._timeout = text, timeout

    def begin(self, touched: Touched = EVERYTHING) -> Update:
        """Begins an update of what bears these names. When this has returned, and not before, may the write go to the database.

        Raises NoHelper, Unavailable or Refused: nothing was begun. Late or NoAnswer: something may have been begun. Write nothing after any of them.
        """
        said = self._ask("POST", "/v1/updates", _body(touched))
        return Update(self, str(said["update"]))

    def purge(self, touched: Touched = EVERYTHING) -> None:
        """Takes all that is made of this out of every cache. Raises as `begin`."""
        self._ask("POST", "/v1/purge", _body(touched))

    def purge_pages(self, *pages: str) -> None:
        """Takes the pages at these addresses, `http://HOST/PATH?QUERY` as clients ask for them, out of every cache. Raises as `begin`."""
        self._ask("POST", "/v1/purge", {"pages": list(pages)})

    def _end(self, name: str, outcome: Literal["done", "not-sent", "unknown"]) -> bool:
        return bool(self._ask("POST", f"/v1/updates/{name}/end", {"outcome": outcome}, ends=True)["acknowledge"])

    def _ask(self, method: str, target: str, body: dict[str, Any], ends: bool = False) -> dict[str, Any]:
        if self._address is None:
            connection: http.client.HTTPConnection = _UnixConnection(self._place, self._timeout)
        else:
            connection = http.client.HTTPConnection(*self._address, timeout=self._timeout)
        try:
            try:
                connection.connect()
            except OSError as error:
                message = f"no helper answers at {self._place}: {error}; start `verbena node` or `verbena proxy`, or name another address"
                raise NoHelper(message) from error
            try:
                connection.request(method, target, json.dumps(body), {"Content-Type": "application/json", "Connection": "close"})
                answer = connection.getresponse()
                read = answer.read()
            except TimeoutError as error:
                raise Late(f"no answer from the helper at {self._place} within {self._timeout} s") from error
            except (OSError, http.client.HTTPException) as error:
                raise NoAnswer(f"the helper at {self._place} broke off: {error}") from error
        finally:
            connection.close()
        try:
            said = json.loads(read)
        except ValueError:
            said = {}
        if 200 <= answer.status < 300 and isinstance(said, dict):
            return said
        problem = said.get("error", f"{answer.status} without a reason") if isinstance(said, dict) else str(said)
        if answer.status == 503:
            raise Unavailable(problem)
        if answer.status == 404 and ends:
            raise NotOpen(problem)
        if 200 <= answer.status < 300:
            raise Failed(f"the helper's answer cannot be read: {read[:200]!r}")
        raise Refused(f"{problem} ({answer.status})")

    def __repr__(self) -> str:
        return f"Updates({self._place!r})"


class Update:
    """A write that every cache knows of: until it ends, no cache serves what it touches.

    As a context manager it ends as done when the block ends, and as unknown when the block raises: what it touches stays out of the caches for as long as the longest transaction.
    """

    def __init__(self, updates: Updates, name: str) -> None:
        self._updates, self._name, self._is_open = updates, name, True

    def end(self, outcome: Literal["done", "not-sent", "unknown"] = "done") -> None:
        """Ends it, after the database has answered (COMMIT too).

        When this returns, the client can be told of its write. Raises Unconfirmed, or why the helper could not be told: do not tell the client that it is done. Ending it again does nothing.
        """
        if outcome not in ("done", "not-sent", "unknown"):
            raise ValueError(f"{outcome!r} is no outcome: there are done, not-sent and unknown")
        if not self._is_open:
            return
        self._is_open = False
        if not self._updates._end(self._name, outcome) and outcome == "done":
            raise Unconfirmed("not every cache may know of the write: do not tell the client that it is done")

    def end_quietly(self, outcome: Literal["done", "not-sent", "unknown"]) -> None:
        """Ends it with another outcome than done, on which no answer to a client rests. What cannot be told to the helper, it takes for unknown by itself."""
        try:
            self.end(outcome)
        except Exception as error:
            logger.warning("the helper did not learn the outcome of a write: %s", error)

    def __enter__(self) -> Update:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.end("done")
        else:
            self.end_quietly("unknown")

    def __repr__(self) -> str:
        return f"Update({self._name!r}, {'open' if self._is_open else 'over'})"


def _body(touched: Touched) -> dict[str, Any]:
    names = names_of(touched)
    return {"everything": True} if names is None else {"dependencies": names}
