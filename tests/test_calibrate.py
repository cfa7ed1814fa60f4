"""What a table of many clients says of one is what that client works out by itself, to the bit."""

import itertools

import numpy as np
import pytest

import agewise as aw
from agewise.calibration import calibrate, terms, terms_of
from agewise.knowledge import independent_moments
from agewise.loss.kinds import kinds_of
from agewise.process.chains import Powers, settled_powers
from random_chains import random_law, random_transition

NUMBERS = ("young", "delta", "sensitivity", "scale", "classical_epsilon", "classical_delta")
MOMENTS = ("target_mean", "mean", "target_variance", "covariance", "variance")


def random_chain(rng, states):
    size = len(states)
    if rng.random() < 0.4:
        return aw.birth_death(*rng.uniform(0.01, 0.49, 2).tolist(), states)
    table = rng.dirichlet(np.ones(size) * rng.choice([0.3, 1, 5]), size)
    if rng.random() < 0.1:
        table = np.tile(table[:1], (size, 1))  # redrawn in every slot
    return aw.MarkovChain(table, states)


def random_day(rng, states):
    return aw.PeriodicChain([random_transition(rng, len(states), "dense") for _ in "abc"], states)


def random_walk(rng, states):
    return aw.birth_death(*rng.uniform(0.05, 0.45, 2).tolist(), states)


def measured(rng, states):
    joints = rng.dirichlet(np.ones(len(states) ** 2) * 5, 6).reshape(6, len(states), -1)
    joints[-1] = np.diag(rng.dirichlet(np.ones(len(states))))
    return aw.MeasuredLaw(joints, np.ones(6), states, confidence=0.9, day=6)


def random_clients(rng, count, size, make=random_chain, *, stated=True):
    states = np.sort(rng.choice(np.arange(1, 60), size, replace=False)).astype(float)
    return [
        aw.Client(
            f"client {i}",
            make(rng, states),
            random_law(rng, size) if stated and rng.random() < 0.4 else None,
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


def calibrated(problem, clients, slots):
    targets = [problem.target_of(client) for client in clients]
    last = problem.aggregate_at
    return calibrate(clients, targets, problem.learner, problem.estimator, slots, last)


def are_the_same(table, places, part, columns=slice(None)):
    for name in NUMBERS:
        ours, own = getattr(table, name)[places][:, columns], getattr(part, name)
        np.testing.assert_array_equal(ours, own, err_msg=name)


CHAINS = [
    {"mixing": mixing, "estimator": estimator, "calibration": calibration}
    for mixing, estimator, calibration in itertools.product(
        ("exact", "own_law", "any_prior"), ("plain", "propagated"), ("formula", "sharp")
    )
]
MODES = [
    *((random_chain, size, 300, one) for size, one in zip(itertools.cycle((2, 5, 9, 20)), CHAINS)),
    *((random_day, 4, 300, one) for one in CHAINS),
    (random_chain, 4, 300, {"calibration": "tight"}),
    (random_chain, 9, 300, {"mixing": "own_law", "calibration": "tight"}),
    (random_day, 3, 300, {"calibration": "tight", "estimator": "propagated"}),
    (random_walk, 9, 300, {"mixing": "spectral"}),
    (random_walk, 4, 300, {"mixing": "spectral", "calibration": "formula"}),
    (random_chain, 5, 300, {"mechanism": "gaussian", "delta": 1e-6, "learner": aw.Histogram()}),
    (random_walk, 3, 7, {"rounds": 3, "every": 8}),
    (random_walk, 3, 7, {"rounds": None, "every": 8, "promise": "every_moment"}),
    (random_day, 3, 7, {"rounds": None, "every": 9, "estimator": "propagated"}),
    (random_walk, 3, 4, {"rounds": 3, "every": 8, "mechanism": "gaussian", "delta": 1e-6}),
    (measured, 4, 300, {}),
    (measured, 9, 300, {"calibration": "formula", "estimator": "propagated"}),
]


@pytest.mark.parametrize("number", range(len(MODES)))
def test_guarantee_a_client_alone_gets_what_it_gets_in_a_table_of_many(number):
    make, size, count, choices = MODES[number]
    rng = np.random.default_rng(number)
    stated = choices.get("mixing") == "own_law"
    clients = random_clients(rng, count, size, make, stated=stated)
    last = 6 if make is measured else 8
    choices = {"estimator": "plain", "calibration": "sharp"} | choices
    problem = aw.Problem(clients, last, 0.4, **choices)
    table = calibrated(problem, clients, range(1, last + 1))
    assert (table.scale > 0).any()
    for several in (1, 2, min(7, count - 1)):
        for first in (0, count - several):
            places = list(range(first, first + several))
            part = calibrated(problem, [clients[i] for i in places], range(1, last + 1))
            are_the_same(table, places, part)
    columns, place = [0, 2, last - 1], int(rng.integers(count))
    for column in columns:
        part = calibrated(problem, [clients[place]], [column + 1])
        are_the_same(table, [place], part, [column])
        own = terms(
            clients[place],
            problem.target_of(clients[place]),
            problem.learner,
            problem.estimator,
            column + 1,
            last,
        )
        assert own.scale == table.scale[place, column]
        assert own.classical_epsilon == table.classical_epsilon[place, column]


@pytest.mark.parametrize("number", range(len(MODES)))
def test_guarantee_what_noise_achieves_is_the_same_alone_and_at_most_the_target(number):
    make, size, count, choices = MODES[number]
    rng = np.random.default_rng(number)
    clients = random_clients(rng, min(count, 20), size, make, stated=make is random_chain)
    last = 6 if make is measured else 8
    if choices.get("mixing") in (None, "spectral") or make is measured:
        clients = [aw.Client(c.name, c.process, samples=c.samples) for c in clients]
    problem = aw.Problem(clients, last, 0.4, **{"estimator": "plain"} | choices)
    table = calibrated(problem, clients, range(1, last + 1))
    places, columns = np.arange(len(clients)), rng.integers(0, last, len(clients))
    targets = np.array([problem.target_of(client).epsilon for client in clients])
    for more in (1.0, 2.0):
        scale = more * table.scale[places, columns]
        aged = table.aged_epsilon(places, columns, scale)
        assert (aged <= targets * (1 + 1e-12)).all()
        spent = table.spent(places, columns, scale)
        for place, column in zip(places[:5], columns, strict=False):
            own = terms_of(table.tables[place], int(column))
            assert own.aged_epsilon(scale[place], spent[place]) == aged[place]


@pytest.mark.parametrize("size", [2, 5, 16, 17, 30])
def test_powers_one_by_one_are_those_of_a_table(size):
    rng = np.random.default_rng(size)
    step = np.ascontiguousarray(np.moveaxis(rng.dirichlet(np.ones(size), (5, size)), 0, -1))
    together = Powers(step)
    every = [together[age] for age in range(70)]
    for age in (0, 1, 2, 7, 8, 9, 47, 63, 64, 69, 600):
        power = every[age] if age < 70 else together[age]
        np.testing.assert_array_equal(Powers(step[..., 1:3])[age], power[..., 1:3])
        direct = np.linalg.matrix_power(step[..., 2], age)
        np.testing.assert_allclose(power[..., 2], direct, rtol=1e-12)


@pytest.mark.parametrize("seed", range(60))
def test_moments_of_many_are_those_of_each(seed):
    problem = problem_of(seed)
    kinds = kinds_of(problem)
    for place, (client, table) in enumerate(zip(kinds.clients, kinds.tables, strict=True)):
        values = problem.learner.table(client.process.states)
        own = independent_moments(
            table.law_rows, table.kernel_rows, table.release_rows, values, client.records, table.row
        )
        size = np.abs(values).max() ** 2
        for name in MOMENTS:
            np.testing.assert_allclose(
                getattr(kinds.moments, name)[place],
                getattr(own, name),
                rtol=1e-9,
                atol=1e-13 * size,
            )


@pytest.mark.parametrize("seed", range(30))
def test_a_plan_orders_what_its_clients_hold_to_be_right(seed):
    """To the last bit, however little is left of what was collected."""
    rng = np.random.default_rng(seed)
    clients = random_clients(rng, 6, 4)
    choices = {
        "estimator": "propagated",
        "mixing": str(rng.choice(["exact", "any_prior"])),
        "calibration": "formula",  # which asks for noise however little is left
    }
    problem = aw.Problem(clients, 40, float(np.exp(rng.uniform(-5, 0))), **choices)
    oldest = aw.evaluate(problem, [1 + place for place in range(6)])
    for client, one in zip(clients, oldest.assignments, strict=True):
        target = problem.target_of(client)
        own = terms(client, target, problem.learner, "propagated", one.collect_at, 40)
        assert one.noise_scale == own.scale
        assert one.classical_epsilon == own.classical_epsilon
    assert aw.run(oldest, rng=np.random.default_rng(0)).missing == {}


def test_the_age_from_which_on_chains_do_not_change_is_that_of_each():
    rng = np.random.default_rng(3)
    chains = [random_chain(rng, [1, 2, 3]).transition for _ in range(50)]
    chains.append(np.array([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]]))
    never = np.iinfo(np.int64).max
    each = [int(settled_powers(one[None])[0]) for one in chains]
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
    for calibration in ("sharp", "tight"):
        problem = aw.Problem(clients, 8, 0.5, estimator="plain", calibration=calibration)
        kinds = kinds_of(problem)
        assert kinds.kind.tolist() == [0, 1, 2, 3, 0]
        for client, table in zip(clients, kinds.slots(), strict=True):
            assert table.scale.tolist() == aw.slot_table(client, problem).scale.tolist()


def test_what_cannot_be_worked_out_is_refused_by_the_name_of_its_client():
    chain, ring = aw.birth_death(0.1, 0.2, [1, 2, 3]), np.roll(np.eye(3), 1, axis=1)
    clients = [aw.Client("a", chain), aw.Client("b", aw.MarkovChain(ring, [1, 2, 3]))]
    problem = aw.Problem(clients[:1], 4, 0.5, estimator="plain", mixing="spectral")
    target = problem.target_of(clients[0])
    with pytest.raises(aw.InvalidInput, match="mixing is 'spectral' for a chain"):
        calibrate(clients, [target, target], problem.learner, "plain", [1, 4], 4)
    law = aw.MeasuredLaw([np.eye(3) / 3] * 4, np.ones(4), [1, 2, 3], confidence=0.9, day=4)
    told = [
        aw.Client("c", law, samples=5),
        aw.Client("the one", law, [0.2, 0.3, 0.5], samples=5),
    ]
    own = aw.Target(0.5, "own_law", "sharp")
    with pytest.raises(aw.InvalidInput, match="law of client 'the one'"):
        calibrate(told, [own, own], problem.learner, "plain", [1, 4], 4)
