"""Terms of many clients as arrays are those of each: Δ, noise, moments and what noise achieves."""

import dataclasses

import numpy as np
import pytest

import agewise as aw
from agewise.chain_terms import (
    Cell,
    Wanted,
    aged_epsilons,
    size_and_target,
    tabulate_alike,
    tabulates,
)
from agewise.knowledge import independent_moments
from agewise.loss.kinds import kinds_of
from agewise.process.chain import settled_power, settled_powers
from agewise.terms import slot_table, terms, terms_of

NUMBERS = ("delta", "sensitivity", "scale", "classical_epsilon", "classical_delta")
MOMENTS = ("target_mean", "mean", "target_variance", "covariance", "variance")


def random_chain(rng, states):
    size = len(states)
    if rng.random() < 0.4:
        return aw.birth_death(*rng.uniform(0.01, 0.49, 2).tolist(), states)
    table = rng.dirichlet(np.ones(size) * rng.choice([0.3, 1, 5]), size)
    if rng.random() < 0.1:
        table = np.tile(table[:1], (size, 1))  # redrawn in every slot
    return aw.MarkovChain(table, states)


def random_clients(rng, count, size):
    states = np.sort(rng.choice(np.arange(1, 60), size, replace=False)).astype(float)
    return [
        aw.Client(
            f"client {i}",
            random_chain(rng, states),
            rng.dirichlet(np.ones(size)) if rng.random() < 0.4 else None,
            int(rng.integers(1, 50)),
            epsilon=float(rng.choice([0.1, 1, 3])) if rng.random() < 0.5 else None,
        )
        for i in range(count)
    ]


def random_choices(rng):
    choices = {
        "mixing": str(rng.choice(["exact", "own_law", "any_prior"])),
        "estimator": str(rng.choice(["plain", "propagated", "best"])),
        "calibration": str(rng.choice(["formula", "sharp"])),
    }
    if rng.random() < 0.3:
        choices |= {"mechanism": "gaussian", "delta": 1e-6}
    if rng.random() < 0.3:
        choices["learner"] = aw.Histogram()
    return choices


def problem_of(seed):
    rng = np.random.default_rng(seed)
    clients = random_clients(rng, 5, int(rng.integers(2, 6)))
    last, epsilon = int(rng.integers(1, 20)), float(np.exp(rng.uniform(-3, 1.5)))
    return aw.Problem(clients, last, epsilon, **random_choices(rng))


def told_together(problem):
    last = problem.aggregate_at
    wanted = Wanted(problem.learner, problem.estimator, last - np.arange(1, last + 1), last)
    targets = [problem.target_of(client) for client in problem.clients]
    pairs = zip(problem.clients, targets, strict=True)
    assert all(tabulates(client, target, wanted) for client, target in pairs)
    [(tables, moments)] = tabulate_alike(problem.clients, targets, wanted)
    return tables, moments, targets


@pytest.mark.parametrize("seed", range(60))
def test_guarantee_terms_of_many_are_those_of_each(seed):
    problem = problem_of(seed)
    tables, moments, targets = told_together(problem)
    for place, (client, table) in enumerate(zip(problem.clients, tables, strict=True)):
        alone = slot_table(client, problem)
        values = problem.learner.table(client.process.states)
        fresh = np.ptp(values, axis=0).max() / client.samples
        for name in NUMBERS:
            ours, own = getattr(table, name), getattr(alone, name)
            # Next to nothing, Δ and the range of moved values are rounding.
            sure = (alone.delta > 1e-6) & (alone.sensitivity > 1e-6 * fresh)
            np.testing.assert_allclose(ours[sure], own[sure], rtol=1e-8)
            if name in ("delta", "sensitivity"):
                np.testing.assert_allclose(ours, own, rtol=1e-8, atol=1e-12 * max(1.0, fresh))
        own = independent_moments(
            alone.law_rows, alone.kernel_rows, alone.release_rows, values, client.records, alone.row
        )
        size = np.abs(values).max() ** 2
        for number, name in enumerate(MOMENTS):
            np.testing.assert_allclose(
                moments[number, place], getattr(own, name), rtol=1e-9, atol=1e-13 * size
            )
        cells = [
            Cell(client, targets[place], int(table.rows.young[t]), table.delta[t], spent, spent)
            for t, spent in enumerate(table.classical_epsilon.tolist())
        ]
        achieved = aged_epsilons(cells)
        for column, (cell, aged) in enumerate(zip(cells, achieved, strict=True)):
            expected = terms_of(client, targets[place], table, column, problem.aggregate_at)
            assert aged == pytest.approx(
                expected.aged_epsilon(float(table.scale[column]), cell.spent), rel=1e-9, abs=1e-12
            )
            assert aged <= targets[place].epsilon * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_more_noise_achieves_what_it_does_alone(seed):
    problem = problem_of(100 + seed)
    tables, _, targets = told_together(problem)
    last = problem.aggregate_at
    for client, table, target in zip(problem.clients, tables, targets, strict=True):
        for column in range(last):
            own = terms_of(client, target, table, column, last)
            spent = own.spent(2 * own.scale) if own.scale else own.classical_epsilon
            numbers = int(table.rows.young[column]), own.delta, own.classical_epsilon, spent
            [aged] = aged_epsilons([Cell(client, target, *numbers)])
            assert aged == pytest.approx(
                own.aged_epsilon(2 * own.scale, spent), rel=1e-9, abs=1e-12
            )


@pytest.mark.parametrize("seed", range(30))
def test_a_plan_orders_what_its_clients_hold_to_be_right(seed):
    """Whatever the arithmetic of tables, each order's noise is enough by the client's own terms."""
    rng = np.random.default_rng(seed)
    clients = random_clients(rng, 6, 4)
    choices = {
        "estimator": "propagated",
        "mixing": str(rng.choice(["exact", "any_prior"])),
        "calibration": "formula",  # which asks for noise however little is left
    }
    problem = aw.Problem(clients, 40, float(np.exp(rng.uniform(-5, 0))), **choices)
    oldest = aw.price(problem, [1 + place for place in range(6)])
    for client, one in zip(clients, oldest.assignments, strict=True):
        target = problem.target_of(client)
        own = terms(client, target, problem.learner, "propagated", one.collect_at, 40)
        assert one.noise_scale >= own.scale * (1 - 1e-9)
    assert aw.run(oldest, rng=np.random.default_rng(0)).missing == {}


def test_the_age_from_which_on_chains_do_not_change_is_that_of_each():
    rng = np.random.default_rng(3)
    chains = [random_chain(rng, [1, 2, 3]).transition for _ in range(50)]
    chains.append(np.array([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]]))
    never = np.iinfo(np.int64).max
    each = [settled_power(one) or never for one in chains]
    assert settled_powers(np.stack(chains)).tolist() == each
    assert each[-1] == never


def test_clients_of_any_kind_have_their_terms():
    """Chains of two sizes, a day profile, own targets: each as by itself, alike ones shared."""
    small, large = aw.birth_death(0.1, 0.2, [1, 2, 3]), aw.birth_death(0.2, 0.2, [1, 2, 3, 4])
    daily = aw.PeriodicChain(
        [small.transition, aw.birth_death(0.3, 0.1, [1, 2, 3]).transition], [1, 2, 3]
    )
    clients = [
        aw.Client("a", small),
        aw.Client("b", large, samples=7),
        aw.Client("c", daily),
        aw.Client("d", small, epsilon=0.2),
        aw.Client("e", small),
    ]
    problem = aw.Problem(clients, 8, 0.5, estimator="plain")
    kinds = kinds_of(problem)
    assert kinds.kind.tolist() == [0, 1, 2, 3, 0]
    for client, table in zip(clients, kinds.slots(), strict=True):
        np.testing.assert_allclose(table.scale, slot_table(client, problem).scale, rtol=1e-9)
    tight = problem.replace(clients=clients[:2], calibration="tight")
    for client, table in zip(clients[:2], kinds_of(tight).slots(), strict=True):
        assert table.scale.tolist() == slot_table(client, tight).scale.tolist()


def test_clients_that_must_not_be_together_are_not():
    client, target = (
        aw.Client("a", aw.birth_death(0.1, 0.2, [1, 2, 3])),
        aw.Target(0.5, "exact", "sharp"),
    )
    wanted = Wanted(aw.Mean(), "plain", np.arange(4), 4)
    assert tabulates(client, target, wanted)
    for change in ({"calibration": "tight"}, {"mixing": "spectral"}, {"rounds": 3, "every": 4}):
        assert not tabulates(client, dataclasses.replace(target, **change), wanted)
    long = dataclasses.replace(wanted, aggregate_at=10**5)
    assert not tabulates(client, target, long)
    other = dataclasses.replace(target, calibration="formula")
    assert size_and_target(client, target) != size_and_target(client, other)
    assert size_and_target(client, target) == size_and_target(
        client, aw.Target(3.0, "exact", "sharp")
    )
