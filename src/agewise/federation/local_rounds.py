"""Many rounds in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from agewise.federation.journal import SETTINGS, RunFolder
from agewise.federation.local import LocalRun, resume_locally
from agewise.federation.result import RunResult, Watcher
from agewise.federation.settings import Settings
from agewise.federation.sources import DataSource, RoundRecords, Shifted
from agewise.planning import Plan


class LocalRounds:
    """Rounds of clients in this process. A `Carrier`."""

    def __init__(
        self,
        plan: Plan,
        settings: Settings,
        place: Path,
        sources: Mapping[str, DataSource] | None,
    ) -> None:
        self.plan, self.place, self.sources = plan, place, sources
        self.ledgers = settings.ledgers or str((place / "ledgers").absolute())
        self.paths = {c.name: RoundRecords(c, settings.seed) for c in plan.problem.clients}

    def carry_out(
        self, folder: Path, settings: Settings, before: int, watch: Watcher | None
    ) -> RunResult:
        """Carry a round out, or go on with it."""
        sources = self.records(before)
        if (folder / SETTINGS).exists():
            return resume_locally(folder, sources=sources, watch=watch)
        settings = replace(settings, ledgers=self.ledgers, readings=None, own_sources=True)
        run = LocalRun(self.plan, settings, sources, None)
        run.prepare(folder)
        return run.carry_out(RunFolder.create(folder, self.plan, settings), watch)

    def records(self, before: int) -> Mapping[str, DataSource]:
        """The sources that were given, later on; or simulated records."""
        if self.sources is not None:
            return {name: Shifted(one, before) for name, one in self.sources.items()}
        return {name: path.later(before) for name, path in self.paths.items()}

    def close(self) -> None:
        """Nothing was started."""
