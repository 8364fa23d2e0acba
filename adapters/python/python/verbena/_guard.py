"""The program that ends whatever runs in the sites of a WAN when the one that made them has ended: verbena._wan starts it by its path."""

from __future__ import annotations

import importlib.util
import signal
import sys


def _main(native: str, maker: str, *sites: str) -> None:
    # Who ends all that bears this program's name does not end this.
    for which in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(which, signal.SIG_IGN)
    # Where the package was found is the other program's affair.
    spec = importlib.util.spec_from_file_location("verbena._native", native)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.guard(int(maker), list(map(int, sites)))


if __name__ == "__main__":
    _main(*sys.argv[2:])
