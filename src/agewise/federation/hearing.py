"""What the server makes of all rounds that it has heard."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from agewise.federation.journal import RunFolder
from agewise.federation.round_results import Round
from agewise.federation.server import Server
from agewise.federation.settings import Settings
from agewise.knowledge import Heard, Level, filter_heard
from agewise.loss.tables import noise_power
from agewise.planning import Plan
from agewise.problem import Problem

Release = tuple[int, float, tuple[float, ...]]
"""(slot of collection, counted over all rounds; noise scale; value)."""

MOST_HEARD = 60
"""Rounds that are listened to: what is older tells next to nothing."""

MOST_WORK = 10**9
"""Clients times the cube of rounds, at most: of many clients fewer rounds are used."""


def heard_in(folder: Path, plan: Plan, settings: Settings) -> Server:
    """The server of a round, from its journal."""
    server = Server(plan, settings.run, settings.on_missing, private=not settings.stand_in)
    RunFolder.rebuilt(folder, server)
    return server


def releases_of(server: Server, before: int) -> dict[str, Release]:
    """What each client released in a round."""
    return {
        name: (upload.collect_at + before, upload.noise_scale, tuple(upload.value))
        for name, (upload, _) in server.received.items()
    }


def later(
    plan: Plan, slots: dict[str, int], released: dict[str, Release], before: int
) -> dict[str, int]:
    """The slots of clients that have come later than planned: there they stay.

    Next time in its old slot, a client would be closer to this release than its rule allows.
    """
    planned = {one.client: one.collect_at for one in plan.assignments} | slots
    moved = {name: at - before for name, (at, _, _) in released.items()}
    return slots | {name: slot for name, slot in moved.items() if slot > planned[name]}


@dataclass
class Hearing:
    """All that was heard so far, and the estimate from it."""

    problem: Problem
    heard: dict[str, list[Release]] = field(default_factory=dict)

    def add(self, releases: dict[str, Release]) -> None:
        """Take what a round has brought."""
        clients = len(self.problem.clients)
        most = max(1, min(MOST_HEARD, int((MOST_WORK / clients) ** (1 / 3))))
        for name, release in releases.items():
            self.heard[name] = [*self.heard.get(name, []), release][-most:]

    def estimate(self, slot: int) -> tuple[tuple[float, ...], float]:
        """The best linear estimate of the target in a slot, and what it loses."""
        problem = self.problem
        levels: tuple[Level, ...] = tuple(problem.level or ())  # type: ignore[arg-type]
        counts = problem.learner.weights(problem.clients[0].process.states)
        values, loss = [], 0.0
        for k in range(problem.width):
            told, members = [], []
            for client, weight in zip(problem.clients, problem.weights.tolist(), strict=True):
                known = self.heard.get(client.name, [])
                table = problem.learner.table(client.process.states)[:, k]
                collected = np.array([at for at, _, _ in known], dtype=np.int64)
                late = (problem.aggregate_at - collected) % (problem.every or 1)
                members.append(
                    Heard(
                        client.process.homogeneous,  # type: ignore[arg-type]
                        client.records,
                        weight,
                        slot - collected,
                        noise_power(problem, client, [scale for _, scale, _ in known]),
                        table,
                        fresh=late == 0,
                    )
                )
                told.append(np.array([value[k] for _, _, value in known]))
            found = filter_heard(members, levels)
            values.append(found.of(told))
            loss += float(counts[k]) * found.loss
        return tuple(values), loss


def silent_round(
    last: Round, run: str, hearing: Hearing, every: int, truth: tuple[float, ...] | None
) -> Round:
    """A round in which nobody takes part: an estimate from the earlier ones, and nothing spent."""
    slot = last.published_at + every
    estimate, gap = hearing.estimate(slot)
    return replace(
        last,
        number=last.number + 1,
        run=run,
        published_at=slot,
        aggregate=estimate,
        expected_gap=gap,
        estimate=estimate,
        estimate_gap=gap,
        realised_loss=None,
        truth=truth,
        participants=0,
        missing=(),
    )
