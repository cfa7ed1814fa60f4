import itertools
import math
import pickle

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import agewise as aw
from agewise.paper import bound as theorem
from agewise.paper import lattice as module
from random_problems import random_ages, random_problem

ALL = np.array(list(itertools.product(range(10), repeat=3)))


def bound_by_enumeration(problem, ages, moved=None):
    """Theorem 1 from the joint law of everything, by summing over all data sets.

    `moved`: for each client what its released values and its states are replaced by.
    """
    tables = aw.cost_tables(problem)
    worlds = [(1.0, [])]  # probability, [(f(X) values, z_Y values) of each client]
    noise = 0.0
    for i, (client, age) in enumerate(zip(problem.clients, ages, strict=True)):
        slot = problem.aggregate_at - age
        table = tables.slots[i]
        noise += 2 * (problem.weights[i] * table.scale[slot - 1]) ** 2
        joint = table.laws[slot - 1][:, None] * table.kernels[slot - 1]
        release, states = table.release[slot - 1], client.process.states
        if moved is not None:
            release, states = moved[i]
        cells = [
            (joint[x, y], release[x], states[y])
            for x, y in itertools.product(range(len(joint)), repeat=2)
        ]
        datasets = [
            (math.prod(r[0] for r in d), ([r[1] for r in d], [r[2] for r in d]))
            for d in itertools.product(cells, repeat=client.samples)
        ]
        worlds = [(p * q, [*rest, d]) for p, rest in worlds for q, d in datasets if p * q > 0]
    chance = np.array([p for p, _ in worlds])
    released = np.array(
        [
            sum(w * np.mean(d[0]) for w, d in zip(problem.weights, ds, strict=True))
            for _, ds in worlds
        ]
    ).round(9)
    fresh = np.array(
        [
            sum(w * np.mean(d[1]) for w, d in zip(problem.weights, ds, strict=True))
            for _, ds in worlds
        ]
    ).round(9)
    mean = lambda v: chance @ v  # noqa: E731
    var = lambda v: chance @ (v - mean(v)) ** 2  # noqa: E731
    total = noise + var(released) - var(fresh) + (mean(released) - mean(fresh)) ** 2
    for i, weight in enumerate(problem.weights):
        record = np.array([ds[i][1][0] for _, ds in worlds])
        for aggregate, sign in ((released, 1), (fresh, -1)):
            together, apart = {}, {}
            for p, w, z in zip(chance, aggregate, record, strict=True):
                together[w, z] = together.get((w, z), 0) + p
            w_law, z_law = {}, {}
            for (w, z), p in together.items():
                w_law[w] = w_law.get(w, 0) + p
                z_law[z] = z_law.get(z, 0) + p
            information = sum(
                p * math.log(p / w_law[w] / z_law[z]) for (w, z), p in together.items()
            )
            apart = [(w_law[w] * z_law[z], sign * (w - z) ** 2) for w in w_law for z in z_law]
            centre = sum(p * q for p, q in apart)

            def value(log_rate, apart=apart, centre=centre, information=information):
                rate = math.exp(log_rate)
                top = max(rate * (q - centre) for _, q in apart)
                mass = sum(p * math.exp(rate * (q - centre) - top) for p, q in apart)
                return (information + math.log(mass) + top) / rate

            total += (
                weight
                * minimize_scalar(
                    value, bounds=(-16, 12), method="bounded", options={"xatol": 1e-9}
                ).fun
            )
    return total


@pytest.mark.parametrize("seed", range(12))
def test_bound_equals_enumeration_on_tiny_problems(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(
        rng, clients=int(rng.integers(1, 3)), lattice=True, samples=(1, 3), estimator="plain"
    )
    ages = random_ages(rng, problem)
    bound = aw.loss_bound(problem, ages)
    assert bound.evaluation == "exact"
    assert bound == pytest.approx(bound_by_enumeration(problem, ages), rel=2e-3, abs=1e-4)
    assert bound >= bound_by_enumeration(problem, ages) * (1 - 1e-6) - 1e-6


@pytest.mark.parametrize("epsilon", [0.01, 0.03, 0.1, 0.3, 1.0])
def test_bound_is_never_below_the_gap_for_all_schedules_of_the_paper(epsilon):
    problem = aw.scenarios.london().replace(epsilon=epsilon)
    bounds, _ = theorem.schedule_bounds(problem, ALL)
    tables = aw.cost_tables(problem)
    clients = np.arange(3)
    gaps = tables.u[clients, ALL].sum(axis=1) + tables.b[clients, ALL].sum(axis=1) ** 2
    assert (bounds >= gaps).all()


@pytest.mark.parametrize("seed", range(40))
def test_bound_is_never_below_the_gap_for_random_problems(seed):
    rng = np.random.default_rng(500 + seed)
    problem = random_problem(rng, lattice=rng.random() < 0.5)
    ages = random_ages(rng, problem)
    assert aw.loss_bound(problem, ages) >= aw.loss_gap(problem, ages)


def test_a_batch_says_the_same_as_each_alone():
    """Old propagated records are all but constant: nothing may be lost in such company."""
    chains = [
        aw.birth_death(0.1, 0.2, [20, 50, 100, 200]),
        aw.birth_death(0.3, 0.4, [20, 50, 100, 200]),
    ]
    clients = [aw.Client("a", chains[0], samples=100), aw.Client("b", chains[1], samples=250)]
    problem = aw.Problem(clients, 20, 0.1, estimator="propagated")
    schedules = np.array(list(itertools.product(range(0, 20, 3), repeat=2)))
    theorem._prepared.cache_clear()
    together, _ = theorem.schedule_bounds(problem, schedules)
    for row in (0, 17, 40):
        theorem._prepared.cache_clear()
        alone = aw.loss_bound(problem, 19 - schedules[row])
        assert together[row] == pytest.approx(alone, rel=1e-4)
    gaps = [aw.loss_gap(problem, 19 - row) for row in schedules]
    assert (together >= gaps).all()


@pytest.mark.parametrize("law", [[0, 0, 1.0], [1.0, 0, 0]])
@pytest.mark.parametrize("epsilon", [0.1, 1e5, 1e7])
def test_known_records_leave_a_bound_that_is_true(law, epsilon):
    chain = aw.MarkovChain(
        [[0.97, 0.03, 0], [0.9, 0.04, 0.06], [0.999, 1e-6, 1 - 0.999 - 1e-6]], [5.4, -17.8, 10.6]
    )
    for estimator in ("plain", "propagated"):
        client = aw.Client("a", chain, law, 1000)
        problem = aw.Problem([client], 3, epsilon, mixing="own_law", estimator=estimator)
        for age in range(3):
            assert aw.loss_bound(problem, [age]) >= aw.loss_gap(problem, [age])


def test_many_clients_and_slots_have_a_finite_bound(rng):
    chains = [aw.birth_death(*rng.dirichlet([1, 1, 3])[:2], [20, 50, 100, 200]) for _ in range(12)]
    clients = [aw.Client(str(i), c, samples=100) for i, c in enumerate(chains)]
    problem = aw.Problem(clients, 48, 0.1, estimator="propagated")
    for _ in range(5):
        ages = rng.integers(0, 48, 12)
        assert aw.loss_gap(problem, ages) <= aw.loss_bound(problem, ages) < np.inf


def test_quantised_evaluation_says_so_and_by_how_much():
    problem = aw.scenarios.london().replace(mixing="exact", estimator="propagated")
    bound = aw.loss_bound(problem, [9, 9, 4])
    assert bound.evaluation == "quantised"
    assert 0 < bound.error < 0.1 * math.sqrt(bound)
    fresh = aw.loss_bound(aw.scenarios.london(), [9, 9, 4])
    assert fresh.evaluation == "exact"
    assert fresh.error == 0


def on_grid(values, step):
    return values.min() + step * np.rint((values - values.min()) / step)


def quantised(problem, ages):
    """The grid points that values are moved to, 64 steps across the widest range, and the errors.

    The error of each client's part of W and of W^A: mean and standard deviation.
    """
    tables = aw.cost_tables(problem)
    scales = problem.weights / [c.samples for c in problem.clients]
    moved, errors = [], []
    wide = [
        max(np.ptp(s * t.release, axis=1).max() for s, t in zip(scales, tables.slots, strict=True)),
        max(np.ptp(s * c.process.states) for s, c in zip(scales, problem.clients, strict=True)),
    ]
    for i, (client, age) in enumerate(zip(problem.clients, ages, strict=True)):
        column = problem.aggregate_at - 1 - age
        table = tables.slots[i]
        law = table.laws[column]
        pair, off = [], []
        for values, chances, width in (
            (table.release[column], law, wide[0]),
            (client.process.states, law @ table.kernels[column], wide[1]),
        ):
            placed = on_grid(scales[i] * values, width / 64) / scales[i]
            mean = chances @ (placed - values)
            spread = math.sqrt(chances @ (placed - values - mean) ** 2 / client.samples)
            pair.append(placed)
            off += [problem.weights[i] * mean, problem.weights[i] * spread]
        moved.append(pair)
        errors.append(off)
    return moved, np.array(errors)


@pytest.mark.parametrize("samples", [(1, 2), (2, 1)])
def test_values_on_no_lattice_are_moved_and_both_errors_are_added(samples):
    chains = [
        aw.MarkovChain([[0.7, 0.3], [0.2, 0.8]], [0.0, math.sqrt(2)]),
        aw.MarkovChain([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]], [math.pi, 0.0, math.e]),
    ]
    clients = [aw.Client(str(n), c, samples=n) for n, c in zip(samples, chains, strict=True)]
    problem = aw.Problem(clients, 4, 2.0, estimator="plain")
    ages = [2, 1]
    moved, errors = quantised(problem, ages)
    bound = aw.loss_bound(problem, ages)
    assert bound.evaluation == "quantised"
    means, spreads = np.abs(errors[:, [0, 2]]).sum(), errors[:, [1, 3]].sum(axis=1)
    assert bound.error == pytest.approx(math.sqrt((spreads**2).sum() + means**2), rel=1e-9)
    wanted = (math.sqrt(bound_by_enumeration(problem, ages, moved)) + bound.error) ** 2
    assert bound == pytest.approx(wanted, rel=2e-3)
    assert bound >= wanted * (1 - 1e-6)


def test_released_values_on_no_lattice_are_moved_alone():
    """States on a lattice stay where they are: only what is moved counts as an error."""
    share = 1 / math.pi
    rows = [[share, 1 - share, 0], [0.1, 0.9 - share, share], [0.3, 0.3, 0.4]]
    chain = aw.MarkovChain(rows, [0, 1, 3])
    clients = [aw.Client("a", chain, samples=1), aw.Client("b", chain, [0.6, 0.4, 0], samples=2)]
    problem = aw.Problem(clients, 4, 2.0, estimator="propagated", mixing="own_law")
    ages = [3, 1]
    moved, errors = quantised(problem, ages)
    bound = aw.loss_bound(problem, ages)
    assert bound.evaluation == "quantised"
    means, spreads = errors[:, 0].sum(), errors[:, 1]
    assert bound.error == pytest.approx(math.sqrt((spreads**2).sum() + means**2), rel=1e-9)
    moved = [(release, chain.states) for release, _ in moved]
    wanted = (math.sqrt(bound_by_enumeration(problem, ages, moved)) + bound.error) ** 2
    assert bound == pytest.approx(wanted, rel=2e-3)
    assert bound >= wanted * (1 - 1e-6)


def test_a_lattice_of_too_many_points_gives_way_to_a_coarser_grid():
    chain = aw.birth_death(0.2, 0.3, [0, 1, 1000])
    problems = [
        aw.Problem([aw.Client("a", chain, samples=n)], 3, 0.1, estimator="plain")
        for n in (131, 132)
    ]
    fine, coarse = (aw.loss_bound(problem, [1]) for problem in problems)
    assert (fine.evaluation, fine.error) == ("exact", 0)
    assert coarse.evaluation == "quantised"
    law = chain.stationary  # 1 moves to 0, both in W and in W^A
    off = math.sqrt(law[1] * (1 - law[1]) / 132)
    assert coarse.error == pytest.approx(math.hypot(2 * off, 2 * law[1]), rel=1e-9)
    assert aw.loss_gap(problems[1], [1]) <= coarse


def test_the_window_leaves_out_next_to_nothing_and_is_no_wider_than_need_be():
    """Two clients, rare large values: the law of their sum by convolution, all terms positive."""
    index = [np.array([[0, 1, 20]]), np.array([[0, 7, 3]])]
    laws = [np.array([[0.9, 0.099, 0.001]]), np.array([[0.998, 0.001, 0.001]])]
    samples = np.array([400, 100])
    size, complete = module._window(index, laws, samples, reach=8700)
    assert not complete
    total, mean, variance, largest = np.ones(1), 0.0, 0.0, 0.0
    for k, law, n in zip(index, laws, samples.tolist(), strict=True):
        one = np.bincount(k[0], law[0])
        for _ in range(n):
            total = np.convolve(total, one)
        centre = k[0] @ law[0]
        mean += n * centre
        variance += n * (law[0] @ (k[0] - centre) ** 2)
        largest = max(largest, np.abs(k[0] - centre).max())
    start = round(mean) - size // 2
    left_out = total[: max(start, 0)].sum() + total[start + size :].sum()
    assert left_out < 1e-20
    weight = math.log(2e20)  # Bernstein, solved for the distance
    half = weight * largest / 3 + math.sqrt((weight * largest / 3) ** 2 + 2 * weight * variance)
    assert 2 * half <= size <= 2 * half * 1.05 + 10
    assert module._window(index, laws, samples, reach=511) == (512, True)


MOVING = aw.Client("a", aw.MarkovChain([[0.5, 0.5], [0.3, 0.7]], [0, 1]), [0.99, 0.01], 4000)


@pytest.mark.parametrize(
    ("problem", "ages"),
    [
        (aw.scenarios.london(), [3, 5, 1]),
        (aw.Problem([MOVING], 3, 5.0, mixing="own_law", estimator="plain"), [2]),
    ],
)
def test_large_clients_use_a_window_that_leaves_nothing_out(problem, ages):
    """The FFT window is far smaller than the range; a full one gives the same value."""
    windowed = aw.loss_bound(problem, ages)
    theorem._prepared.cache_clear()
    original = module._window
    try:
        module._window = lambda index, laws, samples, reach: (reach + 1, True)
        full = aw.loss_bound(problem, ages)
    finally:
        module._window = original
        theorem._prepared.cache_clear()
    assert windowed == pytest.approx(full, rel=1e-9)


def crowded(samples, **changes):
    process = aw.scenarios.london().clients[0].process
    changes = {"mixing": "exact", "estimator": "plain", **changes}
    return aw.Problem([aw.Client("north", process, samples=samples)], 4, 0.1, **changes)


def test_sums_of_too_many_records_are_refused_and_a_plan_does_without():
    """As many records as a lattice of gigabytes takes: nothing of that size is begun."""
    with pytest.raises(aw.InvalidInput, match=r"samples is 1,000,000,000,000, .* GiB") as refused:
        aw.loss_bound(crowded(10**12), [0])
    assert "objective 'exact'" in str(refused.value)
    with pytest.raises(aw.InvalidInput, match="GiB"):
        aw.plan(crowded(10**12, objective="bound"), method="exhaustive")
    plan = aw.plan(crowded(10**12))
    assert aw.Plan.from_json(plan.to_json()) == plan
    with pytest.warns(DeprecationWarning, match=r"aw\.loss_bound"):
        assert plan.bound is None


def test_where_nothing_is_random_the_bound_is_the_noise():
    frozen = aw.MarkovChain(np.eye(2), [0, 3])
    client = aw.Client("a", frozen, [1, 0], samples=4)
    problem = aw.Problem([client], 3, 0.5, mixing="own_law", estimator="plain")
    assert aw.loss_bound(problem, [1]) == pytest.approx(aw.loss_gap(problem, [1]), rel=1e-12)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_bound_does_not_depend_on_the_unit(unit):
    bounds = []
    for scale in (1, unit):
        chain = aw.birth_death(0.2, 0.3, np.array([0, 1, 3]) * scale)
        client = aw.Client("a", chain, [0.5, 0.5, 0], samples=5)
        problem = aw.Problem([client], 4, 50.0, mixing="own_law", estimator="propagated")
        bounds.append(aw.loss_bound(problem, [2]))
    assert bounds[1] / unit**2 == pytest.approx(bounds[0], rel=1e-3)


def test_the_noise_enters_only_through_its_variance():
    base = aw.scenarios.london()
    low, high = (aw.loss_bound(base.replace(epsilon=e), [0, 0, 0]) for e in (1.0, 0.1))
    assert high - low == pytest.approx(2 * 1.8**2 * (100 - 1) / 3, rel=1e-9)


def test_bounds_travel():
    bound = aw.loss_bound(aw.scenarios.london(), [0, 9, 9])
    again = pickle.loads(pickle.dumps(bound))
    assert (again, again.evaluation, again.error) == (bound, "exact", 0)


def test_progress_is_told_and_known_schedules_cost_nothing():
    theorem._prepared.cache_clear()
    seen = []
    problem = aw.scenarios.london()
    theorem.schedule_bounds(
        problem, ALL[:20], progress=lambda done, total: seen.append((done, total))
    )
    assert seen[-1] == (20, 20)
    theorem.schedule_bounds(
        problem.replace(epsilon=0.5), ALL[:20], progress=lambda done, total: seen.append("again")
    )
    assert "again" not in seen


def test_a_bound_is_the_same_in_whatever_company():
    """Alone, or with other schedules that take more steps to their minimum."""
    problem = aw.scenarios.london().replace(epsilon=0.1)
    schedules = np.array([[9, 0, 0], [0, 9, 5], [3, 3, 3], [9, 9, 9], [1, 8, 2]])
    setting = theorem._setting(problem)
    together = theorem._information_terms(setting, setting.column[schedules], None)
    theorem._prepared.cache_clear()
    for row, want in zip(schedules, together, strict=True):
        fresh = theorem._setting(problem)
        alone = theorem._information_terms(fresh, fresh.column[row[None]], None)
        assert alone[0] == pytest.approx(want, rel=1e-9)
