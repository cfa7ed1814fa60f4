"""What benchmarks measured: files that say on which machine, and the tables of the docs from them.

A benchmark is a module here whose `main()` returns its tables: by name, rows of plain cells, with
ratios before seconds. Between `<!-- benchmark: NAME.TABLE -->` and `<!-- end -->` the docs show one.
"""

import json
import os
import platform
import re
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, str | int | float]
"""A line of a table: headings, units included, and what stands below them."""
Tables = dict[str, list[Row]]

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
WRITTEN_BY_BENCHMARKS = ("benchmarks/results", "docs/images", "docs/*.md")
MARKED = re.compile(r"(<!-- benchmark: (\w+)\.(\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def machine() -> dict[str, Any]:
    """What seconds depend on."""
    model = platform.processor()
    cpu = Path("/proc/cpuinfo")
    if cpu.exists():
        found = re.search(r"model name\s*: (.*)", cpu.read_text(encoding="utf-8"))
        model = found[1] if found else model
    return {
        "cores": os.cpu_count(),
        "cpu": model,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "platform": platform.platform(),
    }


def commit() -> dict[str, Any]:
    """The commit measured, and whether anything but what benchmarks write had changed since."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(ROOT), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    others = [f":!{path}" for path in WRITTEN_BY_BENCHMARKS]
    return {
        "commit": git("rev-parse", "HEAD") or None,
        "changed_since": bool(git("status", "--porcelain", "--", ".", *others)),
    }


class Recording:
    """Begun before a benchmark runs, written after it."""

    def __init__(self, name: str) -> None:
        self.file = RESULTS / f"{name}.json"
        self.began = time.perf_counter()
        self.head = {
            "benchmark": name,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            **commit(),
            "load_at_start": [round(load, 2) for load in os.getloadavg()],
            "machine": machine(),
        }

    def write(self, tables: Tables) -> Path:
        """Write all or nothing."""
        took = round(time.perf_counter() - self.began, 1)
        document = {**self.head, "seconds": took, "tables": tables}
        text = json.dumps(document, ensure_ascii=False, indent=1, default=_plain)
        RESULTS.mkdir(exist_ok=True)
        beside = self.file.with_suffix(".new")
        beside.write_text(text + "\n", encoding="utf-8")
        beside.replace(self.file)
        return self.file


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} is no plain cell")


def read(name: str) -> dict[str, Any] | None:
    """What a benchmark recorded last."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def with_tables(text: str) -> str:
    """A page of the docs with its tables as they were recorded last."""

    def shown(mark: re.Match[str]) -> str:
        recorded = read(mark[2])
        if recorded is None or mark[3] not in recorded["tables"]:
            raise KeyError(f"{mark[2]}.{mark[3]} is in no file of benchmarks/results")
        return (
            f"{mark[1]}{markdown(recorded['tables'][mark[3]])}\n{recorded_at(recorded)}\n{mark[4]}"
        )

    return MARKED.sub(shown, text)


def markdown(rows: list[Row]) -> str:
    """Rows as a table, under the headings of them all."""
    headings = list(dict.fromkeys(heading for row in rows for heading in row))
    lines = [headings, ["---"] * len(headings)]
    lines += [[cell(row.get(heading, "")) for heading in headings] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def recorded_at(recorded: dict[str, Any]) -> str:
    """When, where and on what, in a line below the table."""
    changed = " with changes" if recorded["changed_since"] else ""
    return (
        f"\n*`python -m benchmarks {recorded['benchmark']}`, {recorded['date'][:10]}, commit "
        f"{(recorded['commit'] or 'unknown')[:8]}{changed}, {recorded['machine']['cores']} cores, load "
        f"{recorded['load_at_start'][0]:.1f} at the start.*\n"
    )


def cell(value: str | int | float) -> str:
    """A number with three digits, or two where it is very small or large."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    if value and not 1e-3 <= abs(value) < 1e6:
        return re.sub(r"e([+-])0?", r"e\1", f"{value:.1e}").replace("e+", "e")
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
