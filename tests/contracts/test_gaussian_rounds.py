"""Several Gaussian releases: what they tell about the present, by integration over all outputs."""

import math

import numpy as np
import pytest
from scipy.stats import norm

import agewise as aw
from agewise.privacy import curves
from agewise.privacy.composition import composed_pair, gap_delta

CHAINS = {
    "slow": aw.MarkovChain([[0.9, 0.1], [0.2, 0.8]], [0, 1]),
    "fast": aw.MarkovChain([[0.6, 0.4], [0.5, 0.5]], [0, 1]),
}


def own_failure(scale, epsilon):
    """δ of one release of 0 or 1 with Gaussian noise, in closed form (Balle and Wang 2018)."""
    half = 1 / (2 * scale)
    return norm.cdf(half - epsilon * scale) - math.exp(epsilon) * norm.cdf(-half - epsilon * scale)


OUTPUTS = np.linspace(-9, 10, 381)


def outputs_of(scale, rounds):
    """Outputs as far out as counts, and as many as fit."""
    return np.linspace(-8 * scale, 1 + 8 * scale, {1: 20_001, 2: 1001, 3: 141}[rounds])


def failure(chain, every, age, scale, epsilon, rounds=2, outputs=OUTPUTS):
    """δ of so many releases about the present at this ε: no formula of composition or ageing."""
    first, last = (np.linalg.matrix_power(chain.transition, gap) for gap in (every, age))
    density = norm.pdf(outputs[:, None], chain.states, scale)
    told = density * chain.stationary
    for _ in range(rounds - 1):
        told = (told @ first)[..., None, :] * density
    told = told @ last / chain.stationary
    cell = (outputs[1] - outputs[0]) ** rounds
    apart = told[..., :, None] - math.exp(epsilon) * told[..., None, :]
    return np.maximum(apart, 0).reshape(-1, 4).sum(axis=0).max() * cell


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize(("every", "age"), [(1, 0), (1, 2), (3, 1), (6, 0)])
@pytest.mark.parametrize(("scale", "spent"), [(0.8, 0.7), (1.5, 0.4), (1.5, 1.2)])
def test_guarantee_what_two_gaussian_releases_tell_is_within_the_bound(
    name, every, age, scale, spent
):
    chain = CHAINS[name]
    gap, aged = gap_delta(chain, every, "exact"), float(aw.total_variation(chain, age))
    epsilon, delta = composed_pair(gap, aged, 2, spent, own_failure(scale, spent))
    assert failure(chain, every, age, scale, epsilon) <= delta * (1 + 1e-6)


@pytest.mark.parametrize("wrong", ["ageing", "between releases", "one of two"])
def test_too_much_credit_is_noticed(wrong):
    chain, scale, spent = CHAINS["slow"], 1.5, 0.4
    age = 0 if wrong == "between releases" else 1
    gap, aged = gap_delta(chain, 1, "exact"), float(aw.total_variation(chain, age))
    own = own_failure(scale, spent)
    epsilon, delta = {
        "ageing": composed_pair(gap, aged / 2, 2, spent, own),
        "between releases": composed_pair(gap / 4, aged, 2, spent, own),
        "one of two": composed_pair(gap, aged, 1, spent, own),
    }[wrong]
    assert failure(chain, 1, age, scale, epsilon) > delta * 1.05


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize(("every", "age"), [(1, 0), (2, 1)])
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_guarantee_gaussian_rounds_keep_to_their_delta_and_use_most_of_it(name, every, age, rounds):
    """By integration over all outputs of all rounds: below the target, and above 0.9 of it."""
    chain, epsilon, delta, last = CHAINS[name], {"slow": 0.8, "fast": 0.1}[name], 1e-5, every
    client = aw.Client("c", chain, samples=1)
    many = {"rounds": rounds, "every": every} if rounds > 1 else {}
    problem = aw.Problem(
        [client], last, epsilon, mechanism="gaussian", delta=delta, estimator="plain", **many
    )
    one = aw.evaluate(problem, [last - age]).assignments[0]
    outputs = outputs_of(one.noise_scale, rounds)
    true = failure(chain, every, age, one.noise_scale, epsilon, rounds, outputs)
    assert 0.9 * delta < true <= delta
    own_delta = float(aw.slot_table(client, problem, [last - age]).classical_delta[0])
    slots = [last - age - every * j for j in range(rounds)]
    made = [
        aw.Release(slot, one.classical_epsilon, own_delta, mu=1 / one.noise_scale) for slot in slots
    ]
    total = aw.composed_epsilon(made, chain, last)
    assert total.aged_delta <= delta * (1 + 1e-9)
    assert total.aged <= epsilon * (1 + (1e-9 if rounds > 1 else 1e-4))
    told = failure(chain, every, age, one.noise_scale, total.aged, rounds, outputs)
    assert told <= total.aged_delta


@pytest.mark.parametrize("mu", [0.05, 0.4, 3.0])
def test_guarantee_curves_are_rounded_outward(mu):
    """Without ageing n releases are one of √n times the deviations; with rows, a finer curve."""
    told, step = curves.Curve.of_gaussian(mu, 6 * mu / curves.NODES), 6 * mu / curves.NODES
    rows = np.array([[0.8, 0.2], [0.3, 0.7]])
    for count in (2, 3, 4):
        told = told.with_gaussian(mu)
        exact = np.array([own_failure(1 / (mu * math.sqrt(count)), e) for e in told.epsilons])
        some = exact > 1e-12
        assert (told.failures[some] >= exact[some]).all()
        near = told.epsilons < 3 * mu
        assert (told.failures[near] <= 1.001 * exact[near]).all()
    fine = curves.Curve.of_gaussian(mu, step / 2)
    sticks = [np.maximum(rows[0] - math.exp(e) * rows[1], 0).sum() for e in told.epsilons]
    other = [np.maximum(rows[1] - math.exp(e) * rows[0], 0).sum() for e in told.epsilons]
    most = np.maximum(sticks, other)
    orders = 1 + np.expm1(told.epsilons) / np.maximum(most, 1e-9)
    coarse = curves.Curve.of_gaussian(mu, step).aged(most)
    inside = orders < np.exp(fine.epsilons[-1])
    assert (coarse.failures >= most * fine.at(orders) * (1 - 1e-9))[inside].all()
    assert (np.diff(told.failures) <= 0).all()
    assert told.epsilon(2.0, np.ones_like, 9.0) < 1e-9
    assert told.epsilon(0.0, np.ones_like, 9.0) == 9.0


@pytest.mark.parametrize(("every", "epsilon", "delta"), [(4, 1e-4, 1e-2), (5, 1e-5, 0.6)])
def test_guarantee_one_release_keeps_to_its_own_delta_where_the_target_allows_any(
    every, epsilon, delta
):
    """Old data may fail less often than the target allows: what is told of each is that."""
    chain, age = CHAINS["fast"], every - 1
    client = aw.Client("c", chain, samples=1)
    rounds = {"rounds": 2, "every": every}
    problem = aw.Problem(
        [client], every, epsilon, mechanism="gaussian", delta=delta, estimator="plain", **rounds
    )
    scale = aw.evaluate(problem, [1]).assignments[0].noise_scale
    table = aw.slot_table(client, problem, [1])
    told = float(table.delta[0] * table.classical_delta[0])
    assert told < delta / 2
    assert failure(chain, every, age, scale, epsilon, 1, outputs_of(scale, 1)) <= told
