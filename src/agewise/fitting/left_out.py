"""Entities that take no part: why, whether they are too many, and what they would be worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from agewise.errors import InvalidInput
from agewise.fitting.measure import STILL, UNUSABLE, Measure, Part
from agewise.planning import plan
from agewise.problem import Client, Problem


@dataclass(frozen=True)
class Forgone:
    """What entities that were left out would be worth: each pair is without and with them.

    `noise` is the standard deviation of the noise in the aggregate, `loss` the gap of the best plan
    (unit squared).
    """

    entities: int
    whose: str
    how: str
    records: tuple[int, int]
    noise: tuple[float, float]
    loss: tuple[float, float]

    def sentence(self, unit: str) -> str:
        """Say it to people."""
        of, square = (f" {unit}", f" {unit}²") if unit else ("", "")
        noise, loss = ([_rounded(x) for x in pair] for pair in (self.noise, self.loss))
        return (
            f"With the {self.entities} left out {self.whose}, there would be {self.records[1]} "
            f"records instead of {self.records[0]}, noise of {noise[1]} instead of {noise[0]}{of} "
            f"(standard deviation) and a loss of {loss[1]} instead of {loss[0]}{square}: "
            f"{self.how}."
        )


def _rounded(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def left_out(
    parts: list[Part], entities: Sequence[str], worst_limit: float
) -> list[tuple[str, str]]:
    """Name those that were read and take no part, each with the reason."""
    return [
        (entities[row], reason)
        for part in parts
        for rows, reason in ((part.still, STILL), (part.weak, f"limit above {worst_limit:g}"))
        for row in rows
    ]


def refuse_few(parts: list[Part], worst_limit: float, most_left_out: float) -> None:
    """Refuse if nobody takes part, or if more are left out than may be."""
    kept = sum(len(part.rows) for part in parts)
    reasons = {
        UNUSABLE: (sum(part.unusable for part in parts), "Complete the readings."),
        STILL: (
            sum(len(part.still) for part in parts),
            "Choose other states, or look for another unit among the readings.",
        ),
        f"limit above {worst_limit:g}": (
            sum(len(part.weak) for part in parts),
            "Fewer states, more days, adversary population "
            "or worst_limit (--worst-limit) 1 would keep them.",
        ),
    }
    gone = sum(count for count, _ in reasons.values())
    why = "; ".join(f"{reason}: {count}" for reason, (count, _) in reasons.items() if count)
    if not kept:
        raise InvalidInput(
            "readings",
            f"no entity that can take part ({why})",
            "one or more",
            "There is no credit for ageing to be had from them: more days, fewer or other states, "
            "or a lower confidence may help.",
        )
    if gone > most_left_out * (kept + gone):
        _, remedy = max(reasons.values())
        raise InvalidInput(
            "readings",
            f"{gone} of {kept + gone} entities left out ({why})",
            f"{most_left_out:.0%} left out at most",
            f"{remedy} Or, if the others will do, say most_left_out (--most-left-out) "
            f"{gone / (kept + gone) + 0.005:.2f}.",
        )


def find_forgone(
    problem: Problem, parts: list[Part], measure: Measure, factors: int | None = None
) -> tuple[Forgone, ...]:
    """What those left out would be worth, where they would make the plan better.

    Of those with too high a limit the readings say how they move; the others are taken to lower
    the noise and nothing else.
    """
    mine = {client.name: client for client in problem.clients}
    weak = {part.client: part.rows + part.weak for part in parts if part.weak}
    with_weak = dict(mine)
    for name, rows in weak.items():
        with_weak[name] = Client(name, measure.law(name, rows)[0], samples=len(rows))
    more = {part.client: part.unusable + len(part.still) for part in parts}
    missing = [f"with {UNUSABLE}"] if any(part.unusable for part in parts) else []
    missing += [STILL] if any(part.still for part in parts) else []
    fuller = {
        name: replace(client, samples=client.samples + more[name]) for name, client in mine.items()
    }
    cases = (
        (
            sum(len(part.weak) for part in parts),
            f"whose limit is above {measure.worst_limit:g}",
            "worst_limit (--worst-limit) 1 keeps them",
            with_weak,
        ),
        (
            sum(more[name] for name in mine),
            " or ".join(missing),
            "if they could be used, and followed the same law",
            fuller,
        ),
    )
    forgone = []
    for entities, whose, how, clients in cases:
        if entities:
            members, known = tuple(clients.values()), problem.knowledge
            changed = problem.replace(clients=members, knowledge=None)
            if clients is with_weak and known is not None:
                together = {part.client: part.rows + part.weak for part in parts}
                everybody = [together[client.name] for client in members]
                known = measure.knowledge(changed, everybody, factors)
            changed = changed.replace(knowledge=known)
            now, then = _worth(problem), _worth(changed)
            if then[2] < now[2]:
                pairs = (now[0], then[0]), (now[1], then[1]), (now[2], then[2])
                forgone.append(Forgone(entities, whose, how, *pairs))
    return tuple(forgone)


def _worth(problem: Problem) -> tuple[int, float, float]:
    """Records, standard deviation of the noise in the aggregate, and loss of the best plan."""
    best = plan(problem)
    noise = math.sqrt(2) * np.linalg.norm(problem.weights * best.noise_scales)
    return sum(client.samples for client in problem.clients), float(noise), best.gap
