"""A shop that knows nothing of caches: each page is made of what its database answers, by a connection of its own."""

import http.server
import sys
import urllib.parse

import pymysql

DATABASE = (sys.argv[1], int(sys.argv[2]))


def connect():
    host, port = DATABASE
    return pymysql.connect(host=host, port=port, user="shop", password="secret", database="shop", autocommit=True)


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
        path = urllib.parse.urlsplit(self.path).path
        database = connect()
        with database, database.cursor() as cursor:
            if path.startswith("/product/"):
                cursor.execute("SELECT id, name, price FROM products WHERE id = %s", (int(path.split("/")[2]),))
                rows = cursor.fetchall()
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
        url = urllib.parse.urlsplit(self.path)
        price = int(urllib.parse.parse_qs(url.query)["price"][0])
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        database = connect()
        with database, database.cursor() as cursor:
            cursor.execute("UPDATE products SET price = %s WHERE id = %s", (price, int(url.path.split("/")[2])))
        self.page(200, "done")

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[3])), Shop)
print("serving", flush=True)
server.serve_forever()
