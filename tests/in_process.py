"""A command in this process: where only its words and its code count, it need not be started."""

import contextlib
import io
import signal
import subprocess
import sys
from unittest import mock

from agewise.cli import main


def command(*arguments, cwd="."):
    """What `agewise` prints and ends with; what it does not catch is raised."""
    words = [str(one) for one in arguments]
    out, error, code = io.StringIO(), io.StringIO(), 0
    usual = signal.getsignal(signal.SIGTERM)
    try:
        with (
            contextlib.chdir(cwd),
            mock.patch.object(sys, "argv", ["agewise", *words]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(error),
        ):
            main()
    except SystemExit as ended:
        code = ended.code or 0
    finally:
        signal.signal(signal.SIGTERM, usual)
    return subprocess.CompletedProcess(words, code, out.getvalue(), error.getvalue())
