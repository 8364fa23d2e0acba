"""A node and a program of which nobody was told anything find each other."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

import pytest
from conftest import VERBENA, Node

import verbena

# In a network of their own: who has chosen no directories would ask others on this machine.
SCRIPT = """
trap 'kill $node 2>/dev/null' EXIT
chmod 700 "$2"; cd "$2"; export XDG_RUNTIME_DIR="$2" XDG_STATE_HOME="$2/state" HOME="$2"
"$1" node --json >node 2>&1 & node=$!
for turn in $(seq 500); do grep -qs listening node && break; sleep 0.02; done
"$0" -c "$3" 2>&1
kill $node; wait $node; echo "ended $?"
"""

PROGRAM = """
import asyncio
import verbena

with verbena.Locks() as locks, locks.acquire("x", timeout=10) as hold:
    print("held", hold.held)
with verbena.Memory() as memory:
    memory.allocate(8, "hits").put(b"as told.")
    print(bytes(memory.find("hits").get()), memory.find("hits").home)

async def at_once():
    async with verbena.aio.lock("x", timeout=10) as hold, verbena.aio.Memory() as memory:
        segment = await memory.find("hits")
        print(hold.held, bytes(await segment.get()))

asyncio.run(at_once())
"""


def test_programs_find_a_node_that_nobody_configured(python: str, tmp_path: pathlib.Path) -> None:
    how = "-n" if os.geteuid() == 0 else "-rn"
    environment = {name: value for name, value in os.environ.items() if name != "VERBENA_CONFIG"}
    command = ["unshare", how, "sh", "-c", SCRIPT, python, VERBENA, str(tmp_path), PROGRAM]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    if not ended.stdout:
        assert ended.stderr.startswith("unshare: "), ended.stderr
        pytest.skip("skipped: only root can make network namespaces")
    assert ended.stdout.splitlines() == ["held True", "b'as told.' local", "True b'as told.'", "ended 0"]


def test_a_program_finds_the_helper_that_the_configuration_names(nodes: list[Node], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del nodes
    runtime = json.dumps(str(tmp_path / "run"))
    file = tmp_path / "b.toml"
    file.write_text(f'[cluster]\nname = "b"\n[node]\nruntime = {runtime}\n')
    monkeypatch.setenv("VERBENA_CONFIG", str(file))
    with verbena.Locks() as locks, locks.acquire("x", timeout=10) as hold:
        assert hold.held
    verbena.Updates().purge("a")
    assert repr(verbena.Updates()) == f"Updates('{tmp_path}/run/b.http.sock')"
    monkeypatch.setenv("VERBENA_CONFIG", "")
    with pytest.raises(ValueError, match="VERBENA_CONFIG is empty"):
        verbena.Locks()
    monkeypatch.setenv("VERBENA_CONFIG", str(tmp_path / "none.toml"))
    with pytest.raises(FileNotFoundError):
        verbena.Memory()
    file.write_text("[cluster")
    monkeypatch.setenv("VERBENA_CONFIG", str(file))
    with pytest.raises(ValueError, match="b.toml"):
        verbena.Locks()
    # The file of the working directory, as the commands read it.
    monkeypatch.delenv("VERBENA_CONFIG")
    monkeypatch.chdir(tmp_path)
    file.rename(tmp_path / "verbena.toml")
    (tmp_path / "verbena.toml").write_text(f'[cluster]\nname = "a"\n[node]\nruntime = {runtime}\n')
    with verbena.Locks() as locks, locks.acquire("x", timeout=10) as hold:
        assert hold.held
