"""What `python -m verbena._guard` does: it plays the process that ends whatever runs in the sites of a WAN when the one that made them has ended."""

from __future__ import annotations

import signal
import sys

from . import _native


def _main(told: list[str]) -> None:
    # Who ends all that bears this program's name does not end this.
    for which in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(which, signal.SIG_IGN)
    maker, *sites = map(int, told)
    _native.guard(maker, sites)


if __name__ == "__main__":
    _main(sys.argv[2:])
