"""A run's folder: settings, plan, and the journal of everything that reached the server."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agewise.checks import parse_json
from agewise.documents import read_document
from agewise.errors import InvalidInput
from agewise.federation.files import owners_only, probe_folder, write_whole
from agewise.federation.messages import BadMessage
from agewise.federation.one_draw import DRAWS, OneDraw
from agewise.federation.server import Server
from agewise.federation.settings import Settings
from agewise.planning import Plan

VERSION, READ = 5, (3, 4, 5)
"""What folders are written as, and which can be read: journals of 3 hold uploads one by one, and
those of 3 and 4 do not say which releases were known before."""
PLAN, SETTINGS, JOURNAL, RECORD = "plan.json", "run.json", "journal.jsonl", "record.json"
STATEMENT = "statement.md"
ROUNDS = "rounds.json"
"""The file of a folder that holds the folders of many rounds."""


class RunFolder:
    """The folder of one run, held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failures: list[str] = []
        """Why the run has ended without a model before."""
        self._journal: Any = None
        self._kept = 0

    @staticmethod
    def refuse_used(path: Path) -> None:
        """Raise if a folder holds a run already, or cannot be made."""
        if (path / SETTINGS).exists():
            raise InvalidInput(
                "run folder",
                str(path),
                "a folder without a run",
                "Resume that run, or give another folder.",
            )
        probe_folder("run folder", path)

    @classmethod
    def create(cls, path: Path, plan: Plan, settings: Settings) -> RunFolder:
        """Make the folder of a new run."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            self = cls(path)
            self.write(PLAN, plan.to_json())
            if plan.problem.server_adds_noise:  # before the settings: without them, no run
                self.draw(settings).open(plan)
            self._open()
            try:
                self.write_settings(settings)
            except BaseException:
                self.close()
                raise
        except OSError as error:
            raise InvalidInput(
                "run folder", str(path), "a folder that can be written to", f"{error.strerror}."
            ) from None
        return self

    @staticmethod
    def engine_of(path: Path) -> str:
        """The engine that a run was begun with, as far as its folder tells."""
        try:
            return str(parse_json((path / SETTINGS).read_text(encoding="utf-8"))["engine"])
        except (OSError, ValueError, KeyError, TypeError):
            return "local"  # which says what is wrong with the folder

    @classmethod
    def reopen(cls, path: Path) -> tuple[RunFolder, Plan, Settings]:
        """Open the folder of a run that was interrupted, or that failed."""
        plan, settings = cls.load(path)
        self = cls(path)
        self.failures = _failures(path / RECORD)
        self._open()
        return self, plan, settings

    @staticmethod
    def load(path: Path) -> tuple[Plan, Settings]:
        """Read the plan and the settings of a run; change nothing."""
        try:
            document = parse_json((path / SETTINGS).read_text(encoding="utf-8"))
            refuse_version(path, document)
            plan = Plan.from_json((path / PLAN).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            name = Path(str(error.filename)).name
            raise InvalidInput(
                "run folder", f"{path} without {name}", "the folder of a run"
            ) from None
        except (OSError, ValueError) as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput("run folder", f"{path} ({error})", "the folder of a run") from None
        del document["version"]
        settings = read_document(Settings, document, str(path / SETTINGS))
        absent = _absent(asdict(settings), document)
        if absent:  # a limit that is not there must not become no limit
            raise InvalidInput(f"{path / SETTINGS}: {absent}", "missing", "what the run wrote")
        return plan, settings

    def draw(self, settings: Settings, published: str | None = None) -> OneDraw:
        """The server's noise in this run, recorded in its ledger in this folder."""
        seed = settings.seed if settings.stand_in else None
        return OneDraw(settings.run, self.path / DRAWS, seed, published)

    def write_settings(self, settings: Settings) -> None:
        """Write the settings anew."""
        self.write(SETTINGS, json.dumps({"version": VERSION, **asdict(settings)}, indent=2))

    def write(self, name: str, text: str | Iterable[str]) -> Path:
        """Write a file whole or not at all."""
        return write_whole(self.path / name, text)

    def keep(self, server: Server) -> None:
        """Add what has reached the server since the last time to the journal."""
        for entry in server.inputs[self._kept :]:
            told = dict(entry)
            if "uploads" in told:
                told |= told.pop("uploads").to_entry()
            self._journal.write(json.dumps(told) + "\n")
        self._kept = len(server.inputs)
        self._journal.flush()

    def sync(self) -> None:
        """Wait until the journal is on disk: what is published must follow from it for ever."""
        self._journal.flush()
        os.fsync(self._journal.fileno())

    @classmethod
    def rebuilt(cls, path: Path, server: Server) -> None:
        """Feed the journal of a folder to a new server; change nothing."""
        self = cls(path)
        try:
            self._journal = io.StringIO((path / JOURNAL).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise self._damaged(0, error) from None
        self.replay(server)

    def keep_only(self, server: Server) -> None:
        """Put everything that has reached a server in the place of the journal."""
        self._journal.truncate(0)
        self._kept = 0
        self.keep(server)

    def rebuild(self, server: Server, settings: Settings) -> None:
        """Feed the journal to a new server; if the run failed, let it ask again who was missing."""
        self.refuse_passed(settings)
        self.replay(server)
        if self.failures or (server.failure is not None and settings.clock == "virtual"):
            server.retry()

    def refuse_passed(self, settings: Settings) -> None:
        """Raise if the run failed in a slot of the wall clock, which does not come again."""
        if not self.failures or settings.clock != "wall":
            return
        if any(
            isinstance(one, dict) and one.get("input") == "closed" for _, one in self._entries()
        ):
            raise InvalidInput(
                "run folder",
                f"{self.path} of a run that failed by the wall clock",
                "one that failed by the virtual clock, or before its first slot ended",
                "The slots have passed: start a new run.",
            )

    def replay(self, server: Server) -> None:
        """Feed the journal to a new server."""
        for number, entry in self._entries():
            try:
                server.feed(entry)
            except (KeyError, TypeError, AttributeError, ValueError, BadMessage) as error:
                raise self._damaged(number, error) from None
        self._kept = len(server.inputs)

    def close(self) -> None:
        """Let another process have the folder."""
        self._journal.close()

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        self._journal = os.fdopen(
            owners_only(str(self.path / JOURNAL), flags), "a+", encoding="utf-8"
        )
        try:
            import fcntl  # noqa: PLC0415  (there is none on Windows)

            fcntl.flock(self._journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # pragma: no cover
            pass
        except OSError:
            self._journal.close()
            raise InvalidInput(
                "run folder", f"{self.path} of a run under way", "one that no process works on"
            ) from None

    def _entries(self) -> Iterator[tuple[int, dict[str, Any]]]:
        self._journal.seek(0)
        try:
            text = self._journal.read()
        except UnicodeDecodeError as error:
            raise self._damaged(0, error) from None
        whole = text.rfind("\n") + 1
        if whole < len(text):  # cut off while it was written: its client sends it again
            self._journal.truncate(len(text[:whole].encode()))
        for number, line in enumerate(text[:whole].splitlines(), start=1):
            try:
                yield number, parse_json(line)
            except ValueError as error:
                raise self._damaged(number, error) from None
        self._journal.seek(0, os.SEEK_END)

    def _damaged(self, line: int, error: Exception) -> InvalidInput:
        return InvalidInput(
            "journal",
            f"line {line} of {self.path / JOURNAL} ({error!r})",
            "what a run wrote",
            "Start a new run: the clients' ledgers keep their account.",
        )


def refuse_version(path: Path, document: Any, read: Sequence[int] = READ) -> None:
    """Refuse a folder whose settings another version wrote, in a way that is not read here."""
    version = document.get("version") if isinstance(document, dict) else None
    if version not in read:
        allowed = " or ".join(map(str, read))
        raise InvalidInput(
            "run folder",
            f"{path} of version {version}",
            f"version {allowed}",
            "Use the release of Agewise that wrote it; keep the folder as it is.",
        )


def _absent(whole: dict[str, Any], part: dict[str, Any]) -> str:
    """The first key that is missing in a part, also in the tables inside it."""
    for key, value in whole.items():
        if key not in part:
            return key
        deeper = _absent(value, part[key]) if isinstance(value, dict) else ""
        if deeper:
            return f"{key}.{deeper}"
    return ""


def how_to_retry(place: RunFolder | None, settings: Settings) -> str:
    """What to do about a run that failed, where it can go on."""
    if place is None or settings.clock == "wall":
        return ""
    above = place.path.parent
    if (above / ROUNDS).exists():
        return f"Once that is repaired: agewise rounds --resume {above}"
    return f"Once that is repaired: agewise run --resume {place.path}"


def _failures(record: Path) -> list[str]:
    """Why a run has failed so far, by its record; raise if it has ended with a model."""
    if not record.exists():
        return []
    try:
        document = parse_json(record.read_text(encoding="utf-8"))
        if document["complete"] is False:
            return [*map(str, document.get("earlier_failures", [])), str(document["failure"])]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # what cannot be read is left as it is
    raise InvalidInput(
        "run folder",
        f"{record.parent} of a run that has ended",
        "one that was interrupted or failed",
        f"Its record is {record}.",
    )


def checked_folder(path: Path | str | None) -> Path:
    """Refuse a folder that holds a run already, or cannot be made."""
    if path is None:
        raise InvalidInput("folder", "None", "a folder for the run", "Flower needs one.")
    folder = Path(path)
    if (folder / ROUNDS).exists() or (folder / SETTINGS).exists():
        raise InvalidInput(
            "run folder",
            str(folder),
            "a folder without a run",
            "Resume that run, or give another folder.",
        )
    probe_folder("run folder", folder)
    return folder
