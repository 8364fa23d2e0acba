"""Django projects behind `verbena proxy`: every request that writes is announced.

    MIDDLEWARE = ["verbena.django.Announce", ...]          # first
    VERBENA = {"touching": "shop.caching.touched"}         # optional; and "helper": a path or http://127.0.0.1:PORT

It is begun before any other middleware and the view run, and ended when the response is rendered and the other middlewares are done: after COMMIT, with ATOMIC_REQUESTS too. A decorator of a
view would end before COMMIT, and leave stale pages. So it refuses to be anywhere but first.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from typing import Any, cast

from . import _writes
from ._errors import Error
from ._updates import Update, logger

__all__ = ["Announce"]

NAME = "verbena.django.Announce"


def _load(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


class Announce:
    """The middleware, for WSGI and ASGI. `VERBENA["touching"]` names a function of an HttpRequest; otherwise as `verbena.wsgi.Announce`, with `response.verbena_outcome`."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        settings = importlib.import_module("django.conf").settings
        exceptions = importlib.import_module("django.core.exceptions")
        if not settings.MIDDLEWARE or settings.MIDDLEWARE[0] != NAME:
            raise exceptions.ImproperlyConfigured(f"{NAME} must stand first in MIDDLEWARE: what stands before it may write after the update has ended")
        own = getattr(settings, "VERBENA", {})
        unknown = set(own) - {"helper", "touching"}
        if unknown:
            raise exceptions.ImproperlyConfigured(f"VERBENA has {sorted(unknown)}: there are helper and touching")
        self._get_response = get_response
        self._updates = _writes.the_helper(own.get("helper"))
        touching = own.get("touching", _writes.everything)
        self._touching = _load(touching) if isinstance(touching, str) else touching
        self._http: Any = importlib.import_module("django.http")
        self._is_async = asyncio.iscoroutinefunction(get_response)
        if self._is_async:
            importlib.import_module("asgiref.sync").markcoroutinefunction(self)

    def __call__(self, request: Any) -> Any:
        if self._is_async:
            return self._async(request)
        touched = _writes.touched_by(request.method, self._touching, request)
        token = _writes.begin_request()
        try:
            if touched is None:
                return _declared(self._get_response(request))
            try:
                update = self._updates.begin(touched)
            except Error as error:
                return self._refused(error)
            try:
                response = _declared(self._get_response(request))
            except BaseException:
                update.end_quietly("unknown")
                raise
            return self._ended(update, response)
        finally:
            _writes.end_request(token)

    async def _async(self, request: Any) -> Any:
        get_response = cast(Callable[[Any], Awaitable[Any]], self._get_response)
        touched = _writes.touched_by(request.method, self._touching, request)
        token = _writes.begin_request()
        try:
            if touched is None:
                return _declared(await get_response(request))
            try:
                update = await asyncio.to_thread(self._updates.begin, touched)
            except Error as error:
                return self._refused(error)
            try:
                response = _declared(await get_response(request))
            except BaseException:
                await asyncio.shield(asyncio.to_thread(update.end_quietly, "unknown"))
                raise
            return await asyncio.shield(asyncio.to_thread(self._ended, update, response))
        finally:
            _writes.end_request(token)

    def _refused(self, error: Error) -> Any:
        _writes.refused(error)
        return self._http.HttpResponse(_writes.REFUSED, status=503, content_type="text/plain", headers={"Retry-After": "1"})

    def _ended(self, update: Update, response: Any) -> Any:
        outcome: Any = getattr(response, "verbena_outcome", "done")
        if outcome == "done" and response.streaming:
            # What it writes while it streams has no end that this middleware sees.
            logger.warning("a write was answered with a stream: its outcome is unknown; let verbena.wsgi or verbena.asgi announce it")
            outcome = "unknown"
        if outcome != "done":
            update.end_quietly(outcome)
            return response
        try:
            update.end("done")
        except Error as error:
            _writes.unconfirmed(error)
            return self._http.HttpResponse(_writes.UNCONFIRMED, status=500, content_type="text/plain")
        return response


def _declared(response: Any) -> Any:
    value = _writes.field()
    if value is not None:
        response.headers[_writes.FIELD] = value
    return response
