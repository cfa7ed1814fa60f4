"""Replay recorded days: what plans would have cost, and what an adversary would have found out.

Both are judged on days after those that the laws were fitted to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student

from agewise.errors import InvalidInput
from agewise.federation.local import replay
from agewise.federation.sources import RecordedReadings
from agewise.fitting.laws import Codes, fit_chain, fit_lag_law
from agewise.fitting.readings import Readings
from agewise.fitting.states import States
from agewise.loss.gap import cost_tables
from agewise.mixing import delta
from agewise.plan import Plan, assemble
from agewise.planning import plan as make_plan
from agewise.privacy.ageing import classical_epsilon
from agewise.problem import Problem
from agewise.process import MarkovChain
from agewise.process.joint import Array
from agewise.scheduling import Schedule, random_schedule

BY_CHANCE = 1 / 2000
"""How often an adversary may be called too good who is not (Student's t over households)."""
FEWEST = 5
"""Households that a judgement needs."""


@dataclass(frozen=True)
class Replayed:
    """A scheme over recorded days: mean loss against the present mean, and what was promised."""

    scheme: str
    days: int
    mean_loss: float
    standard_error: float
    promised: float
    ages: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return asdict(self)


def replay_plans(
    problem: Problem,
    readings: Readings,
    states: States,
    groups: Mapping[str, Sequence[str]],
    *,
    first_slot: int,
    rng: np.random.Generator,
    progress: Callable[[int, int], None] | None = None,
) -> list[Replayed]:
    """Carry plans out on recorded days: the local engine with OpenDP's noise, nothing recorded.

    `groups` names each client's entities, `first_slot` the slot of the day (from 0) that is slot
    1. Every day without gaps is a run of its own. The schemes: records as collected, records
    moved forward, everything fresh, and a random schedule. The loss is the squared distance to
    the weighted mean of the entities' states in the aggregation slot. For a fair judgement the
    problem's laws come from other days.
    """
    slots, day = problem.aggregate_at, readings.day
    codes = states.index(readings.values)
    rows = {name: readings.rows(name, members) for name, members in groups.items()}
    taken = [row for members in rows.values() for row in members]
    begin = (first_slot - readings.first_of_day) % day
    starts = range(begin, codes.shape[1] - slots + 1, day)
    schemes = _schemes(problem, rng)
    losses: dict[str, list[float]] = {name: [] for name in schemes}
    for number, start in enumerate(starts):
        if (codes[taken, start : start + slots] >= 0).all():
            window = states.values[codes[:, start : start + slots]]
            present = math.fsum(
                w * float(window[rows[c.name], -1].mean())
                for w, c in zip(problem.weights, problem.clients, strict=True)
            )
            sources = {
                name: RecordedReadings(name, None, dict(enumerate(window[members].T, start=1)))
                for name, members in rows.items()
            }
            for name, plan in schemes.items():
                losses[name].append((replay(plan, sources).model - present) ** 2)
        if progress is not None:
            progress(number + 1, len(starts))
    if min(len(found) for found in losses.values()) < 2:
        raise InvalidInput("readings", "fewer than two whole days to replay", "more days")
    return [
        Replayed(
            name, len(found), float(np.mean(found)),
            float(np.std(found, ddof=1)) / math.sqrt(len(found)), schemes[name].gap,
            tuple(schemes[name].ages),
        )
        for name, found in losses.items()
    ]  # fmt: skip


def _schemes(problem: Problem, rng: np.random.Generator) -> dict[str, Plan]:
    plain, moved = problem.replace(estimator="plain"), problem.replace(estimator="propagated")
    clients, slots = len(problem.clients), problem.aggregate_at
    fresh = np.full(clients, slots - 1)
    drawn = random_schedule(clients, slots, rng, problem.capacity)

    def fixed(columns: Any, how: str) -> Plan:
        tables = cost_tables(plain)
        return assemble(plain, tables, Schedule(columns, 0.0, None, 0), how)

    return {
        "plain": make_plan(plain),
        "propagated": make_plan(moved),
        "classical, fresh": fixed(fresh, "fresh"),
        "random": fixed(drawn, "random"),
    }


@dataclass(frozen=True)
class Attack:
    """What a replayed adversary achieved against one way of setting the noise.

    He knows every other record, the noise, and each household's own measured law. For each state
    he says "it is in that state now" when the release makes that likelier. `hits` is how often he
    says so where it is true, `false_alarms` where it is not, means over households and states.
    The claimed ε allows hits of at most e^ε times the false alarms, in each household; `excess`
    is by how many standard errors (over households) he beats that, `chance` how often one who
    just keeps to it looks as good (Student's t), and `too_good` if that is less than 1 in 2,000.
    """

    claim: str
    age: int
    delta: float
    noise_scale: float
    households: int
    hits: float
    false_alarms: float
    allowed_ratio: float
    excess: float
    chance: float
    too_good: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return asdict(self)


def replay_adversary(
    readings: Readings,
    states: States,
    *,
    epsilon: float,
    first_slot: int,
    slots: int,
    collect_at: int = 1,
    records: int = 1,
    train: float = 0.5,
    confidence: float = 0.95,
    seed: int = 0,
) -> list[Attack]:
    """Guess households' present states from releases, with noise by two claims about Δ.

    `measured` sets the noise for the upper limit on Δ of each household's measured law; `chain`
    for the Δ of the homogeneous chain fitted to it, which is what readings with a habit make
    false. A release is one household's part of a mean over `records` records.
    """
    day = readings.day
    before, after = (states.index(part.values) for part in readings.split(train))
    rng = np.random.default_rng(seed)
    begin = (first_slot - readings.first_of_day) % day
    days = np.arange(begin, after.shape[1] - slots + 1, day)
    age = slots - collect_at
    found: dict[str, list[_Tally]] = {"measured": [], "chain": []}
    for known, one in zip(before, after, strict=True):
        old, new = one[days + collect_at - 1], one[days + slots - 1]
        good = (old >= 0) & (new >= 0)
        old, new = old[good], new[good]
        seen = np.concatenate([known, one])
        if np.unique(seen[seen >= 0]).size < states.values.size or np.unique(new).size < 2:
            continue  # never in some state, or always in the same one when it counts
        law = fit_lag_law(
            known[None], states.values, day, first_slot=first_slot, slots=slots,
            starts=readings.first_of_day, confidence=confidence,
        ).law  # fmt: skip
        joint = law.joints[collect_at - 1] + 1e-4
        chain = fit_chain(known[None], states.values)
        deltas = {
            "measured": float(law.limits[collect_at - 1]),
            "chain": _chain_delta(chain, age),
        }
        for claim, share in deltas.items():
            reach = float(np.ptp(states.values)) / records
            scale = reach / classical_epsilon(epsilon, share) if share > 0 else 0.0
            hits, alarms = _rates(old, new, joint, states.values / records, scale, rng)
            found[claim].append(_Tally(share, scale, hits, alarms))
    if len(found["chain"]) < FEWEST:
        count = len(found["chain"])
        raise InvalidInput(
            "readings", f"{count or 'no'} household(s) in all states and changing when it counts",
            f"{FEWEST} or more", "Choose other states.",
        )  # fmt: skip
    return [_judge(claim, age, rows, epsilon) for claim, rows in found.items()]


def _chain_delta(chain: MarkovChain, age: int) -> float:
    return float(delta(chain, age)) if age else 1.0


@dataclass(frozen=True)
class _Tally:
    delta: float
    scale: float
    hits: float
    alarms: float


def _rates(
    old: Codes, new: Codes, joint: Array, parts: Array, scale: float, rng: np.random.Generator
) -> tuple[float, float]:
    """How often a state is called where it is true, and where it is not: means over states."""
    seen = parts[old] + (rng.laplace(0, scale, old.size) if scale > 0 else 0.0)
    if scale > 0:
        weight = np.exp(-np.abs(seen[:, None] - parts[None]) / scale)
    else:
        weight = (seen[:, None] == parts[None]).astype(float)
    together = weight @ joint  # of the release and each present state
    prior = joint.sum(axis=0)
    rest = (together.sum(axis=1, keepdims=True) - together) / (1 - prior)
    called = together / prior > rest
    true = new[:, None] == np.arange(parts.size)[None]
    there = true.any(axis=0) & ~true.all(axis=0)
    hits = (called & true).sum(axis=0)[there] / true.sum(axis=0)[there]
    alarms = (called & ~true).sum(axis=0)[there] / (~true).sum(axis=0)[there]
    return float(hits.mean()), float(alarms.mean())


def _judge(claim: str, age: int, rows: list[_Tally], epsilon: float) -> Attack:
    """Households are the units: each one by itself must keep to the claim."""
    allowed = math.exp(epsilon)
    beyond = np.array([row.hits - allowed * row.alarms for row in rows])
    mean, error = float(beyond.mean()), float(beyond.std(ddof=1)) / math.sqrt(beyond.size)
    excess = mean / error if error > 0 else math.copysign(math.inf, mean) if mean else 0.0
    chance = float(student.sf(excess, beyond.size - 1))
    return Attack(
        claim, age, float(np.median([r.delta for r in rows])),
        float(np.median([r.scale for r in rows])), len(rows),
        float(np.mean([r.hits for r in rows])), float(np.mean([r.alarms for r in rows])), allowed,
        excess, chance, chance < BY_CHANCE,
    )  # fmt: skip
