"""Writes that are announced: nothing is stale behind `verbena proxy`, whose routes trust the application."""

from __future__ import annotations

import collections
import http.client
import json
import os
import pathlib
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import PATIENCE, VERBENA

import verbena
import verbena.wsgi

SITES = pathlib.Path(__file__).with_name("sites.py")
ENTRIES = [f"e{number}" for number in range(4)]


class Town:
    """A guest book, and a proxy in front of it."""

    def __init__(self, directory: pathlib.Path, kind: str) -> None:
        self._processes: list[subprocess.Popen[str]] = []
        self.helper = str(directory / "run" / "local.http.sock")
        database = str(directory / "book.sqlite")
        with sqlite3.connect(database) as connection:
            connection.execute("pragma journal_mode = wal")
            connection.execute("create table entries (name text primary key, text text)")
            connection.executemany("insert into entries values (?, '0')", [(name,) for name in ENTRIES])
        connection.close()
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        site = self._start([sys.executable, str(SITES), kind, database, self.helper], directory, environment)
        origin = f"http://127.0.0.1:{self._line(site, lambda line: line.strip().isdigit()).strip()}"
        routes = '[{ prefix = "/", writes = "announced" }]'
        command = [VERBENA, "proxy", "--json", "--listen", "127.0.0.1:0", "--origin", origin, "--proxy-routes", routes]
        proxy = self._start([*command, "--node-runtime", str(directory / "run"), "--node-state", str(directory / "state")], directory, environment)
        serving = json.loads(self._line(proxy, lambda line: '"serving"' in line))
        self.address = serving["address"]
        until = time.monotonic() + PATIENCE
        while self.ask("POST", "/entry/e0", "0")[0] != 200:
            assert time.monotonic() < until, "the node is in no view"

    def _start(self, command: list[str], directory: pathlib.Path, environment: dict[str, str]) -> subprocess.Popen[str]:
        log = open(directory / f"log-{len(self._processes)}", "w")
        process = subprocess.Popen(command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        log.close()
        self._processes.append(process)
        return process

    @staticmethod
    def _line(process: subprocess.Popen[str], wanted: Any) -> str:
        assert process.stdout is not None
        for line in process.stdout:
            if wanted(line):
                return line
        raise AssertionError(f"{process.args!r} ended: {process.wait()}")

    def ask(self, method: str, path: str, body: str = "") -> tuple[int, str, str]:
        """The status, the body, and what the cache did."""
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE)
        try:
            connection.request(method, path, body or None)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers.get("Cache-Status", "")
        finally:
            connection.close()

    def end(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def town(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Town]:
    own = Town(tmp_path, request.param)
    yield own
    own.end()


class Checker:
    """Each entry's text is a number that grows. A read that begins after a write was answered sees that number or a greater one."""

    def __init__(self, town: Town) -> None:
        self._town, self._lock = town, threading.Lock()
        self.told = dict.fromkeys(ENTRIES, 0)
        self.counts: collections.Counter[str] = collections.Counter()
        self.stale: list[str] = []
        self._over = threading.Event()

    def _write(self, path_of: Any) -> None:
        number = 0
        while not self._over.is_set():
            number += 1
            for name in ENTRIES:
                status, body, _ = self._town.ask("POST", path_of(name), str(number))
                if status != 200 or not body.endswith("written"):
                    self.counts[f"write {status}"] += 1
                    continue
                with self._lock:
                    self.told[name] = number
                    self.counts["writes"] += 1
                # Otherwise nothing is ever read twice between two writes.
                self._over.wait(0.05)

    def _read(self) -> None:
        while not self._over.is_set():
            for name in ENTRIES:
                with self._lock:
                    least = self.told[name]
                status, body, how = self._town.ask("GET", f"/entry/{name}")
                with self._lock:
                    self.counts["reads"] += 1
                    self.counts["hits"] += "hit" in how
                    if status != 200 or int(body) < least:
                        self.stale.append(f"{name}: {status} {body!r} after {least} was told ({how})")

    def run(self, reads: int, path_of: Any = lambda name: f"/entry/{name}") -> None:
        """Until that much was read, hit and written, or something is stale; a minute at most."""
        threads = [threading.Thread(target=self._read) for _ in range(3)] + [threading.Thread(target=self._write, args=(path_of,))]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 60
        while time.monotonic() < until and not self.stale:
            if self.counts["reads"] >= reads and self.counts["hits"] >= reads // 10 and self.counts["writes"] >= 20:
                break
            time.sleep(0.05)
        self._over.set()
        for thread in threads:
            thread.join()
        print(f"counted: {dict(self.counts)}, {len(self.stale)} stale")


@pytest.mark.parametrize("town", ["django", "django-models", "flask", "asgi"], indirect=True)
def test_nothing_is_stale_where_a_middleware_announces(town: Town) -> None:
    checker = Checker(town)
    checker.run(600)
    assert not checker.stale
    assert checker.counts["reads"] >= 600 and checker.counts["hits"] >= 60 and checker.counts["writes"] >= 20, checker.counts


@pytest.mark.parametrize("town", ["django-models"], indirect=True)
def test_what_django_writes_is_seen_and_takes_no_more_pages_than_it_must(town: Town) -> None:
    def page(path: str) -> str:
        """What the page says, when it is a hit."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            _, body, how = town.ask("GET", path)
            if how == "verbena; hit":
                return body
            time.sleep(0.01)
        raise AssertionError(f"{path} is never a hit: {how}")

    pages = ["/entry/e0", "/entry/e1", "/entry/new", "/entry/raw", "/list"]

    def moved_by(method: str, path: str, body: str = "") -> list[str]:
        """The pages that are not hits after a write, in the state after it."""
        for one in pages:
            page(one)
        assert town.ask(method, path, body)[:2] == (200, "written")
        return [one for one in pages if town.ask("GET", one)[2] != "verbena; hit"]

    assert moved_by("POST", "/entry/e0", "7") == ["/entry/e0", "/list"]
    assert page("/entry/e0") == "7" and page("/list").startswith("e0=7,e1=0,")
    assert moved_by("POST", "/all/e", "8") == ["/entry/e0", "/entry/e1", "/entry/new", "/entry/raw", "/list"]
    assert page("/entry/e1") == "8"
    assert moved_by("GET", "/visit/new") == ["/entry/new", "/entry/raw", "/list"]
    assert page("/entry/new") == "visited"
    assert moved_by("GET", "/visit/new") == ["/entry/new", "/list"]
    assert moved_by("POST", "/raw/raw", "9") == pages
    assert page("/entry/raw") == "9"


@pytest.mark.parametrize("town", ["django-inside"], indirect=True)
def test_the_checker_finds_a_bracket_that_ends_before_commit(town: Town) -> None:
    checker = Checker(town)
    checker.run(100_000)
    assert checker.stale


@pytest.mark.parametrize("town", ["asgi"], indirect=True)
def test_a_long_answer_ends_after_its_update(town: Town) -> None:
    checker = Checker(town)
    checker.run(300, lambda name: f"/entry/{name}?long")
    assert not checker.stale and checker.counts["writes"] >= 20, checker.counts


def test_brackets(nodes: list[Any]) -> None:
    updates = verbena.Updates(str(nodes[0].socket).removesuffix(".sock") + ".http.sock")
    with updates.begin("a"):
        pass
    update = updates.begin(["a", "b"])
    update.end("not-sent")
    update.end("done")
    with pytest.raises(ZeroDivisionError), updates.begin():
        1 / 0
    updates.purge("a")
    updates.purge_pages("http://shop/")
    with pytest.raises(verbena.Refused):
        updates.purge_pages("shop")
    with pytest.raises(ValueError):
        updates.begin("a").end("perhaps")  # type: ignore[arg-type]
    with pytest.raises(verbena.NotOpen):
        verbena.Update(updates, "1-1-1").end()
    with pytest.raises(TypeError):
        updates.begin([7])  # type: ignore[list-item]
    for wrong in ("helper.sock", "http://10.0.0.1:80", "http://127.0.0.1"):
        with pytest.raises(ValueError):
            verbena.Updates(wrong)
    with pytest.raises(verbena.NoHelper):
        verbena.Updates("/nowhere/local.http.sock").begin()


class Calls:
    """What an application and a server do with the middleware."""

    def __init__(self, place: str) -> None:
        self.said: list[Any] = []
        self.application = verbena.wsgi.Announce(self._respond, place)

    def _respond(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        self.said.append("called")
        start_response("200 OK", [])
        if environ["REQUEST_METHOD"] == "GET":
            with pytest.raises(TypeError):
                verbena.made_of(7)  # type: ignore[arg-type]
        return [b"written"]

    def ask(self, method: str) -> bytes:
        def start_response(status: str, headers: Any, exc_info: Any = None) -> Any:
            self.said.append(status)

        return b"".join(self.application({"REQUEST_METHOD": method, "PATH_INFO": "/"}, start_response))


def test_a_write_that_cannot_be_announced_is_refused() -> None:
    calls = Calls("/nowhere/local.http.sock")
    assert calls.ask("POST").startswith(b"not done") and calls.said == ["503 Service Unavailable"]
    assert calls.ask("GET") == b"written" and calls.said[1:] == ["called", "200 OK"]
    with pytest.raises(RuntimeError):
        verbena.made_of("a")
