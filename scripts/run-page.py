#!/usr/bin/env python3
"""Runs the examples of a page of the documents, as a reader would type them.

    scripts/run-page.py docs/start.md ...          VERBENA=PATH names the program (default: target/debug/verbena)

A page is one session of bash in an empty directory, on a machine of its own: other processes, other ports, nothing but loopback.

    ```sh           is run. A line that ends with ` &` starts a program in the background, and the next line waits until it serves.
    ```text         behind such a block is what it prints: each line must be there, in this order. `...` stands for anything.
    ```toml (python, js)  whose first line is a comment with the name of a file is written to that file.

Other blocks are not run. `<!-- needs: etcd -->` in a page names programs without which it is skipped, `<!-- addresses: 10.0.0.1 -->`
addresses that its machine has besides."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Less than the time after which a test is ended.
PATIENCE_S = 200

# A program in the background serves when a view with it is in effect (the helper), or when it listens (any other one). Each has a log of its own.
PREAMBLE = r"""
set -euo pipefail
listening() { cat /proc/net/tcp /proc/net/tcp6 | awk '$4 == "0A"' | wc -l; }
# ready PROCESS LOG BEFORE HELPER: how many listened before; yes, if it is the helper.
ready() {
    local try
    for try in {1..600}; do
        if [ "$4" = yes ]; then
            if grep -q 'is in effect' "$2"; then return; fi
        elif [ "$(listening)" -gt "$3" ]; then
            return
        fi
        kill -0 "$1" 2>/dev/null || break
        sleep 0.1
    done
    echo "a program in the background does not serve"
    exit 1
}
"""


def blocks(text):
    """Language and lines of each block between fences."""
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S):
        yield found[1], found[2].splitlines()


def in_background(line, number):
    command = re.fullmatch(r"(\S.*\S) &(?:\s+#.*)?", line)
    if not command:
        return line
    log = f".background-{number}.log"
    is_helper = "yes" if re.search(r"\bverbena (proxy|node)\b", command[1]) else "no"
    return f'before=$(listening); {command[1]} >{log} 2>&1 </dev/null &\nready $! {log} "$before" {is_helper}'


def script(text, directory):
    """What bash runs, and what it must print: of each block its lines."""
    lines, expected = [PREAMBLE], []
    for language, block in blocks(text):
        name = re.match(r"(?:#|//) ([\w.-]+\.(?:toml|py|js))\b", block[0]) if block else None
        if language == "sh":
            lines.append(f"printf '\\n== block {len(expected)}\\n'")
            lines += [in_background(line, f"{len(lines)}-{number}") for number, line in enumerate(block)]
            expected.append([])
        elif language == "text" and expected:
            expected[-1] = block
        elif name:
            file = Path(directory) / f".block-{len(lines)}"
            file.write_text("\n".join(block) + "\n")
            lines.append(f"cp {file} {name[1]}")
    return "\n".join([*lines, "printf '\\n== end\\n'"]) + "\n", expected


def missing(expected, printed):
    """The first line that was not printed behind those before it."""
    rest = iter(printed)
    for line in expected:
        if line.strip() == "...":
            continue
        pattern = ".*".join(re.escape(part) for part in line.strip().split("..."))
        if not any(re.fullmatch(pattern, one.strip()) for one in rest):
            return line
    return None


def run(page):
    """Whether the page is right. A machine that is so busy that a lease is lost shows something else than the page: then once more."""
    for _ in range(3):
        is_right, said = run_once(page)
        if is_right or "the lease ran out" not in said:
            break
    print(said)
    return is_right


def run_once(page):
    text = page.read_text()
    for need in " ".join(re.findall(r"<!-- needs: (.*?) -->", text)).split():
        if not shutil.which(need):
            return True, f"skipped: no {need} is installed"
    alone = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode != 0:
        return True, "skipped: only root can make network namespaces"
    addresses = " ".join(re.findall(r"<!-- addresses: (.*?) -->", text)).split()
    network = "".join(["ip link set lo up\n", *(f"ip address add {address}/32 dev lo\n" for address in addresses)])
    with tempfile.TemporaryDirectory() as directory:
        program = Path(os.environ.get("VERBENA", ROOT / "target/debug/verbena")).resolve()
        if not program.exists():
            sys.exit(f"{program} is not there: `cargo build --bin verbena` builds it, VERBENA names another one")
        (Path(directory) / ".bin").mkdir()
        (Path(directory) / ".bin/verbena").symlink_to(program)
        (Path(directory) / "run").mkdir(mode=0o700)
        commands, expected = script(text, directory)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("VERBENA")}
        environment |= {"HOME": directory, "XDG_RUNTIME_DIR": f"{directory}/run", "XDG_STATE_HOME": f"{directory}/state", "PATH": f"{directory}/.bin:{os.environ['PATH']}:/usr/sbin:/sbin"}
        log = Path(directory) / ".output"
        with log.open("w") as output:
            try:
                code = subprocess.run([*alone, "bash", "-c", network + commands], cwd=directory, env=environment, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=PATIENCE_S).returncode
            except subprocess.TimeoutExpired:
                code = "no end"
        printed = log.read_text(errors="replace")
        said = "".join(f"-- {log.name}\n{log.read_text(errors='replace')}" for log in sorted(Path(directory).glob(".background-*")))
    parts = re.split(r"^== block \d+\n|^== end\n", printed, flags=re.M)[1:]
    wrong = [f"exit code {code}"] if code != 0 else []
    for block, part in zip(expected, parts):
        line = missing(block, part.splitlines())
        if line is not None:
            wrong.append(f"not printed: {line}")
    if wrong:
        return False, f"{page}: {'; '.join(wrong)}\n{printed}\n== in the background\n{said}"
    return True, f"{page}: {len(expected)} blocks"


if __name__ == "__main__":
    sys.exit(not all([run(Path(page)) for page in sys.argv[1:]]))
