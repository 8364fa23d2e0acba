"""Tells the relay before the database for which request a statement is, so that pages which are made at the same time do not get each other's rows.

    application = verbena.database.Tags(application)                                     # WSGI; verbena.database.AsyncTags for ASGI
    MIDDLEWARE = ["verbena.database.DjangoTags", ...]                                    # Django: this line is all

    verbena.database.tag_engine(engine)                                                  # SQLAlchemy, also with asyncio
    psycopg2.connect(..., cursor_factory=verbena.database.cursor(psycopg2.extensions.cursor))
    psycopg.connect(..., cursor_factory=verbena.database.cursor(psycopg.Cursor))         # and psycopg.AsyncCursor
    pymysql.connect(..., cursorclass=verbena.database.cursor(pymysql.cursors.Cursor))    # and MySQLdb

`verbena proxy --database` sends each request on with a field `Verbena-Fill`. Within the request each statement begins with a comment that has its value. Outside of one, and in threads that the request
starts, statements have none, which is right, and costs hits (docs/howto/dependencies-from-sql.md). What a statement answers must be shown by its own request alone.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from typing import Any, TypeVar

__all__ = ["FIELD", "AsyncTags", "DjangoTags", "Tags", "cursor", "request", "tag_engine", "tagged"]

FIELD = "Verbena-Fill"
"""The field of a request that says its tag."""

_FORM = re.compile(r"[0-9a-f]{16}")
_tag: contextvars.ContextVar[str | None] = contextvars.ContextVar("verbena_fill", default=None)


@contextlib.contextmanager
def request(tag: str | None) -> Iterator[None]:
    """Within it statements are of the request that came with this `Verbena-Fill`; of none, if it is None or no tag."""
    token = _tag.set(tag if tag is not None and _FORM.fullmatch(tag) else None)
    try:
        yield
    finally:
        _tag.reset(token)


Statement = TypeVar("Statement", str, bytes)


def tagged(statement: Statement) -> Statement:
    """The statement with the tag of its request in a comment before it; as it is, outside of a request."""
    tag = _tag.get()
    if tag is None:
        return statement
    comment = f"/* verbena_fill='{tag}' */ "
    return comment.encode() + statement if isinstance(statement, bytes) else comment + statement


def _tagged(statement: Any, of: Any) -> Any:
    """Likewise of what drivers take for a statement."""
    if isinstance(statement, str):
        return tagged(statement)
    if isinstance(statement, bytes):
        return tagged(statement)
    # What psycopg's `sql` puts together.
    text = getattr(statement, "as_string", None)
    return statement if _tag.get() is None or text is None else tagged(text(of))


def cursor(base: Any) -> Any:
    """A class of cursors of a driver (DB-API 2) that tags what it executes. Copies and procedures have no tag."""
    # Made as classes are at run time: what a class statement within a function names, checkers of types take for a name of this module.
    if hasattr(base, "_query"):
        # MySQL's drivers: the text as it is sent. They look for VALUES in what `executemany` is given.
        def query(self: Any, statement: Any) -> Any:
            return base._query(self, _tagged(statement, self))

        return type("Tagged", (base,), {"_query": query})

    # Also of drivers with `async`: what is returned may be awaited.
    def execute(self: Any, statement: Any, *values: Any, **options: Any) -> Any:
        return base.execute(self, _tagged(statement, self), *values, **options)

    def execute_many(self: Any, statement: Any, *values: Any, **options: Any) -> Any:
        return base.executemany(self, _tagged(statement, self), *values, **options)

    return type("Tagged", (base,), {"execute": execute, "executemany": execute_many})


Engine = TypeVar("Engine")


def tag_engine(engine: Engine) -> Engine:
    """Has an engine of SQLAlchemy tag what it executes, and gives it back: one of `create_engine` or of `create_async_engine`."""
    event = importlib.import_module("sqlalchemy.event")
    of: Any = getattr(engine, "sync_engine", engine)
    if not event.contains(of, "before_cursor_execute", _before_cursor_execute):
        event.listen(of, "before_cursor_execute", _before_cursor_execute, retval=True)
    return engine


def _before_cursor_execute(connection: Any, cursor: Any, statement: Any, parameters: Any, context: Any, executemany: bool) -> tuple[Any, Any]:
    # MySQL's drivers look for VALUES in what `executemany` is given, and send many rows as one.
    if executemany and connection.dialect.name in ("mysql", "mariadb"):
        return statement, parameters
    return tagged(statement), parameters


Environ = dict[str, Any]


class Tags:
    """A WSGI middleware. What a generator asks the database after the application has returned has no tag."""

    def __init__(self, application: Callable[[Environ, Callable[..., Any]], Iterable[bytes]]) -> None:
        self._application = application

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        with request(environ.get("HTTP_VERBENA_FILL")):
            return self._application(environ, start_response)


Scope = MutableMapping[str, Any]


class AsyncTags:
    """An ASGI middleware. Tasks that a request begins are its own, also when they outlive it: then their statements count for every page."""

    def __init__(self, application: Callable[[Scope, Any, Any], Awaitable[None]]) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        fields = [value for name, value in scope.get("headers", []) if name.lower() == FIELD.lower().encode()]
        with request(fields[0].decode("latin-1") if len(fields) == 1 else None):
            await self._application(scope, receive, send)


class DjangoTags:
    """A middleware for Django, WSGI and ASGI. It tags what all connections of Django execute."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self._get_response = get_response
        backends = importlib.import_module("django.db.backends.signals")
        backends.connection_created.connect(_connected, dispatch_uid="verbena.database")
        for connection in importlib.import_module("django.db").connections.all(initialized_only=True):
            _watch(connection)
        asyncio = importlib.import_module("asyncio")
        self._is_async = asyncio.iscoroutinefunction(get_response)
        if self._is_async:
            importlib.import_module("asgiref.sync").markcoroutinefunction(self)

    def __call__(self, asked: Any) -> Any:
        if self._is_async:
            return self._async(asked)
        with request(asked.headers.get(FIELD)):
            return self._get_response(asked)

    async def _async(self, asked: Any) -> Any:
        with request(asked.headers.get(FIELD)):
            return await self._get_response(asked)


def _connected(connection: Any, **_: Any) -> None:
    _watch(connection)


def _watch(connection: Any) -> None:
    if _execute not in connection.execute_wrappers:
        connection.execute_wrappers.append(_execute)


def _execute(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
    # MySQL's driver looks for VALUES in what `executemany` is given, and sends many rows as one.
    if many and context["connection"].vendor == "mysql":
        return execute(sql, params, many, context)
    return execute(_tagged(sql, context["cursor"].cursor), params, many, context)
