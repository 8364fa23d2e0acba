"""Statements that say for which request they are."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from verbena import database

TAG = "00000000000000ab"
COMMENT = f"/* verbena_fill='{TAG}' */ "


def test_a_statement_has_the_tag_of_its_request_and_none_outside() -> None:
    assert database.tagged("SELECT 1") == "SELECT 1"
    with database.request(TAG):
        assert database.tagged("SELECT 1") == COMMENT + "SELECT 1"
        assert database.tagged(b"SELECT 1") == COMMENT.encode() + b"SELECT 1"
        in_thread: list[str] = []
        thread = threading.Thread(target=lambda: in_thread.append(database.tagged("SELECT 1")))
        thread.start()
        thread.join()
        assert in_thread == ["SELECT 1"]
        with database.request(None):
            assert database.tagged("SELECT 1") == "SELECT 1"
    assert database.tagged("SELECT 1") == "SELECT 1"


@pytest.mark.parametrize("wrong", ["", "ab", TAG + "0", "'; DROP TABLE t; --", TAG.upper(), "00000000000000ag"])
def test_what_is_no_tag_is_never_in_a_statement(wrong: str) -> None:
    with database.request(wrong):
        assert database.tagged("SELECT 1") == "SELECT 1"


class Driver:
    """A cursor that keeps what it is given."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def execute(self, statement: Any, *values: Any, **options: Any) -> None:
        self.told.append(statement)

    def executemany(self, statement: Any, *values: Any, **options: Any) -> None:
        self.told.append(statement)


class MySqlDriver:
    def __init__(self) -> None:
        self.told: list[Any] = []

    def execute(self, statement: str, values: Any = None) -> None:
        self._query(statement)

    def _query(self, statement: Any) -> None:
        self.told.append(statement)


class Composed:
    def as_string(self, cursor: Any) -> str:
        return "SELECT 2"


def test_cursors_tag_what_they_execute() -> None:
    cursor, mysql = database.cursor(Driver)(), database.cursor(MySqlDriver)()
    composed = Composed()
    with database.request(TAG):
        cursor.execute("SELECT 1", (1,))
        cursor.execute(composed)
        cursor.executemany(b"INSERT", [(1,)])
        mysql.execute("SELECT 1", (1,))
    cursor.execute(composed)
    mysql.execute("SELECT 1")
    assert cursor.told == [COMMENT + "SELECT 1", COMMENT + "SELECT 2", COMMENT.encode() + b"INSERT", composed]
    assert mysql.told == [COMMENT + "SELECT 1", "SELECT 1"]


def test_a_wsgi_application_is_tagged() -> None:
    def application(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        return [database.tagged("SELECT 1").encode()]

    tags = database.Tags(application)
    assert list(tags({"HTTP_VERBENA_FILL": TAG}, lambda *_: None)) == [(COMMENT + "SELECT 1").encode()]
    assert list(tags({}, lambda *_: None)) == [b"SELECT 1"]


def test_an_asgi_application_is_tagged_and_two_fields_are_none() -> None:
    told: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0)
        told.append(database.tagged("SELECT 1"))

    async def both() -> None:
        tags = database.AsyncTags(application)
        field = (b"verbena-fill", TAG.encode())
        await asyncio.gather(tags({"headers": [field]}, None, None), tags({"headers": []}, None, None), tags({"headers": [field, field]}, None, None))

    asyncio.run(both())
    assert told == [COMMENT + "SELECT 1", "SELECT 1", "SELECT 1"]


def test_django_tags_what_its_connections_execute() -> None:
    django = pytest.importorskip("django")
    from django.conf import settings

    if not settings.configured:
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}, ALLOWED_HOSTS=["*"])
        django.setup()
    from django.db import connections
    from django.db.utils import ConnectionHandler
    from django.http import HttpResponse
    from django.test import RequestFactory

    handler = ConnectionHandler({"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
    assert connections is not None
    told: list[str] = []

    def view(request: Any) -> HttpResponse:
        connection = handler["default"]
        connection.ensure_connection()
        assert isinstance(connection.connection, sqlite3.Connection)
        connection.connection.set_trace_callback(told.append)
        with connection.cursor() as cursor:
            cursor.execute("SELECT %s", [1])
        return HttpResponse("done")

    middleware = database.DjangoTags(view)
    factory = RequestFactory()
    middleware(factory.get("/", headers={"Verbena-Fill": TAG}))
    middleware(factory.get("/"))
    assert [statement for statement in told if "SELECT" in statement] == [COMMENT + "SELECT 1", "SELECT 1"]


def test_sqlalchemy_tags_what_its_engine_executes() -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    from sqlalchemy.pool import StaticPool

    engine = database.tag_engine(sqlalchemy.create_engine("sqlite://", poolclass=StaticPool))
    # Once, however often it is asked for.
    assert database.tag_engine(engine) is engine
    told: list[str] = []
    with engine.connect() as connection:
        connection.connection.dbapi_connection.set_trace_callback(told.append)
        with database.request(TAG):
            connection.execute(sqlalchemy.text("SELECT :n"), {"n": 1})
            connection.exec_driver_sql("CREATE TABLE t (n INT)")
            connection.execute(sqlalchemy.text("INSERT INTO t VALUES (:n)"), [{"n": 1}, {"n": 2}])
        connection.execute(sqlalchemy.text("SELECT 2"))
    tagged = [statement for statement in told if statement.startswith(COMMENT)]
    assert [statement.removeprefix(COMMENT) for statement in tagged] == ["SELECT 1", "CREATE TABLE t (n INT)", "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)"]
    assert "SELECT 2" in told


def test_sqlalchemy_with_asyncio_tags_each_task_for_itself(tmp_path: Path) -> None:
    pytest.importorskip("aiosqlite")
    asynchronous = pytest.importorskip("sqlalchemy.ext.asyncio")
    sqlalchemy = pytest.importorskip("sqlalchemy")
    told: list[str] = []

    async def page(engine: Any, tag: str | None) -> None:
        with database.request(tag):
            async with engine.connect() as connection:
                raw = await connection.get_raw_connection()
                await raw.driver_connection.set_trace_callback(told.append)
                await asyncio.sleep(0.01)
                await connection.execute(sqlalchemy.text(f"SELECT '{tag}'"))

    async def both() -> None:
        engine = database.tag_engine(asynchronous.create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/shop.db"))
        await asyncio.gather(page(engine, TAG), page(engine, None), page(engine, TAG[::-1]))
        await engine.dispose()

    asyncio.run(both())
    expected = {f"{COMMENT}SELECT '{TAG}'", "SELECT 'None'", f"/* verbena_fill='{TAG[::-1]}' */ SELECT '{TAG[::-1]}'"}
    assert {statement for statement in told if "SELECT" in statement} == expected
