"""Counters, each a page that says it lives for ten minutes. POST makes one more."""

import http.server
import threading

COUNTS = [0] * 8
LOCK = threading.Lock()


class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body leave together.
    wbufsize = -1

    def answer(self, text):
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "max-age=600")
        self.send_header("ETag", f'"{text}"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        self.answer(f"count {COUNTS[int(self.path.rsplit('/', 1)[1])]}")

    do_HEAD = do_GET

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with LOCK:
            COUNTS[int(self.path.rsplit("/", 1)[1])] += 1
        self.do_GET()

    def log_message(self, *_):
        pass


# Five connections may wait by default, and what comes then is broken off.
http.server.ThreadingHTTPServer.request_queue_size = 128
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
print("port", server.server_port, flush=True)
server.serve_forever()
