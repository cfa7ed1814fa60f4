"""Plans as subjects of an audit: what they claim, as written, and their clients' own code."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path as File
from typing import Any

import numpy as np

from agewise.arrays import Array, nearest_states
from agewise.auditing.any_prior import worst_law
from agewise.auditing.black_box import BlackBox
from agewise.auditing.findings import Finding
from agewise.auditing.losses import Sent
from agewise.auditing.paths import EveryValue
from agewise.calibration import terms
from agewise.checks import parse_json
from agewise.errors import InvalidInput
from agewise.federation.client import private_noise
from agewise.learning import averages
from agewise.planning import Assignment, Plan
from agewise.planning.document import refuse_version
from agewise.problem import Client, Problem
from agewise.wording import out_of_words

MOST_ROUNDS_RUN = 3
"""Rounds that are run, of many."""


@dataclass(frozen=True)
class Claims:
    """What a plan says each client does, and what that guarantees: taken as written."""

    problem: Problem
    assignments: tuple[Assignment, ...]
    document: Finding | None = None
    """Whether all that a plan's file says follows from its scenario and its proof."""


def read_claims(file: File) -> Claims:
    """Read the claims of a plan's document, true or not; `Plan.from_json` refuses false ones."""
    from agewise.scenario import problem_from_dict  # noqa: PLC0415  (pydantic is slow to import)

    try:
        text = file.read_text(encoding="utf-8")
        document = parse_json(text)
        refuse_version(document)
        problem = problem_from_dict(document["scenario"])
        listed = [_assignment(entry) for entry in document["assignments"]]
        unheard = document.get("unheard", [])
    except OSError as error:
        raise InvalidInput(
            "plan", str(file), "a file that can be read", f"{error.strerror}."
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput("plan", f"{file} ({error!r})", "the output of Plan.to_json") from None
    if [one.client for one in listed] != [client.name for client in problem.clients]:
        raise InvalidInput("assignments", "other clients", "one for each client, in order")
    return replace(heard(problem, listed, unheard), document=_followed(file.name, text))


def _followed(name: str, text: str) -> Finding:
    """The rest of what a plan says, ages, losses and proof, computed anew."""
    claim = "all its numbers follow from its scenario"
    try:
        Plan.from_json(text)
    except InvalidInput as wrong:
        return Finding("replay", name, claim, "refuted", detail=str(wrong))
    return Finding("replay", name, claim, "proven")


def heard(problem: Problem, assignments: Any, unheard: Any = ()) -> Claims:
    """The claims about those clients of whom something is heard."""
    pairs = [
        (client, one)
        for client, one in zip(problem.clients, assignments, strict=True)
        if client.name not in unheard
    ]
    if len(pairs) < len(problem.clients) and pairs:
        total = sum(client.weight or 0.0 for client, _ in pairs)
        kept = [
            replace(c, weight=c.weight / total if c.weight is not None else None) for c, _ in pairs
        ]
        problem = problem.keep(kept, capacity=None)
    return Claims(problem, tuple(one for _, one in pairs))


def _assignment(entry: dict[str, Any]) -> Assignment:
    known = {field.name for field in fields(Assignment)}
    values = {name: out_of_words(value) for name, value in entry.items() if name in known}
    one = Assignment(**values)
    for name in ("sensitivity", "classical_epsilon", "noise_scale", "aged_epsilon"):
        value = getattr(one, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise InvalidInput(f"{name} of client {one.client!r}", value, "0 or more")
    if isinstance(one.collect_at, bool) or not isinstance(one.collect_at, int):
        raise InvalidInput(f"collect_at of client {one.client!r}", one.collect_at, "a slot")
    return one


def client_box(problem: Problem, client: Client, one: Assignment) -> BlackBox:
    """A client's own code as a black box: clip, mean and noise, for the slots of a plan.

    Many runs are one draw of noise on many means, as a gateway makes it for its members.
    """
    target, last, every = problem.target_of(client), problem.aggregate_at, problem.every or 1
    own = terms(
        replace(client, weight=None),
        target,
        problem.learner,
        problem.estimator,
        one.collect_at,
        last,
    )
    rounds = min(target.rounds or MOST_ROUNDS_RUN, MOST_ROUNDS_RUN)
    every *= client.turn
    slots = [one.collect_at + k * every for k in range(rounds)]
    about = last + (rounds - 1) * every
    if target.promise == "every_moment":
        about = slots[(rounds - 1) // 2]
    states = client.process.states

    def release(records: Array) -> Array:
        place = nearest_states(records.ravel(), states).reshape(-1, client.samples)
        counts = np.stack([(place == k).sum(axis=1) for k in range(states.size)], axis=1)
        means = averages(counts, own.release)
        noised = np.asarray(private_noise(means.ravel(), own, one.noise_scale).value)
        return noised.reshape(len(records), -1)

    law: Any = None
    if target.mixing == "own_law":
        law = client.law
    elif target.mixing == "any_prior" and about > slots[0]:
        sent = Sent(slots[0], own.release / client.samples, one.noise_scale)
        law = worst_law(EveryValue(client.process), sent, about)
    return BlackBox(
        release,
        client.process,
        one.aged_epsilon,
        target.delta,
        slots,
        about,
        law,
        client.samples,
        batched=True,
        noiseless=one.noise_scale == 0,
        name=f"client {client.name!r}",
    )
