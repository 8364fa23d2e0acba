#!/usr/bin/env python3
"""test-times.py PARTS JUNIT OUT: where the time of a run went.

PARTS has a line for each part of the run, its seconds and its name; JUNIT is what cargo-nextest wrote of the tests. Writes OUT as JSON (each part, each
program, each test over a second), prints each part beside the last figures of docs/internals/TESTING.md, and the twenty longest tests.
"""
import json
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

parts_file, junit, out = map(pathlib.Path, sys.argv[1:])
parts = {name: int(seconds) for seconds, name in (line.split(" ", 1) for line in parts_file.read_text().splitlines())}

programs, tests = {}, []
for suite in ElementTree.parse(junit).getroot().iter("testsuite") if junit.exists() else ():
    for case in suite.iter("testcase"):
        seconds = float(case.get("time", 0))
        program = programs.setdefault(suite.get("name"), {"tests": 0, "seconds": 0.0})
        program["tests"] += 1
        program["seconds"] += seconds
        tests.append((seconds, suite.get("name"), case.get("name")))
tests.sort(reverse=True)

report = {
    "parts": parts,
    "total_seconds": sum(parts.values()),
    "programs": {name: {**program, "seconds": round(program["seconds"], 1)} for name, program in sorted(programs.items())},
    "tests": [{"program": p, "test": t, "seconds": round(s, 1)} for s, p, t in tests if s >= 1],
}
out.write_text(json.dumps(report, indent=1) + "\n")

# The last row of figures for a part: | part | seconds then | seconds now |
documented = {}
for line in pathlib.Path("docs/internals/TESTING.md").read_text().splitlines():
    if row := re.fullmatch(r"\| ([a-z][a-zA-Z ]*) \|(?: [^|]* \|)* (\d[\d,]*) \|", line):
        documented[row[1]] = int(row[2].replace(",", ""))
print("the twenty longest tests, in seconds:")
for seconds, program, test in tests[:20]:
    print(f"  {seconds:7.1f}  {program} {test}")
print("the parts, in seconds, and what docs/internals/TESTING.md has:")
for name, seconds in [*parts.items(), ("all", report["total_seconds"])]:
    print(f"  {seconds:7}  {documented.get(name, '-'):>7}  {name}")
