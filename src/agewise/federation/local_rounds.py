"""Many rounds in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from agewise.errors import InvalidInput
from agewise.federation.common_levels import CommonLevels
from agewise.federation.journal import SETTINGS, RunFolder
from agewise.federation.ledgers import Ledgers, own_ledgers
from agewise.federation.local import LocalRun, resume_locally
from agewise.federation.result import RunResult, Watcher
from agewise.federation.settings import Settings
from agewise.federation.sources import DataSource, RoundRecords, Shifted
from agewise.planning import Plan


class Carrier(Protocol):
    """Carries single rounds out: the clients of this process, or the nodes of a federation."""

    def carry_out(
        self,
        folder: Path,
        plan: Plan,
        settings: Settings,
        before: int,
        watch: Watcher | None,
        heads: Mapping[str, str],
    ) -> RunResult:
        """Carry out a round that so many slots lie `before`, or go on with it, in its folder.

        `heads` are the newest releases of clients in earlier rounds.
        """

    def records(self, before: int) -> Mapping[str, DataSource]:
        """Each client's records in such a round, as far as they are known here."""

    def close(self) -> None:
        """End what was started for the rounds."""


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
        own = own_ledgers(place, len(plan.problem.clients)).absolute()
        self.ledgers, self.own = settings.ledgers or str(own), settings.ledgers is None
        levels = CommonLevels(plan.problem, settings.seed)
        self.paths = {
            c.name: RoundRecords(c, settings.seed, levels.of(c.name)) for c in plan.problem.clients
        }

    def carry_out(
        self,
        folder: Path,
        plan: Plan,
        settings: Settings,
        before: int,
        watch: Watcher | None,
        heads: Mapping[str, str],
    ) -> RunResult:
        """Carry a round out, or go on with it."""
        sources = self.records(before)
        if (folder / SETTINGS).exists():
            return resume_locally(folder, sources=sources, watch=watch)
        if self.plan.problem.server_adds_noise:
            self._refuse_forgotten(folder, settings.run)
        settings = replace(settings, ledgers=self.ledgers, readings=None, own_sources=True)
        run = LocalRun(plan, settings, sources, None)
        run.server.remember(heads)
        run.prepare(folder)
        return run.carry_out(RunFolder.create(folder, plan, settings), watch)

    def _refuse_forgotten(self, folder: Path, run: str) -> None:
        """Refuse to draw for means that were sent already, in a folder that is not there any more.

        The clients would send the same means, and a second draw would tell more of them.
        """
        ledgers = Ledgers(Path(self.ledgers), own=self.own)
        for client in self.plan.problem.clients:
            with ledgers.of(client.name, preparing=True) as ledger:
                sent = ledger is not None and ledger.find(run) is not None
            if sent:
                ledgers.close()
                raise InvalidInput(
                    "run folder",
                    f"{folder} is missing, though client {client.name!r} has sent its mean",
                    "the folder, with the server's ledger",
                    "Restore it, or start a new run: nothing may be drawn twice.",
                )
        ledgers.close()

    def records(self, before: int) -> Mapping[str, DataSource]:
        """The sources that were given, later on; or simulated records."""
        if self.sources is not None:
            return {name: Shifted(one, before) for name, one in self.sources.items()}
        return {name: path.later(before) for name, path in self.paths.items()}

    def close(self) -> None:
        """Nothing was started."""
