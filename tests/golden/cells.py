"""The modes that plans and runs can be in, and cells of them that cover every pair there can be."""

import itertools
import json
from pathlib import Path

import numpy as np

import agewise as aw

FACTORS = {
    "learner": ["mean", "histogram", "statistics", "ridge", "logistic"],
    "mechanism": ["laplace", "gaussian"],
    "estimator": ["plain", "propagated", "best"],
    "noise": ["client", "server"],
    "rounds": ["one", "three", "for ever", "turns"],
    "promise": ["present", "every_moment", "window"],
    "group": ["single", "alike", "gateway"],
    "adversary": ["exact", "own_law", "any_prior", "spectral"],
    "calibration": ["sharp", "formula", "tight"],
    "process": ["chain", "periodic", "measured"],
    "knowledge": ["none", "level", "levels", "measured"],
    "objective": ["exact", "bound", "simulated"],
    "targets": ["common", "own"],
    "capacity": ["none", "two"],
    "missing": ["nobody", "renormalise", "replan"],
    "ledgers": ["folder", "one file"],
}
PLAINEST = {factor: choices[0] for factor, choices in FACTORS.items()}

STATES = [10.0, 20.0, 50.0]
LAST = 4
"""The slot of aggregation."""

CELLS = Path(__file__).with_name("cells.json")


def chain(k, reversible=False):
    """The chain of the k-th client; the spectral bound needs a reversible one."""
    if reversible:
        return aw.birth_death(0.1 + 0.05 * k, 0.2, STATES)
    up = 0.05 * k
    rows = [[0.7 - up, 0.2, 0.1 + up], [0.15, 0.7, 0.15], [0.1, 0.3 + up, 0.6 - up]]
    return aw.MarkovChain(rows, STATES)


def measured_law(k):
    """What the k-th client's chain would be measured as, with limits of its own on Δ."""
    made = chain(k)
    law, steps, ages = made.stationary, made.transition, range(LAST - 1, -1, -1)
    joints = [np.diag(law) @ np.linalg.matrix_power(steps, age) for age in ages]
    limits = [min(1.0, 1.25 * aw.total_variation(made, age) + 0.02) for age in ages]
    return aw.MeasuredLaw(joints, limits, STATES, confidence=0.95, day=LAST, assumes="made up")


def process(kind, k, reversible):
    if kind == "measured":
        return measured_law(k)
    if kind == "periodic":
        return aw.PeriodicChain([chain(k).transition, chain(k + 2).transition], STATES)
    return chain(k, reversible)


LEARNERS = {
    "mean": aw.Mean,
    "histogram": aw.Histogram,
    "statistics": lambda: aw.Statistics([[1, 10], [0, 20], [2, 50]]),
    "ridge": lambda: aw.Ridge([[1.0], [2.0], [4.0]], [10.0, 20.0, 50.0]),
    "logistic": lambda: aw.Logistic([[1.0], [-1.5], [0.5]], ["no", "yes", "yes"], clip=0.5),
}


def measured_knowledge(names):
    count, size = len(names), len(STATES)
    own = np.broadcast_to(0.01 * (np.eye(size) - 1 / size), (count, LAST, size, size))
    mean = np.broadcast_to([0.3, 0.3, 0.4], (count, LAST, size))
    decay = (0.5 ** np.arange(LAST - 1, -1, -1))[:, None, None]
    return aw.knowledge.Measured(names, mean, [], own, own * decay, days=40)


def knowledge(cell, names):
    slow, fast = aw.Level(4.0, correlation=0.9), aw.Level(3.0, correlation=0.3)
    return {
        "none": dict,
        "level": lambda: {"level": slow},
        "levels": lambda: {"level": [slow, fast]},
        "measured": lambda: {"knowledge": measured_knowledge(names)},
    }[cell["knowledge"]]()


NAMES = {"single": "a b c", "alike": "a b b2 b3 c", "gateway": "a b c"}


def clients(cell):
    """Clients a, b and c; b may have two like it, or stand for six, or take turns."""
    law = [0.2, 0.5, 0.3] if cell["adversary"] == "own_law" and cell["rounds"] == "one" else None
    for name in NAMES[cell["group"]].split():
        k = "abc".index(name[0])
        yield aw.Client(
            name,
            process(cell["process"], k, cell["adversary"] == "spectral"),
            law,
            samples=20 + 10 * k,
            epsilon=0.4 + 0.3 * k if cell["targets"] == "own" else None,
            turn=2 if cell["rounds"] == "turns" and name == "b" else 1,
            members=6 if cell["group"] == "gateway" and name == "b" else 1,
        )


def problem(cell):
    """The problem of a cell, or InvalidInput where its choices cannot be had together."""
    members = list(clients(cell))
    rounds = {"one": 1, "three": 3, "for ever": None, "turns": None}[cell["rounds"]]
    return aw.Problem(
        members,
        LAST,
        0.7,
        mixing=cell["adversary"],
        estimator=cell["estimator"],
        calibration=cell["calibration"],
        objective=cell["objective"],
        capacity=2 if cell["capacity"] == "two" else None,
        learner=LEARNERS[cell["learner"]](),
        mechanism=cell["mechanism"],
        delta=1e-5 if cell["mechanism"] == "gaussian" else None,
        noise=cell["noise"],
        rounds=rounds,
        every=None if rounds == 1 else LAST,
        promise=5 if cell["promise"] == "window" else cell["promise"],
        name="golden",
        unit="Wh",
        **knowledge(cell, [one.name for one in members]),
    )


def plan(cell):
    """The plan of a cell: found; exhaustively by Theorem 1.

    By simulation it is given: who wins a search hangs on draws, and these on the last bit.
    """
    made = problem(cell)
    if cell["objective"] == "exact":
        return aw.plan(made)
    if cell["objective"] == "bound":
        return aw.plan(made, method="exhaustive")
    return aw.evaluate(made, [1 + number % LAST for number in range(len(made.clients))])


def refusal(cell, made=problem):
    """The field by which a cell is refused, or None."""
    try:
        made(cell)
    except aw.InvalidInput as error:
        return error.field
    return None


def pairs():
    """Every pair of choices of two factors."""
    for one, other in itertools.combinations(FACTORS, 2):
        for first, second in itertools.product(FACTORS[one], FACTORS[other]):
            yield (one, first), (other, second)


def covered(cell):
    return set(itertools.combinations(cell.items(), 2))


def named(pair):
    """A pair as a line of cells.json."""
    return ", ".join(f"{factor}={choice}" for factor, choice in pair)


def refused(pair):
    """The field by which nobody can have a pair, with the plainest of all else; or None.

    What is plainest of estimators and rounds depends on the rest: any of them will do.
    """
    first = None
    for estimator, rounds in itertools.product(("best", "plain", "propagated"), ("one", "three")):
        cell = {**PLAINEST, "estimator": estimator, "rounds": rounds, **dict(pair)}
        field = refusal(cell) or refusal(cell, plan)
        if field is None:
            return None
        first = first or field
    return first


def uncovered(table):
    """What a table of cells lacks, or tells wrongly: lines of text."""
    seen = set().union(*map(covered, table["cells"]))
    for pair in pairs():
        field = None if pair in seen else refused(pair)
        if table["refused"].get(named(pair)) != field:
            yield f"{named(pair)}: refused by {field}, not by {table['refused'].get(named(pair))}"
        elif field is None and pair not in seen:
            yield f"{named(pair)}: in no cell"


def search(kept=(), tries=24, seed=2026):
    """Cells that cover every pair that can be had, greedily; and what refuses each other pair.

    Cells that were `kept` from before stay, as long as they can be had.
    """
    rng, cells = np.random.default_rng(seed), [c for c in kept if refusal(c, plan) is None]
    unreachable = {pair: field for pair in pairs() if (field := refused(pair)) is not None}
    left = set(pairs()) - set(unreachable) - set().union(*map(covered, cells))
    while left:
        found = [_filled(min(left), rng) for _ in range(tries)]
        found = [cell for cell in found if refusal(cell, plan) is None]
        chosen = max(found, key=lambda cell: len(covered(cell) & left))
        cells.append(chosen)
        left -= covered(chosen)
    for cell in list(cells):  # what was chosen early may have become unneeded
        others = set().union(*(covered(one) for one in cells if one is not cell))
        if covered(cell) <= others:
            cells.remove(cell)
    return cells, {named(pair): field for pair, field in unreachable.items()}


def _filled(pair, rng):
    """A cell with a pair, and with as much of the rest drawn at random as is not refused."""
    fixed = dict(pair)
    cell = {factor: str(rng.choice(choices)) for factor, choices in FACTORS.items()} | fixed
    free = [factor for factor in FACTORS if factor not in fixed]
    rng.shuffle(free)
    for factor in free:
        if refusal(cell) is None:
            return cell
        if factor != "estimator":
            cell[factor] = PLAINEST[factor]
    estimators = [cell | {"estimator": one} | fixed for one in FACTORS["estimator"]]
    return next((one for one in estimators if refusal(one, plan) is None), cell)


def stored():
    """What cells.json holds."""
    return json.loads(CELLS.read_text(encoding="utf-8"))


def title(cell):
    """A cell in a line: what is not the plainest about it."""
    return ", ".join(v for k, v in cell.items() if v != PLAINEST[k]) or "the plainest"
