"""Nodes as processes. What a test forgets is killed when the test ends."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Iterator

import pytest

VERBENA = os.environ["VERBENA"]
PATIENCE = 30


class Node:
    def __init__(self, directory: pathlib.Path, name: str) -> None:
        self.socket = directory / "run" / f"{name}.sock"
        self._name, self._directory = name, directory
        self._log = open(directory / f"{name}.log", "wb")
        command = [VERBENA, "node", "--json", "--cluster-name", name, "--node-state", str(directory / f"state-{name}")]
        self.process = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=self._log)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if json.loads(line)["event"] == "listening":
                return
        raise AssertionError(f"{name} ended: {(directory / f'{name}.log').read_text()}")

    def wait_until_in(self, members: int) -> None:
        """Until that many members are in the view that is in effect."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            command = [VERBENA, "status", "--json", "--cluster-name", self._name]
            said = subprocess.run(command, cwd=self._directory, capture_output=True).stdout
            status = json.loads(said or b"{}")
            settled = status.get("view") == status.get("in_effect") == status.get("acknowledged")
            if settled and status.get("state") == "member" and len(status["member_list"]) == members:
                return
            time.sleep(0.02)
        raise AssertionError(f"{self._name}: {members} are not in: {status}")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait_until_stopped(self) -> None:
        """Until none of its threads runs: the signal takes its time."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            tasks = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/stat")
            if all(task.read_text().rpartition(")")[2].split()[0] == "T" for task in tasks):
                return
            time.sleep(0.001)
        raise AssertionError(f"{self._name} runs")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()


@pytest.fixture
def nodes(tmp_path: pathlib.Path) -> Iterator[list[Node]]:
    """Two nodes of a cluster with a lease of half a second."""
    members = "".join(f'[[cluster.members]]\nname = "{name}"\naddress = "shm://{name}"\n' for name in "ab")
    runtime = json.dumps(str(tmp_path / "run"))
    (tmp_path / "verbena.toml").write_text(f'[cluster]\nlease = "500ms"\n{members}[node]\nruntime = {runtime}\n')
    started: list[Node] = []
    try:
        for name in "ab":
            started.append(Node(tmp_path, name))
        for node in started:
            node.wait_until_in(2)
        yield started
    finally:
        for node in started:
            node.end()


@pytest.fixture
def python() -> str:
    """The interpreter that has the package."""
    return sys.executable
