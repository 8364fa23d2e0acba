"""A node and a program of which nobody was told anything find each other."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest
from conftest import VERBENA

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
