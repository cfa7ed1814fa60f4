"""Reading a plan: slots, choices and proof are taken, the rest is computed anew and compared."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agewise.checks import instance, whole
from agewise.errors import InvalidInput
from agewise.knowledge import Levels
from agewise.loss.estimator import searched_estimate
from agewise.loss.gap import nothing_collected
from agewise.loss.tables import cost_tables, known_tables
from agewise.planning.best import check_best, heard_rows, open_tables
from agewise.planning.counted import check_counted, counted_tables, is_about_counts
from agewise.planning.evaluate import MOST_NOISE, SEARCHES, assemble, check_unheard, checked_slots
from agewise.planning.objectives import best_by_bound
from agewise.planning.plan import EARLIER, VERSION, Assignment, Plan
from agewise.planning.proof import (
    REMEDY,
    ROUNDING,
    AllTried,
    Proof,
    draws_once,
    open_costs,
    proof_from_data,
    proven_bound,
    same_bound,
)
from agewise.problem import Problem
from agewise.scenario import problem_from_dict
from agewise.scheduling import Certificate, Schedule, check_schedule
from agewise.scheduling.certificate import CANCELLED
from agewise.wording import out_of_words

WRITTEN = ("nothing_collected", "classical_fresh", "gains", "offset")
"""What else is kept as it was written, to the last digit."""


def read_plan(text: str) -> Plan:
    """Read the output of `Plan.to_json`; refuse one that its scenario or its proof contradicts.

    What was written is kept to the last digit, so that the digest is that of the document.
    """
    instance("plan", text, str, "the text that Plan.to_json returns")
    try:
        document = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("plan", f"not JSON ({error})", "the output of to_json") from None
    refuse_version(document)
    try:
        written = [_assignment(entry) for entry in document["assignments"]]
        problem = problem_from_dict(document["scenario"])
        fresh = replace(_made_again(problem, document, written), earlier=_earlier(document))
        notes = list(document["notes"])
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidInput("plan", f"incomplete ({error})", "the output of to_json") from None
    for note in fresh.notes:
        if note not in notes:
            raise InvalidInput(
                "plan: notes", f"without {note!r}", "all that its scenario implies", REMEDY
            )
    summary = fresh.to_dict()
    for name in [*summary, *(name for name in document if name not in summary)]:
        if name not in ("assignments", "scenario", "proof", *EARLIER):
            told, true = document.get(name, "missing"), summary.get(name, "unknown")
            _same(name, told, true, _room(name, fresh))
    numbers = {name: document[name] for name in ("objective", "gap", *WRITTEN)}
    return replace(fresh, assignments=tuple(written), **numbers)


def refuse_version(document: Any) -> None:
    """Refuse a plan that another version wrote."""
    version = document.get("version") if isinstance(document, dict) else None
    if version != VERSION or isinstance(version, bool):
        raise InvalidInput(
            "plan version", version, f"{VERSION}", "Make the plan again with this release."
        )


def _made_again(problem: Problem, document: dict[str, Any], written: list[Assignment]) -> Plan:
    """The plan that slots, choices and proof of a document imply."""
    names = [client.name for client in problem.clients]
    if [a.client for a in written] != names:
        raise InvalidInput("assignments", "other clients", "one for each client, in order")
    unheard = document["unheard"]
    if not isinstance(unheard, list) or not all(name in names for name in unheard):
        raise InvalidInput("plan: unheard", unheard, "a list of its clients")
    check_unheard(problem, unheard)
    slots = checked_slots(problem, [a.collect_at for a in written], unheard)
    columns = np.array(slots) - 1
    method, first = document["method"], document["planned_from"]
    if not isinstance(method, str) or not method.isprintable():
        raise InvalidInput("plan: method", repr(method), "a line of text")
    if first is not None:
        first = whole("plan: planned_from", first, 1, problem.aggregate_at)
        if method != "certified":
            raise InvalidInput("plan: planned_from", first, f"null for method {method!r}", REMEDY)
    collected = _collected(document["collected"], dict(zip(names, slots, strict=True)), first)
    complete = document["complete"]
    if not isinstance(complete, bool):
        raise InvalidInput("plan: complete", complete, "true or false")
    schedule = Schedule(columns, np.nan, None, 0, complete=complete)
    promised = _promised(document["promised"], problem, collected)
    plan = assemble(problem, schedule, method, None, first, collected, unheard, promised)
    for one, true in zip(written, plan.assignments, strict=True):
        for name, value in vars(true).items():
            _same(f"{name} of client {one.client!r}", getattr(one, name), value)
    estimated = method == "exhaustive" and problem.objective == "simulated"
    objective = _number("objective", document["objective"])
    if not estimated:
        _same("objective", objective, plan.objective, _room("objective", plan))
    plan = replace(plan, objective=objective)
    proof = proof_from_data(document["proof"], len(problem.clients))
    claimed = document["lower_bound"]
    proves = method in SEARCHES and not estimated
    if proves != (proof is not None) or proves != (claimed is not None):
        raise InvalidInput(
            "plan: proof",
            f"{'missing' if proof is None else 'given'} for method {method!r}",
            "with its lower bound for a search that proves one, and for no other",
            REMEDY,
        )
    if proof is None:
        return plan
    bound = _number("lower_bound", claimed)
    certificate = _certificate(plan, proof, columns)
    proven = proven_bound(certificate, objective)
    if not same_bound(bound, proven, objective, _unknown(plan)):
        raise InvalidInput("plan: lower_bound", bound, f"{proven}, which its proof shows", REMEDY)
    return replace(plan, lower_bound=bound, proof=proof, certificate=certificate)


def _certificate(plan: Plan, proof: Proof, columns: NDArray[np.intp]) -> Certificate:
    """Check a proof: by `check_schedule`, or for Theorem 1 by trying every schedule again."""
    problem = plan.problem
    if plan.method == "exhaustive" and problem.objective == "bound":
        if not isinstance(proof, AllTried):
            raise InvalidInput("plan: proof", "multipliers", "all schedules tried", REMEDY)
        return best_by_bound(problem)[1]
    tree = None if isinstance(proof, AllTried) else proof
    counted = None
    if tree is not None and is_about_counts(tree) and plan.planned_from is None:
        counted = None if plan.unheard else counted_tables(problem)
    if counted is not None:
        return _held(check_counted(counted, columns, tree, -math.inf))
    schedule = Schedule(columns, plan.objective, -math.inf, 0, proof=tree)
    told = (plan.collect_at, plan.planned_from, plan.collected)
    best = problem.uses_knowledge
    slots = known_tables(problem).slots if best else cost_tables(problem).slots
    once = draws_once(problem, slots, plan.promised)
    if best:
        known = open_tables(problem, *told, plan.unheard)
        heard = heard_rows(problem, plan.unheard)
        gains = np.asarray(plan.gains, float).reshape(len(columns), -1)[heard]
        if isinstance(problem.known, Levels):
            gains = searched_estimate(problem, columns, plan.unheard, plan.promised).gains[heard]
        gains = gains[:, : 1 if once is not None else known.cross.shape[2]]
        if once is not None:
            once = replace(once, scales=once.scales[heard])
        schedule = replace(schedule, columns=columns[heard], gains=gains)
        certificate = check_best(schedule, known, problem.capacity, once)
    else:
        tables = cost_tables(problem)
        u = open_costs(problem, tables, *told)
        certificate = check_schedule(schedule, u, tables.b, problem.capacity, draw=once)
    return _held(certificate)


def _held(certificate: Certificate) -> Certificate:
    """A check that confirms its proof; any other is refused."""
    if not certificate.holds or not math.isfinite(certificate.lower_bound):
        why = "its multipliers show nothing" if certificate.holds else certificate.reason
        raise InvalidInput("plan: proof", f"one that does not hold ({why})", "a proof", REMEDY)
    return certificate


def _collected(names: Any, slots: dict[str, int], first: int | None) -> tuple[str, ...]:
    """Those who had collected when a plan was made anew: not later than that."""
    if not isinstance(names, list) or not all(
        isinstance(name, str) and first is not None and slots.get(name, math.inf) <= first
        for name in names
    ):
        raise InvalidInput(
            "plan: collected", names, "clients that collect by the slot it was planned anew in"
        )
    return tuple(names)


def _promised(data: Any, problem: Problem, collected: tuple[str, ...]) -> dict[str, float]:
    """What the server's draw was promised to have on the means that had been sent."""
    names = set(collected) if problem.server_adds_noise else set()
    if not isinstance(data, dict) or set(data) != names:
        raise InvalidInput(
            "plan: promised", data, "a noise scale for each client that has collected", REMEDY
        )
    for name, scale in data.items():
        if not 0 <= _number(f"promised: {name}", scale) <= MOST_NOISE:
            raise InvalidInput(f"plan: promised: {name}", scale, f"0 to {MOST_NOISE:g}")
    return dict(data)


def _earlier(document: dict[str, Any]) -> dict[str, Any]:
    """What only earlier versions wrote: nothing rests on it, and it is kept for the digest."""
    if not set(EARLIER) & set(document):
        return {}
    bound, evaluation = (document[name] for name in EARLIER)
    if bound is not None and not math.isfinite(_number("bound", bound)):
        raise InvalidInput("plan: bound", bound, "a finite number, or null")
    if evaluation not in (None, "exact", "quantised"):
        raise InvalidInput("plan: bound_evaluation", evaluation, "exact, quantised or null")
    return {"bound": bound, "bound_evaluation": evaluation}


def _assignment(entry: dict[str, Any]) -> Assignment:
    return Assignment(**{name: out_of_words(value) for name, value in entry.items()})


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f"plan: {name}", value, "a number")
    return value


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is not a number of JSON")


SEARCHED = 1e-7
"""Relative room for what is solved for: gains."""

SOLVED = ("gains", "offset")


def _room(name: str, plan: Plan) -> float:
    """How far rounding can move a number that is left where larger ones cancel."""
    if name in ("objective", "gap", "classical_fresh"):
        return CANCELLED * _unknown(plan)
    return SEARCHED * float(np.abs(plan.gains).max()) if name == "gains" else 0.0


def _unknown(plan: Plan) -> float:
    """What the losses of a plan are left of: those of nothing collected, now and at its ages."""
    return max(plan.nothing_collected, nothing_collected(plan.problem, plan.ages))


def _same(name: str, written: Any, true: Any, least: float = 0.0) -> None:
    """Refuse a value of a plan that differs from what its own scenario implies."""
    if isinstance(true, list) and isinstance(written, list) and len(true) == len(written):
        for one, other in zip(written, true, strict=True):
            _same(name, one, other, least)
        return
    numbers = isinstance(true, float) and isinstance(written, int | float)
    numbers = numbers and not isinstance(written, bool)
    room = SEARCHED if name in SOLVED else ROUNDING
    if (written == true and (numbers or type(written) is type(true))) or (
        numbers and math.isclose(written, true, rel_tol=room, abs_tol=max(least, 1e-300))
    ):
        return
    raise InvalidInput(f"plan: {name}", written, f"{true}, which its scenario implies", REMEDY)
