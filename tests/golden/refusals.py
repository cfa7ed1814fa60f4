"""Calls, scenario files and commands that are refused: `refusals.jsonl` says with what.

A line is one of them, as somebody would write it. New ones are added here; `make golden` writes
down the field, the class and the exit code.
"""

import contextlib
import inspect
import json
import math
import re
from functools import partial
from pathlib import Path

import numpy as np

import agewise as aw
import in_process
from agewise.privacy import Release
from test_refusals import CALLED_OR_ANY, GOOD

REFUSALS = Path(__file__).with_name("refusals.jsonl")

nan, inf = math.nan, math.inf
turns = [[0.9, 0.1], [0.3, 0.7]]
chain = aw.birth_death(0.3, 0.3, [0, 1])
reducible = aw.MarkovChain(np.eye(2), [0, 1])
flip = aw.MarkovChain([[0, 1], [1, 0]], [0, 1])
ring = aw.MarkovChain(0.5 * np.roll(np.eye(3), 1, axis=1) + 0.5 * np.eye(3), [1, 2, 3])
day = aw.PeriodicChain([turns, turns], [0, 1])
pair = chain.joint(1, 4)
release = Release(1, 0.1)
a = aw.Client("a", chain, samples=10)
b = aw.Client("b", chain, samples=10)
level = aw.Level(1.0, 0.5)
problem = aw.Problem([a, b], 4, 0.5)
plain = problem.replace(estimator="plain")
lasting = problem.replace(rounds=3, every=4)
plan = aw.plan(problem)
rng = np.random.default_rng(1)
ok = np.ones((2, 3))


def mechanism(records, rng):
    return rng.laplace() + records.sum()


PYTHON = """
aw.plan(None)
aw.plan("no_such_scenario")
aw.plan("\\0")
aw.plan(problem, "best")
aw.plan(problem, ["random"])
aw.plan(problem, rng=3, method="random")
aw.compare(None)
aw.compare(problem, epsilon=["0.1"])
aw.compare(problem, epsilom=[0.1])
aw.evaluate(None, [1])
aw.evaluate(problem, [4])
aw.evaluate(problem, [4, 0])
aw.evaluate(problem, [4, [4]])
aw.evaluate(problem, [4, 4], unheard="a")
aw.evaluate(problem, [4, 4], promised=3)
aw.loss_gap("london", [0, 0, 0])
aw.loss_gap(problem, [0, [1, 2]])
aw.loss_gap(problem, [0, 4])
aw.simulate_gap(problem, [0, 1], 1)
aw.simulate_gap(problem, [0, 1], 10, rng=3)
aw.rehearse(aw.plan(plain), 10**9)
aw.replan(plan, 1, lost="a")
aw.replan(plan, 1, lost=["c"])
aw.replan(plan, 1, collected=["a"])
aw.replan(plan, 0)
aw.replan(plan, 99)
aw.run(None)
aw.run("london")
aw.run(problem)
aw.run(plan, "cloud")
aw.run(plan, "flower")
aw.run(plan, drop="a")
aw.run(plan, drop=["c"])
aw.run(plan, drop=["a"])
aw.run(plan, folder=3)
aw.run(plan, policy={"max_delta": 0})
aw.run(plan, policy=aw.Policy(0.1))
aw.run(plan, slot_seconds=-1)
aw.run(plan, on_missing="hope")
aw.run(plan, clock="sand")
aw.run(plan, starts_at=-1)
aw.run(plan, sources="missing.csv")
aw.run(aw.plan(lasting))
aw.run_rounds(None)
aw.run_rounds(plan)
aw.run_rounds(aw.plan(lasting), rounds=4)
aw.run_rounds(aw.plan(lasting), policy=aw.Policy(0.1))
aw.Plan.from_json(None)
aw.Plan.from_json("[" * 100_000)
aw.Plan.from_json("{}")
aw.Plan.from_json(plan.to_json().replace('"version": 4', '"version": 3'))
aw.audit(None)
aw.audit(problem, claim="0.1")
aw.audit(problem, draws=-1)
aw.audit(mechanism, claim=0, process=chain)
aw.audit(mechanism, claim=1, process=chain, age="1")
aw.audit(mechanism, claim=1, process=chain, collect_at=[])
aw.audit(mechanism, claim=1, process=chain, samples=10**10)
aw.load_scenario(None)
aw.load_scenario(3)
aw.dump_scenario("london")
aw.read_readings(None)
aw.fit(None)
aw.fit("readings.csv")
aw.resume(None)
aw.resume("nowhere")
aw.resume_rounds("nowhere")
aw.Ledger(3)
aw.Ledger.read(None)
aw.Ledger.read("nowhere.ledger")
aw.Problem(None, 4, 0.5)
aw.Problem([], 4, 0.5)
aw.Problem(["a"], 4, 0.5)
aw.Problem([a, a], 4, 0.5)
aw.Problem([a, b], 0, 0.5)
problem.replace(epsilon="0.1")
problem.replace(epsilon=0)
problem.replace(epsilon=-1)
problem.replace(epsilon=inf)
problem.replace(epsilon=True)
problem.replace(aggregate_at=10**9)
problem.replace(mixing="guess")
problem.replace(estimator="guess")
problem.replace(calibration="guess")
problem.replace(objective="guess")
problem.replace(noise="guess")
problem.replace(noise=None)
problem.replace(learner="mean")
problem.replace(mechanism="guess")
problem.replace(mechanism="gaussian")
problem.replace(delta="")
problem.replace(delta=1e-6)
problem.replace(mechanism="gaussian", delta=[1e-6])
problem.replace(mechanism="gaussian", delta=2)
problem.replace(mechanism="gaussian", delta=1e-6, rounds=None, every=4)
problem.replace(mechanism="gaussian", delta=1e-6, promise="every_moment")
problem.replace(mechanism="gaussian", delta=1e-6, calibration="tight")
problem.replace(epsilom=1)
problem.replace(capacity=0)
problem.replace(capacity=1, aggregate_at=1)
problem.replace(rounds=3)
problem.replace(rounds=0)
problem.replace(every=4)
problem.replace(rounds=3, every=3)
problem.replace(rounds=3, every=4, calibration="tight")
problem.replace(rounds=3, every=4, calibration="formula")
problem.replace(rounds=3, every=4, estimator="plain", objective="bound")
problem.replace(promise="always")
problem.replace(calibration="tight", mixing="any_prior")
problem.replace(noise="server", estimator="plain", objective="bound")
problem.replace(level=level, estimator="propagated")
problem.replace(level=level, calibration="tight")
problem.replace(level=level, learner=aw.Histogram())
problem.replace(level=aw.Level([1.0, 2.0, 3.0], 0.5))
problem.replace(estimator="best", objective="bound")
problem.replace(estimator="best", learner=aw.Logistic([[0.0], [1.0]], [0, 1]))
aw.Problem([a, aw.Client("b", chain, turn=2)], 4, 0.5)
aw.Problem([a, aw.Client("b", chain, turn=2)], 4, 0.5, rounds=3, every=4, estimator="plain")
aw.Problem([a, aw.Client("b", chain, members=3)], 4, 0.5, noise="server")
aw.Problem([a, aw.Client("b", chain, [0.5, 0.5])], 4, 0.5, rounds=3, every=4)
aw.Problem([aw.Client("a", chain, weight=0.5), b], 4, 0.5)
aw.Problem([aw.Client("a", chain, weight=0.5), aw.Client("b", chain, weight=0.6)], 4, 0.5)
aw.Problem([aw.Client("a", reducible)], 4, 0.5, rounds=3, every=4)
aw.plan(aw.Problem([aw.Client("a", ring)], 4, 0.5, mixing="spectral"))
aw.plan(aw.Problem([aw.Client("a", chain)], 4, 1e-200))
aw.Target(0.1, "exact", "sharp", rounds="3")
aw.Target(0.1, "exact", "sharp", every=-1)
aw.Client("a", None)
aw.Client("", chain)
aw.Client("a\\n", chain)
aw.Client("a", chain, [0.5, 0.6])
aw.Client("a", chain, [0.5])
aw.Client("a", chain, samples=0)
aw.Client("a", chain, samples=1.5)
aw.Client("a", chain, samples=10**20)
aw.Client("a", chain, weight=-1)
aw.Client("a", chain, epsilon=0)
aw.Client("a", chain, turn=0)
aw.Client("a", chain, members=0)
aw.Policy(max_delta="0")
aw.Policy(-1)
aw.Policy(window="3")
aw.Policy(window=True)
aw.Policy(window=0)
aw.Policy(allow_server_noise="no")
aw.MarkovChain([[0.9, 0.2], [0.3, 0.7]], [0, 1])
aw.MarkovChain([[1.1, -0.1], [0.2, 0.8]], [0, 1])
aw.MarkovChain([[nan, 1], [0, 1]], [0, 1])
aw.MarkovChain([[inf, 0], [0, 1]], [0, 1])
aw.MarkovChain([[0.9, 0.1]], [0, 1])
aw.MarkovChain([[1.0]], [0])
aw.MarkovChain([], [])
aw.MarkovChain([[1, 0], [0]], [0, 1])
aw.MarkovChain(turns, [3, 3])
aw.MarkovChain(turns, [1, 2, 3])
aw.MarkovChain(turns, [1, nan])
aw.MarkovChain(turns, [-1e308, 1e308])
aw.MarkovChain([[0, 1], [1e-310, 1]], [0, 1])
chain.joint(1, 2, [0.5, 0.3, 0.2])
chain.joint(1, 2, [0.5, 0.4])
chain.joint(3, 2)
chain.sample_paths(7, 3)
reducible.stationary
reducible.period
aw.PeriodicChain([turns, [[1, 1], [0, 1]]], [0, 1])
aw.PeriodicChain([[0.5, 0.5], [0.5, 0.5]], [0, 1])
aw.PeriodicChain([np.eye(2)], [0, 1, 2])
aw.PeriodicChain([np.eye(2)], [0, 1]).laws
aw.birth_death([0.1, 0.2], 0.1, [0, 1])
aw.birth_death("0.1", 0.1, [0, 1])
aw.birth_death(0.7, 0.7, [1, 2])
aw.birth_death(-0.1, 0.7, [1, 2])
aw.birth_death(nan, 0.7, [1, 2])
aw.birth_death(0.1, 0.1, [1])
aw.birth_death(0.1, 0.1, [1, 1])
aw.Level(nan, 0.5)
aw.Level(1.0, 1.1)
aw.Level(1.0, "much")
aw.Logistic([[0.0], [1.0]], [0, 1], names=5)
aw.Logistic([[0.0], [1.0]], [0])
aw.Logistic([[0.0], [1.0]], [0, 1], clip=0)
aw.Statistics([[0.0], [1.0]], names=5)
aw.Statistics([[0.0], [nan]])
aw.Ridge([[0.0], [1.0]], [0.0])
aw.total_variation(None, 1)
aw.total_variation(chain, -1)
aw.total_variation(chain, 1.5)
aw.total_variation(chain, nan)
aw.total_variation(chain, "1")
aw.total_variation(chain, [])
aw.total_variation(chain, [1, [2]])
aw.total_variation(chain, 10**18)
aw.total_variation(chain, 2, "guess")
aw.total_variation(chain, 2, "own_law")
aw.total_variation(chain, 2, "exact", [1, 0, 0])
aw.total_variation(chain, 2, "spectral", [1, 0])
aw.total_variation(ring, 2, "spectral")
aw.total_variation(flip, 2, "spectral")
aw.total_variation(reducible, 2, "spectral")
aw.total_variation(reducible, 2)
aw.total_variation(day, 1)
aw.total_variation(day, 1, "spectral", aggregate_at=2)
aw.total_variation(day, 1, aggregate_at="5")
aw.total_variation(day, 1, aggregate_at=10**30)
aw.Ageing(None, 1)
aw.Ageing(chain, -1)
aw.Ageing(chain, 2, "own_law")
aw.Ageing(chain, 2, "guess")
aw.Ageing(chain, 1).aged_epsilon("1")
aw.Ageing(chain, 1).aged_epsilon(0)
aw.Ageing(chain, 1).classical_epsilon(inf)
aw.aged_epsilon("0.1", 0.5)
aw.aged_epsilon(0, 0.5)
aw.aged_epsilon(-1, 0.5)
aw.aged_epsilon(nan, 0.5)
aw.aged_epsilon(True, 0.5)
aw.aged_epsilon(0.1, 1.5)
aw.aged_epsilon([1, [2]], 0.5)
aw.classical_epsilon(0, 0.5)
aw.classical_epsilon(inf, 0.5)
aw.classical_epsilon([0.1, 0.0], 0.5)
aw.classical_epsilon(1, -0.1)
aw.classical_epsilon(1, nan)
aw.composed_epsilon([0.1], chain, 4)
aw.composed_epsilon(release, chain, 4)
aw.composed_epsilon([release], None, 4)
aw.composed_epsilon([release], chain, 1.5)
aw.composed_epsilon([release], chain, 10, "guess")
aw.composed_epsilon([release], chain, 10, "own_law")
aw.continual_epsilon(None, 4, 0.5)
aw.continual_epsilon(chain, 0, 0.5)
aw.continual_epsilon(chain, 4, 0.5, age=-1)
aw.continual_epsilon(reducible, 4, 0.5)
aw.per_release_epsilon(chain, 4, 0)
aw.per_release_epsilon(chain, 4, 0.5, promise="always")
aw.solve_schedule([[1.0], [1.0, 2.0]], [[0.0]])
aw.solve_schedule([["1"]], [[0.0]])
aw.solve_schedule([[nan, 1.0]], [[0.0, 0.0]])
aw.solve_schedule([[-inf, 1.0]], [[0.0, 0.0]])
aw.solve_schedule([[1.0, 1.0]], [[0.0, nan]])
aw.solve_schedule([[1.0, 1.0]], [[0.0, inf]])
aw.solve_schedule([[1, 1], [inf] * 2], np.zeros((2, 2)))
aw.solve_schedule(np.empty((0, 3)), np.empty((0, 3)))
aw.solve_schedule(ok, np.ones((2, 4)))
aw.solve_schedule(ok[0], ok[0])
aw.solve_schedule(ok, ok, capacity=0)
aw.solve_schedule(ok, ok, capacity=1.5)
aw.solve_schedule(np.ones((7, 3)), np.ones((7, 3)), capacity=2)
aw.solve_schedule(ok, ok, counts=[1])
aw.solve_schedule(ok, ok, counts=[1, 0])
aw.solve_schedule(ok, ok, counts=[1, 1.5])
aw.solve_schedule(ok, ok, counts=[1e30, 1])
aw.solve_schedule(ok, ok, capacity=1, counts=[1, 2])
aw.take_turns(lasting, 0)
aw.take_turns(problem, 2)
aw.compare_schemes(plain, epsilons=0.1)
aw.compare_schemes(plain, schemes=3)
aw.compare_schemes(plain, schemes=[7])
aw.privacy.noise_scale(None, [0, 1], 10, 0.1)
aw.privacy.noise_scale(pair, [0, 1], 10, 0.1, delta="1")
aw.privacy.noise_scale(pair, [0, 1], 0, 0.1)
aw.privacy.noise_scale(pair, [0, 1], 10, 0)
aw.privacy.noise_scale(pair, [0, 1], 10, 0.1, "guess")
aw.privacy.noise_scale(pair, [0, 1], 10, 0.1, "tight", 0.5)
aw.privacy.noise_scale(pair, [0, inf], 10, 0.1)
aw.privacy.aged_loss(pair, [0, 1, 2], 10, 1.0)
aw.privacy.aged_loss(pair, [0, 1], 10, -1.0)
aw.privacy.sensitivity([[0, 1]], 10)
aw.privacy.joint_delta(None)
aw.privacy.Release("1", 0.1)
aw.privacy.Release(1.5, 0.1)
aw.privacy.Release(1, 0)
aw.privacy.Release(1, nan)
aw.privacy.laplace(nan, sensitivity=1, epsilon=1)
aw.privacy.laplace([1, [2]], sensitivity=1, epsilon=1)
aw.privacy.laplace([], sensitivity=1, epsilon=1)
aw.privacy.laplace("1", sensitivity=1, epsilon=1)
aw.privacy.laplace(2**60, sensitivity=1, epsilon=1)
aw.privacy.laplace(1, sensitivity=1, epsilon=2.0**-51)
aw.privacy.laplace(1.0, sensitivity=-1, epsilon=1)
aw.privacy.laplace(1.0, sensitivity=inf, epsilon=1)
aw.privacy.laplace(1.0, sensitivity=1, epsilon=0)
aw.privacy.laplace(1.0, sensitivity=1, epsilon=None)
aw.privacy.laplace(1.0, sensitivity=1, epsilon=1e-305)
aw.privacy.seeded_laplace(nan, scale=1, rng=rng)
aw.privacy.seeded_laplace(1.0, scale="1", rng=rng)
aw.privacy.seeded_laplace(1.0, scale=-1, rng=rng)
aw.privacy.seeded_laplace(1.0, scale=1, rng=7)
aw.learning.learner_of(None)
aw.learning.learner_of({"kind": 3})
aw.scheduling.check_schedule([[1.0]], [[0.0]], None)
"""

SCENARIO = """\
version = 1
aggregate_at = 4
epsilon = 0.5

[[clients]]
name = "a"
samples = 10
states = [0, 1]

[clients.process]
kind = "birth_death"
up = 0.3
down = 0.3
"""

EDITS = """
aggregate_at = 4 -> aggregate_when = 4
aggregate_at = 4 -> aggregate_at = 0
aggregate_at = 4 -> aggregate_at = 1.5
aggregate_at = 4 -> aggregate_at = true
aggregate_at = 4 -> aggregate_at = "soon"
version = 1 -> version = 2
epsilon = 0.5 ->
epsilon = 0.5 -> epsilon = "much"
epsilon = 0.5 -> epsilon = -1
epsilon = 0.5 -> epsilon = nan
epsilon = 0.5 -> epsilon = 0.5; epsilom = 3
epsilon = 0.5 -> epsilon = 0.5; mixing = "guess"
epsilon = 0.5 -> epsilon = 0.5; estimator = "propogated"
epsilon = 0.5 -> epsilon = 0.5; calibration = "guess"
epsilon = 0.5 -> epsilon = 0.5; calibration = "tight"; mixing = "any_prior"
epsilon = 0.5 -> epsilon = 0.5; objective = "bound"
epsilon = 0.5 -> epsilon = 0.5; capacity = 0
epsilon = 0.5 -> epsilon = 0.5; noise = "nobody"
epsilon = 0.5 -> epsilon = 0.5; mechanism = "gaussian"
epsilon = 0.5 -> epsilon = 0.5; delta = 1e-6
epsilon = 0.5 -> epsilon = 0.5; mechanism = "gaussian"; delta = 2
epsilon = 0.5 -> epsilon = 0.5; rounds = 3
epsilon = 0.5 -> epsilon = 0.5; rounds = "always"; every = 4
epsilon = 0.5 -> epsilon = 0.5; rounds = 3; every = 3
epsilon = 0.5 -> epsilon = 0.5; every = 4
epsilon = 0.5 -> epsilon = 0.5; promise = "always"
epsilon = 0.5 -> epsilon = 0.5; learner = { kind = "guess" }
epsilon = 0.5 -> epsilon = 0.5; learner = { kind = "ridge" }
epsilon = 0.5 -> epsilon = 0.5; learner = { kind = "mean", rows = [] }
epsilon = 0.5 -> epsilon = 0.5; level = { loading = 1.0 }
epsilon = 0.5 -> epsilon = 0.5; level = { loading = 1.0, correlation = 1.1 }
epsilon = 0.5 -> epsilon = 0.5; level = { loading = 1.0, correlation = 0.5 }; calibration = "tight"
name = "a" ->
name = "a" -> name = ""
samples = 10 -> samples = 0
samples = 10 -> sample = 10
samples = 10 -> samples = 10; weight = 2
samples = 10 -> samples = 10; epsilon = 0
samples = 10 -> samples = 10; law = [0.5]
samples = 10 -> samples = 10; law = [0.5, 0.6]
samples = 10 -> samples = 10; turn = 2
samples = 10 -> samples = 10; members = 0
states = [0, 1] ->
states = [0, 1] -> states = [0, 0]
states = [0, 1] -> states = [0]
states = [0, 1] -> states = "few"
kind = "birth_death" -> kind = "guess"
kind = "birth_death" -> kind = "chain"
up = 0.3 ->
up = 0.3 -> up = 0.9
up = 0.3 -> up = "often"
down = 0.3 -> donw = 0.3
down = 0.3 -> down = 0.3; capacity = 1
[[clients]] -> [[clients
[[clients]] -> [[client]]
"""
"""What of the scenario is replaced -> by what; a semicolon stands for a new line."""

COMMANDS = """
plann
plan nowhere.toml
plan mine.toml --epsilon 0
plan mine.toml --epsilon nan
plan mine.toml --epsilon much
plan mine.toml --mixing guess
plan mine.toml --calibration tight --mixing any_prior
plan mine.toml --capacity 0
plan mine.toml --method guess
plan mine.toml --seed -1
plan mine.toml --level 20
plan mine.toml --level 20,0.98,1
plan mine.toml --level 20,1.1
plan mine.toml --level 1,0.5 --estimator propagated
plan mine.toml --out /proc/none
plan mine.toml --now 3 --collected x
plan mine.toml --collected a=2
plan mine.toml --now 99
plan mine.toml --keep-best --method random
plan mine.toml --rounds 3
plan mine.toml --noise nobody
plan mine.toml --mechanism gaussian
plan mine.toml --learner guess
compare mine.toml --epsilon x
compare mine.toml --mixing exact,guess
compare mine.toml --level nan,0.98
schemes mine.toml --epsilon -1
ages mine.toml --epsilon 0
ages mine.toml --mixing guess
ages mine.toml --out /proc/none
init mine
run nowhere.toml
run mine.toml --plan plan.json
run --plan nowhere.json
run --plan mine.toml
run --plan plan.json --epsilon 1
run mine.toml --drop nobody
run mine.toml --drop a --out runs
run mine.toml --max-classical-epsilon 0.05
run mine.toml --max-aged-epsilon -1
run mine.toml --max-release-epsilon 0.05
run mine.toml --window 0
run mine.toml --repetitions 1
run mine.toml --readings missing.csv
run mine.toml --readings missing.csv --ledgers ledgers
run mine.toml --resume nowhere
run --resume nowhere
run mine.toml --clock sand
run mine.toml --clock wall --slot-seconds -3
run mine.toml --out /proc/none
run mine.toml --seed -1
run mine.toml --engine cloud
run mine.toml --superlink x:1
run mine.toml --on-missing hope
run mine.toml --starts-at -1
rounds mine.toml
rounds nowhere.toml
rounds lasting.toml --rounds 0
rounds lasting.toml --drop nobody
rounds lasting.toml --windw 0
rounds lasting.toml --epsilon 0
rounds --resume nowhere
check nowhere
check nowhere.toml
check mine.toml --ledgers ledgers
check plan.json
audit nowhere
audit mine.toml --draws -1
audit mine.toml --claim 0
fit nowhere.csv
fit mine.toml
fit readings.csv --states 1
fit readings.csv --slots 0
fit readings.csv --confidence 2
backtest nowhere.csv
ledger show nowhere
ledger verify nowhere
ledger export mine.toml
ledger restore nowhere
ledger restore nowhere run
deploy init fed nowhere.toml
deploy up nowhere
deploy status nowhere
explore nowhere.toml
reproduce fig9
"""

VALUES = ("None", "-1", "0", "1.5", "nan", "inf", "True", "'x'", "[]", "{}", "[[[]]]")
"""What every argument of every public function is given in turn: `aw.total_variation(age=nan)`."""

UNTRIED = ("aw.audit(draws=", "aw.fit(", "aw.read_readings(")
"""Arguments that take long where they are not refused, or that need files."""

TOLD = re.compile(
    r"^(?:Error: )?(?:\S+\.toml: )?(.{1,60}?) is .*; allowed: "
    r"|^│ (?:Invalid value for|No such option:|No such command|Missing argument) '?([^' ]+)",
    re.MULTILINE,
)
"""How messages of commands begin, by what they are about."""


def read(text):
    return eval(text, globals())


def refused(call):
    """Field, class and exit code with which a call is refused; None where it is not."""
    try:
        call()
    except aw.AgewiseError as error:
        field = getattr(error, "field", None)
        return {"field": field, "class": type(error).__name__, "code": error.exit_code}
    return None


def calls():
    """Rows of calls in Python."""
    for line in PYTHON.strip().splitlines():
        yield {"call": line} | (refused(partial(read, line)) or ACCEPTED)


def arguments():
    """Rows of calls with one bad argument: one for all values that are refused alike."""
    for name, good in GOOD.items():
        for parameter in inspect.signature(getattr(aw, name)).parameters:
            about = f"aw.{name}({parameter}="
            if parameter in CALLED_OR_ANY or about.startswith(UNTRIED):
                continue
            rows = {}
            for value in VALUES:
                how = refused(partial(getattr(aw, name), **{**good, parameter: read(value)}))
                if how is not None:
                    row = rows.setdefault(str(how), {"argument": f"{about}…)", "values": []} | how)
                    row["values"].append(value)
            yield from rows.values()


def files(folder):
    """Rows of scenario files with something wrong in them."""
    path = folder / "edited.toml"
    for line in EDITS.strip().splitlines():
        old, new = (one.strip() for one in line.split("->"))
        assert old in SCENARIO, line
        path.write_text(SCENARIO.replace(old, new.replace("; ", "\n"), 1), encoding="utf-8")
        yield {"file": line} | (refused(partial(aw.load_scenario, path)) or ACCEPTED)


def commands(folder):
    """Rows of commands, by exit code and the first thing that their message names."""
    (folder / "mine.toml").write_text(aw.dump_scenario(problem), encoding="utf-8")
    (folder / "lasting.toml").write_text(aw.dump_scenario(lasting), encoding="utf-8")
    (folder / "plan.json").write_text(plan.to_json(), encoding="utf-8")
    (folder / "readings.csv").write_text("household,timestamp,value\n", encoding="utf-8")
    for line in COMMANDS.strip().splitlines():
        before = sorted(folder.rglob("*"))
        done = in_process.command(*line.split(), cwd=folder)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode != 2 or sorted(folder.rglob("*")) == before, line
        told = TOLD.search(done.stderr)
        yield {"command": line, "field": told and (told[1] or told[2]), "code": done.returncode}


ACCEPTED = {"code": 0}


def table(folder):
    """All rows, made in a folder of their own."""
    with contextlib.chdir(folder):
        return [*calls(), *arguments(), *files(folder), *commands(folder)]


def stored():
    return [json.loads(line) for line in REFUSALS.read_text(encoding="utf-8").splitlines()]
