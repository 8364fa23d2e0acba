"""A guest book in Django as its documentation would have it: sessions, logins, forms with CSRF tokens. It knows of no cache.

    django_guestbook.py DATABASE

Prints the port that it listens on.
"""

import sys
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import django
from django.conf import settings
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, HttpResponseNotFound
from django.middleware.csrf import get_token
from django.shortcuts import redirect
from django.urls import path
from django.utils.html import escape

settings.configure(
    ALLOWED_HOSTS=["*"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1], "OPTIONS": {"timeout": 30}}},
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions"],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    ],
    ROOT_URLCONF=__name__,
    SECRET_KEY="of the example",
)
django.setup()

from django.contrib import auth  # noqa: E402
from django.contrib.auth.models import User  # noqa: E402
from django.db import connection  # noqa: E402


def page(request, body):
    visitor = f"<p>Signed in as {escape(request.user.username)}</p>" if request.user.is_authenticated else ""
    return HttpResponse(f"<html>{visitor}{body}</html>")


def form(request, action, field):
    return page(request, f'<form method="post" action="{action}"><input name="csrfmiddlewaretoken" value="{get_token(request)}"><input name="{field}"></form>')


def book(request):
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM entry")
        (count,) = cursor.fetchone()
        cursor.execute("SELECT id, who FROM entry ORDER BY id DESC LIMIT 5")
        return page(request, f"<p>{count} entries</p>" + "".join(f"<p>{number} {escape(who)}</p>" for number, who in cursor))


def entry(request, number):
    with connection.cursor() as cursor:
        cursor.execute("SELECT who FROM entry WHERE id = %s", [number])
        found = cursor.fetchone()
    return page(request, f"<p>entry {number} by {escape(found[0])}</p>") if found else HttpResponseNotFound("no such entry")


def sign(request):
    if request.method != "POST":
        return form(request, "/sign", "who")
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO entry (who) VALUES (%s)", [request.POST["who"]])
    return redirect("/")


def login(request):
    if request.method != "POST":
        return form(request, "/login", "name")
    user, is_new = User.objects.get_or_create(username=request.POST["name"])
    auth.login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    return redirect("/")


urlpatterns = [path("", book), path("entry/<int:number>", entry), path("sign", sign), path("login", login)]


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass


call_command("migrate", verbosity=0)
with connection.cursor() as cursor:
    cursor.execute("PRAGMA journal_mode = wal")
    cursor.execute("CREATE TABLE IF NOT EXISTS entry (id INTEGER PRIMARY KEY, who TEXT)")
server = Server(("127.0.0.1", 0), Quiet)
server.set_app(get_wsgi_application())
print("port", server.server_port, flush=True)
server.serve_forever()
