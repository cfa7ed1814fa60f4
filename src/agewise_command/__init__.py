"""The command `agewise`. Apart from the package, so that Ctrl-C is quiet while that is imported."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Import the command line and run it."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # not where Ctrl-C is ignored, as under nohup
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from agewise.cli import main as run  # noqa: PLC0415  (the slow part)

    signal.signal(signal.SIGINT, usual)
    run()
