"""Readings that are given on the page: kept on this machine, fitted, forgotten."""

from __future__ import annotations

import secrets
import shlex
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from agewise.checks import positive, whole
from agewise.errors import AgewiseError, InvalidInput
from agewise.explore.model import Model, Source
from agewise.fitting import defaults, least_error_states
from agewise.fitting.fit import fit
from agewise.readings import infer_columns, read_readings
from agewise.readings.times import slot_of_day
from agewise.wording import printable

MOST_BYTES = 512 * 2**20
LIMIT_WORDS = "at most 512 MB here. Larger files: agewise fit FILE"
MOST_STATES = 20
KEPT_JOBS = 20
LONGEST_NAME = 80


@dataclass
class Job:
    """A file on its way to a scenario."""

    key: str
    name: str
    path: Path
    wanted: Mapping[str, str]
    stage: str = "waiting"
    done: int = 0
    total: int = 0
    failure: str = ""
    source: Source | None = None

    def advance(self, done: int, total: int) -> None:
        """Note how far the work has come."""
        self.done, self.total = done, total

    def state(self) -> dict[str, object]:
        """How far it is, for the page."""
        return {
            "stage": self.stage,
            "done": self.done,
            "total": self.total,
            "failure": self.failure,
            "source": None if self.source is None else self.source.key,
        }


class Uploads:
    """All files that were given, in a folder that goes when the explorer ends."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._folder = tempfile.TemporaryDirectory(prefix="agewise-explore-")
        self._jobs: dict[str, Job] = {}
        self._one = threading.Lock()  # fits take all the processor there is

    def close(self) -> None:
        """Remove whatever is left."""
        self._folder.cleanup()

    def open(self, name: str, wanted: Mapping[str, str]) -> Job:
        """A place for a file of that name."""
        key = f"readings-{secrets.token_hex(4)}"
        plain = printable(Path(name.replace("\\", "/")).name)[-LONGEST_NAME:].lstrip(".")
        folder = Path(self._folder.name) / key
        folder.mkdir()
        job = Job(key, plain, folder / (plain or "readings"), dict(wanted))
        self._jobs[key] = job
        for old in [*self._jobs][:-KEPT_JOBS]:
            del self._jobs[old]
        return job

    def find(self, key: str) -> Job:
        """The file of that key."""
        if key not in self._jobs:
            raise InvalidInput("readings", repr(key), "readings that were given here")
        return self._jobs[key]

    def discard(self, job: Job) -> None:
        """Forget a file that did not come in whole."""
        job.path.unlink(missing_ok=True)
        self._jobs.pop(job.key, None)

    def begin(self, job: Job) -> None:
        """Fit the file while the page goes on."""
        threading.Thread(target=self._work, args=(job,), daemon=True).start()

    def _work(self, job: Job) -> None:
        try:
            with self._one:
                source = self._fitted(job)
            self._model.add(source)
            job.source, job.stage = source, "done"
        except AgewiseError as error:
            job.failure = _without_folder(str(error), job)
        except Exception as error:
            job.failure = f"{job.name} cannot be used ({_without_folder(str(error), job)})."
        finally:
            job.path.unlink(missing_ok=True)
            job.stage = job.stage if job.source is not None else "failed"

    def _fitted(self, job: Job) -> Source:
        wanted = {name: text.strip() for name, text in job.wanted.items() if text.strip()}
        count = _count(wanted.get("states", str(defaults.STATES)))
        epsilon = _target(wanted.get("target", str(defaults.EPSILON)))
        at = wanted.get("at", defaults.AGGREGATE_AT)
        adversary = wanted.get("adversary", defaults.ADVERSARY)
        unit = wanted.get("unit", "")
        job.stage = "reading"
        named = {role: wanted.get(role) for role in ("entity", "timestamp", "value")}
        columns = infer_columns(job.path, named["entity"], named["timestamp"], named["value"])
        readings = read_readings(job.path, columns, progress=job.advance)
        slots = defaults.whole_day(readings.day)
        first = (slot_of_day("aggregate at", at, readings.day) - slots + 1) % readings.day
        job.stage, job.done, job.total = "choosing states", 0, 0
        states = least_error_states(count, readings.values)
        job.stage = "measuring"
        made = fit(
            readings,
            states,
            epsilon=epsilon,
            first_slot=first,
            slots=slots,
            adversary=cast(defaults.Adversary, adversary),  # fit refuses any other
            name=Path(job.name).stem or "readings",
            unit=unit,
            progress=job.advance,
        )
        stem = Path(job.name).stem or "readings"
        command = (
            f"agewise fit {shlex.quote(job.name)} --least-error {count} --at {shlex.quote(at)} "
            f"--epsilon {epsilon!r} --adversary {adversary}"
            + (f" --unit {shlex.quote(unit)}" if unit else "")
            + "".join(f" --{role} {shlex.quote(name)}" for role, name in named.items() if name)
            + f" --yes --out {shlex.quote(f'{stem}.toml')}"
        )
        python = (
            "import agewise as aw\nfrom agewise.fitting import least_error_states\n"
            "from agewise.readings import Columns\n\n"
            f"columns = {columns!r}\n"
            f"readings = aw.read_readings({job.name!r}, columns)\n"
            f"made = aw.fit(readings, least_error_states({count}, readings.values), "
            f"epsilon={epsilon!r},\n              first_slot={first}, slots={slots}, "
            f"adversary={adversary!r}, unit={unit!r})\n"
            "print(made.assumptions.verdict)"
        )
        return Source(job.key, f"{job.name} (yours)", made.problem, None, made, (python, command))


def _count(text: str) -> int:
    if not text.isdecimal():
        raise InvalidInput(
            "number of states", repr(text), f"a whole number from 1 to {MOST_STATES}"
        )
    return whole("number of states", int(text[:20]), 1, MOST_STATES)


def _target(text: str) -> float:
    try:
        return positive("privacy target", float(text))
    except ValueError as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput("privacy target", repr(text), "a finite number above 0") from None


def _without_folder(message: str, job: Job) -> str:
    return message.replace(f"{job.path.parent}/", "")
