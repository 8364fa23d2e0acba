"""What the checkers of sites share: clients, what was confirmed of each page, and counts.

A page has one writer at a time and a history of states. A reader notes how far the history was confirmed before it asks; an answer that shows an
earlier state is stale. What is being written may be shown, or not yet.
"""

import argparse
import http.client
import random
import sys
import threading
import time


class Client:
    """A browser, with one connection to each proxy and cookies of its own."""

    def __init__(self, host):
        self.host = host
        self.connections = {}
        self.cookies = {}

    def close(self):
        """Nothing is left of connections that may be broken."""
        for connection in self.connections.values():
            connection.close()
        self.connections.clear()

    def ask(self, port, method, path, body=None, headers=()):
        """The answer's status, whether it is a hit, its body and its fields."""
        fields = {"Host": self.host, **dict(headers)}
        if self.cookies:
            fields["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if method != "GET" and port in self.connections:
            # One that was kept may have been closed meanwhile, on a slow machine, and what writes is not sent twice.
            self.connections.pop(port).close()
        for is_last in (False, True):
            connection = self.connections.get(port) or http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            self.connections[port] = connection
            try:
                connection.request(method, path, body, fields)
                answer = connection.getresponse()
                body_read = answer.read()
                break
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                # It was kept, and closed meanwhile.
                connection.close()
                if is_last or method != "GET":
                    raise
        for name, value in answer.getheaders():
            if name.lower() == "set-cookie":
                name, _, value = value.split(";")[0].partition("=")
                if value in ("", "deleted"):
                    self.cookies.pop(name, None)
                else:
                    self.cookies[name] = value
        is_hit = "HIT" in answer.getheader("X-Cache", "") or "; hit" in answer.getheader("Cache-Status", "")
        return answer.status, is_hit, body_read, answer


class Page:
    """A path, and the states that it was in. `shown` makes a state of an answer."""

    def __init__(self, path, shown):
        self.path = path
        self.shown = shown
        self.lock = threading.Lock()
        self.states = []
        self.confirmed = -1
        self.doubtful = set()

    def begin(self, state):
        """It is being written."""
        with self.lock:
            self.states.append(state)

    def confirm(self):
        """The writer has its answer."""
        with self.lock:
            self.confirmed = len(self.states) - 1

    def doubt(self):
        """No answer came to what was begun last: it may take effect at any later time, or never."""
        with self.lock:
            if len(self.states) - 1 > self.confirmed:
                self.doubtful.add(self.states[-1])

    def known(self):
        with self.lock:
            return self.confirmed

    def is_stale(self, state, known):
        with self.lock:
            return state not in self.states[max(known, 0):] and state not in self.doubtful


class Run:
    """Readers and a writer, for so long, and what they counted."""

    def __init__(self, seconds, reads_between, faults=False):
        self.end = time.monotonic() + seconds
        self.reads_between = reads_between
        # Parts of the site are killed and stopped: an answer may not come, and each that comes is looked at.
        self.faults = faults
        self.lock = threading.Lock()
        self.counts = {}
        self.failure = None

    def count(self, name, by=1):
        with self.lock:
            self.counts[name] = self.counts.get(name, 0) + by

    def number(self, name):
        with self.lock:
            return self.counts.get(name, 0)

    def is_over(self):
        return self.failure is not None or time.monotonic() >= self.end

    def fail(self, why):
        with self.lock:
            self.failure = self.failure or why

    def read(self, client, port, page, where, is_soon=False, look=None):
        """Asks for a page and looks at whether it is stale; `look` is shown its body."""
        known = page.known()
        try:
            status, is_hit, body, answer = client.ask(port, "GET", page.path)
        except (OSError, http.client.HTTPException):
            if not self.faults:
                raise
            client.connections.pop(port).close()
            self.count("requests without an answer")
            time.sleep(0.05)
            return False
        if self.faults and status >= 500:
            self.count("answers that say an error")
            time.sleep(0.05)
            return False
        state = page.shown(status, body)
        if look:
            look(self, body, f"{page.path} at port {port} (hit: {is_hit})")
        self.count(f"answers {where}")
        if is_hit:
            self.count(f"hits {where}")
        if is_soon:
            self.count("next after a write")
        if page.is_stale(state, known):
            self.count("stale")
            self.fail(f"stale: {page.path} at port {port} shows {state!r} ({status}, hit: {is_hit}), confirmed was "
                      f"{page.states[known]!r}\n{answer.getheaders()}\n{body[-600:]!r}")
        return is_hit

    def reader(self, host, places, pages):
        """Reads pages at random, as fast as they come; `places` are pairs of a port and how it is counted."""
        client, chance = Client(host), random.Random()
        while not self.is_over():
            port, where = chance.choice(places)
            self.read(client, port, chance.choice(pages), where)

    def writer(self, write):
        """Writes, and waits for so many answers that pages become hits in between, however slow the machine is."""
        nth = 0
        while not self.is_over():
            try:
                write(nth)
            except Exception:  # noqa: BLE001 - whatever a part that is gone makes of it
                if not self.faults:
                    raise
                self.count("writes without an answer")
                time.sleep(0.5)
            nth += 1
            enough = self.answers() + self.reads_between
            while not self.is_over() and self.answers() < enough:
                time.sleep(0.005)

    def answers(self):
        with self.lock:
            return sum(number for name, number in self.counts.items() if name.startswith("answers at "))

    def guarded(self, target, *arguments):
        def run():
            try:
                target(*arguments)
            except Exception as error:  # noqa: BLE001 - a thread that fails ends the run
                import traceback

                traceback.print_exc()
                self.fail(f"{type(error).__name__}: {error}")

        return threading.Thread(target=run)

    def finish(self, threads, least):
        """Runs all, prints what was counted, and ends the program: with 1 if an answer was stale, or of something there was too little."""
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.counts.setdefault("stale", 0)
        print("counted: " + ", ".join(f"{number} {name}" for name, number in sorted(self.counts.items())), flush=True)
        if self.failure:
            sys.exit(self.failure)
        short = [f"{name}: {self.number(name)} of {wanted}" for name, wanted in least.items() if self.number(name) < wanted]
        if short:
            sys.exit("too little happened: " + ", ".join(short))


def arguments(more=lambda parser: None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--relay", type=int, required=True, help="the port of the relay")
    parser.add_argument("--own", type=int, required=True, help="the port of our own proxy")
    parser.add_argument("--faults", action="store_true", help="parts of the site are killed and stopped meanwhile")
    parser.add_argument("--reads-between", type=int, default=60, help="answers between two writes")
    more(parser)
    parser.add_argument("proxies", type=int, nargs="+", help="the ports of the Apaches")
    return parser.parse_args()
