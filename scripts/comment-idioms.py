#!/usr/bin/env python3
"""comment-idioms.py [--json] [--list] [--at-most PERCENT] [CRATE...]: how plainly the comments of each crate speak.

Counts, of the comment lines (`//`, `///`, `//!`) in crates/*/src, those that have one of IDIOMS: turns of phrase that hide the subject
or replace the field's word. Without CRATE it takes all crates. --list prints the lines that count. --at-most fails if the share in one of
the crates is larger. Tests inside src count; a comment behind code on its line does not, nor does a line of a drawing (a block in ```text).
"""
import argparse
import json
import pathlib
import re
import sys

# Each name: what the idiom is, and the words that show it. A word counts only where it is the idiom, so that "the client who", "lifetime",
# "its words" and "capital letter" do not.
IDIOMS = {
    # A subject without a name. Plain: the client, the home, the holder, a node.
    "whoever": r"(?i)\b(whoever|whomever|whosever)\b",
    "nobody, somebody": r"(?i)\b(nobody|somebody|someone|everybody|anybody)('s)?\b",
    # "Who asks ... gets it", "by who asks", "tells who has it": a clause in place of a noun. A noun before "who" makes it a plain relative clause.
    "who as a noun": r"(^|[.;:(] )Who(m|se)?\b(?!.*\?)|[.;:(] who(m|se)?\b"
    r"|\b(by|to|of|from|with|for|and|or|but|that|than|is|says?|said|tells?|told|knows?|know|see|sees|asks?) who(m)?\b",
    # A number that the reader must guess. Plain: `count` readers, this many bytes, N.
    "so many": r"\b[Ss]o (many|much|few)\b(?! that)",
    # Who tells? Plain: the home notifies the client, the client learns.
    "is told": r"\b(is|are|was|were|be|been|being|not) told\b",
    # Plain: empty, zero, absent, `None`, there is no.
    "is none": r"\b(is|are|was|were|be) (none|nothing|nowhere)\b|\bis no (\w+'s|\w+ of)\b",
    # A run of a node between its start and its end. Plain: incarnation.
    "life": r"(?i)\b(life|lives)\b",
    # Plain: message.
    "letter": r"(?i)(?<!capital )\bletters?\b",
    # A possessive without its noun: "the words are its", "another's", "the lock is this one's any more".
    "its": r"\b(its|theirs|ours|another's|other's|others')(?=[.,;:)])|\b\w+'s any more\b|\bits any more\b",
}
PATTERNS = {name: re.compile(pattern) for name, pattern in IDIOMS.items()}
COMMENT = re.compile(r"^\s*//[/!]?(?: (?P<text>.*))?$")


def comments(text):
    """Line number and words of each comment line that has words, without drawings and names of code."""
    is_drawing = False
    for number, line in enumerate(text.splitlines(), 1):
        comment = COMMENT.match(line)
        if not comment:
            is_drawing = False
            continue
        words = (comment["text"] or "").strip()
        if words.startswith("```"):
            is_drawing = not is_drawing and words == "```text"
        elif words and not is_drawing:
            yield number, re.sub(r"`[^`]*`", "``", words)


def count(crate, show):
    lines, flagged, by_idiom = 0, 0, dict.fromkeys(IDIOMS, 0)
    for file in sorted((crate / "src").rglob("*.rs")):
        for number, words in comments(file.read_text()):
            lines += 1
            found = [name for name, pattern in PATTERNS.items() if pattern.search(words)]
            flagged += bool(found)
            for name in found:
                by_idiom[name] += 1
            if found and show:
                print(f"{file}:{number}: [{', '.join(found)}] {words}")
    return {"lines": lines, "flagged": flagged, "percent": round(100 * flagged / max(lines, 1), 1), "idioms": by_idiom}


arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--json", action="store_true", help="print JSON in place of a table")
arguments.add_argument("--list", action="store_true", help="print each line that counts")
arguments.add_argument("--at-most", type=float, metavar="PERCENT", help="fail if a crate has a larger share")
arguments.add_argument("crates", nargs="*", metavar="CRATE", help="a folder of crates/")
given = arguments.parse_args()

folder = pathlib.Path(__file__).resolve().parent.parent / "crates"
names = given.crates or sorted(path.parent.name for path in folder.glob("*/Cargo.toml"))
if unknown := [name for name in names if not (folder / name / "Cargo.toml").exists()]:
    sys.exit(f"comment-idioms.py: no crate named {', '.join(unknown)} in {folder}")
report = {name: count(folder / name, given.list) for name in names}
if given.json:
    print(json.dumps(report, indent=1))
else:
    print(f"{'crate':14} {'comments':>8} {'idioms':>7} {'share':>6}  of which")
    for name, row in report.items():
        most = ", ".join(f"{idiom} {n}" for idiom, n in sorted(row["idioms"].items(), key=lambda i: -i[1]) if n)
        print(f"{name:14} {row['lines']:8} {row['flagged']:7} {row['percent']:5}%  {most}")
if given.at_most is not None:
    if empty := [name for name, row in report.items() if not row["lines"]]:
        sys.exit(f"comment-idioms.py: no comments to read in {', '.join(empty)}")
    if over := [name for name, row in report.items() if row["flagged"] > given.at_most / 100 * row["lines"]]:
        sys.exit(f"comment-idioms.py: over {given.at_most}% in {', '.join(over)}")
