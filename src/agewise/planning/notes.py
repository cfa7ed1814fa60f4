"""What someone who defends a plan's ε should know."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from agewise.knowledge import Levels
from agewise.learning import counts_together
from agewise.loss.estimator import rehearsed_gaps
from agewise.loss.gap import nothing_collected
from agewise.loss.kinds import PASSING, told_of
from agewise.loss.training import is_trained, rehearsals
from agewise.mixing import MIXINGS
from agewise.planning.plan import Assignment
from agewise.planning.promise import promise_in_words, rounds_in_words
from agewise.problem import Problem
from agewise.wording import listed

BARE = 10.0
"""ε beyond which a release protects hardly anything of what that ε is about."""

WEAK = 3.0
"""Target ε beyond which a plan says how far one release can change anyone's odds."""


def search_notes(
    problem: Problem, method: str, planned_from: int | None, complete: bool
) -> list[str]:
    """How the schedule came about, where that is not what one would expect."""
    notes = [] if planned_from is None else [f"Planned anew from slot {planned_from}."]
    if not complete:
        notes.append("The search was interrupted; this is the best schedule until then.")
    if method == "certified" and problem.objective != "exact":
        notes.append(
            f"Certified search minimised the closed form, not the {problem.objective} objective: "
            "that one does not separate by client."
        )
    return notes


def warnings(problem: Problem, assignments: Sequence[Assignment]) -> list[str]:
    """What the ε of a plan rests on, and what it leaves open."""
    notes = [problem.origin] if problem.origin else []
    if problem.server_adds_noise:
        notes.append(
            "Every ε is about what is published, by a server that is honest: it sees the clients' "
            "means as they are. If that trust is misplaced, their classical ε is infinite."
        )
    if problem.rounds != 1 or problem.promise != "present":
        notes.append(
            f"ε is about {promise_in_words(problem)}, with the noise set for "
            f"{rounds_in_words(problem)}. It needs records that are Markov with the process given."
        )
    rare = [f"{c.name} ({c.turn})" for c in problem.clients if c.turn > 1]
    if rare:
        notes.append(
            f"Not every round is taken part in by {_listed(rare)}, but one in so many: the loss is "
            "the mean over all rounds, from the last release of each."
        )
    if is_trained(problem):
        notes.append(
            "The loss is the log loss (nats) of the trained model above that of a training on "
            "fresh records without noise, to first order, by the mean of "
            f"{len(rehearsals(problem))} rehearsals; its standard error over them is "
            f"{_rehearsed_error(problem, assignments):.2g}."
        )
    if problem.uses_knowledge or problem.known.shared:
        notes.append(
            f"The loss is what it is if {problem.known.words()}. Accuracy rests on that; privacy "
            "does not."
        )
    notes += _held_back(problem, assignments)
    notes += _laws_at_collection(problem, assignments)
    if problem.uses_knowledge and counts_together(problem.learner):
        notes.append(
            f"Every number of a client's {problem.learner.kind} statistics has one gain: the best "
            "estimate of those, not of each number by itself."
        )
    if MIXINGS[problem.mixing].takes_process_law:
        other = [
            c.name
            for c, a in zip(problem.clients, assignments, strict=True)
            if c.law is not None
            and not np.allclose(c.law, c.process.law(a.collect_at), rtol=1e-6, atol=1e-9)
        ]
        if other:
            notes.append(
                f"Mixing {problem.mixing} takes the stationary law as the adversary's prior, but "
                f"{_listed(other)} start{'s' * (len(other) == 1)} from another stated law: if the "
                "adversary knows that law, use own_law, or any_prior if you cannot say what they "
                "know."
            )
    measured = {
        (c.process.confidence, c.process.basis, c.process.weeks, c.process.assumes)
        for c in problem.clients
        if c.process.confidence < 1
    }
    for confidence, basis, weeks, assumes in sorted(measured):
        read = f", from {weeks} weeks of readings" if weeks else ""
        only = ": right as weeks grow many, not proven for these" if basis == "asymptotic" else ""
        notes.append(
            f"Δ of measured laws is an upper limit at confidence {confidence:g} ({basis}{read}"
            f"{only}); it assumes "
            f"{assumes or 'what whoever measured them can tell: the scenario does not say'}."
        )
    if problem.epsilon > WEAK:
        notes.append(
            f"The target ε = {problem.epsilon:g} is weak: a release may change anyone's odds about "
            f"a record's present value by a factor of {_odds(problem.epsilon)} (e^ε)."
        )
    open_all = [a.client for a in assignments if a.aged_epsilon > BARE]
    if open_all:
        notes.append(
            f"Nothing of {_listed(open_all)} is protected: records as collected and their present "
            f"values are all but told outright (classical and aged ε above {BARE:g})."
        )
    bare = [a.client for a in assignments if a.classical_epsilon > BARE >= a.aged_epsilon]
    if bare:
        notes.append(
            f"Records collected by {_listed(bare)} are all but told outright (classical ε "
            f"above {BARE:g}): only their present values are protected."
        )
    return notes


def _held_back(problem: Problem, assignments: Sequence[Assignment]) -> list[str]:
    """Which clients' aged reports show next to nothing of a level, and what would help."""
    if not isinstance(problem.known, Levels) or problem.aggregate_at == 1:
        return []
    told = told_of(problem)
    later = told.tables[0].ages > 0
    if told.passes is None or not later.any():
        return []
    shown = told.passes[:, later].max(axis=1)
    kept = shown[told.kind] < PASSING
    if not kept.any():
        return []
    most = f"{100 * float(shown[told.kind][kept].max()):.2g} %, less than {100 * PASSING:g} %"
    held = [one for one, is_kept in zip(assignments, kept.tolist(), strict=True) if is_kept]
    fresh = [one.client for one in held if one.age == 0]
    aged = [one.client for one in held if one.age > 0]
    notes = []
    if fresh:
        notes.append(
            f"Only fresh data are collected from {_listed(fresh)}: of the variance of what "
            f"clients share, the nearest states of aged records show at most {most}. Finer "
            "states would let more of it pass."
        )
    if aged:
        notes.append(
            f"Aged data of {_listed(aged)} are all but useless: of the variance of what clients "
            f"share, their nearest states show at most {most}. Collect them fresh; finer states "
            "would let more of it pass."
        )
    return notes


def _laws_at_collection(problem: Problem, assignments: Sequence[Assignment]) -> list[str]:
    """What nothing collected would lose at a plan's own ages, where that is something else."""
    ages = np.array([one.age for one in assignments])
    now, then = (f"{nothing_collected(problem, at):.4g}" for at in (None, ages))
    if now == then:
        return []
    unit = f" {problem.release_unit}²" if problem.release_unit else ""
    return [
        "Laws are stated at collection, and records of this plan's ages have another law by now: "
        f"under that one nothing collected would lose {then}{unit}, not {now}{unit}."
    ]


def _rehearsed_error(problem: Problem, assignments: Sequence[Assignment]) -> float:
    """The standard error of the loss of a training, over its rehearsals."""
    gaps = rehearsed_gaps(problem, [one.collect_at for one in assignments])
    return float(np.std(gaps, ddof=1) / math.sqrt(len(gaps)))


def _odds(epsilon: float) -> str:
    """e^ε in words."""
    if epsilon > 15 * math.log(10):
        return "more than a thousand trillion"
    factor = math.exp(epsilon)
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if factor >= size:
            return f"about {factor / size:,.0f} {word}"
    return f"{factor:,.0f}"


def _listed(names: list[str]) -> str:
    return f"client{'s' * (len(names) > 1)} {listed(names, 3)}"
