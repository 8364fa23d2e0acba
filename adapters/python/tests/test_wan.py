"""Two sites with one link, made and used as the tests of another project would."""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any, Iterator

import pytest

import verbena

PATIENCE = 20


@pytest.fixture(autouse=True, scope="module")
def networks() -> None:
    try:
        with verbena.wan():
            pass
    except verbena.NotPermitted:
        pytest.skip("skipped: only root can make network namespaces")


@pytest.fixture
def wan() -> Iterator[verbena.Wan]:
    with verbena.wan(delay="10ms") as wan:
        yield wan


def network() -> str:
    """That of the thread which calls this."""
    return os.readlink("/proc/thread-self/ns/net")


def had() -> list[str]:
    """What of a WAN this process has."""
    names = []
    for entry in pathlib.Path("/proc/self/fd").iterdir():
        try:
            names.append(os.readlink(entry))
        except FileNotFoundError:
            pass
    threads = []
    for task in pathlib.Path("/proc/self/task").iterdir():
        try:
            threads.append((task / "comm").read_text().strip())
        except (FileNotFoundError, ProcessLookupError):
            # It has ended since it was listed.
            pass
    return [name for name in names if name.startswith("net:")] + [name for name in threads if name == "wan-router"]


def left() -> list[str]:
    """What of a WAN this process still has. The system lists a thread for a moment after it was waited for."""
    until = time.monotonic() + 1
    while had() and time.monotonic() < until:
        time.sleep(0.01)
    return had()


def datagrams(wan: verbena.Wan, count: int) -> list[int]:
    """Sends them from a to b; the numbers of those that came, until none has come for half a second."""
    came = []
    with wan.b.socket(type=socket.SOCK_DGRAM) as receiver, wan.a.socket(type=socket.SOCK_DGRAM) as sender:
        receiver.bind((wan.b.address, 0))
        receiver.settimeout(0.5)
        for number in range(count):
            sender.sendto(number.to_bytes(4, "big"), receiver.getsockname())
        while True:
            try:
                came.append(int.from_bytes(receiver.recv(4), "big"))
            except socket.timeout:
                return came


def test_a_client_is_far_from_its_server(wan: verbena.Wan) -> None:
    for family, address in [(socket.AF_INET, wan.b.address), (socket.AF_INET6, wan.b.address6)]:
        server = wan.b.run(socket.create_server, (address, 0), family=family)
        began = time.monotonic()
        with server, wan.a.run(socket.create_connection, server.getsockname()[:2], PATIENCE) as client:
            assert time.monotonic() - began >= 0.0198
            served, _ = server.accept()
            with served:
                client.sendall(b"hello")
                assert served.recv(5) == b"hello"
    stats = wan.stats()
    assert stats["there"]["took"]["least_ns"] >= 9_900_000
    assert stats["there"]["packets"] > 4 < stats["back"]["packets"]


def test_ways_differ_and_change_while_the_link_runs() -> None:
    with verbena.wan(loss=0.0, there={"delay": "20ms"}, back=dict(drop_rate=20)) as wan:
        assert datagrams(wan, 40) == list(range(40))
        there = wan.stats()["there"]
        assert there["packets"] == there["arrived"] == 40 and there["took"]["least_ns"] >= 19_900_000
        wan.set(delay=None, there={"drop_rate": 20})
        came = datagrams(wan, 200)
        assert len(came) == 190 and all(sum(n // 20 == block for n in came) == 19 for block in range(10))
        assert wan.stats()["there"]["dropped"]["drop_rate"] == 10
        wan.set(loss=0.00001, drop_rate=None, there={"loss": 1})
        assert datagrams(wan, 10) == []
        stats = wan.stats()
        assert (stats["there"]["dropped"]["loss"], stats["back"]["packets"]) == (10, 0)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core, and nothing can keep off it")
def test_what_runs_in_a_site_keeps_off_the_routers_core() -> None:
    usable = os.sched_getaffinity(0)
    own = max(usable)
    with verbena.wan(mode="sleep", core=own) as wan:
        assert wan.a.run(lambda: os.sched_getaffinity(0)) == usable - {own}
        said = wan.b.run_command([sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"], capture_output=True)
        assert eval(said.stdout) == usable - {own}
        assert len(datagrams(wan, 5)) == 5
    assert os.sched_getaffinity(0) == usable


def test_packets_may_stay_in_the_kernel() -> None:
    with verbena.wan(delay="20ms", path="nfqueue") as wan:
        assert datagrams(wan, 40) == list(range(40))
        there = wan.stats()["there"]
        assert there["packets"] == there["arrived"] == 40 and there["took"]["least_ns"] >= 19_900_000
        with pytest.raises(ValueError, match="loss: the path nfqueue cannot do it"):
            wan.set(loss="1%")
        assert len(datagrams(wan, 10)) == 10
    for path in ["short", "packets"]:
        with pytest.raises(ValueError, match="there are packet, nfqueue"), verbena.wan(path=path):
            pass


def test_the_same_seed_is_the_same_fate() -> None:
    def came(seed: int) -> list[int]:
        with verbena.wan(loss="20%", seed=seed, mode="sleep") as wan:
            return datagrams(wan, 200)

    first = came(7)
    assert first == came(7) != came(8)


def test_what_is_done_in_a_site_leaves_the_thread_where_it_was(wan: verbena.Wan) -> None:
    own = network()
    in_a, in_b = wan.a.run(network), wan.b.run(network)
    assert len({own, in_a, in_b}) == 3
    # What a thread of a site starts is in the site.
    inner: list[str] = []

    def start() -> None:
        thread = threading.Thread(target=lambda: inner.append(network()))
        thread.start()
        thread.join()

    wan.b.run(start)
    said = wan.a.run_command(["readlink", "/proc/self/ns/net"], stdout=subprocess.PIPE, check=True, text=True).stdout
    assert (inner, said.strip(), network()) == ([in_b], in_a, own)
    with pytest.raises(ZeroDivisionError):
        wan.a.run(divmod, 1, 0)
    with pytest.raises(FileNotFoundError):
        wan.a.popen(["/nothing/there"])
    assert network() == own


def test_processes_of_two_sites_speak_with_each_other(wan: verbena.Wan) -> None:
    code = "import socket, sys; s = socket.create_server((sys.argv[1], 0)); print(s.getsockname()[1], flush=True)\n" \
        "c, _ = s.accept(); print(c.recv(9).decode(), flush=True)"
    server = wan.b.popen([sys.executable, "-c", code, wan.b.address], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    port = server.stdout.readline().strip()
    code = "import socket, sys; socket.create_connection(sys.argv[1:], 20).sendall(b'from far')"
    wan.a.run_command([sys.executable, "-c", code, wan.b.address, port], check=True, timeout=PATIENCE)
    with server:
        assert server.stdout.read() == "from far\n"
    assert server.returncode == 0


def test_all_is_gone_at_the_end_also_after_an_exception() -> None:
    started: list[subprocess.Popen[Any]] = []
    with pytest.raises(KeyError):
        with verbena.wan(delay="1ms") as wan:
            started = [site.popen(["sleep", "600"]) for site in (wan.a, wan.b)]
            assert len(had()) >= 3
            raise KeyError
    assert [process.returncode for process in started] == [-9, -9]
    assert left() == []
    with pytest.raises(ValueError, match="is closed"):
        wan.stats()
    with pytest.raises(ValueError, match="is closed"):
        wan.a.run(network)


def who_sleeps(pattern: str) -> list[str]:
    return subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True).stdout.split()


def is_there(network: str) -> bool:
    """Whether a process is in it, or holds it open."""
    links = [*pathlib.Path("/proc").glob("[0-9]*/ns/net"), *pathlib.Path("/proc").glob("[0-9]*/fd/*")]
    for link in links:
        try:
            if os.readlink(link) == network:
                return True
        except OSError:
            pass
    return False


def until_asleep(pattern: str, count: int) -> None:
    """Until so many shells have become it."""
    until = time.monotonic() + PATIENCE
    while len(who_sleeps(pattern)) != count:
        assert time.monotonic() < until, who_sleeps(pattern)
        time.sleep(0.01)


def until_none(pattern: str, networks: list[str]) -> None:
    until = time.monotonic() + PATIENCE
    while who_sleeps(pattern) or any(map(is_there, networks)):
        assert time.monotonic() < until, (who_sleeps(pattern), networks)
        time.sleep(0.05)


def test_what_was_put_into_the_background_ends_too() -> None:
    script = "sleep 79.25 >/dev/null & (trap '' TERM; exec sleep 79.5 >/dev/null) &"
    with verbena.wan() as wan:
        networks = [wan.a.run(network), wan.b.run(network)]
        for site in (wan.a, wan.b):
            site.run_command(["sh", "-c", script], check=True)
        until_asleep("^sleep 79[.]", 4)
    assert who_sleeps("^sleep 79[.]") == []
    until_none("^sleep 79[.]", networks)


def test_who_watches_is_there_before_anything_runs(wan: verbena.Wan, monkeypatch: pytest.MonkeyPatch) -> None:
    for code, program in enumerate(["/bin/true", "/bin/false"]):
        monkeypatch.setattr(sys, "executable", program)
        with pytest.raises(verbena.Failed, match=f"the process that ends it ended with {code}"):
            wan.a.popen(["sleep", "81.25"])
    assert who_sleeps("^sleep 81[.]") == []
    monkeypatch.undo()
    # Whoever else is killed by that name, it is not.
    wan.a.run_command(["sh", "-c", "sleep 81.5 >/dev/null &"], check=True)
    guards = [pid for task in pathlib.Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()
              if b"--guard-networks" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(guards) == 1
    os.kill(int(guards[0]), signal.SIGTERM)
    wan._close()
    assert who_sleeps("^sleep 81[.]") == []


def test_nobody_comes_after_the_end() -> None:
    with verbena.wan() as wan:
        assert wan.a.run(network) != network()
        # The first thing at the end: from then on nobody would be ended.
        wan._guard.end()
        with pytest.raises(ValueError, match="is closed"):
            wan.a.popen(["true"])
        assert had() != []
    assert left() == []


def test_nothing_is_left_of_a_program_that_was_killed() -> None:
    # A child after a fork has all that its parent has open.
    code = """
import os, time, verbena
with verbena.wan(delay="1ms") as wan:
    networks = [site.run(os.readlink, "/proc/thread-self/ns/net") for site in (wan.a, wan.b)]
    wan.a.popen(["sh", "-c", "sleep 80.25 & sleep 80.75; true"])
    wan.b.run(lambda: os.fork() or time.sleep(600))
    print(*networks, flush=True)
    time.sleep(600)
"""
    program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    networks = program.stdout.readline().split()
    until_asleep("^sleep 80[.]", 2)
    assert len(networks) == 2 and all(map(is_there, networks))
    program.kill()
    assert program.wait() == -9
    until_none("^sleep 80[.]", networks)
    program.stdout.close()


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"dealy": "1ms"}, ValueError, "no option \"dealy\"; there are delay, km"),
        ({"delay": "soon"}, ValueError, "delay: \"soon\" is not a time"),
        ({"delay": True}, TypeError, "delay: text or a number, not bool"),
        ({"there": {"loss": 2}}, ValueError, "loss: \"2\" is not a probability"),
        ({"back": {"ooo_rate": 5}}, ValueError, "ooo_rate: needs ooo_delay"),
        ({"mode": "fast"}, ValueError, "\"fast\" is no mode; there are precise, sleep"),
        ({"trace": "/nothing/there"}, ValueError, "trace: /nothing/there: No such file"),
        ({"backend": "netem"}, ValueError, "\"netem\" is no backend; there are router, kernel"),
        ({"backend": "kernel", "seed": 1}, ValueError, "seed: the backend kernel cannot do it"),
        ({"core": 9999}, ValueError, "core 9999: this process may use "),
        ({"backend": "kernel", "mode": "sleep"}, ValueError, "mode: the backend kernel cannot do it"),
        ({"backend": "kernel", "there": {"drop_rate": 9}}, ValueError, "drop_rate: the backend kernel cannot do it"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_made(options: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        with verbena.wan(**options):
            pass
    assert left() == []


def test_a_change_that_cannot_be_changes_nothing(wan: verbena.Wan) -> None:
    with pytest.raises(ValueError, match="ooo_rate"):
        wan.set(delay="1s", ooo_rate=5)
    assert len(datagrams(wan, 5)) == 5


def test_the_kernel_runs_the_link_or_is_said_to_have_no_netem() -> None:
    try:
        with verbena.wan(backend="kernel", delay="10ms", there={"loss": 1}) as wan:
            assert datagrams(wan, 5) == []
            there = wan.stats()["there"]
            assert there["dropped"]["loss"] >= 5 and "took" in there["unknown"] and "took" not in there
            with pytest.raises(ValueError, match="queue: the backend kernel cannot do it"):
                wan.set(rate="1mbit", queue="codel")
    except verbena.Error as error:
        assert "this kernel has no netem (module sch_netem): `modprobe -a sch_netem` as root" in str(error)
    assert left() == []


def test_a_child_has_not_the_wan_of_its_parent(wan: verbena.Wan) -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            wan.stats()
        except verbena.Forked:
            wan._close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(datagrams(wan, 5)) == 5


def python_that(wrapped_by: list[str], code: str) -> str:
    command = [*wrapped_by, sys.executable, "-c", f"import verbena\n{code}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE).stdout.strip()


def test_who_may_not_make_networks_is_told_what_it_takes() -> None:
    without = ["setpriv", "--bounding-set=-sys_admin,-net_admin", "--inh-caps=-sys_admin,-net_admin"]
    code = """
import os
before = os.listdir("/proc/self/fd")
try:
    with verbena.wan(): pass
except PermissionError as error:
    print(type(error).__name__, error, os.listdir("/proc/self/fd") == before)
"""
    said = python_that(without, code)
    assert said.startswith("NotPermitted a network namespace cannot be made: Operation not permitted")
    assert "CAP_SYS_ADMIN and CAP_NET_ADMIN" in said and "unshare --user --map-root-user --net" in said
    assert said.endswith("True")
    code = "with verbena.wan() as wan: print(wan.a.run(lambda: wan.b))"
    said = python_that(["unshare", "--user", "--map-root-user", "--net"], code)
    assert said == "<verbena.Site b, 10.77.0.2, fd77::2>"
