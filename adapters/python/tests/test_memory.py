from __future__ import annotations

import gc
import os
import pathlib
import signal
import subprocess
import threading
import time
from typing import Any, Callable

import numpy as np
import pytest
import verbena
from conftest import Node

LONG = 5_000_003


def test_every_operation(nodes: list[Node]) -> None:
    with verbena.Memory(nodes[0].socket) as here, verbena.Memory(str(nodes[1].socket), timeout=10) as there:
        for nth, coherence in enumerate(["null", "read", "write", "strict", "version", "delta(0)", "temporal(1us)"]):
            segment = here.allocate(100, f"s/{coherence}", coherence=coherence, placement="ab"[nth % 2])
            assert (segment.name, segment.size, segment.coherence) == (f"s/{coherence}", 100, coherence)
            assert (segment.home, segment.owner) == ("ab"[nth % 2], os.getuid())
            assert repr(segment).startswith(f"<verbena.Segment {segment.id} s/{coherence}, 100 bytes, {coherence}")
            first = segment.get()
            assert bytes(first) == bytes(100) and len(first) == 100 and first.stamp_ns == 0
            again = there.find(f"s/{coherence}")
            assert again.id == segment.id
            version = again.put(bytes(range(100)), over=first.version)
            assert version == first.version + 1
            value = segment.get()
            assert (bytes(value), value.version) == (bytes(range(100)), version)
            assert coherence == "null" or abs(time.time_ns() - value.stamp_ns) < 60e9
            last = segment.put(bytearray(b"part"), offset=10, over=version)
            assert bytes(again.get(9, 6)) == b"\x09part\x0e"
            assert bytes(again.get(offset=96)) == b"\x60\x61\x62\x63"
            stat = again.stat()
            assert (stat.version, coherence == "null") == (last, stat.stamp_ns == 0)
            assert repr(stat) == f"<verbena.Stat version {last}, stamp_ns {stat.stamp_ns}>"
        two = here.allocate(8, "two", copies=2)
        assert (two.copies, segment.copies) == (2, 1)
        two.put(b"12345678")
        assert bytes(there.find("two").get()) == b"12345678"
        two.release()
        unnamed = there.allocate(8, writers=1, placement="local")
        assert unnamed.name is None and "without a name" in repr(unnamed)
        assert len(here.list()) == 8
        assert [segment.name for segment in here.list("s/t")] == ["s/temporal(1us)"]
        for segment in here.list():
            segment.release()
        assert there.list() == []


def test_long_values_are_read_where_they_are(nodes: list[Node]) -> None:
    data = bytes(at * 7 % 253 for at in range(LONG))
    with verbena.Memory(nodes[0].socket) as here, verbena.Memory(nodes[1].socket) as there:
        segment = here.allocate(LONG, "long", coherence="read", writers=1, placement="b")
        version = segment.put(data)
        value = there.find("long").get()
        assert value.version == version and repr(value) == f"<verbena.Value of {LONG} bytes, version {version}>"
        view = memoryview(value)
        assert view.readonly and view.nbytes == LONG and view == data
        with pytest.raises(TypeError):
            view[0] = 1
        # Two arrays of it are the same memory, and it stays while they do.
        # NumPy says that it takes buffers from Python 3.12 on.
        untyped: Any = value
        first, second = np.frombuffer(untyped, "u1"), np.asarray(untyped)
        assert first.ctypes.data == second.ctypes.data and not first.flags.writeable
        del value, view, untyped
        gc.collect()
        assert first.tobytes() == data
        with pytest.raises(BufferError, match="in one piece"):
            segment.get_into(memoryview(bytearray(10))[::2])
        into = bytearray(LONG + 2)
        assert segment.get_into(memoryview(into)[1:-1]) == version
        assert into == b"\0" + data + b"\0"


def test_arrays_of_numpy(nodes: list[Node]) -> None:
    with verbena.Memory(nodes[0].socket) as here, verbena.Memory(nodes[1].socket) as there:
        segment = here.allocate(6 * 8, "array", placement="b")
        table = np.arange(6, dtype="f8").reshape(2, 3) / 7
        version = segment.put(table)
        got = there.find("array").array("f8", (2, 3))
        assert got.dtype == np.float64 and (got == table).all()
        got[1, 2] = 17.5
        assert there.find("array").store(got, over=version) == version + 1
        assert segment.array("f8")[5] == 17.5
        assert segment.array(np.int64, 2, offset=32).shape == (2,)
        # As it lies there, and as it looks.
        with pytest.raises(BufferError, match="in one piece"):
            segment.put(table.T)
        segment.store(table.T)
        assert (segment.array("f8", (3, 2)) == table.T).all()
        into = np.zeros(3)
        segment.get_into(into, 24)
        assert (into == table.T.ravel()[3:]).all()
        into.flags.writeable = False
        with pytest.raises(BufferError, match="cannot be written"):
            segment.get_into(into)
        fields = np.zeros(3, dtype=[("O", "f8"), ("n", "i8")])
        fields["O"] = 3
        segment.put(fields)
        assert (segment.array(fields.dtype) == fields).all()
        for objects in (np.array([None]), np.zeros(1, dtype=[("n", "i8"), ("o", object)])):
            with pytest.raises(TypeError, match="references"):
                segment.put(objects)
            with pytest.raises(TypeError, match="references"):
                segment.get_into(objects)
        with pytest.raises(TypeError, match="references"):
            segment.array(object)
        with pytest.raises(ValueError, match="48 bytes are no array"):
            segment.array("V7")
        with pytest.raises(verbena.OutOfRange):
            segment.array("f8", 7)


def test_windows_show_values_where_they_are(nodes: list[Node]) -> None:
    with verbena.Memory(nodes[0].socket) as here, verbena.Memory(nodes[1].socket) as there:
        segment = here.allocate(6 * 8, "shown", placement="a", writers=1)
        version = segment.put(np.arange(6, dtype="f8"))
        window = segment.window()
        assert (len(window), window.version, window.holds, window.is_newest) == (48, version, True, True)
        assert repr(window) == f"<verbena.Window of 48 bytes, version {version}>"
        assert abs(time.time_ns() - window.stamp_ns) < 60e9
        view = memoryview(window)
        assert view.readonly and view.nbytes == 48
        with pytest.raises(TypeError):
            view[0] = 1
        array = window.array("f8")
        assert array.tolist() == [0, 1, 2, 3, 4, 5] and not array.flags.writeable and not array.flags.owndata
        assert (window.array("f8", (2, 3)) == array.reshape(2, 3)).all() and window.array("f8", 2, 32).tolist() == [4, 5]
        untyped: Any = window
        assert np.frombuffer(untyped, "f8").ctypes.data == array.ctypes.data
        with pytest.raises(ValueError, match="48 bytes are no array"):
            window.array("V7")
        with pytest.raises((TypeError, ValueError)):
            window.array("f8", 7)
        # Another node puts: who looks sees it, and asks nobody.
        other = there.find("shown")
        latest = other.put(np.arange(6, 12, dtype="f8"))
        assert (window.is_newest, window.holds) == (False, True)
        newest = window.newest()
        assert newest is not None and newest.version == latest and newest.array("f8")[5] == 11
        # The array is over the memory itself: what is put there is seen in it.
        other.put(np.arange(12, 18, dtype="f8"))
        assert array.tolist() == [12, 13, 14, 15, 16, 17] and not window.holds
        kept = newest.array("f8")
        del window, newest, view, untyped
        gc.collect()
        assert kept.shape == (6,)

        def total(value: Any) -> float:
            return float(np.frombuffer(value, "f8").sum())

        assert segment.look(total) == other.look(total) == sum(range(12, 18))
        # The same where it is not at hand.
        with pytest.raises(verbena.Elsewhere, match="at node a"):
            other.window()
        assert (segment.look(type), other.look(type)) == (verbena.Window, verbena.Value)
        with pytest.raises(ZeroDivisionError):
            segment.look(lambda value: 1 // 0)
        # What ends the program is not taken for a value that was overtaken.
        def interrupted(value: object) -> None:
            other.put(np.zeros(6))
            other.put(np.zeros(6))
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            segment.look(interrupted)
        segment.release()
        with pytest.raises(verbena.Released):
            segment.window()
        with pytest.raises(verbena.Released):
            segment.look(bytes)


def test_arrays_without_numpy(nodes: list[Node], python: str) -> None:
    code = "import sys, verbena\nsys.modules['numpy'] = None\nverbena.Memory(sys.argv[1]).allocate(8).array('u1')"
    ended = subprocess.run([python, "-c", code, str(nodes[0].socket)], capture_output=True, text=True)
    assert ended.returncode == 1 and "ImportError: arrays need NumPy, which is not installed" in ended.stderr


def test_what_cannot_be(nodes: list[Node]) -> None:
    with verbena.Memory(nodes[0].socket) as here, verbena.Memory(nodes[1].socket) as there:
        segment = here.allocate(100, "x", coherence="version")
        version = segment.stat().version
        wrong: list[tuple[type[BaseException], str, Callable[[], Any]]] = [
            (verbena.Exists, "there is a segment x", lambda: there.allocate(8, "x")),
            (verbena.NotFound, "no segment y", lambda: here.find("y")),
            (LookupError, "no segment y", lambda: here.release("y")),
            (ValueError, "0 bytes", lambda: here.allocate(0)),
            (ValueError, "16777217 bytes", lambda: here.allocate((16 << 20) + 1)),
            (verbena.NoRoom, "too many", lambda: here.allocate(16 << 20, writers=8)),
            (ValueError, "no coherence", lambda: here.allocate(8, coherence="string")),
            (ValueError, "no node nobody", lambda: here.allocate(8, placement="nobody")),
            (ValueError, ".", lambda: here.allocate(8, "two\nlines")),
            (ValueError, ".", lambda: here.allocate(8, writers=0)),
            (OverflowError, ".", lambda: here.allocate(8, writers=256)),
            (OverflowError, ".", lambda: here.allocate(-1)),
            (TypeError, ".", lambda: here.allocate(8, b"x")),  # type: ignore[arg-type]
            (verbena.OutOfRange, ".", lambda: segment.get(101)),
            (IndexError, ".", lambda: segment.get(99, 2)),
            (verbena.OutOfRange, "101 bytes", lambda: segment.put(bytes(101), over=version)),
            (verbena.OutOfRange, ".", lambda: segment.put(b"12", 99, version)),
            (verbena.OutOfRange, ".", lambda: segment.put(b"", over=version)),
            (verbena.OutOfRange, ".", lambda: segment.get_into(bytearray(101))),
            (BufferError, "cannot be written", lambda: segment.get_into(b"1234")),
            (TypeError, ".", lambda: segment.put("text")),  # type: ignore[arg-type]
            (ValueError, "version", lambda: segment.put(b"1")),
            (verbena.NotInTime, ".", lambda: segment.lock(0.05)),
        ]
        with there.find("x").lock():
            for error, words, act in wrong:
                with pytest.raises(error, match=words):
                    act()
        with pytest.raises(verbena.Conflict, match="version") as raised:
            segment.put(b"1", over=version + 3)
        assert raised.value.current == version
        assert bytes(segment.get()) == bytes(100) and segment.stat().version == version
        segment.release()
        for act in (segment.get, segment.stat, segment.release, segment.lock, lambda: segment.put(b"1", over=version)):
            with pytest.raises(verbena.Released):
                act()
    with pytest.raises(verbena.Disconnected, match="closed"):
        segment.get()


def test_a_full_home(nodes: list[Node]) -> None:
    with verbena.Memory(nodes[0].socket) as memory:
        with pytest.raises(verbena.NoRoom):
            for _ in range(1000):
                memory.allocate(16 << 20, writers=8, placement="a")


COUNTS = """
import sys, verbena
with verbena.Memory(sys.argv[1]) as memory:
    counter = memory.find("counter")
    conflicts = 0
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(400):
        while True:
            value = counter.get()
            try:
                counter.put((int.from_bytes(bytes(value)[:8], "little") + 1).to_bytes(8, "little"), over=value.version)
                break
            except verbena.Conflict as conflict:
                assert conflict.current > value.version
                conflicts += 1
    for _ in range(50):
        with counter.lock(timeout=20) as hold:
            assert hold.held
            value = int.from_bytes(counter.get(8, 8), "little") + 1
            counter.put(value.to_bytes(8, "little"), 8)
    print(conflicts)
"""


def test_nothing_is_lost_over_a_version_or_under_a_lock(nodes: list[Node], python: str) -> None:
    with verbena.Memory(nodes[0].socket) as memory:
        counter = memory.allocate(8, "counter")
        counter.release()
        counter = memory.allocate(16, "counter")
        command = [python, "-c", COUNTS]
        programs = [
            subprocess.Popen(
                [*command, str(nodes[nth % 2].socket)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for nth in range(3)
        ]
        # Together, or none would be in another's way: their work takes less time than their start.
        for program in programs:
            assert program.stdout and program.stdout.readline() == "ready\n"
        for program in programs:
            print("go", file=program.stdin, flush=True)
        said = [program.communicate(timeout=60)[0] for program in programs]
        assert [program.returncode for program in programs] == [0, 0, 0]
        assert sum(int(conflicts) for conflicts in said) > 0
        assert list(counter.array("<u8")) == [1200, 150]


WRITES = """
import sys, verbena
with verbena.Memory(sys.argv[1]) as memory:
    segment = memory.find("whole")
    print("writes", flush=True)
    for nth in range(1, 1 << 60):
        segment.put(bytes([nth % 256]) * segment.size)
"""


def test_readers_see_whole_values_while_another_process_writes(nodes: list[Node], python: str) -> None:
    with verbena.Memory(nodes[0].socket) as memory:
        segment = memory.allocate(200_000, "whole", coherence="read", placement="a")
        with subprocess.Popen([python, "-c", WRITES, str(nodes[1].socket)], stdout=subprocess.PIPE) as writes:
            try:
                assert writes.stdout and writes.stdout.readline() == b"writes\n"
                seen: dict[int, int] = {}
                until = time.monotonic() + 20
                while len(seen) < 30 and time.monotonic() < until:
                    value = segment.get()
                    items = np.frombuffer(memoryview(value), "u1")
                    assert (items == items[0]).all()
                    assert seen.setdefault(value.version, int(items[0])) == items[0]
                assert len(seen) >= 30
            finally:
                writes.kill()


def test_a_killed_home(nodes: list[Node]) -> None:
    with verbena.Memory(nodes[0].socket, timeout=10) as memory:
        kept = memory.allocate(8, "kept", placement="a")
        lost = [memory.allocate(8, f"lost{nth}", placement="b") for nth in range(16)]
        with verbena.Memory(nodes[1].socket) as there:
            hold = there.find("kept").lock()
            nodes[1].end()
            # Until node a has heard of it, what is done at that memory is done as a moment before.
            until = time.monotonic() + 10
            with pytest.raises(verbena.Gone):
                while time.monotonic() < until:
                    lost[0].get()
            for act in (lost[0].get, lambda: lost[1].put(b"x"), lost[2].lock, lambda: memory.find("lost3")):
                with pytest.raises((verbena.Gone, verbena.NotFound)) as raised:
                    act()
                assert isinstance(raised.value, verbena.Lost) or act is not lost[0].get
            with pytest.raises(verbena.Lost):
                hold.release()
            with pytest.raises(verbena.Disconnected):
                there.find("kept")
        # A name is lost as well where b was the one to know it.
        known = 0
        for segment in lost:
            assert segment.name is not None
            try:
                memory.find(segment.name)
            except verbena.Gone:
                known += 1
                memory.release(segment.name)
                memory.allocate(8, segment.name)
            except verbena.NotFound:
                pass
        assert known > 0 and kept.put(b"x") > 0


def test_a_home_that_says_nothing(nodes: list[Node]) -> None:
    with verbena.Memory(nodes[0].socket, timeout=0.2) as memory:
        memory.allocate(8, "x", placement="a")
        assert len(memory.list()) == 1
        nodes[1].signal(signal.SIGSTOP)
        nodes[1].wait_until_stopped()
        with pytest.raises(verbena.Late, match="did not say what they have: b"):
            memory.list()


def test_locks_of_segments(nodes: list[Node]) -> None:
    with verbena.Memory(nodes[0].socket) as here, verbena.Memory(nodes[1].socket) as there:
        segment = here.allocate(8, "x")
        other = there.find("x")
        with segment.lock(timeout=5) as hold:
            assert hold.held and hold.name == f"memory/{segment.id}".encode() and not hold.shared
            with pytest.raises(verbena.NotInTime):
                other.lock(timeout=0, shared=True)
            other.put(b"12345678")
        assert not hold.held
        with segment.lock(5, shared=True), other.lock(5, shared=True) as hold:
            assert hold.shared
        forgotten = segment.lock()
        del forgotten
        gc.collect()
        other.lock(timeout=5).release()


def test_other_threads_take_turns(nodes: list[Node]) -> None:
    """Gets and puts are any thread's, also while one waits for a lock; locks are the connection's."""
    with verbena.Memory(nodes[0].socket) as memory, verbena.Memory(nodes[1].socket) as other:
        segment = memory.allocate(200_000, "x")
        heard: list[object] = []

        def work(seed: int) -> None:
            data = bytes([seed]) * segment.size
            for _ in range(20):
                segment.put(data)
                got = bytes(segment.get())
                if got.count(got[0]) != segment.size:
                    heard.append(got)
            try:
                segment.lock(timeout=0)
            except verbena.WrongThread as error:
                heard.append(error)

        with other.find("x").lock():
            threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
            for thread in threads:
                thread.start()
            with pytest.raises(verbena.NotInTime):
                segment.lock(timeout=0.5)
            for thread in threads:
                thread.join()
        assert [type(one) for one in heard] == [verbena.WrongThread] * 3


def test_a_child_of_fork_connects_for_itself(nodes: list[Node]) -> None:
    with verbena.Memory(nodes[0].socket) as memory:
        segment = memory.allocate(8)
        hold = segment.lock()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                segment.put(b"1")
            except verbena.Forked:
                del hold
                memory.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert hold.held and bytes(segment.get()) == bytes(8)
        hold.release()


WAITS = """
import gc, signal, sys, verbena
memory = verbena.Memory(sys.argv[1], timeout=60)
segment = memory.find("x")
hold = segment.lock()
def handler(*_):
    # It is in the middle of a call: what nobody has any more is released when that has ended.
    global hold
    del hold
    gc.collect()
    try:
        segment.get()
    except RuntimeError as error:
        print(error, flush=True)
signal.signal(signal.SIGUSR1, handler)
for value in (b"1", b"2"):
    print("waits", flush=True)
    sys.stdin.readline()
    try:
        segment.put(value)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def test_signals_are_heard_while_a_call_waits(nodes: list[Node], python: str) -> None:
    """A helper that is stopped answers nobody."""
    with verbena.Memory(nodes[0].socket) as here:
        segment = here.allocate(1, "x", placement="a")
        command = [python, "-c", WAITS, str(nodes[1].socket)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as waits:
            # Who does not hear it says nothing, and is not waited for.
            patience = threading.Timer(20, waits.kill)
            patience.start()
            try:
                assert waits.stdin and waits.stdout

                def put() -> None:
                    assert waits.stdin and waits.stdout
                    assert waits.stdout.readline() == "waits\n"
                    nodes[1].signal(signal.SIGSTOP)
                    nodes[1].wait_until_stopped()
                    waits.stdin.write("\n")
                    waits.stdin.flush()
                    time.sleep(0.1)

                put()
                waits.send_signal(signal.SIGUSR1)
                assert "in a call with this connection already" in waits.stdout.readline()
                nodes[1].signal(signal.SIGCONT)
                segment.lock(timeout=10).release()
                put()
                assert bytes(segment.get()) == b"1"
                began = time.monotonic()
                waits.send_signal(signal.SIGINT)
                assert waits.stdout.readline() == "interrupted\n"
                assert time.monotonic() - began < 1
            finally:
                nodes[1].signal(signal.SIGCONT)
                patience.cancel()
                waits.kill()


def test_the_example(nodes: list[Node], python: str) -> None:
    example = pathlib.Path(__file__).parent.parent / "examples" / "memory.py"
    ended = subprocess.run([python, example, nodes[0].socket], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    first, second, third = ended.stdout.splitlines()
    assert first == "131072.0 True" and second.startswith("131584.0 <verbena.Segment ") and third == "[1]"
