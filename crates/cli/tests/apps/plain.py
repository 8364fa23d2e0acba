"""A web application as thousands are: Python's standard library, SQLite, and no thought of a cache.

    plain.py DATABASE [--port N] [--slow MILLISECONDS]

A page (GET /page/N) shows two counters, which one write (POST /page/N) raises together. Between its query and its answer a read
waits for --slow milliseconds: whoever stores such an answer without care stores an old one. A write answers with the new value. Prints
the port that it listens on.
"""

import argparse
import sqlite3
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

arguments = argparse.ArgumentParser()
arguments.add_argument("database")
arguments.add_argument("--port", type=int, default=0)
arguments.add_argument("--slow", type=float, default=0)
arguments = arguments.parse_args()


def connect():
    return sqlite3.connect(arguments.database, timeout=30, isolation_level=None)


class Application(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # One piece for head and body: no waiting for acknowledgements between them.
    wbufsize = -1
    disable_nagle_algorithm = True

    def page(self):
        kind, _, number = self.path.strip("/").partition("/")
        return int(number) if kind == "page" and number.isdecimal() else None

    def do_GET(self):
        page = self.page()
        if page is None:
            return self.answer(404, "no such page")
        with connect() as database:
            row = database.execute("SELECT one, two FROM page WHERE id = ?", [page]).fetchone() or (0, 0)
        time.sleep(arguments.slow / 1000)
        self.answer(200, "<html><p>one %d</p><p>two %d</p></html>" % row, "text/html")

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length") or 0))
        page = self.page()
        if page is None:
            return self.answer(404, "no such page")
        with connect() as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute(
                "INSERT INTO page VALUES (?, 1, 1) ON CONFLICT DO UPDATE SET one = one + 1, two = two + 1", [page]
            )
            (value,) = database.execute("SELECT one FROM page WHERE id = ?", [page]).fetchone()
            database.execute("COMMIT")
        self.answer(200, "value %d" % value)

    def answer(self, status, text, kind="text/plain"):
        body = text.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


with connect() as first:
    first.execute("PRAGMA journal_mode = wal")
    first.execute("CREATE TABLE IF NOT EXISTS page (id INTEGER PRIMARY KEY, one INTEGER, two INTEGER)")
# Five connections may wait by default, and what comes then is broken off.
ThreadingHTTPServer.request_queue_size = 128
server = ThreadingHTTPServer(("127.0.0.1", arguments.port), Application)
server.daemon_threads = True
print("port", server.server_port, flush=True)
server.serve_forever()
