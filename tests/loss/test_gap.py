import itertools
import math

import numpy as np
import pytest

import agewise as aw
from random_problems import random_ages, random_problem


def printed_expression(problem, ages):
    """The paper's Theorem 2, term by term as it is printed (plain estimator, stated Δ)."""
    m, p = len(problem.clients), problem.weights
    n = [c.samples for c in problem.clients]
    collected, present, both, variance_c, variance_a, g = [], [], [], [], [], []
    for client, age in zip(problem.clients, ages, strict=True):
        z = client.process.states
        slot = problem.aggregate_at - age
        mu = client.law_at(slot)
        kernel = client.process.kernel(slot, problem.aggregate_at)
        nu = mu @ kernel
        collected.append(mu @ z)
        present.append(nu @ z)
        both.append(
            sum(mu[x] * kernel[x, y] * z[x] * z[y] for x in range(z.size) for y in range(z.size))
        )
        variance_c.append(mu @ z**2 - (mu @ z) ** 2)
        variance_a.append(nu @ z**2 - (nu @ z) ** 2)
        law = client.law if problem.mixing == "own_law" else None
        method = "exact" if law is None and problem.mixing == "own_law" else problem.mixing
        delta = aw.total_variation(
            client.process, age, method, law, aggregate_at=problem.aggregate_at
        )
        g.append(math.log((math.exp(problem.epsilon) - 1) / delta + 1))
    total = sum(
        2 * p[i] ** 2 * (np.ptp(problem.clients[i].process.states) / (n[i] * g[i])) ** 2
        for i in range(m)
    )
    total += sum(p[i] ** 2 * variance_c[i] / n[i] for i in range(m))
    total += sum(p[i] * collected[i] for i in range(m)) ** 2
    total -= 2 * sum(
        p[i] ** 2 / n[i] ** 2 * (n[i] * both[i] + n[i] * (n[i] - 1) * present[i] * collected[i])
        for i in range(m)
    )
    total -= 2 * sum(
        p[i] * present[i] * sum(p[k] * collected[k] for k in range(m) if k != i) for i in range(m)
    )
    total += sum(p[i] ** 2 * variance_a[i] / n[i] for i in range(m))
    total += sum(p[i] * present[i] for i in range(m)) ** 2
    return total


def enumerated(problem, ages):
    """E[(W̃ − W^A)²] by summing over every possible data set of every client."""
    tables = aw.cost_tables(problem)
    laws = []  # of each client's p·(mean of f(X) − mean of z_Y), as {value: probability}
    for i, (client, age) in enumerate(zip(problem.clients, ages, strict=True)):
        slot = problem.aggregate_at - age
        table = tables.slots[i]
        joint = client.process.joint(slot, problem.aggregate_at, client.law_at(slot)).matrix
        cells = [
            (joint[x, y], table.release[slot - 1][x] - client.process.states[y])
            for x, y in itertools.product(range(len(joint)), repeat=2)
        ]
        outcomes = {}
        for records in itertools.product(cells, repeat=client.samples):
            value = problem.weights[i] * sum(r[1] for r in records) / client.samples
            outcomes[value] = outcomes.get(value, 0) + math.prod(r[0] for r in records)
        laws.append(outcomes)
    square = sum(
        math.prod(chance for _, chance in combination) * sum(value for value, _ in combination) ** 2
        for combination in itertools.product(*(law.items() for law in laws))
    )
    noise = sum(
        2 * (problem.weights[i] * tables.slots[i].scale[problem.aggregate_at - 1 - age]) ** 2
        for i, age in enumerate(ages)
    )
    return square + noise


@pytest.mark.parametrize("seed", range(40))
def test_closed_form_equals_the_papers_printed_expression(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, estimator="plain", calibration="formula")
    ages = random_ages(rng, problem)
    assert aw.loss_gap(problem, ages) == pytest.approx(printed_expression(problem, ages), rel=1e-8)


@pytest.mark.parametrize("seed", range(25))
def test_closed_form_equals_enumeration(seed):
    rng = np.random.default_rng(100 + seed)
    problem = random_problem(rng, clients=int(rng.integers(1, 3)), samples=(1, 4))
    ages = random_ages(rng, problem)
    assert aw.loss_gap(problem, ages) == pytest.approx(enumerated(problem, ages), rel=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_closed_form_equals_simulation(seed):
    rng = np.random.default_rng(200 + seed)
    problem = random_problem(rng)
    ages = random_ages(rng, problem)
    estimate = aw.simulate_gap(problem, ages, trials=40_000, rng=rng)
    assert abs(estimate - aw.loss_gap(problem, ages)) <= 4.5 * estimate.standard_error


def test_propagated_records_have_no_bias():
    problem = aw.scenarios.london().replace(estimator="propagated", mixing="exact")
    assert np.abs(aw.cost_tables(problem).b).max() < 1e-12


def test_weights_of_ones_own():
    chain = aw.birth_death(0.2, 0.3, [1, 2, 4])
    clients = [
        aw.Client("a", chain, samples=3, weight=0.9),
        aw.Client("b", chain, samples=2, weight=0.1),
    ]
    problem = aw.Problem(clients, 4, 0.5, estimator="plain", calibration="formula")
    assert aw.loss_gap(problem, [2, 1]) == pytest.approx(enumerated(problem, [2, 1]), rel=1e-9)


@pytest.mark.parametrize(
    ("ages", "words"),
    [
        ([0, 0], "2 ages; allowed: 3 ages"),
        ([0, 0, 10], "age of client 'client 3' is 10"),
        ([0, -1, 0], "client 2' is -1"),
        ([0, 0.5, 0], "is 0.5"),
    ],
)
def test_bad_ages_are_refused(ages, words):
    for function in (aw.loss_gap, aw.loss_bound, aw.simulate_gap):
        with pytest.raises(aw.InvalidInput, match=words):
            function(aw.scenarios.london(), ages)


def test_a_target_beyond_finite_noise_is_refused():
    with pytest.raises(aw.InvalidInput, match="finite noise"):
        aw.loss_gap(aw.scenarios.london().replace(epsilon=1e-200), [0, 0, 0])
