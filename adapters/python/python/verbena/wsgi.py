"""A WSGI middleware (PEP 3333) that tells the caches of every request that writes.

    application = verbena.wsgi.Announce(application)

A request with an unsafe method is bracketed by an update: begun before the application is called, ended after its answer was read to the end and closed, which is after COMMIT
also where a framework commits with the request (Django's ATOMIC_REQUESTS, Flask's teardown). The client gets the end of the answer after that. Put it outermost.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from . import _writes
from ._errors import Error
from ._updates import Update, Updates
from ._writes import Touching, everything

__all__ = ["Announce"]

Environ = dict[str, Any]
Headers = list[tuple[str, str]]
StartResponse = Callable[..., Callable[[bytes], object]]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]


class Announce:
    """The middleware.

    `touching` gets the WSGI environment of a request with an unsafe method and says what it touches: names, `verbena.EVERYTHING` (the default for all), or None if the request writes nothing or
    brackets its write itself. It should only look. An application that knows that nothing was written, or does not know, sets `environ["verbena.outcome"]` to "not-sent" or "unknown".

    A write that cannot be announced is answered with 503, and the application is not called. One whose end cannot be confirmed is answered with 500, or cut short.
    """

    def __init__(self, application: Application, updates: Updates | str | None = None, touching: Touching = everything) -> None:
        self._application, self._updates, self._touching = application, _writes.the_helper(updates), touching

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        touched = _writes.touched_by(environ["REQUEST_METHOD"], self._touching, environ)
        token = _writes.begin_request()
        try:
            if touched is None:
                return self._application(environ, _declaring(start_response))
            try:
                update = self._updates.begin(touched)
            except Error as error:
                _writes.refused(error)
                return _own(start_response, "503 Service Unavailable", _writes.REFUSED, [("Retry-After", "1")])
            return self._write(update, environ, start_response)
        finally:
            _writes.end_request(token)

    def _write(self, update: Update, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        answer = _Answer(update, environ)
        try:
            answer.begin(self._application(environ, _declaring(answer.start_response)))
        except BaseException:
            update.end_quietly("unknown")
            raise
        return answer.given_to(start_response)


def _declaring(start_response: StartResponse) -> StartResponse:
    """Adds what the page is made of, if the application has said it."""

    def start(status: str, headers: Headers, *exc_info: Any) -> Callable[[bytes], object]:
        value = _writes.field()
        if value is not None:
            headers = [*headers, (_writes.FIELD, value)]
        return start_response(status, headers, *exc_info)

    return start


def _own(start_response: StartResponse, status: str, text: bytes, more: Headers = []) -> Iterable[bytes]:
    start_response(status, [("Content-Type", "text/plain"), ("Content-Length", str(len(text))), *more])
    return [text]


class _Answer:
    """The application's answer to a write, kept back until its update has ended."""

    def __init__(self, update: Update, environ: Environ) -> None:
        self._update, self._environ = update, environ
        self._head: tuple[Any, ...] = ()
        self._read = io.BytesIO()
        self._rest: Iterator[bytes] | None = None
        self._body: Iterable[bytes] = ()

    def start_response(self, status: str, headers: Headers, exc_info: Any = None) -> Callable[[bytes], object]:
        """What the application calls. No byte has left so far, so it may call it again with an error (PEP 3333)."""
        self._head = (status, headers)
        return self._read.write

    def begin(self, body: Iterable[bytes]) -> None:
        """Reads the answer, to its end if that comes within the limit."""
        self._body = body
        pieces = iter(body)
        for piece in pieces:
            self._read.write(piece)
            if self._read.tell() > _writes.READ_FIRST:
                self._rest = pieces
                return
        self._close()

    def _close(self) -> None:
        close = getattr(self._body, "close", None)
        if close is not None:
            close()

    def _end(self) -> None:
        outcome = self._environ.get("verbena.outcome", "done")
        if outcome == "done":
            self._update.end("done")
        else:
            self._update.end_quietly(outcome)

    def given_to(self, start_response: StartResponse) -> Iterable[bytes]:
        if not self._head:
            self._update.end_quietly("unknown")
            raise RuntimeError("the application has not called start_response")
        if self._rest is not None:
            start_response(*self._head)
            return _Long(self, self._read.getvalue(), self._rest)
        try:
            self._end()
        except Error as error:
            _writes.unconfirmed(error)
            return _own(start_response, "500 Internal Server Error", _writes.UNCONFIRMED)
        start_response(*self._head)
        return [self._read.getvalue()]


class _Long:
    """A long answer: all but its last piece, then the end of the update, then that. Cut short if the update cannot be confirmed."""

    def __init__(self, answer: _Answer, first: bytes, rest: Iterator[bytes]) -> None:
        self._answer, self._pieces = answer, self._all(first, rest)

    def _all(self, last: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
        for piece in rest:
            if piece:
                yield last
                last = piece
        self._answer._close()
        try:
            self._answer._end()
        except Error as error:
            _writes.unconfirmed(error)
            raise
        yield last

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces

    def close(self) -> None:
        """The server is done with it, or its client has gone: then the rest is read all the same, because the application may write while it answers."""
        try:
            for _ in self._pieces:
                pass
        except Exception:
            self._answer._update.end_quietly("unknown")
