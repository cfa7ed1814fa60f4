"""Many rounds on Flower: each is a run of its own, submitted when the one before has ended.

The server tells nodes how many slots lie before a round. Their own scenario says which rounds there
are, so that no server can have a round at another distance, or one more. How much time has passed
they do not know: a server that counts slots faster than they pass is believed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from agewise.errors import InvalidInput
from agewise.federation.common_levels import CommonLevels
from agewise.federation.flower import require_flower
from agewise.federation.flower.engine import follow
from agewise.federation.flower.federation import Federation, find_nodes
from agewise.federation.journal import SETTINGS, RunFolder
from agewise.federation.result import RunResult, Watcher
from agewise.federation.settings import Settings
from agewise.federation.sources import DataSource, RoundRecords
from agewise.planning import Plan
from agewise.privacy.account import Policy


def prepare_rounds(
    place: Path,
    plan: Plan,
    settings: Settings,
    count: int,
    *,
    superlink: str | None,
    root_certificates: Path | str | None,
    policy: Policy | None,
    sources: Mapping[str, DataSource] | Path | str | None,
    starts_at: int,
) -> Settings:
    """Lay a federation out for all rounds, or check the one that is there; return the settings."""
    require_flower()
    if isinstance(sources, Mapping):
        raise InvalidInput(
            "sources", "objects", "a file of readings, on Flower", "Nodes read their own records."
        )
    own = settings.deployment is None and superlink is None
    every = plan.problem.every or 1
    if not own and starts_at % every:
        raise InvalidInput("starts_at", starts_at, f"a multiple of {every} slots, a round each")
    first = 0 if own else starts_at
    settings = replace(settings, engine="flower", started=0.0, starts_at=first)
    return find_nodes(
        place,
        plan,
        settings,
        superlink=superlink,
        root_certificates=root_certificates,
        policy=policy,
        sources=sources,
        starts_at=starts_at,
        befores=(first, first + (count - 1) * every),
    )


class FlowerRounds:
    """Rounds on the nodes of one federation, which stays up between them. A `Carrier`."""

    def __init__(self, plan: Plan, settings: Settings, place: Path) -> None:
        require_flower()
        self.plan, self.place, self.first = plan, place, settings.starts_at
        self.federation = Federation(settings, place)
        seeds = self.federation.seeds()
        levels = {seed: CommonLevels(plan.problem, seed) for seed in set(seeds.values())}
        self.paths = {
            c.name: RoundRecords(c, seeds[c.name], levels[seeds[c.name]].of(c.name))
            for c in plan.problem.clients
            if c.name in seeds
        }

    def carry_out(
        self,
        folder: Path,
        plan: Plan,
        settings: Settings,
        before: int,
        watch: Watcher | None,
        heads: Mapping[str, str],  # noqa: ARG002
    ) -> RunResult:
        """Submit a round and wait for its result, or go on with what was submitted.

        The ServerApp remembers `heads` itself: what is submitted goes to every node.
        """
        if (folder / SETTINGS).exists():
            opened, plan, settings = RunFolder.reopen(folder)
        else:
            settings = self._timed(settings, before)
            if self.federation.own:  # so that `agewise check` finds them from a round's folder
                nodes = self.federation.deployment.folder / "nodes"
                settings = replace(settings, ledgers=str(nodes))
            opened = RunFolder.create(folder, plan, settings)
        records = self.records(before)
        known = len(records) == len(self.plan.problem.clients)
        return follow(
            opened,
            plan,
            settings,
            self.federation,
            records.__getitem__ if known else None,
            watch,
            settings.starts_at,
        )

    def records(self, before: int) -> Mapping[str, DataSource]:
        """The records of nodes on this machine that simulate them."""
        return {name: path.later(self.first + before) for name, path in self.paths.items()}

    def close(self) -> None:
        """Take the federation down, if it is the run's own."""
        self.federation.close()

    def _timed(self, settings: Settings, before: int) -> Settings:
        """By the wall clock, rounds follow the first, which began when the nodes were there."""
        if settings.clock != "wall" or before == 0:
            return settings
        _, first = RunFolder.load(self.place / "00001")
        return replace(settings, started=first.started + before * settings.slot_seconds)
