from __future__ import annotations

import signal
import subprocess
import threading
import time
from typing import Any, Callable

import numpy as np
import pytest
import verbena
from conftest import Node


def test_all_go_on_from_one_checkpoint(nodes: list[Node]) -> None:
    with verbena.Memory(nodes[0].socket) as here, verbena.Memory(nodes[1].socket) as there:
        made = here.make_checkpoints("run", 2, 100, kept=3, copies=2)
        assert made.name == "run" and repr(made) == "<verbena.Checkpoints run>"
        first, second = made.join(0), there.checkpoints("run").join(1)
        assert (first.process, first.era, first.number, first.part) == (0, 1, 0, None)
        assert repr(second) == "<verbena.Joined process 1 of run, era 1, from 0>"
        for number in (1, 2, 3):
            assert first.save(number, f"0-{number}".encode()) == number - 1
            with pytest.raises(verbena.NotInTime, match=f"checkpoint {number} was not complete within"):
                first.wait(number, 0.03)
            assert second.save(number, np.arange(number)) == number
            first.wait(number, timeout=0)
        shown = there.checkpoints("run").show()
        assert (shown.era, shown.oldest, shown.complete, shown.kept, shown.bytes) == (1, 2, 3, 3, 100)
        assert shown.processes == [(True, 3), (True, 3)]
        assert repr(shown) == "<verbena.CheckpointState era 1, complete 2 to 3>"
        assert made.part(0, 2) == b"0-2" and made.part(1, 3) == np.arange(3).tobytes()
        # Process 1 begins again, and 0 is told.
        second = there.checkpoints("run").join(1)
        assert (second.era, second.number, second.part) == (2, 3, np.arange(3).tobytes())
        with pytest.raises(verbena.RolledBack, match="join it again"):
            first.save(4, b"late")
        with pytest.raises(verbena.RolledBack):
            first.wait(4)
        assert made.show().processes == [(False, 0), (True, 0)]
        made.roll_back(2)
        first = made.join(0)
        assert (first.era, first.number, first.part) == (3, 2, b"0-2")
        made.remove()
        assert here.list("run") == []


def test_what_cannot_be(nodes: list[Node]) -> None:
    with verbena.Memory(nodes[0].socket) as memory:
        checkpoints = memory.make_checkpoints("run", 1, 8)
        joined = checkpoints.join(0)
        wrong: list[tuple[type[BaseException], str, Callable[[], Any]]] = [
            (verbena.Exists, ".", lambda: memory.make_checkpoints("run", 1, 8)),
            (ValueError, "0 processes", lambda: memory.make_checkpoints("other", 0, 8)),
            (ValueError, "65 kept", lambda: memory.make_checkpoints("other", 1, 8, kept=65)),
            (ValueError, "no node nobody", lambda: memory.make_checkpoints("other", 1, 8, placement="nobody")),
            (verbena.NotFound, "no segment other", lambda: memory.checkpoints("other")),
            (ValueError, "no process 1", lambda: checkpoints.join(1)),
            (LookupError, "no complete checkpoint 1", lambda: checkpoints.part(0, 1)),
            (verbena.NotFound, "no complete checkpoint 1", lambda: checkpoints.roll_back(1)),
            (ValueError, "a part of 9 bytes", lambda: joined.save(1, bytes(9))),
            (ValueError, "checkpoint 2 comes after", lambda: joined.save(2, b"")),
            (TypeError, ".", lambda: joined.save(1, "text")),  # type: ignore[arg-type]
            (BufferError, "in one piece", lambda: joined.save(1, memoryview(b"1234")[::2])),
            (ValueError, "timeout", lambda: joined.wait(1, -1)),
        ]
        for error, words, act in wrong:
            with pytest.raises(error, match=words):
                act()
        # Nothing of that was done.
        shown = checkpoints.show()
        assert (shown.era, shown.complete, shown.processes) == (1, 0, [(True, 0)])
        assert joined.save(1, b"") == 1 and checkpoints.part(0, 1) == b""
    with pytest.raises(verbena.Disconnected, match="closed"):
        checkpoints.show()


def test_a_wait_is_stopped(nodes: list[Node]) -> None:
    stop = threading.Event()
    with verbena.Memory(nodes[0].socket) as memory:
        joined = memory.make_checkpoints("run", 2, 8).join(0)
        joined.save(1, b"")
        timer = threading.Timer(0.2, stop.set)
        timer.start()
        began = time.monotonic()
        with pytest.raises(verbena.NotInTime, match="the wait was stopped"):
            joined.wait(1, stop=stop)
        assert time.monotonic() - began < 10
        timer.join()


COMPUTES = """
import sys, verbena
process, last = int(sys.argv[2]), int(sys.argv[3])
with verbena.Memory(sys.argv[1]) as memory:
    checkpoints = memory.checkpoints("run")
    while True:
        joined = checkpoints.join(process)
        total = int.from_bytes(joined.part or b"", "little")
        print(joined.era, joined.number, flush=True)
        try:
            for number in range(joined.number + 1, last + 1):
                total += number
                joined.save(number, total.to_bytes(8, "little"))
                joined.wait(number, timeout=60)
            break
        except verbena.RolledBack:
            pass
    print(total)
"""


def test_a_killed_process_goes_on_and_the_others_with_it(nodes: list[Node], python: str) -> None:
    last = 1500

    def start(process: int) -> subprocess.Popen[str]:
        command = [python, "-c", COMPUTES, str(nodes[process % 2].socket), str(process), str(last)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    with verbena.Memory(nodes[0].socket) as memory:
        checkpoints = memory.make_checkpoints("run", 3, 8)
        programs = [start(process) for process in range(3)]
        try:
            until = time.monotonic() + 60
            while checkpoints.show().complete < 10:
                assert time.monotonic() < until
                time.sleep(0.001)
            programs[1].send_signal(signal.SIGKILL)
            assert programs[1].wait() == -signal.SIGKILL and programs[1].stdout
            programs[1].stdout.close()
            programs[1] = start(1)
            said = [program.communicate(timeout=60)[0].split("\n") for program in programs]
        finally:
            for program in programs:
                program.kill()
                program.wait()
        assert all(lines[-2] == str(last * (last + 1) // 2) for lines in said), said
        era, number = said[1][0].split()
        assert era == "2" and 10 <= int(number) < last
        assert all(said[1][0] in lines and lines[0] == "1 0" for lines in (said[0], said[2])), said
        assert checkpoints.show().complete == last
