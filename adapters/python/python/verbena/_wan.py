"""A WAN in a box, for tests: two sites with one link between them (docs/reference/WAN.md)."""

from __future__ import annotations

import contextlib
import decimal
import json
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, TypeVar, Union, final

from . import _native
from ._errors import Failed

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    _P = ParamSpec("_P")

_T = TypeVar("_T")

Option = Union[str, int, float, None]


@contextlib.contextmanager
def wan(
    *,
    there: Mapping[str, Option] | None = None,
    back: Mapping[str, Option] | None = None,
    backend: str = "router",
    mode: str | None = None,
    path: str | None = None,
    seed: int | None = None,
    core: int | None = None,
    **options: Option,
) -> Iterator[Wan]:
    """Two sites, a and b, for as long as the block lasts.

    options: those of docs/reference/WAN.md, for both ways: delay="10ms", loss="0.1%", drop_rate=1000, rate="20mbit", ...
    there, back: those of the way from a to b alone, and of the way from b to a. They come after the others.
    backend: "router" is in user space and on every kernel; "kernel" is netem, with fewer options, and an Error where this kernel has none.
    mode: of the router; "precise" (None) keeps a core busy near each release, "sleep" is late by 50 to 130 us.
    path: of packets through the router; with "nfqueue" they stay in the kernel: as much as it forwards, and delay alone. None: "packet".
    seed: of all chance of the router; 1 if None.
    core: the router's own: its thread stays there, and what runs in the sites keeps off it. None: no core is kept for it.

    Raises NotPermitted for whoever may not make networks, and ValueError for options that cannot be; then nothing was made.
    """
    made = Wan(there, back, backend, mode, path, seed, core, options)
    try:
        yield made
    finally:
        made._close()


@final
class Wan:
    """What `wan` gives."""

    a: Site
    b: Site

    def __init__(
        self,
        there: Mapping[str, Option] | None,
        back: Mapping[str, Option] | None,
        backend: str,
        mode: str | None,
        path: str | None,
        seed: int | None,
        core: int | None,
        options: Mapping[str, Option],
    ) -> None:
        ways = _pairs(options, there), _pairs(options, back)
        router: Mapping[str, str | int | None] = {"mode": mode, "path": path, "seed": seed, "core": core}
        self._native = _native.Wan(*ways, backend, router)
        self._guard = _Guard(self._native)
        self.a, self.b = (Site(self._native, self._guard, name) for name in ("a", "b"))

    def set(
        self,
        *,
        there: Mapping[str, Option] | None = None,
        back: Mapping[str, Option] | None = None,
        **options: Option,
    ) -> None:
        """Changes options while the link runs; None takes one back. Packets under way stay as they are. If one cannot be, none is changed."""
        self._native.change(_pairs(options, there), _pairs(options, back))

    def stats(self) -> dict[str, dict[str, Any]]:
        """What the ways "there" (from a to b) and "back" have done: what `verbena wan run --json` prints of them."""
        there, back = json.loads(self._native.look())
        return {"there": there, "back": back}

    def _close(self) -> None:
        # All of it, whatever interrupts one part.
        with contextlib.ExitStack() as last:
            for end in (self._native.close, self._guard.end, self.b._end, self.a._end):
                last.callback(end)


class _Guard:
    """The process that ends whatever runs in the sites when this one has ended, however it did: what is killed cannot. It is there once something may run."""

    def __init__(self, native: _native.Wan) -> None:
        self._native = native
        self._maker = os.getpid()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._has_ended = False

    def join(self, site: str) -> None:
        """Moves the thread that calls it into a site, for good."""
        if self._maker != os.getpid():
            # A child after a fork, which is told so. Who held the lock then may not be there.
            return self._native.join(site)
        # Nobody comes after all were told to end.
        with self._lock:
            if self._has_ended:
                raise ValueError("the WAN is closed: its `with` has ended")
            if self._process is None:
                self._process = self._start()
            self._native.join(site)

    def _start(self) -> subprocess.Popen[bytes] | None:
        # Where the interpreter is part of another program there may be none that could be started.
        if not sys.executable or getattr(sys, "frozen", False):
            return None
        sites = self._native.sites()
        told = [_native.GUARD_ARGUMENT, _native.__file__, str(self._maker), *map(str, sites)]
        program = [sys.executable, "-I", os.path.join(os.path.dirname(__file__), "_guard.py")]
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            program + told, stdin=pipe, stdout=pipe, stderr=pipe, pass_fds=sites, start_new_session=True
        )
        assert process.stdout is not None
        if process.stdout.read(1) != b"\n":
            raise Failed(_end_of(process))
        return process

    def end(self) -> None:
        """Returns when nothing is in the sites any more. In a child after a fork it does nothing."""
        if self._maker != os.getpid():
            return
        with self._lock:
            self._has_ended = True
            if self._process is not None:
                # A child after a fork may have the other end of the pipe too: something to read tells it as well as the end.
                process, self._process = self._process, None
                words = _end_of(process)
                if process.returncode != 0:
                    raise Failed(words)


def _end_of(guard: subprocess.Popen[bytes]) -> str:
    """Waits for it; what is to be said if it has not done its part."""
    said = guard.communicate(b"\n")[1].decode(errors="replace").strip()
    return f"what runs in the sites may go on: the process that ends it ended with {guard.returncode}: {said}"


@final
class Site:
    """A network of its own."""

    name: str
    address: str
    address6: str

    def __init__(self, native: _native.Wan, guard: _Guard, name: str) -> None:
        self._guard = guard
        self.name = name
        self.address, self.address6 = native.addresses(name)
        self._started: list[subprocess.Popen[Any]] = []

    def run(self, act: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """What `act` returns or raises, which a thread does that is in this site: the thread of the caller stays where it is. Sockets, threads and
        processes that it makes stay in the site. Processes are told to end when the WAN ends or this process does, even if it is killed, and are
        killed three seconds later. Threads are not, nor what they start after that."""
        done: Future[_T] = Future()

        def inside() -> None:
            try:
                self._guard.join(self.name)
                done.set_result(act(*args, **kwargs))
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=inside, name=f"verbena-wan-{self.name}", daemon=True).start()
        return done.result()

    def popen(self, args: Any, **kwargs: Any) -> subprocess.Popen[Any]:
        """`subprocess.Popen` in this site. If it still runs when the WAN ends it is killed; what it has started ends as `run` says."""
        started: subprocess.Popen[Any] = self.run(lambda: subprocess.Popen(args, **kwargs))
        self._started.append(started)
        return started

    def run_command(self, args: Any, **kwargs: Any) -> subprocess.CompletedProcess[Any]:
        """`subprocess.run` in this site."""
        return self.run(lambda: subprocess.run(args, **kwargs))

    def socket(
        self, family: int = socket.AF_INET, type: int = socket.SOCK_STREAM, proto: int = 0
    ) -> socket.socket:
        """A socket of this site, for any thread."""
        return self.run(socket.socket, family, type, proto)

    def _end(self) -> None:
        for started in self._started:
            if started.poll() is None:
                started.kill()
                started.wait()

    def __repr__(self) -> str:
        return f"<verbena.Site {self.name}, {self.address}, {self.address6}>"


def _pairs(options: Mapping[str, Option], own: Mapping[str, Option] | None) -> list[tuple[str, str]]:
    return [(name, _text(name, value)) for part in (options, own or {}) for name, value in part.items()]


def _text(name: str, value: Option) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise TypeError(f"{name}: text or a number, not {type(value).__name__}")
    # Without an exponent: 0.00001 is written 1e-05 by Python.
    return format(decimal.Decimal(repr(value)), "f") if isinstance(value, float) else str(value)
