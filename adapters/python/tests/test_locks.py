from __future__ import annotations

import gc
import os
import pathlib
import signal
import subprocess
import threading
import time

import pytest
import verbena
from conftest import Node


def test_a_block_holds_a_lock(nodes: list[Node]) -> None:
    with verbena.Locks(nodes[0].socket) as here, verbena.Locks(str(nodes[1].socket)) as there:
        with here.acquire("x", timeout=10) as hold:
            assert hold.held and hold.token > 0 and not hold.shared and hold.name == b"x"
            assert 0 < hold.remaining <= 0.5
            assert 0 < hold.lapses - time.clock_gettime(time.CLOCK_BOOTTIME) <= 0.5
            assert repr(hold) == f"<verbena.Hold x, exclusive, token {hold.token}>"
            with pytest.raises(verbena.NotInTime, match="not free"):
                there.acquire("x", timeout=0)
            began = time.monotonic()
            with pytest.raises(TimeoutError, match="not free within"):
                there.acquire(b"x", 0.1, shared=True)
            assert 0.1 <= time.monotonic() - began < 5
        assert not hold.held and hold.remaining == 0 and repr(hold).endswith(", over>")
        with there.acquire("x", timeout=10) as later:
            assert later.token > hold.token


def test_who_waits_gets_it_in_the_order_of_asking(nodes: list[Node]) -> None:
    """The place in the queue is kept, although the waits are cut into turns."""
    got: list[str] = []
    with verbena.Locks(nodes[0].socket) as here:

        def take(who: str) -> None:
            with verbena.Locks(nodes[1].socket) as locks, locks.acquire("x", timeout=20):
                got.append(who)

        hold = here.acquire("x")
        threads = []
        for who in ("first", "second", "third"):
            threads.append(threading.Thread(target=take, args=(who,)))
            threads[-1].start()
            time.sleep(0.2)
        assert hold.held and got == []
        hold.release()
        for thread in threads:
            thread.join()
    assert got == ["first", "second", "third"]


def test_a_connection_is_one_holder(nodes: list[Node]) -> None:
    with verbena.Locks(nodes[0].socket) as here, verbena.Locks(nodes[1].socket) as there:
        outer = here.acquire("x")
        with here.acquire("x", timeout=0) as inner:
            assert inner.token == outer.token
        with pytest.raises(verbena.NotInTime):
            there.acquire("x", timeout=0)
        heard: list[object] = []

        def other_thread() -> None:
            try:
                here.acquire("x", timeout=0)
            except verbena.WrongThread as error:
                heard.append(error)
            heard.append(outer.held)
            outer.release()

        thread = threading.Thread(target=other_thread)
        thread.start()
        thread.join()
        assert isinstance(heard[0], verbena.WrongThread) and heard[1] is True
        assert not outer.held
        there.acquire("x", timeout=5).release()


def test_who_waits_for_itself_is_told(nodes: list[Node]) -> None:
    def other() -> None:
        with verbena.Locks(nodes[1].socket) as there, there.acquire("y"), there.acquire("x", timeout=20):
            pass

    with verbena.Locks(nodes[0].socket) as here:
        with here.acquire("x"):
            thread = threading.Thread(target=other)
            thread.start()
            time.sleep(0.3)
            with pytest.raises(verbena.Deadlock, match="deadlock: "):
                here.acquire("y", timeout=20)
        thread.join()


def test_those_who_share_hold_it_together(nodes: list[Node]) -> None:
    with verbena.Locks(nodes[0].socket) as here, verbena.Locks(nodes[1].socket) as there:
        with here.acquire("x") as writer:
            before = writer.token
            writer.share()
            assert writer.shared and writer.held and writer.token > before
            with there.acquire("x", timeout=5, shared=True) as reader:
                assert reader.held and writer.held
            with pytest.raises(verbena.Refused):
                writer.share()
            assert writer.held
        with pytest.raises(verbena.NotHeld):
            writer.share()


def test_what_is_released_twice_or_forgotten(nodes: list[Node]) -> None:
    with verbena.Locks(nodes[0].socket) as here, verbena.Locks(nodes[1].socket) as there:
        with here.acquire("x") as hold:
            hold.release()
            there.acquire("x", timeout=5).release()
        with pytest.raises(verbena.NotHeld, match="released"):
            hold.release()
        forgotten = here.acquire("x")
        del forgotten
        gc.collect()
        there.acquire("x", timeout=5).release()
    with pytest.raises(verbena.Disconnected, match="closed"):
        here.acquire("x")


def test_what_nobody_uses_is_forgotten(nodes: list[Node]) -> None:
    with verbena.Locks(nodes[0].socket) as here, verbena.Locks(nodes[1].socket) as there:
        with here.acquire("x") as hold:
            for locks in (here, there):
                with pytest.raises(verbena.InUse, match=f"in use, and not removed: process {os.getpid()} at a holds it"):
                    locks.remove("x")
            assert hold.held and there.remove(b"y") is False
        until = time.monotonic() + 20
        while True:
            try:
                assert there.remove("x") is True
                break
            except verbena.InUse:
                assert time.monotonic() < until
        assert there.remove("x") is False
        there.acquire("x", timeout=5).release()
        with pytest.raises(ValueError, match="must have 1 to 1024"):
            here.remove("")
    with pytest.raises(verbena.Disconnected, match="closed"):
        here.remove("x")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_block_whose_lock_was_lost_says_so(nodes: list[Node], how: signal.Signals) -> None:
    with verbena.Locks(nodes[1].socket) as locks, verbena.Locks(nodes[0].socket) as others:
        with pytest.raises(verbena.Lost) as raised:
            with locks.acquire("x") as hold:
                assert not hold.wait_lost(0.05)
                nodes[1].signal(how)
                assert hold.wait_lost(20)
                with others.acquire("x", timeout=20):
                    assert not hold.held and hold.remaining == 0
                    # A stopped helper does not answer: it goes on before the block ends.
                    nodes[1].signal(signal.SIGCONT)
                raise KeyError("inside")
        assert isinstance(raised.value.__cause__, KeyError)
        if how == signal.SIGKILL:
            with pytest.raises(ConnectionError):
                locks.acquire("x", timeout=1)


def test_wrong_arguments_do_nothing(nodes: list[Node], tmp_path: pathlib.Path) -> None:
    with verbena.Locks(nodes[0].socket) as locks:
        for name in ("", b"", "n" * 1025, "\u00e4" * 513):
            with pytest.raises(ValueError, match="must have 1 to 1024"):
                locks.acquire(name)
        with pytest.raises(UnicodeEncodeError):
            locks.acquire("\udc00")
        for wrong in (None, 1, ["x"], bytearray(b"x")):
            with pytest.raises(TypeError):
                locks.acquire(wrong)  # type: ignore[arg-type]
        for timeout in (-1, float("nan")):
            with pytest.raises(ValueError, match="timeout"):
                locks.acquire("x", timeout)
        for longest in (b"\x00" * 1024, "n" * 1024, b"\xff"):
            locks.acquire(longest, float("inf")).release()
        assert not isinstance(verbena.Refused(), TimeoutError)
    with pytest.raises(verbena.NoHelper, match="local.sock"):
        verbena.Locks(tmp_path)
    with pytest.raises(ValueError):
        verbena.Locks(nodes[0].socket, timeout=-1)


def test_a_child_of_fork_connects_for_itself(nodes: list[Node]) -> None:
    with verbena.Locks(nodes[0].socket) as locks:
        hold = locks.acquire("x")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                locks.acquire("y", timeout=0)
            except verbena.Forked:
                del hold
                locks.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert hold.held
        hold.release()


WAITS = """
import sys, verbena
locks = verbena.Locks(sys.argv[1])
try:
    print("waits", flush=True)
    locks.acquire("x")
except KeyboardInterrupt:
    # What was asked for is not wanted any more: others that come later get it.
    print("interrupted", flush=True)
    sys.stdin.readline()
"""


def test_ctrl_c_is_heard_while_waiting(nodes: list[Node], python: str) -> None:
    with verbena.Locks(nodes[0].socket) as here:
        hold = here.acquire("x")
        command = [python, "-c", WAITS, str(nodes[1].socket)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as waits:
            assert waits.stdin and waits.stdout
            assert waits.stdout.readline() == "waits\n"
            time.sleep(0.2)
            began = time.monotonic()
            waits.send_signal(signal.SIGINT)
            # Who does not hear it says nothing, and is not waited for.
            patience = threading.Timer(5, waits.kill)
            patience.start()
            assert waits.stdout.readline() == "interrupted\n"
            patience.cancel()
            assert time.monotonic() - began < 1
            hold.release()
            here.acquire("x", timeout=5).release()
            waits.communicate("\n")
            assert waits.returncode == 0


def test_other_threads_run_while_one_waits(nodes: list[Node]) -> None:
    stop = threading.Event()
    kept: list[verbena.Hold] = []
    heard: list[str] = []

    def wait() -> None:
        with verbena.Locks(nodes[1].socket) as there:
            kept.append(there.acquire("y"))
            try:
                there.acquire("x", stop=stop)
            except verbena.NotInTime as error:
                heard.append(str(error))

    with verbena.Locks(nodes[0].socket) as here:
        with here.acquire("x") as hold:
            thread = threading.Thread(target=wait)
            thread.start()
            turns = 0
            until = time.monotonic() + 0.3
            while time.monotonic() < until:
                turns += hold.held
            assert turns > 1000
            # What the other's connection holds is released while that waits.
            kept[0].release()
            here.acquire("y", timeout=5).release()
            assert thread.is_alive() and heard == []
            stop.set()
            thread.join(5)
            assert heard == ["the wait was stopped"]
        here.acquire("x", timeout=5).release()
