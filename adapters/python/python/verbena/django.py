"""Django projects behind `verbena proxy`: every request that writes is announced.

    MIDDLEWARE = ["verbena.django.Announce", ...]          # first
    VERBENA = {"touching": "shop.caching.touched"}         # optional; and "helper": a path or http://127.0.0.1:PORT
    VERBENA = {"models": True}                             # or: what is read and written is seen

It is begun before any other middleware and the view run, and ended when the response is rendered and the other middlewares are done: after COMMIT, with ATOMIC_REQUESTS too. A decorator of a
view would end before COMMIT, and leave stale pages. So it refuses to be anywhere but first.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

from . import _models, _writes
from ._errors import Error
from ._updates import Touched, Updates, logger

__all__ = ["Announce", "announced"]

NAME = "verbena.django.Announce"


def _load(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


class Announce:
    """The middleware, for WSGI and ASGI. With `VERBENA["models"]` it sees what requests read and write, and nothing more has to be said. `VERBENA["touching"]` names a function of an HttpRequest; otherwise as `verbena.wsgi.Announce`, with `response.verbena_outcome`."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        settings = importlib.import_module("django.conf").settings
        exceptions = importlib.import_module("django.core.exceptions")
        if not settings.MIDDLEWARE or settings.MIDDLEWARE[0] != NAME:
            raise exceptions.ImproperlyConfigured(f"{NAME} must stand first in MIDDLEWARE: what stands before it may write after the update has ended")
        own = getattr(settings, "VERBENA", {})
        unknown = set(own) - {"helper", "models", "touching"}
        if unknown:
            raise exceptions.ImproperlyConfigured(f"VERBENA has {sorted(unknown)}: there are helper, models and touching")
        self._get_response = get_response
        self._updates = _writes.the_helper(own.get("helper"))
        self._sees_models = bool(own.get("models", False))
        if self._sees_models:
            _models.watch()
        touching = own.get("touching", _nothing if self._sees_models else _writes.everything)
        self._touching = _load(touching) if isinstance(touching, str) else touching
        self._http: Any = importlib.import_module("django.http")
        self._is_async = asyncio.iscoroutinefunction(get_response)
        if self._is_async:
            importlib.import_module("asgiref.sync").markcoroutinefunction(self)

    def __call__(self, request: Any) -> Any:
        if self._is_async:
            return self._async(request)
        touched = _writes.touched_by(request.method, self._touching, request)
        with self._record() as record:
            try:
                if touched is not None:
                    record.announce(touched)
                response = self._get_response(request)
            except BaseException as error:
                return self._raised(record, error)
            return self._ended(record, response)

    async def _async(self, request: Any) -> Any:
        get_response = cast(Callable[[Any], Awaitable[Any]], self._get_response)
        touched = _writes.touched_by(request.method, self._touching, request)
        with self._record() as record:
            try:
                if touched is not None:
                    await asyncio.to_thread(record.announce, touched)
                response = await get_response(request)
            except BaseException as error:
                return await asyncio.shield(asyncio.to_thread(self._raised, record, error))
            return await asyncio.shield(asyncio.to_thread(self._ended, record, response))

    @contextlib.contextmanager
    def _record(self) -> Iterator[_models.Record]:
        """What one request does."""
        record = _models.Record(self._updates)
        made_of = _writes.begin_request()
        token = _models.begin(record) if self._sees_models else None
        try:
            yield record
        finally:
            if token is not None:
                _models.end(token)
            _writes.end_request(made_of)

    def _raised(self, record: _models.Record, error: BaseException) -> Any:
        record.end("unknown")
        if error is record.refused:
            return self._refused(record.refused)
        raise error

    def _refused(self, error: Error) -> Any:
        _writes.refused(error)
        return self._http.HttpResponse(_writes.REFUSED, status=503, content_type="text/plain", headers={"Retry-After": "1"})

    def _ended(self, record: _models.Record, response: Any) -> Any:
        if record.refused is not None and not record.has_begun:
            # The statement was not run, and Django has made an answer of the error.
            return self._refused(record.refused)
        self._declare(record, response)
        outcome: Any = getattr(response, "verbena_outcome", "done")
        if record.has_begun and outcome == "done" and response.streaming:
            # What it writes while it streams has no end that this middleware sees.
            logger.warning("a write was answered with a stream: its outcome is unknown; let verbena.wsgi or verbena.asgi announce it")
            outcome = "unknown"
        try:
            record.end(outcome)
        except Error as error:
            _writes.unconfirmed(error)
            return self._http.HttpResponse(_writes.UNCONFIRMED, status=500, content_type="text/plain")
        return response

    def _declare(self, record: _models.Record, response: Any) -> None:
        if not self._sees_models:
            value = _writes.field()
        elif response.streaming or _writes.FIELD in response.headers:
            return
        else:
            names = record.names()
            value = None if names is None else _writes.field(names)
        if value is not None:
            response.headers[_writes.FIELD] = value


def _nothing(_request: Any) -> Touched | None:
    """What requests touch whose statements are seen."""
    return None


def announced(updates: Updates | str | None = None) -> contextlib.AbstractContextManager[None]:
    """What a job writes through Django's connections in this block is announced, and ends with the block: let transactions end inside.

    `updates` is as for `verbena.wsgi.Announce`. What threads write that the block starts is not seen.
    """
    _models.watch()
    return _models.announced(_writes.the_helper(updates))
