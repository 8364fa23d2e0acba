"""A guest book in Flask as its documentation would have it: a session in a signed cookie, logins, forms with a token of the session. It knows of no cache.

    flask_guestbook.py DATABASE

Prints the port that it listens on.
"""

import logging
import secrets
import sqlite3
import sys

from flask import Flask, abort, g, redirect, request, session
from markupsafe import escape
from werkzeug.serving import make_server

app = Flask(__name__)
app.secret_key = "of the example"


def database():
    if "database" not in g:
        g.database = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
    return g.database


@app.teardown_appcontext
def close(_):
    if "database" in g:
        g.database.close()


def page(body):
    visitor = f"<p>Signed in as {escape(session['name'])}</p>" if "name" in session else ""
    return f"<html>{visitor}{body}</html>"


def form(action, field):
    token = session.setdefault("token", secrets.token_hex(16))
    return page(f'<form method="post" action="{action}"><input name="token" value="{token}"><input name="{field}"></form>')


def check():
    if not secrets.compare_digest(request.form.get("token", ""), session.get("token", "-")):
        abort(403)


@app.get("/")
def book():
    (count,) = database().execute("SELECT count(*) FROM entry").fetchone()
    newest = database().execute("SELECT id, who FROM entry ORDER BY id DESC LIMIT 5")
    return page(f"<p>{count} entries</p>" + "".join(f"<p>{number} {escape(who)}</p>" for number, who in newest))


@app.get("/entry/<int:number>")
def entry(number):
    found = database().execute("SELECT who FROM entry WHERE id = ?", [number]).fetchone()
    return page(f"<p>entry {number} by {escape(found[0])}</p>") if found else abort(404)


@app.get("/sign")
def sign_form():
    return form("/sign", "who")


@app.post("/sign")
def sign():
    check()
    database().execute("INSERT INTO entry (who) VALUES (?)", [request.form["who"]])
    return redirect("/")


@app.get("/login")
def login_form():
    return form("/login", "name")


@app.post("/login")
def login():
    check()
    session["name"] = request.form["name"]
    session["token"] = secrets.token_hex(16)
    return redirect("/")


with app.app_context():
    database().execute("PRAGMA journal_mode = wal")
    database().execute("CREATE TABLE IF NOT EXISTS entry (id INTEGER PRIMARY KEY, who TEXT)")
server = make_server("127.0.0.1", 0, app, threaded=True)
print("port", server.server_port, flush=True)
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server.serve_forever()
