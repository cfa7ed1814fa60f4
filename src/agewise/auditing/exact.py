"""The exact tier: the true loss of every planned release, of finite chains, against its claim."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from agewise.arrays import Array
from agewise.auditing.any_prior import Unknown, single_loss
from agewise.auditing.findings import CERTAIN, Finding, Verdict, judged
from agewise.auditing.gaussian import failure_between
from agewise.auditing.losses import (
    Lasting,
    Loss,
    Sent,
    ahead_rows,
    bounded_apart,
    loss_about,
    reached_apart,
)
from agewise.auditing.outward import Between
from agewise.auditing.paths import EveryValue, Path
from agewise.learning import Trained
from agewise.planning import Assignment
from agewise.problem import Client, Problem, Target

MOST_STATES = 24
"""States up to which the programs of many rounds are solved."""
MOST_MOMENTS = 400
"""Slots asked about, for a promise about several of them."""

Advance = Callable[[int, int], None]


def examine(
    problem: Problem,
    assignments: Sequence[Assignment],
    advance: Advance = lambda _done, _total: None,
) -> Iterator[Finding]:
    """One finding per claim of a plan: sensitivity and classical ε, and the ε of the promise.

    Clients alike, with the same assignment, are examined once.
    """
    kinds: dict[object, tuple[Client, Assignment, list[str]]] = {}
    for client, one in zip(problem.clients, assignments, strict=True):
        key = (
            client.process.fingerprint,
            client.law,
            client.samples,
            client.turn,
            problem.target_of(client),
            *(value for name, value in vars(one).items() if name != "client"),
        )
        kinds.setdefault(key, (client, one, []))[2].append(client.name)
    for done, (client, one, names) in enumerate(kinds.values()):
        advance(done, len(kinds))
        subject = f"client {names[0]!r}"
        if len(names) > 1:
            subject += f" and {len(names) - 1} alike"
        yield from _examine(problem, client, one, subject)
    advance(len(kinds), len(kinds))


def _examine(problem: Problem, client: Client, one: Assignment, subject: str) -> Iterator[Finding]:
    target = problem.target_of(client)
    at, last = one.collect_at, problem.aggregate_at
    if not 1 <= at <= last:
        yield Finding(
            "exact",
            subject,
            "collects before it aggregates",
            "refuted",
            last,
            at,
            detail=f"slot {at}",
        )
        return
    if isinstance(problem.learner, Trained):
        yield Finding(
            "exact",
            subject,
            "ε",
            "not examined",
            one.aged_epsilon,
            detail="what is released depends on the model so far",
        )
        return
    within = one.aged_epsilon <= target.epsilon * (1 + CERTAIN)
    yield Finding(
        "exact",
        subject,
        "ε within the target",
        "proven" if within else "refuted",
        target.epsilon,
        one.aged_epsilon,
        one.aged_epsilon,
        detail="" if within else f"the plan itself says {one.aged_epsilon:.6g}",
    )
    values = released(problem, client, at) / client.samples
    norm = 2 if target.mechanism == "gaussian" else 1
    pairs = values[..., :, None, :] - values[..., None, :, :]
    real = float(np.linalg.norm(pairs, ord=norm, axis=-1).max())
    yield Finding(
        "exact",
        subject,
        "sensitivity",
        "proven" if one.sensitivity >= real * (1 - 1e-9) else "refuted",
        one.sensitivity,
        real,
        real,
        detail=f"one record moves the mean by {real:.6g}",
    )
    if target.mechanism == "gaussian":
        yield _gaussian(problem, client, one, values, subject)
        return
    sent = Sent(at, values, one.noise_scale)
    classical = float(sent.apart(np.arange(client.process.states.size)).max())
    yield _judge(
        subject, "classical ε", one.classical_epsilon, Loss(classical * (1 - 1e-12), classical)
    )
    loss = promised_loss(client, target, sent, last)
    yield _judge(subject, f"ε about {_about(target, last)}", one.aged_epsilon, loss)


def released(problem: Problem, client: Client, collect_at: int) -> Array:
    """What each state of a record contributes, times the number of records: `[S, d]`.

    Where clients share a level, whatever an aged record of each state may be moved to, `[G, S, d]`.
    """
    table = np.asarray(problem.learner.table(client.process.states), float)
    if problem.estimator == "propagated" and collect_at < problem.aggregate_at:
        kernel = Path(client.process).kernel(collect_at, problem.aggregate_at)
        return np.asarray((kernel.low + kernel.high) / 2 @ table)
    if problem.level is not None and collect_at < problem.aggregate_at:
        return moved_by_levels(client.process.states)
    return table


def moved_by_levels(states: Array) -> Array:
    """The nearest states of records that a level has moved, for every shift: `[G, S, 1]`."""
    ordered = np.sort(states)
    turning = np.unique(((ordered[1:] + ordered[:-1]) / 2)[:, None] - states)
    inner = (turning[1:] + turning[:-1]) / 2
    tables = []
    for shift in (turning[0] - 1, *inner, turning[-1] + 1):
        away = np.abs(states + shift - ordered[:, None])
        tables.append(ordered[away.argmin(axis=0)])
    return np.unique(np.array(tables), axis=0)[..., None]


def _judge(subject: str, claim: str, claimed: float, loss: Loss) -> Finding:
    verdict = judged(claimed, loss.reached, loss.bound)
    found = f"{claim} is claimed to be {claimed:.6g}, and some output tells {loss.reached:.6g}"
    return Finding(
        "exact",
        subject,
        claim,
        verdict,
        claimed,
        max(loss.reached, 0.0),
        loss.bound,
        detail=found if verdict == "refuted" else "",
    )


def _about(target: Target, last: int) -> str:
    if target.promise == "every_moment":
        return "every moment"
    rounds = "for ever" if target.rounds is None else f"{target.rounds} rounds"
    again = "" if target.rounds == 1 else f", {rounds}"
    if target.promise == "present":
        return (f"slot {last}" if target.rounds == 1 else "each publication") + again
    return f"the last {target.promise} slots{again}"


def promised_loss(client: Client, target: Target, sent: Sent, last: int) -> Loss:
    """What is told about what is promised, by all rounds; `sent` is the release of the last one."""
    process = client.process
    if target.mixing == "any_prior":
        if not target.lasting:
            return single_loss(EveryValue(process), sent, last)
        return _lasting(EveryValue(process), target, sent, last, Unknown)
    law = None
    if target.mixing == "own_law" and client.law is not None:
        law = np.asarray(client.law)
    path = Path(process, law, sent.slot)
    if not target.lasting:
        return loss_about(path, [sent], last)
    return _lasting(path, target, sent, last, Lasting)


def _lasting(path: Path, target: Target, sent: Sent, last: int, past: type[Lasting]) -> Loss:
    """The loss over rounds, each like the last."""
    every, rounds = target.every or 1, target.rounds
    if path.size > MOST_STATES:
        return Loss(0.0, math.inf)
    if target.promise == "every_moment" and rounds == 1:
        whole = past(path, sent, every, 1)
        return _worst([(whole.reached(sent.slot), whole.bound(sent.slot))])
    if target.promise == "present":
        whole = past(path, sent, every, rounds)
        return _worst([(whole.reached(last), whole.bound(last))])
    if target.promise == "every_moment":
        before = past(path, sent, every, None)
        next_one = Sent(sent.slot + every, sent.values, sent.scale)
        after = Lasting(path, next_one, every, None, ahead=True)
        slots = range(sent.slot, sent.slot + every)
        told = [
            (before.reached(s) + after.reached(s), before.bound(s) + after.bound(s))
            for s in slots[:MOST_MOMENTS]
        ]
        return _worst(told, all_seen=every <= MOST_MOMENTS)
    return _recent(path, target, sent, last, past)


def _recent(path: Path, target: Target, sent: Sent, last: int, past: type[Lasting]) -> Loss:
    """The loss about each of the last H slots, by all that is published by then."""
    every, rounds = target.every or 1, target.rounds
    told, known = [], {}
    slots = range(last - int(target.promise), last + 1)
    for about in slots[-MOST_MOMENTS:]:
        ahead = max(-(-(sent.slot - about) // every), 0)  # releases collected after that slot
        ahead = ahead if rounds is None else min(ahead, rounds)
        later = [Sent(sent.slot - k * every, sent.values, sent.scale) for k in range(ahead)]
        reached = reached_apart(path, later, about, ahead_rows(path))
        bound = bounded_apart(path, later, about, ahead_rows(path))
        if rounds is None or ahead < rounds:
            left = None if rounds is None else rounds - ahead
            if ahead not in known:
                one = Sent(sent.slot - ahead * every, sent.values, sent.scale)
                known[ahead] = past(path, one, every, left)
            reached = reached + known[ahead].reached(about)
            bound = bound + known[ahead].bound(about)
        told.append((reached, bound))
    return _worst(told, all_seen=len(slots) <= MOST_MOMENTS)


def _worst(told: Sequence[tuple[Array, Array]], *, all_seen: bool = True) -> Loss:
    ulp = float(np.finfo(float).eps)
    reached = max(float(one.max()) for one, _ in told)
    bound = max(float(one.max()) for _, one in told)
    return Loss(max(reached, 0.0) * (1 - 4 * ulp), bound * (1 + 4 * ulp) if all_seen else math.inf)


def _gaussian(
    problem: Problem, client: Client, one: Assignment, values: Array, subject: str
) -> Finding:
    """The δ of Gaussian noise at the ε that is claimed, for one number released once."""
    target, last = problem.target_of(client), problem.aggregate_at
    claim = f"δ at ε = {one.aged_epsilon:.6g} about slot {last}"
    if (
        values.shape[-1] > 1
        or target.lasting
        or target.mixing == "any_prior"
        or not one.noise_scale
    ):
        why = "the exact tier knows Gaussian noise on one number, released once, under one law"
        return Finding("exact", subject, claim, "not examined", target.delta, detail=why)
    law = np.asarray(client.law) if target.mixing == "own_law" and client.law else None
    path = Path(client.process, law, one.collect_at)
    rows: Between = path.backward(one.collect_at, last)
    support = path.support(one.collect_at)
    tables = values if values.ndim == 3 else values[None]
    found = [
        failure_between(rows, table[support, 0], one.noise_scale, one.aged_epsilon)
        for table in tables
    ]
    low, high = (max(ends) for ends in zip(*found, strict=True))
    verdict: Verdict = judged(target.delta, low, high)
    return Finding(
        "exact",
        subject,
        claim,
        verdict,
        target.delta,
        low,
        high,
        detail=f"the δ at this ε is {low:.3g} or more" if verdict == "refuted" else "",
    )
