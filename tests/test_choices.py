"""Choices that do not go together: every pair of them is refused by what was written, or goes."""

import itertools
import re

import numpy as np
import pytest

import agewise as aw

STEPS = [[0.7, 0.2, 0.1], [0.15, 0.7, 0.15], [0.1, 0.3, 0.6]]
ONE_WAY = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.3, 0.1, 0.6]]  # not reversible
STATES, LAW = [10.0, 20.0, 50.0], [0.2, 0.5, 0.3]
CHAIN = aw.MarkovChain(STEPS, STATES)
LAST = 4


def measured_process():
    own = np.diag(CHAIN.stationary)
    joints, limits = [own @ CHAIN.transition] * 3 + [own], [0.9] * 3 + [1.0]
    return aw.MeasuredLaw(joints, limits, STATES, confidence=0.95)


def measured_knowledge():
    own = np.broadcast_to(0.01 * (np.eye(3) - 1 / 3), (2, LAST, 3, 3))
    mean = np.broadcast_to([0.3, 0.3, 0.4], (2, LAST, 3))
    return aw.knowledge.Measured(["a", "b"], mean, [], own, own / 2, days=40)


TRAINED = aw.Logistic([[1.0], [-1.5], [0.5]], ["no", "yes", "yes"], clip=0.5)
CHOICES = [
    ("learner", {"learner": aw.Histogram()}),
    ("learner", {"learner": aw.Ridge([[1.0], [2.0], [4.0]], STATES)}),
    ("learner", {"learner": TRAINED}),
    ("mechanism", {"mechanism": "gaussian", "delta": 1e-5}),
    ("estimator", {"estimator": "propagated"}),
    ("estimator", {"estimator": "best"}),
    ("noise", {"noise": "server"}),
    ("rounds", {"rounds": 3, "every": LAST}),
    ("rounds", {"rounds": None, "every": LAST}),
    ("promise", {"promise": "every_moment"}),
    ("promise", {"promise": 5}),
    ("mixing", {"mixing": "own_law"}),
    ("mixing", {"mixing": "any_prior"}),
    ("mixing", {"mixing": "spectral"}),
    ("calibration", {"calibration": "formula"}),
    ("calibration", {"calibration": "tight"}),
    ("level", {"level": aw.Level(4.0, 0.9)}),
    ("knowledge", {"knowledge": measured_knowledge()}),
    ("objective", {"objective": "bound"}),
    ("objective", {"objective": "simulated"}),
    ("capacity", {"capacity": 1}),
    ("process", {"process": aw.PeriodicChain([STEPS, ONE_WAY], STATES)}),
    ("process", {"process": measured_process()}),
    ("law", {"law": LAW}),
    ("members", {"members": 6}),
    ("turn", {"turn": 2}),
    ("epsilon", {"own": 0.3}),
]
PAIRS = [
    (one, two)
    for (first, one), (second, two) in itertools.combinations(CHOICES, 2)
    if first != second
]
WRITTEN = {"delta", "every", *dict(CHOICES)}


def asked(choices):
    """A problem with these choices; those of clients are for the second of two."""
    given = {"estimator": "plain", **choices}
    process = given.pop("process", CHAIN)
    names = {"law": "law", "members": "members", "turn": "turn", "own": "epsilon"}
    own = {name: given.pop(key) for key, name in names.items() if key in given}
    clients = [aw.Client("a", process, samples=5), aw.Client("b", process, samples=6, **own)]
    return aw.Problem(clients, LAST, 0.7, **given)


def refusals(choices):
    """What is refused of these choices: by the problem itself, by a plan, by Theorem 1."""
    try:
        problem = asked(choices)
    except aw.InvalidInput as refused:
        return [refused]
    found = []
    for use in (lambda: aw.evaluate(problem, [2, 3]), lambda: aw.loss_bound(problem, [2, 1])):
        try:
            use()
        except aw.InvalidInput as refused:
            found.append(refused)
    return found


@pytest.mark.parametrize(
    "pairs", [PAIRS[::5], pytest.param(PAIRS, marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_what_is_refused_is_named_as_it_was_written(pairs):
    """Never by a name inside, such as the `method` of Δ for the `mixing` of a problem."""
    seen = set()
    for one, two in pairs:
        choices = {**one, **two}
        for refused in refusals(choices):
            name = re.sub(r" of client 'b'$| of client 'a'$", "", refused.field)
            assert name in WRITTEN, f"{choices}: {refused}"
            assert not re.search(r"array\(|<.*object|of client$", str(refused)), refused
            seen.add(name)
    assert len(seen) > 10, seen


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"mixing": "spectral", "process": measured_process()}, "mixing is 'spectral'; allowed"),
        (
            {"mixing": "own_law", "law": LAW, "promise": 5},
            "law of client 'b' is stated; allowed: none, with the promise 5",
        ),
        (
            {"mixing": "own_law", "law": LAW, "process": measured_process()},
            "law of client 'b' is stated; allowed: none: a measured law",
        ),
        (
            {"promise": 5, "process": measured_process()},
            "process of client 'a' is a measured law, known lag by lag only",
        ),
        ({"promise": 5, "objective": "bound"}, "objective is 'bound' with the promise 5"),
        (
            {"level": aw.Level(4.0, 0.9), "learner": aw.Histogram()},
            "level is given with a histogram; allowed: none, but with the learner mean",
        ),
    ],
)
def test_problems_that_nobody_can_have_say_which_choice_it_is(choices, words):
    with pytest.raises(aw.InvalidInput) as refused:
        aw.evaluate(asked(choices), [2, 3])
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("choices", "field"),
    [
        ({"learner": aw.Histogram()}, "learner"),
        ({"estimator": "best"}, "estimator"),
        ({"estimator": "propagated", "noise": "server"}, "noise"),
        ({"estimator": "propagated", "rounds": 3, "every": LAST}, "rounds"),
        ({"level": aw.Level(4.0, 0.9)}, "level"),
        ({"knowledge": measured_knowledge()}, "knowledge"),
        ({"promise": 5}, "promise"),
        ({"members": 6}, "members"),
    ],
)
def test_theorem_1_refuses_by_the_first_choice_that_it_does_not_know(choices, field):
    """Not by one that it allows: "estimator is propagated; allowed: plain or propagated"."""
    problem = asked(choices)
    for use in (lambda: aw.loss_bound(problem, [2, 1]), lambda: aw.compare_schemes(problem)):
        with pytest.raises(aw.InvalidInput, match="for Theorem 1") as refused:
            use()
        assert refused.value.field == field
        allowed = refused.value.allowed.split(",")[0].split(" or ")
        assert str(refused.value.value) not in allowed


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"mechanism": "gaussian", "delta": 1e-5}, "mechanism is gaussian; allowed: laplace"),
        ({"own": 0.3}, "epsilon of client 'b' is its own; allowed: one target for all"),
    ],
)
def test_the_papers_schemes_refuse_by_what_was_written(choices, words):
    with pytest.raises(aw.InvalidInput, match=words):
        aw.compare_schemes(asked(choices))
