#!/usr/bin/env python3
"""Checks a guest book of a framework behind `verbena proxy` with the recipe of docs/howto.

    check.py [--answers N] [--without-key] KIND...        KIND is django, flask or express

Twenty users at once, half of them logged in, and as many visitors without a session. Each answer is checked:

- no name and no token of one user is in an answer to another, or to a visitor without a session;
- each form that was sent to a user is accepted from that user;
- no page is older than a write that any client was told of before it asked.

Then 20 posts of a scanner to a path of the documented lines, two for each hundred requests, and for five seconds two a second to a path that nobody named,
where the documented line calls a 404 harmless: no page is out of date after one. Exit code 1 if anything is wrong, or if fewer than 95% of the answers to
visitors are hits where nobody writes, or while a scanner posts to the documented path. `VERBENA` names the program, `NODE_PATH` where Express is.
"""

import argparse
import http.client
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
USERS = 20
ADDRESSES = ["/"] + [f"/entry/{number}" for number in range(1, 10)]
SCANNED = "/xmlrpc.php"
UNKNOWN = "/cgi-bin/unknown"
LEAST_HITS = 0.95
TOKEN = re.compile(r'name="(?:csrfmiddlewaretoken|token)" value="([^"]+)"')
NAME = re.compile(r"Signed in as (user-[0-9]+)<")
ENTRIES = re.compile(r"<p>([0-9]+) entries</p>")

arguments = argparse.ArgumentParser()
arguments.add_argument("kinds", nargs="+", choices=["django", "flask", "express"])
arguments.add_argument("--answers", type=int, default=100_000 if os.environ.get("VERBENA_LONG") else 3000, help="to check, of each kind")
arguments.add_argument("--without-key", action="store_true", help="leave the session out of the recipe's key, to see that the check sees")


class Seen:
    """What all clients share. Each counter is changed under the lock."""

    def __init__(self):
        self.lock = threading.Lock()
        self.wrong, self.owners = [], {}
        self.answers = self.forms = self.entries = self.moved = 0

    def complain(self, problem):
        with self.lock:
            self.wrong.append(problem)


class Client:
    def __init__(self, seen, port, name=None):
        self.seen, self.name, self.cookies, self.is_in = seen, name, {}, False
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def again(self):
        """The next request goes over a new connection: the proxy closes one that waited for the others for long."""
        self.connection.close()

    def ask(self, method, path, body=None):
        headers = {"Host": "guests.example"}
        if self.cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if body is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        with self.seen.lock:
            told = self.seen.entries
        self.connection.request(method, path, body, headers)
        answer = self.connection.getresponse()
        text = answer.read().decode()
        for line in answer.headers.get_all("Set-Cookie") or []:
            name, _, value = line.split(";")[0].partition("=")
            self.cookies[name.strip()] = value
        self.check(method, path, answer, text, told)
        noted = [word.strip() for word in (answer.headers.get("Cache-Status") or "").split(";")]
        if "detail=moved" in noted:
            with self.seen.lock:
                self.seen.moved += 1
        return answer.status, text, "hit" in noted

    def check(self, method, path, answer, text, told):
        me = f"{self.name or 'a visitor'}, {method} {path}"
        with self.seen.lock:
            self.seen.answers += 1
            for token in TOKEN.findall(text):
                owner = self.seen.owners.setdefault(token, self.name)
                if owner != self.name:
                    self.seen.wrong.append(f"{me}: the token of {owner}")
        shown = NAME.search(text)
        if shown and shown[1] != self.name or self.is_in and method == "GET" and answer.status == 200 and not shown:
            self.seen.complain(f"{me}: the page of {shown and shown[1]}")
        count = ENTRIES.search(text)
        if count and int(count[1]) < told:
            self.seen.complain(f"{me}: {count[1]} entries, and {told} were told before")
        if answer.status >= 500:
            self.seen.complain(f"{me}: status {answer.status}")

    def fill_in(self, path, field, value):
        """Asks for a form, and sends it."""
        _, text, _ = self.ask("GET", path)
        token = TOKEN.search(text)
        if not token:
            return self.seen.complain(f"{self.name}, {path}: no token in {text[:200]}")
        status, text, _ = self.ask("POST", path, f"csrfmiddlewaretoken={token[1]}&token={token[1]}&{field}={value}")
        with self.seen.lock:
            self.seen.forms += 1
        if status != 302:
            self.seen.complain(f"{self.name}: its form of {path} was answered {status}: {text[:200]}")

    def sign(self):
        self.fill_in("/sign", "who", self.name)
        _, text, _ = self.ask("GET", "/")
        with self.seen.lock:
            self.seen.entries = max(self.seen.entries, int(ENTRIES.search(text)[1]))


def together(clients, what):
    """Each client on a thread of its own; what the first one that failed says ends the program."""
    failed = []

    def guarded(client):
        try:
            client.again()
            what(client)
        except Exception as error:  # any failure is one of the check
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=[client]) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def hit_ratio(visitors, rounds, beside=None):
    """Of visitors without a session, who ask for each address in each of these rounds. `beside` is done by the first, at the end of each."""
    visitors[0].again()
    for path in ADDRESSES:
        visitors[0].ask("GET", path)
    hits = []

    def read(visitor):
        for _ in rounds():
            hits.append(sum(visitor.ask("GET", path)[2] for path in ADDRESSES))
            if beside and visitor is visitors[0]:
                beside()

    together(visitors, read)
    return sum(hits) / (len(hits) * len(ADDRESSES))


def seconds(count):
    """Rounds for so long."""
    end = time.monotonic() + count
    return iter(lambda: time.monotonic() < end, False)


def recipe(kind, origin, without_key):
    """The lines of docs/howto, with those for scanners of docs/reference/HTTP.md."""
    text = (ROOT / f"docs/howto/{kind}.md").read_text()
    lines = text.split("```toml\n# verbena.toml\n")[1].split("```")[0]
    scanned = f'    {{ prefix = "{SCANNED}", writes = "never" }},\n'
    everywhere, harmless = '{ prefix = "/",', '{ prefix = "/", harmless = [404, 405]'
    documented = (ROOT / "docs/reference/HTTP.md").read_text()
    assert scanned in documented and f"{harmless} }}," in documented and everywhere in lines, "the documented lines"
    lines = lines.replace(everywhere, f"{harmless},")
    if without_key:
        lines = re.sub(r"key = \[[^]]*\]", "publish = true", lines).replace('ignore = ["@analytics"], publish', 'ignore = ["sessionid", "csrftoken", "session", "connect.sid"], publish')
    return lines.replace("http://127.0.0.1:8000", origin).replace("routes = [\n", "routes = [\n" + scanned) + '[node]\nruntime = "run"\nstate = "state"\n'


def started(command, directory, is_it):
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=open(Path(directory) / f"{Path(command[1]).name}.log", "w"), text=True)
    for line in process.stdout:
        if found := re.search(is_it, line):
            # It must not find its output closed.
            threading.Thread(target=process.stdout.read, daemon=True).start()
            return process, int(found[1])
    raise RuntimeError(f"{command} ended with {process.wait()}")


def check(kind, directory, options):
    program = ["node", str(HERE / "express_guestbook.js")] if kind == "express" else [sys.executable, str(HERE / f"{kind}_guestbook.py"), str(Path(directory) / "book.db")]
    verbena = os.environ.get("VERBENA", str(ROOT / "target/debug/verbena"))
    application, port = started(program, directory, r"^port ([0-9]+)")
    running = [application]
    try:
        (Path(directory) / "verbena.toml").write_text(recipe(kind, f"http://127.0.0.1:{port}", options.without_key))
        proxy, port = started([verbena, "proxy", "--json", "--listen", "127.0.0.1:0", "--config", "verbena.toml"], directory, r'"event":"serving","address":"127.0.0.1:([0-9]+)"')
        running.append(proxy)
        return visits(kind, port, options.answers)
    finally:
        for process in reversed(running):
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def visits(kind, port, answers):
    seen = Seen()
    users = [Client(seen, port, f"user-{number}") for number in range(USERS)]
    visitors = [Client(seen, port) for _ in range(USERS)]

    def enter(user):
        if int(user.name[5:]) % 2 == 0:
            user.fill_in("/login", "name", user.name)
            user.is_in = True
        user.sign()

    together(users, enter)
    rounds = max(answers // (len(ADDRESSES) * (USERS + 2 * len(users))), 2)
    quiet = hit_ratio(visitors, lambda: range(rounds))

    def visit(client):
        for number in range(rounds):
            for path in ADDRESSES:
                client.ask("GET", path)
            if client.name and number % 4 == 0:
                client.sign()

    together(users + visitors, visit)

    posts = {SCANNED: [], UNKNOWN: []}

    def post(path):
        posts[path].append(Client(seen, port).ask("POST", path, "x=1")[0])

    # Two posts for each hundred requests: as many a second where visitors ask for a hundred pages.
    scanned = hit_ratio(visitors[:5], lambda: range(20), lambda: post(SCANNED))
    # While such a post is at the application nothing is answered from the cache: so they come as in life, two a second.
    ended = threading.Event()

    def scan():
        while not ended.wait(0.5):
            post(UNKNOWN)

    # What the scanner before it moved is not its doing.
    hit_ratio(visitors[:1], lambda: range(1))
    moved = seen.moved
    scanner = threading.Thread(target=scan)
    scanner.start()
    unknown = hit_ratio(visitors[:5], lambda: seconds(5))
    ended.set()
    scanner.join()
    if seen.moved != moved:
        seen.complain(f"{seen.moved - moved} pages were out of date after a refused post")
    for path, least in [(SCANNED, 20), (UNKNOWN, 5)]:
        if len(posts[path]) < least or any(not 400 <= status < 500 for status in posts[path]):
            seen.complain(f"the scanner was answered {posts[path]}")
    # That of posts to no rule's path is for people: it is how long the application looks at each.
    for ratio, when in [(quiet, "where nobody writes"), (scanned, "while a scanner posts")]:
        if ratio < LEAST_HITS:
            seen.complain(f"{ratio:.1%} of visitors' answers are hits {when}")
    if seen.answers < answers / 2 or seen.forms < 2 * USERS:
        seen.complain("too little was checked to say anything")
    print(f"{kind}: {seen.answers} answers checked, {seen.forms} forms, {len(seen.owners)} tokens, {seen.entries} entries; "
          f"visitors' hits {quiet:.1%} where nobody writes, {scanned:.1%} while a scanner posts, {unknown:.1%} to a path of no rule; {len(seen.wrong)} wrong", flush=True)
    for problem in seen.wrong[:10]:
        print(f"  {problem}", flush=True)
    return not seen.wrong


if __name__ == "__main__":
    options = arguments.parse_args()
    right = True
    for kind in options.kinds:
        with tempfile.TemporaryDirectory() as directory:
            right &= check(kind, directory, options)
    sys.exit(not right)
