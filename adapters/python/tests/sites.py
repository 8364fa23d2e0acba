"""Guest books for the tests of writes: Django (ATOMIC_REQUESTS on), Flask, and plain ASGI. `python sites.py KIND DATABASE HELPER` serves one and prints its port."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from typing import Any
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import verbena
import verbena.asgi
import verbena.flask
import verbena.wsgi

#: Between a view's last statement and COMMIT: what reads in between sees the old row.
BEFORE_COMMIT = 0.02


def entry(path: str) -> str:
    return path.removeprefix("/entry/").split("?")[0]


def touched(environ: dict[str, Any]) -> Any:
    return [f"entry:{entry(environ['PATH_INFO'])}"]


def django(database: str, helper: str, kind: str) -> Any:
    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.db import connection
    from django.db.backends.sqlite3.base import DatabaseWrapper
    from django.http import HttpResponse
    from django.urls import path

    settings.configure(
        ROOT_URLCONF=__name__,
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": database, "ATOMIC_REQUESTS": True, "OPTIONS": {"timeout": 30}}},
        MIDDLEWARE=["verbena.django.Announce"] * (kind in ("django", "django-models")) + ["django.middleware.common.CommonMiddleware"],
        ALLOWED_HOSTS=["*"],
        VERBENA={"helper": helper, **({"models": True} if kind == "django-models" else {"touching": lambda request: [f"entry:{entry(request.path)}"]})},
    )
    django.setup()

    commit = DatabaseWrapper._commit

    def late(self: Any) -> Any:
        time.sleep(BEFORE_COMMIT)
        return commit(self)

    DatabaseWrapper._commit = late
    updates = verbena.Updates(helper)

    def book(request: Any, name: str) -> Any:
        with connection.cursor() as cursor:
            if request.method == "POST":
                cursor.execute("update entries set text = %s where name = %s", [request.body.decode(), name])
                # Django commits when the view has returned.
                return HttpResponse("written")
            cursor.execute("select text from entries where name = %s", [name])
            text = cursor.fetchone()[0]
        return HttpResponse(text, headers={"Verbena-Dependencies": f'"entry:{name}"'})

    def decorated(request: Any, name: str) -> Any:
        """What the documentation warns of: the bracket is inside of the transaction."""
        if request.method != "POST":
            return book(request, name)
        with updates.begin([f"entry:{name}"]):
            return book(request, name)

    if kind == "django-models":
        globals()["urlpatterns"] = by_models()
        return get_wsgi_application()

    view = decorated if kind == "django-inside" else book
    globals()["urlpatterns"] = [path("entry/<str:name>", view)]

    return get_wsgi_application()


def by_models() -> Any:
    """The guest book by a model: a page of each row, a list of all, and writes of each kind. Nothing in it speaks of caches."""
    from django.db import models
    from django.http import HttpResponse
    from django.urls import path

    model: Any = models.Model

    class Entry(model):  # type: ignore[misc]
        name = models.CharField(primary_key=True, max_length=30)
        text = models.TextField()

        class Meta:
            app_label = "book"
            db_table = "entries"

    def one(request: Any, name: str) -> Any:
        if request.method == "POST":
            row = Entry.objects.get(pk=name)
            row.text = request.body.decode()
            row.save()
            return HttpResponse("written")
        row = Entry.objects.filter(pk=name).first()
        return HttpResponse(row.text if row else "none", status=200 if row else 404)

    def listed(request: Any) -> Any:
        return HttpResponse(",".join(f"{row.name}={row.text}" for row in Entry.objects.order_by("name")))

    def at_once(request: Any, name: str) -> Any:
        Entry.objects.filter(name__startswith=name).update(text=request.body.decode())
        return HttpResponse("written")

    def visited(request: Any, name: str) -> Any:
        """A GET that writes."""
        Entry.objects.update_or_create(pk=name, defaults={"text": "visited"})
        return HttpResponse("written")

    def raw(request: Any, name: str) -> Any:
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("insert into entries (name, text) values (%s, %s)", [name, request.body.decode()])
        return HttpResponse("written")

    return [path("entry/<str:name>", one), path("list", listed), path("all/<str:name>", at_once), path("visit/<str:name>", visited), path("raw/<str:name>", raw)]


def flask(database: str, helper: str) -> Any:
    import flask as flask_package

    app = flask_package.Flask(__name__)

    @app.route("/entry/<name>", methods=["GET", "POST"])
    def book(name: str) -> Any:
        flask_package.g.database = sqlite3.connect(database, timeout=30)
        if flask_package.request.method == "POST":
            text = flask_package.request.get_data(as_text=True)
            flask_package.g.database.execute("update entries set text = ? where name = ?", (text, name))
            return "written"
        row = flask_package.g.database.execute("select text from entries where name = ?", (name,)).fetchone()
        verbena.made_of(f"entry:{name}")
        return str(row[0])

    @app.teardown_request
    def commit(_error: Any) -> None:
        """After the view, as session extensions do."""
        time.sleep(BEFORE_COMMIT)
        flask_package.g.database.commit()
        flask_package.g.database.close()

    return verbena.flask.announce(app, helper, touched)


async def plain(scope: Any, receive: Any, send: Any) -> None:
    """The entry, or a long answer to a write that is committed while it is given."""
    database, name = scope["state"]["database"], entry(scope["path"])
    connection = sqlite3.connect(database, timeout=30)
    if scope["method"] == "POST":
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        long = b"long" in scope["query_string"]
        connection.execute("update entries set text = ? where name = ?", (body.decode(), name))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        for _ in range(20 if long else 0):
            await send({"type": "http.response.body", "body": b"x" * 8192, "more_body": True})
        await asyncio.sleep(BEFORE_COMMIT)
        connection.commit()
        await send({"type": "http.response.body", "body": b"written"})
    else:
        (text,) = connection.execute("select text from entries where name = ?", (name,)).fetchone()
        verbena.made_of(f"entry:{name}")
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": text.encode()})
    connection.close()


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128


def serve_wsgi(application: Any) -> None:
    with make_server("127.0.0.1", 0, application, server_class=Server, handler_class=Quiet) as server:
        print(server.server_port, flush=True)
        server.serve_forever()


def serve_asgi(database: str, helper: str) -> None:
    import uvicorn

    async def with_state(scope: Any, receive: Any, send: Any) -> None:
        scope["state"] = {"database": database}
        await plain(scope, receive, send)

    application = verbena.asgi.Announce(with_state, helper, lambda scope: [f"entry:{entry(scope['path'])}"])

    class Listening(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            print(self.servers[0].sockets[0].getsockname()[1], flush=True)

    Listening(uvicorn.Config(application, port=0, log_level="error", lifespan="off")).run()


if __name__ == "__main__":
    kind, database, helper = sys.argv[1:]
    if kind == "asgi":
        serve_asgi(database, helper)
    elif kind == "flask":
        serve_wsgi(flask(database, helper))
    else:
        serve_wsgi(django(database, helper, kind))
