"""A running explorer, a real browser, and readings to give it."""

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl

AGEWISE = str(Path(sys.executable).with_name("agewise"))
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def explorer(*arguments):
    """The address of an explorer of its own, which ends afterwards as Ctrl-C would end it."""
    words = [AGEWISE, "explore", *arguments, "--port", "0", "--no-browser"]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        words, stderr=subprocess.PIPE, text=True, encoding="utf-8", env=environment
    )
    try:
        line = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert found, line + process.stderr.read()
        yield found[0]
    finally:
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=60)[1]
    assert process.returncode == 0, told
    assert "Traceback" not in told, told


def meters(path, entities=10, days=120, seed=5):
    """Hourly readings of meters that follow a chain, as CSV."""
    rng = np.random.default_rng(seed)
    high = np.zeros((entities, 24 * days), dtype=bool)
    for t in range(1, high.shape[1]):
        again = rng.random(entities) < 0.4
        high[:, t] = np.where(again, rng.random(entities) < 0.4, high[:, t - 1])
    start = datetime(2024, 1, 1)
    pl.DataFrame(
        {
            "meter": np.repeat([f"m{i}" for i in range(entities)], high.shape[1]),
            "time": [start + timedelta(hours=t) for t in range(high.shape[1])] * entities,
            "wh": np.where(high, 900, 150).ravel(),
        }
    ).write_csv(path)
    return path
