"""What the server makes of all rounds that it has heard."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from agewise.federation.journal import RunFolder
from agewise.federation.server import Server
from agewise.federation.settings import Settings
from agewise.knowledge import Heard, Level, filter_heard
from agewise.mechanism import MECHANISMS
from agewise.planning import Plan
from agewise.problem import Problem

Release = tuple[int, float, tuple[float, ...]]
"""(slot of collection, counted over all rounds; noise scale; value)."""

MOST_HEARD = 60
"""Rounds that are listened to: what is older tells next to nothing."""

MOST_WORK = 10**9
"""Clients times the cube of rounds, at most: of many clients fewer rounds are used."""


def releases_in(folder: Path, plan: Plan, settings: Settings, before: int) -> dict[str, Any]:
    """What each client released in a round, from its journal."""
    server = Server(plan, settings.run, settings.on_missing, private=not settings.stand_in)
    RunFolder.rebuilt(folder, server)
    return {
        name: (upload.collect_at + before, upload.noise_scale, tuple(upload.value))
        for name, (upload, _) in server.received.items()
    }


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
        variance = MECHANISMS[problem.mechanism].variance
        levels: tuple[Level, ...] = tuple(problem.level or ())  # type: ignore[arg-type]
        counts = problem.learner.weights(problem.clients[0].process.states)
        values, loss = [], 0.0
        for k in range(problem.width):
            told, members = [], []
            for client, weight in zip(problem.clients, problem.weights.tolist(), strict=True):
                known = self.heard.get(client.name, [])
                table = problem.learner.table(client.process.states)[:, k]
                members.append(
                    Heard(
                        client.process.homogeneous,  # type: ignore[arg-type]
                        client.samples,
                        weight,
                        np.array([slot - at for at, _, _ in known], dtype=np.int64),
                        np.array([float(variance(np.asarray(s))) for _, s, _ in known]),
                        table,
                    )
                )
                told.append(np.array([value[k] for _, _, value in known]))
            found = filter_heard(members, levels)
            values.append(found.of(told))
            loss += float(counts[k]) * found.loss
        return tuple(values), loss
