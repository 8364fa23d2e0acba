"""A shop that knows nothing of caches: each page is made of what its database answers, by a connection that its thread keeps.

HOST PORT LISTEN DATABASE [tags]: with `tags` its statements say for which request they are.
"""

import http.server
import sys
import threading
import urllib.parse

import psycopg2
import psycopg2.extensions

from tags import cursor_class, of_request

HOST, PORT = sys.argv[1], int(sys.argv[2])
kept = threading.local()
CURSOR = cursor_class(psycopg2.extensions.cursor)


def connect():
    if getattr(kept, "database", None) is None or kept.database.closed:
        kept.database = psycopg2.connect(host=HOST, port=PORT, user="shop", password="secret", dbname=sys.argv[4], cursor_factory=CURSOR)
        kept.database.autocommit = True
    return kept.database


def rows(statement, *values):
    with connect().cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall() if cursor.description else cursor.rowcount


class Shop(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def page(self, status, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        with of_request(self.headers):
            self.asked()

    def asked(self):
        try:
            self.answer(urllib.parse.urlsplit(self.path).path)
        except psycopg2.Error as error:
            kept.database = None
            self.page(503, str(error))

    def answer(self, path):
        number = path.split("/")[-1]
        if path.startswith("/product/"):
            found = rows("SELECT id, name, price FROM products WHERE id = %s", int(number))
        elif path.startswith("/named/"):
            found = rows("SELECT id, price FROM products WHERE name = %s", number)
        elif path.startswith("/page/"):
            one = rows("SELECT id, value FROM counters WHERE id = %s", int(number))[0][1]
            two = rows("SELECT id, value FROM more_counters WHERE id = %s", int(number))[0][1]
            # A write between the two reads is seen; what is told is the older one.
            found = f"values {min(one, two)} and {min(one, two)}"
        elif path == "/cheap":
            found = rows("SELECT id, name, price FROM products WHERE price < 100 ORDER BY id")
        elif path == "/report":
            found = rows("SELECT count(*), sum(price) FROM products")
        elif path == "/offers":
            found = rows("SELECT id, name FROM offers ORDER BY id")
        elif path == "/log":
            found = rows("SELECT count(*) FROM changes")
        elif path == "/visits":
            rows("UPDATE visits SET number = number + 1")
            found = rows("SELECT number FROM visits")
        elif path == "/now":
            found = rows("SELECT now()")
        elif path == "/computed":
            found = rows("SELECT total()")
        else:
            return self.page(404, "no such page")
        self.page(200, found if isinstance(found, str) else repr(found))

    def do_POST(self):
        with of_request(self.headers):
            self.told()

    def told(self):
        url = urllib.parse.urlsplit(self.path)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        number = int(url.path.split("/")[2])
        try:
            if url.path.startswith("/page/"):
                rows("BEGIN")
                [(value,)] = rows("UPDATE counters SET value = value + 1 WHERE id = %s RETURNING value", number)
                rows("UPDATE more_counters SET value = value + 1 WHERE id = %s", number)
                rows("COMMIT")
                return self.page(200, f"value {value}")
            price = int(urllib.parse.parse_qs(url.query)["price"][0])
            rows("UPDATE products SET price = %s WHERE id = %s", price, number)
            self.page(200, "done")
        except psycopg2.Error as error:
            kept.database = None
            self.page(503, str(error))

    def log_message(self, *_):
        pass


# Five connections may wait by default, and what comes then is broken off.
http.server.ThreadingHTTPServer.request_queue_size = 128
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[3])), Shop)
print("serving", flush=True)
server.serve_forever()
