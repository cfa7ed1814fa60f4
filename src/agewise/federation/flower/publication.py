"""What a ServerApp publishes of a run: its steps as they happen, and its result, in files.

Flower carries nothing from a ServerApp to whoever submitted it but a log, which is for people. So
the files are in Flower's home on the machine where the ServerApp runs, in a folder for each run.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NoReturn
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from agewise.federation.files import LONGEST_NAME, write_whole
from agewise.federation.happened import RunIncomplete, Step
from agewise.federation.one_draw import OneDraw
from agewise.federation.server import Server

STEPS, RESULT = "steps.jsonl", "result.json"
LARGEST_RESULT = 2**28
"""Bytes of a result that are read at most."""
ROUND = re.compile("-[0-9]{5}$")
"""How the name of one round among many ends."""
LONGEST_STEP = 2**20
"""Bytes of a line of steps that are read at most."""

Told = tuple[Step, int, int]
"""A step, the slots closed by then, and the slots in all."""


@dataclass(frozen=True)
class Published:
    """The result of a run: everything that reached its server, and what came of it.

    `draw` is the record of the server's one draw, where it adds the noise.
    """

    run: str
    journal: list[dict[str, Any]]
    model: float | list[float] | None = None
    failure: str | None = None
    exit_code: int = 0
    draw: str | None = None
    version: Literal[2] = 2


@cache
def _results() -> TypeAdapter[Published]:
    return TypeAdapter(Published)


@cache
def _steps() -> TypeAdapter[Told]:
    return TypeAdapter(Told)


def folder_in(home: Path, flower_run: str | int) -> Path:
    """Where a ServerApp publishes, by Flower's home and Flower's number of the run."""
    return home / "agewise" / str(flower_run)


class Publisher:
    """Writes what is published of a run; whatever it has written survives a crash."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder

    def heads(self, run: str) -> dict[str, str]:
        """The newest release of each client that earlier rounds have heard, as written here."""
        with suppress(FileNotFoundError):
            return dict(json.loads(self._heads(run).read_text(encoding="utf-8")))
        return {}

    def remember(self, server: Server) -> None:
        """Write down what has been heard by now. It stays here: it tells of single uploads."""
        if ROUND.search(server.run):
            with suppress(OSError):
                write_whole(self._heads(server.run), json.dumps(server.newest()), private=True)

    def _heads(self, run: str) -> Path:
        """One file for all rounds of a run, whose names differ by their number."""
        of_all = ROUND.sub("", run)
        return self.folder.parent / f"{quote(of_all, safe='')[:LONGEST_NAME]}.heads.json"

    def step(self, step: Step, closed: int, total: int) -> None:
        """Add a step. A `Watcher`."""
        with (self.folder / STEPS).open("a", encoding="utf-8") as file:
            file.write(json.dumps([step._asdict(), closed, total]) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def result(self, result: Published) -> None:
        """Write the result, whole or not at all, for its owner: it holds the uploads."""
        write_whole(self.folder / RESULT, json.dumps(asdict(result)), private=True)

    def draw(self, run: str, seed: int | None) -> OneDraw:
        """The server's noise of a run, in a ledger that all submissions of that run share."""
        name = f"{quote(run, safe='')[:LONGEST_NAME]}.draws"
        return OneDraw(run, self.folder.parent / name, seed)


class Publication:
    """Reads what is published of a run, while it is being written."""

    def __init__(self, folder: Path, run: str) -> None:
        self.folder, self.run = folder, run
        self._read = 0
        self._lines = 0

    def steps(self) -> Iterator[Told]:
        """The steps that have been added since the last time."""
        try:
            with (self.folder / STEPS).open("rb") as file:
                file.seek(self._read)
                for line in iter(lambda: file.readline(LONGEST_STEP), b""):
                    if not line.endswith(b"\n"):
                        if len(line) == LONGEST_STEP:
                            self._refuse(STEPS, f"a line of over {LONGEST_STEP} bytes")
                        return  # it is still being written
                    self._read += len(line)
                    self._lines += 1
                    yield self._step(line)
        except FileNotFoundError:
            return
        except OSError as error:
            self._refuse(STEPS, str(error.strerror))

    def _step(self, line: bytes) -> Told:
        try:
            return _steps().validate_json(line, strict=True)
        except ValidationError as error:
            self._refuse(STEPS, f"line {self._lines}: {_complaint(error)}")

    def result(self) -> Published | None:
        """The result; None if there is none yet."""
        try:
            with (self.folder / RESULT).open("rb") as file:
                text = file.read(LARGEST_RESULT + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._refuse(RESULT, str(error.strerror))
        if len(text) > LARGEST_RESULT:
            self._refuse(RESULT, f"over {LARGEST_RESULT} bytes")
        try:
            found = _results().validate_json(text, strict=True)
        except ValidationError as error:
            self._refuse(RESULT, _complaint(error))
        if found.run != self.run:
            self._refuse(RESULT, f"of run {found.run!r}, not {self.run!r}")
        return found

    def _refuse(self, name: str, why: str) -> NoReturn:
        raise RunIncomplete(
            f"{self.folder / name} is not what the ServerApp of this run writes ({why}). What was "
            "released is in the ledgers. To ask the clients again, delete submission.json in the "
            "run's folder, then resume the run."
        )


def _complaint(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]
