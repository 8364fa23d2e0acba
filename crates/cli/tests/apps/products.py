"""A shop that knows nothing of caches: each page is made of what its database answers, by a connection of its own.

HOST PORT LISTEN [tags]: with `tags` its statements say for which request they are.
"""

import http.server
import sys
import urllib.parse

import pymysql

from tags import cursor_class, of_request

DATABASE = (sys.argv[1], int(sys.argv[2]))
CURSOR = cursor_class(pymysql.cursors.Cursor)


def connect():
    host, port = DATABASE
    who = {"user": "shop", "password": "secret", "database": "shop"}
    return pymysql.connect(host=host, port=port, autocommit=True, cursorclass=CURSOR, **who)


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
        path = urllib.parse.urlsplit(self.path).path
        database = connect()
        with database, database.cursor() as cursor:
            if path.startswith("/product/"):
                cursor.execute("SELECT id, name, price FROM products WHERE id = %s", (int(path.split("/")[2]),))
                rows = cursor.fetchall()
            elif path.startswith("/page/"):
                both = []
                for table in ["counters", "more_counters"]:
                    cursor.execute(f"SELECT id, value FROM {table} WHERE id = %s", (int(path.split("/")[2]),))
                    both.append(cursor.fetchall()[0][1])
                # A write between the two reads is seen; what is told is the older one.
                return self.page(200, f"values {min(both)} and {min(both)}")
            elif path == "/cheap":
                cursor.execute("SELECT id, name, price FROM products WHERE price < 100 ORDER BY id")
                rows = cursor.fetchall()
            elif path == "/report":
                cursor.execute("SELECT count(*), sum(price) FROM products")
                rows = cursor.fetchall()
            elif path == "/visits":
                cursor.execute("UPDATE visits SET number = number + 1")
                cursor.execute("SELECT number FROM visits")
                rows = cursor.fetchall()
            elif path == "/now":
                cursor.execute("SELECT now(6)")
                rows = cursor.fetchall()
            else:
                return self.page(404, "no such page")
        self.page(200, repr(rows))

    def do_POST(self):
        with of_request(self.headers):
            self.told()

    def told(self):
        url = urllib.parse.urlsplit(self.path)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        number = int(url.path.split("/")[2])
        database = connect()
        with database, database.cursor() as cursor:
            if url.path.startswith("/page/"):
                database.begin()
                for table in ["counters", "more_counters"]:
                    cursor.execute(f"UPDATE {table} SET value = value + 1 WHERE id = %s", (number,))
                cursor.execute("SELECT value FROM counters WHERE id = %s", (number,))
                [(value,)] = cursor.fetchall()
                database.commit()
                return self.page(200, f"value {value}")
            price = int(urllib.parse.parse_qs(url.query)["price"][0])
            cursor.execute("UPDATE products SET price = %s WHERE id = %s", (price, number))
        self.page(200, "done")

    def log_message(self, *_):
        pass


# Five connections may wait by default, and what comes then is broken off.
http.server.ThreadingHTTPServer.request_queue_size = 128
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[3])), Shop)
print("serving", flush=True)
server.serve_forever()
