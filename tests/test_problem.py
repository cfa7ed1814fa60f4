import pickle
import subprocess
import sys

import numpy as np
import pytest

import agewise as aw

CHAIN = aw.birth_death(0.1, 0.2, [20, 50, 100])


def client(name="a", **changes):
    return aw.Client(**{"name": name, "process": CHAIN, "samples": 10, **changes})


def problem(clients=None, **changes):
    return aw.Problem(clients or [client()], **{"aggregate_at": 5, "epsilon": 0.1, **changes})


def test_weights_follow_samples_unless_given():
    np.testing.assert_allclose(
        problem([client("a", samples=10), client("b", samples=30)]).weights, [0.25, 0.75]
    )
    given = [client("a", weight=0.4), client("b", weight=0.6)]
    np.testing.assert_allclose(problem(given).weights, [0.4, 0.6])


def test_replace_checks_again():
    base = aw.scenarios.london()
    assert base.replace(epsilon=0.3).epsilon == 0.3
    assert base.epsilon == 0.1
    with pytest.raises(aw.InvalidInput, match="epsilon is -1"):
        base.replace(epsilon=-1)
    with pytest.raises(aw.InvalidInput, match="'epsilom'; allowed: one of aggregate_at"):
        base.replace(epsilom=1)


def test_problems_are_values():
    assert aw.scenarios.london() == aw.scenarios.london()
    assert aw.scenarios.london() != aw.scenarios.london().replace(epsilon=0.2)
    with pytest.raises(AttributeError):
        aw.scenarios.london().epsilon = 3


def test_shared_tables_cannot_be_changed():
    table = aw.cost_tables(aw.scenarios.london()).slots[0]
    for array in (table.scale, table.classical_epsilon, table.delta, table.release):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_law_defaults_to_the_processes_own():
    np.testing.assert_array_equal(client().law_at(3), CHAIN.stationary)
    assert client(law=[0.5, 0.5, 0]).law == (0.5, 0.5, 0.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: client(name=""), "client name"),
        (lambda: client(process="chain"), "process of client 'a'"),
        (lambda: client(samples=0), "samples of client 'a' is 0"),
        (lambda: client(samples=1.5), "samples of client 'a' is 1.5"),
        (lambda: client(law=[0.5, 0.5]), "law of client 'a'"),
        (lambda: client(law=[0.5, 0.6, 0]), "sums to 1.1"),
        (lambda: client(weight=-1), "weight of client 'a' is -1"),
        (lambda: problem([client(), client()]), "2 named 'a'"),
        (lambda: aw.Problem([], 5, 0.1), "one or more Client"),
        (lambda: aw.Problem(3, 5, 0.1), "one or more Client"),
        (lambda: problem(["x"]), "one or more Client"),
        (lambda: problem(aggregate_at=0), "aggregate_at is 0"),
        (lambda: problem(aggregate_at=10**12), "aggregate_at is 1000000000000"),
        (lambda: client(samples=10**30), "samples of client 'a'"),
        (lambda: problem(epsilon=0), "epsilon is 0"),
        (lambda: problem(epsilon=float("inf")), "epsilon is inf"),
        (lambda: problem(mixing="x"), "mixing"),
        (lambda: problem(estimator="x"), "estimator"),
        (lambda: problem(calibration="x"), "calibration"),
        (lambda: problem(objective="x"), "objective"),
        (lambda: problem(calibration="tight", mixing="any_prior"), "tight with mixing exact"),
        (lambda: problem(capacity=0), "capacity is 0"),
        (lambda: problem([client(str(i)) for i in range(6)], capacity=1), "at least 2"),
        (lambda: problem([client("a", weight=0.5), client("b")]), "1 of 2 clients"),
        (lambda: problem([client("a", weight=0.5), client("b", weight=0.6)]), "sum 1.1"),
    ],
)
def test_bad_input_is_refused_in_one_clear_message(call, words):
    with pytest.raises(aw.InvalidInput, match=words):
        call()


def test_a_problem_that_travels_is_known_again_where_it_arrives():
    code = (
        "import pickle, sys, agewise as aw\n"
        "arrived = pickle.load(sys.stdin.buffer)\n"
        "assert arrived == aw.scenarios.london() and arrived in {aw.scenarios.london()}"
    )
    problem = aw.scenarios.london()
    assert hash(problem) == hash(aw.scenarios.london())
    subprocess.run([sys.executable, "-c", code], input=pickle.dumps(problem), check=True)
