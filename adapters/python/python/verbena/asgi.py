"""An ASGI middleware (ASGI 3, HTTP) that tells the caches of every request that writes.

    application = verbena.asgi.Announce(application)

As `verbena.wsgi`: begun before the application is called, ended when it has returned, and the client gets the end of the answer after that. A client that hangs up changes nothing of this: the
application goes on in a task of its own. Put it outermost. Websockets and lifespan pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from . import _writes
from ._errors import Error
from ._updates import Update, Updates
from ._writes import Touching, everything

__all__ = ["Announce"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class Announce:
    """The middleware. `touching` gets the ASGI scope of a request with an unsafe method; otherwise as `verbena.wsgi.Announce`, with `scope["verbena.outcome"]`."""

    def __init__(self, application: Application, updates: Updates | str | None = None, touching: Touching = everything) -> None:
        self._application, self._updates, self._touching = application, _writes.the_helper(updates), touching
        # A task that is only awaited by a cancelled one would be collected.
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._application(scope, receive, send)
        touched = _writes.touched_by(scope["method"], self._touching, scope)
        token = _writes.begin_request()
        try:
            if touched is None:
                return await self._application(scope, receive, _declaring(send))
            task = asyncio.create_task(self._write(touched, scope, receive, send))
        finally:
            _writes.end_request(token)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)

    async def _write(self, touched: Any, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        try:
            update = await asyncio.to_thread(self._updates.begin, touched)
        except Error as error:
            _writes.refused(error)
            return await _own(send, 503, _writes.REFUSED, [(b"retry-after", b"1")])
        answer = _Answer(send)
        try:
            await self._application(scope, receive, _declaring(answer.send))
        except BaseException:
            await asyncio.to_thread(update.end_quietly, "unknown")
            raise
        outcome = scope.get("verbena.outcome", "done")
        await answer.end(update, outcome)


def _declaring(send: Send) -> Send:
    async def declare(message: Message) -> None:
        if message["type"] == "http.response.start" and (value := _writes.field()) is not None:
            headers = [*message.get("headers", []), (_writes.FIELD.lower().encode(), value.encode())]
            message = {**message, "headers": headers}
        await send(message)

    return declare


async def _own(send: Send, status: int, text: bytes, more: list[tuple[bytes, bytes]] | None = None) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(text)).encode()), *(more or [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


class _Answer:
    """The application's answer to a write. Its last message is kept back until the update has ended; all of them are, if it is short."""

    def __init__(self, send: Send) -> None:
        self._send: Send = send
        self._kept: list[Message] = []
        self._bytes = 0
        self._has_begun = False
        self._client_is_there = True

    async def send(self, message: Message) -> None:
        self._kept.append(message)
        self._bytes += len(message.get("body", b""))
        if self._has_begun or self._bytes > _writes.READ_FIRST:
            self._has_begun = True
            last = self._kept.pop()
            await self._pass_on()
            self._kept = [last]

    async def _pass_on(self) -> None:
        for message in self._kept:
            if self._client_is_there:
                try:
                    await self._send(message)
                except Exception:
                    # The client has gone. What the application writes goes on.
                    self._client_is_there = False
        self._kept = []

    async def end(self, update: Update, outcome: Any) -> None:
        """The application has returned."""
        if outcome != "done":
            await asyncio.to_thread(update.end_quietly, outcome)
        else:
            try:
                await asyncio.to_thread(update.end, "done")
            except Error as error:
                _writes.unconfirmed(error)
                if self._has_begun:
                    # The server closes the connection before the answer is whole.
                    raise
                return await _own(self._send, 500, _writes.UNCONFIRMED)
        await self._pass_on()
