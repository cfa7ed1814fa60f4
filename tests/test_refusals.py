"""Bad input of every public function and class: refused by the name of what is wrong with it."""

import inspect
import math

import numpy as np
import pytest

import agewise as aw

CHAIN = aw.birth_death(0.3, 0.3, [0, 1])
TURNS = [[0.9, 0.1], [0.3, 0.7]]
PROBLEM = aw.Problem([aw.Client(name, CHAIN, samples=10) for name in "ab"], 4, 0.5)
PLAIN = PROBLEM.replace(estimator="plain")
LASTING = PROBLEM.replace(rounds=3, every=4)
DAYS = aw.PeriodicChain([TURNS, TURNS], [0, 1])
PAIR = CHAIN.joint(1, 4)
RELEASE = aw.privacy.Release(1, 0.1)


def mechanism(records, rng):
    return rng.laplace() + records.sum()


GOOD = {
    "Ageing": {"process": CHAIN, "age": 3},
    "Client": {"name": "a", "process": CHAIN},
    "Ledger": {"path": None},
    "Level": {"loading": 1.0, "correlation": 0.5},
    "LiftedChain": {"chain": CHAIN, "groups": [0, 1], "states": [0, 1]},
    "Logistic": {"features": [[0.0], [1.0]], "labels": [0, 1]},
    "MarkovChain": {"transition": TURNS, "states": [0, 1]},
    "MeasuredLaw": {
        "joints": [[[0.4, 0.1], [0.1, 0.4]], [[0.5, 0], [0, 0.5]]],
        "limits": [0.9, 1.0],
        "states": [0, 1],
        "confidence": 0.95,
    },
    "PeriodicChain": {"transitions": [TURNS, TURNS], "states": [0, 1]},
    "Policy": {},
    "Problem": {"clients": PROBLEM.clients, "aggregate_at": 4, "epsilon": 0.5},
    "Ridge": {"features": [[0.0], [1.0]], "labels": [0.0, 1.0]},
    "Statistics": {"rows": [[0.0], [1.0]]},
    "Target": {"epsilon": 0.1, "mixing": "exact", "calibration": "sharp"},
    "per_release_epsilon": {"process": CHAIN, "every": 4, "epsilon": 0.5},
    "aged_epsilon": {"epsilon": 0.1, "total_variation": 0.5},
    "audit": {"subject": mechanism, "claim": 1.0, "process": CHAIN, "draws": 10},
    "birth_death": {"up": 0.1, "down": 0.2, "states": [0, 1, 2]},
    "classical_epsilon": {"epsilon": 0.1, "total_variation": 0.5},
    "compare": {"problem": PROBLEM},
    "compare_schemes": {"problem": PLAIN},
    "composed_epsilon": {"releases": [RELEASE], "process": CHAIN, "aggregate_at": 4},
    "total_variation": {"process": CHAIN, "age": 3},
    "dump_scenario": {"problem": PROBLEM},
    "fit": {"readings": None},
    "load_scenario": {"source": "london"},
    "loss_bound": {"problem": PLAIN, "ages": [0, 1]},
    "loss_gap": {"problem": PROBLEM, "ages": [0, 1]},
    "plan": {"problem": PROBLEM, "method": "random"},
    "evaluate": {"problem": PROBLEM, "slots": [4, 4]},
    "read_readings": {"path": "missing.csv"},
    "rehearse": {"plan": aw.plan(PLAIN), "repetitions": 2},
    "replan": {"current": aw.plan(PROBLEM), "now": 1},
    "resume": {"folder": "missing"},
    "resume_rounds": {"folder": "missing"},
    "run": {"plan": aw.plan(PROBLEM)},
    "run_rounds": {"plan": aw.plan(LASTING)},
    "simulate_gap": {"problem": PROBLEM, "ages": [0, 1], "trials": 10},
    "solve_schedule": {"u": [[1.0, 2.0]], "b": [[0.0, 1.0]]},
    "continual_epsilon": {"process": CHAIN, "every": 4, "classical_epsilon": 0.5},
    "take_turns": {"problem": LASTING, "most": 2},
}
"""Arguments that will do, but for those of `fit` and of files, of which there are none here."""

NO_ARGUMENTS = {"Histogram", "Mean", "Plan"}
"""A plan is made by `plan`, `price` and `Plan.from_json`, which check it."""

CALLED_OR_ANY = {"progress", "watch", "heard", "score", "request", "keep_best", "kind", "choices"}
"""Functions that are called back, switches, names that are given with each value."""

OF_NO_ACCOUNT = {
    "audit": {"subject", "present"},
    "fit": set(inspect.signature(aw.fit).parameters) - {"readings"},
    "plan": {"trials"},
    "read_readings": {"timezone", "entities", "at_least", "covariate", "columns"},
    "resume": {"sources"},
    "resume_rounds": {"sources", "rounds"},
    "run": {"wait", "slot_timeout", "at_once"},
    "run_rounds": {"wait", "slot_timeout", "at_once"},
}
"""Not looked at with the arguments above; those that matter elsewhere are in the tables below."""

CALLED = {
    "epsilons": "epsilon",
    "most": "turns",
    "path": ("ledger", "readings"),
    "release": "table",
    "rows": "table",
    "schemes": "scheme",
    "source": "scenario",
    "sticks": "targets",
    "tiers": "tier",
}
"""Arguments that messages call something else."""


def nested(levels):
    inner = []
    for _ in range(levels):
        inner = [inner]
    return inner


class Odd:
    def __repr__(self):
        raise RuntimeError("not even a repr")


def parameters():
    for name, good in GOOD.items():
        passed_over = CALLED_OR_ANY | OF_NO_ACCOUNT.get(name, set())
        for parameter in inspect.signature(getattr(aw, name)).parameters:
            if parameter not in passed_over:
                yield pytest.param(name, good, parameter, id=f"{name}-{parameter}")


def test_every_public_function_and_class_is_in_the_table():
    public = {n for n in aw.__all__ if not inspect.ismodule(getattr(aw, n))}
    errors = {n for n in public if n in ("AgewiseError", "BudgetExceeded", "InvalidInput")}
    assert public - errors - NO_ARGUMENTS == set(GOOD)


@pytest.mark.parametrize(("name", "good", "parameter"), list(parameters()))
@pytest.mark.parametrize("value", [Odd(), nested(3000), math.nan], ids=["odd", "nested", "nan"])
def test_what_no_argument_can_be_is_refused_by_its_name(name, good, parameter, value):
    with pytest.raises(aw.InvalidInput) as refused:
        getattr(aw, name)(**{**good, parameter: value})
    called = CALLED.get(parameter, parameter)
    words = (called,) if isinstance(called, str) else called
    assert any(word in refused.value.field for word in words), refused.value
    assert "allowed: " in str(refused.value)


ROWS = [
    (lambda: aw.plan(None), "problem"),
    (lambda: aw.plan("no_such_scenario"), "scenario"),
    (lambda: aw.plan("\0"), "scenario"),
    (lambda: aw.plan(PROBLEM, "best"), "method"),
    (lambda: aw.plan(PROBLEM, ["random"]), "method"),
    (lambda: aw.compare(None), "problem"),
    (lambda: aw.compare(PROBLEM, epsilon=["0.1"]), "epsilon"),
    (lambda: aw.compare(PROBLEM, epsilom=[0.1]), "choice"),
    (lambda: aw.evaluate(None, [1]), "problem"),
    (lambda: aw.evaluate(PROBLEM, [4]), "slots"),
    (lambda: aw.evaluate(PROBLEM, [4, 0]), "collect_at of client 'b'"),
    (lambda: aw.evaluate(PROBLEM, [4, [4]]), "collect_at of client 'b'"),
    (lambda: aw.evaluate(PROBLEM, [4, 4], unheard="a"), "unheard"),
    (lambda: aw.evaluate(PROBLEM, [4, 4], promised=3), "promised"),
    (lambda: aw.loss_gap("london", [0, 0, 0]), "problem"),
    (lambda: aw.loss_gap(PROBLEM, [0, [1, 2]]), "age of client 'b'"),
    (lambda: aw.loss_gap(PROBLEM, [0, 4]), "age of client 'b'"),
    (lambda: aw.simulate_gap(PROBLEM, [0, 1], 1), "trials"),
    (lambda: aw.simulate_gap(PROBLEM, [0, 1], 10, rng=3), "rng"),
    (lambda: aw.rehearse(aw.plan(PLAIN), 10**9), "repetitions"),
    (lambda: aw.replan(aw.plan(PROBLEM), 1, lost="a"), "lost"),
    (lambda: aw.replan(aw.plan(PROBLEM), 1, collected=["a"]), "collected"),
    (lambda: aw.run(None), "plan"),
    (lambda: aw.run("london"), "plan"),
    (lambda: aw.run(PROBLEM), "plan"),
    (lambda: aw.run(aw.plan(PROBLEM), drop="a"), "drop"),
    (lambda: aw.run(aw.plan(PROBLEM), drop=["c"]), "drop"),
    (lambda: aw.run(aw.plan(PROBLEM), folder=3), "folder"),
    (lambda: aw.run(aw.plan(PROBLEM), policy={"max_delta": 0}), "policy"),
    (lambda: aw.run(aw.plan(PROBLEM), slot_seconds=-1), "slot_seconds"),
    (lambda: aw.run_rounds(None), "plan"),
    (lambda: aw.run_rounds(aw.plan(LASTING), rounds=4), "rounds"),
    (lambda: aw.Plan.from_json(None), "plan"),
    (lambda: aw.Plan.from_json("[" * 100_000), "plan"),
    (lambda: aw.audit(None), "subject"),
    (lambda: aw.audit(PROBLEM, claim="0.1"), "claim"),
    (lambda: aw.audit(PROBLEM, draws=-1), "draws"),
    (lambda: aw.audit(mechanism, claim=0, process=CHAIN), "claim"),
    (lambda: aw.audit(mechanism, claim=1, process=CHAIN, age="1"), "age"),
    (lambda: aw.audit(mechanism, claim=1, process=CHAIN, collect_at=[]), "collect_at"),
    (lambda: aw.audit(mechanism, claim=1, process=CHAIN, samples=10**10), "samples"),
    (lambda: aw.load_scenario(None), "scenario"),
    (lambda: aw.load_scenario(3), "scenario"),
    (lambda: aw.dump_scenario("london"), "problem"),
    (lambda: aw.read_readings(None), "readings"),
    (lambda: aw.fit(None), "readings"),
    (lambda: aw.fit("readings.csv"), "readings"),
    (lambda: aw.resume(None), "folder"),
    (lambda: aw.Ledger(3), "ledger"),
    (lambda: aw.Ledger.read(None), "ledger"),
    (lambda: aw.Problem(None, 4, 0.5), "clients"),
    (lambda: aw.Problem([], 4, 0.5), "clients"),
    (lambda: aw.Problem(["a"], 4, 0.5), "clients"),
    (lambda: PROBLEM.replace(epsilon="0.1"), "epsilon"),
    (lambda: PROBLEM.replace(epsilon=0), "epsilon"),
    (lambda: PROBLEM.replace(epsilon=-1), "epsilon"),
    (lambda: PROBLEM.replace(epsilon=math.inf), "epsilon"),
    (lambda: PROBLEM.replace(epsilon=True), "epsilon"),
    (lambda: PROBLEM.replace(aggregate_at=10**9), "aggregate_at"),
    (lambda: PROBLEM.replace(learner="mean"), "learner"),
    (lambda: PROBLEM.replace(delta=""), "delta"),
    (lambda: PROBLEM.replace(mechanism="gaussian", delta=[1e-6]), "delta"),
    (lambda: PROBLEM.replace(mechanism="gaussian", delta=2), "delta"),
    (lambda: PROBLEM.replace(epsilom=1), "field"),
    (lambda: aw.Target(0.1, "exact", "sharp", rounds="3"), "rounds"),
    (lambda: aw.Target(0.1, "exact", "sharp", every=-1), "every"),
    (lambda: aw.Client("a", None), "process of client 'a'"),
    (lambda: aw.Client("a", CHAIN, [0.5, 0.6]), "law of client 'a'"),
    (lambda: aw.Client("a", CHAIN, [0.5]), "law of client 'a'"),
    (lambda: aw.Client("a", CHAIN, samples=0), "samples of client 'a'"),
    (lambda: aw.Client("a", CHAIN, samples=10**20), "samples of client 'a'"),
    (lambda: aw.Policy(max_delta="0"), "max_delta"),
    (lambda: aw.Policy(window="3"), "window"),
    (lambda: aw.Policy(window=True), "window"),
    (lambda: aw.Policy(allow_server_noise="no"), "allow_server_noise"),
    (lambda: aw.MarkovChain([[0.9, 0.2], [0.3, 0.7]], [0, 1]), "transition row 0"),
    (lambda: aw.MarkovChain([[0.9, 0.1]], [0, 1]), "transition"),
    (lambda: aw.MarkovChain([], []), "transition"),
    (lambda: aw.PeriodicChain([TURNS, [[1, 1], [0, 1]]], [0, 1]), "transitions[1] row 0"),
    (lambda: aw.birth_death([0.1, 0.2], 0.1, [0, 1]), "up"),
    (lambda: aw.birth_death("0.1", 0.1, [0, 1]), "up"),
    (lambda: aw.birth_death(0.1, 0.1, [1, 1]), "states"),
    (lambda: aw.Logistic([[0.0], [1.0]], [0, 1], names=5), "names"),
    (lambda: aw.Statistics([[0.0], [1.0]], names=5), "names"),
    (lambda: aw.total_variation(None, 1), "process"),
    (lambda: aw.total_variation(CHAIN, -1), "age"),
    (lambda: aw.total_variation(CHAIN, "1"), "age"),
    (lambda: aw.total_variation(CHAIN, [1, [2]]), "age"),
    (lambda: aw.total_variation(DAYS, 1, aggregate_at="5"), "aggregate_at"),
    (lambda: aw.total_variation(DAYS, 1, aggregate_at=10**30), "aggregate_at"),
    (lambda: aw.Ageing(None, 1), "process"),
    (lambda: aw.Ageing(CHAIN, 1).aged_epsilon("1"), "epsilon"),
    (lambda: aw.aged_epsilon("0.1", 0.5), "epsilon"),
    (lambda: aw.aged_epsilon(True, 0.5), "epsilon"),
    (lambda: aw.aged_epsilon(0.1, 1.5), "total_variation"),
    (lambda: aw.aged_epsilon([1, [2]], 0.5), "epsilon"),
    (lambda: aw.classical_epsilon(0, 0.5), "epsilon"),
    (lambda: aw.classical_epsilon(math.inf, 0.5), "epsilon"),
    (lambda: aw.composed_epsilon([0.1], CHAIN, 4), "releases"),
    (lambda: aw.composed_epsilon(RELEASE, CHAIN, 4), "releases"),
    (lambda: aw.composed_epsilon([RELEASE], None, 4), "process"),
    (lambda: aw.continual_epsilon(None, 4, 0.5), "process"),
    (lambda: aw.per_release_epsilon(CHAIN, 4, 0), "epsilon"),
    (lambda: aw.per_release_epsilon(CHAIN, 4, 0.5, promise="always"), "promise"),
    (lambda: aw.solve_schedule([[1.0], [1.0, 2.0]], [[0.0]]), "u"),
    (lambda: aw.solve_schedule([["1"]], [[0.0]]), "u"),
    (lambda: aw.solve_schedule([[1.0]], [[0.0]], counts=[[1]]), "counts"),
    (lambda: aw.take_turns(LASTING, 0), "turns"),
    (lambda: aw.compare_schemes(PLAIN, epsilons=0.1), "epsilons"),
    (lambda: aw.compare_schemes(PLAIN, schemes=3), "schemes"),
    (lambda: aw.privacy.noise_scale(None, [0, 1], 10, 0.1), "joint"),
    (lambda: aw.privacy.noise_scale(PAIR, [0, 1], 10, 0.1, delta="1"), "delta"),
    (lambda: aw.privacy.aged_loss(PAIR, [0, 1, 2], 10, 1.0), "release"),
    (lambda: aw.privacy.aged_loss(PAIR, [0, 1], 10, -1.0), "scale"),
    (lambda: aw.privacy.sensitivity([[0, 1]], 10), "release"),
    (lambda: aw.privacy.joint_delta(None), "joint"),
    (lambda: aw.privacy.Release("1", 0.1), "collect_at"),
    (lambda: aw.privacy.Release(1, np.array([0.1, 0.2])), "classical_epsilon"),
    (lambda: aw.privacy.laplace([1, [2]], sensitivity=1, epsilon=1), "value"),
    (lambda: aw.privacy.laplace(1.0, sensitivity=1, epsilon=None), "epsilon"),
    (lambda: aw.privacy.seeded_laplace(1.0, scale="1", rng=np.random.default_rng(1)), "scale"),
    (lambda: aw.learning.learner_of(None), "learner"),
    (lambda: aw.learning.learner_of({"kind": 3}), "learner.kind"),
    (lambda: aw.scheduling.check_schedule([[1.0]], [[0.0]], None), "schedule"),
]


@pytest.mark.parametrize(("call", "field"), ROWS)
def test_bad_input_is_refused_by_the_name_of_its_field(call, field):
    with pytest.raises(aw.InvalidInput) as refused:
        call()
    assert refused.value.field == field
    assert refused.value.exit_code == 2


def test_problems_are_found_by_name_as_on_the_command_line(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(aw.dump_scenario(PROBLEM))
    assert aw.plan("london") == aw.plan(aw.scenarios.london())
    assert aw.plan(file).gap == aw.plan(str(file)).gap == aw.plan(PROBLEM).gap
    assert aw.evaluate("london", [10, 1, 1]).ages == [0, 9, 9]
    assert (
        aw.compare("london", epsilon=[1.0])[0].gap
        == aw.plan(aw.scenarios.london().replace(epsilon=1.0)).gap
    )


def test_what_a_message_shows_stays_short():
    huge = [[0.0] * 1000] * 1000
    with pytest.raises(aw.InvalidInput) as refused:
        aw.Client("a", CHAIN, samples=huge)
    assert len(str(refused.value)) < 250
    with pytest.raises(aw.InvalidInput, match="a number of 66439 bits"):
        aw.total_variation(CHAIN, 10**20_000)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Readings of three households every six hours, for forty days."""
    path = tmp_path_factory.mktemp("readings") / "readings.csv"
    times = np.datetime64("2024-01-01T00:00") + np.arange(160) * np.timedelta64(6, "h")
    rows = [
        f"h{i % 3},{t},{10 + 40 * (i * k % 5 > 2)}" for k, t in enumerate(times) for i in (1, 2, 3)
    ]
    path.write_text("\n".join(["household,timestamp,value", *rows]))
    return path


OF_READINGS = ("columns", "timezone", "entities", "at_least", "covariate")
OF_FITS = [
    name
    for name in inspect.signature(aw.fit).parameters
    if name not in ("readings", "progress", "factors", "count_epsilon")
]


@pytest.mark.parametrize("value", [Odd(), nested(3000), math.nan], ids=["odd", "nested", "nan"])
@pytest.mark.parametrize("name", OF_READINGS)
def test_a_choice_about_readings_is_refused_by_its_name(file, name, value):
    with pytest.raises(aw.InvalidInput) as refused:
        aw.read_readings(file, **{name: value})
    assert refused.value.field == name


@pytest.mark.parametrize("value", [Odd(), nested(3000), math.nan], ids=["odd", "nested", "nan"])
@pytest.mark.parametrize("name", OF_FITS)
def test_a_choice_about_fits_is_refused_by_its_name(file, name, value):
    with pytest.raises(aw.InvalidInput) as refused:
        aw.fit(aw.read_readings(file), **{"states": [10, 50], "slots": 3, name: value})
    assert name in refused.value.field
