"""The exact tier against enumeration, exact rational arithmetic and the numbers of the theory."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

import agewise as aw
from agewise.auditing.any_prior import aged_number, single_loss, spread
from agewise.auditing.gaussian import failure_between
from agewise.auditing.losses import Lasting, Sent, loss_about
from agewise.auditing.outward import Between, exponential, log_above, log_below, power, stationary
from agewise.auditing.paths import EveryValue, Path
from agewise.auditing.programs import aged_bounds
from attacks import aged_by_program, attack, laplace_outputs

STATES = np.array([20.0, 50, 100, 200])


def sent(slot, epsilon, states=STATES):
    return Sent(slot, states[:, None], float(np.ptp(states)) / epsilon)


def random_chain(rng, size):
    return aw.MarkovChain(rng.dirichlet(np.ones(size), size), np.sort(rng.uniform(0, 9, size)))


def rational(matrix):
    return [[Fraction(float(one)) for one in row] for row in matrix]


def times(a, b):
    return [
        [sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)]
        for row in a
    ]


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_powers_hold_the_rational_ones_between_their_ends(rng, steps):
    matrix = rng.dirichlet(np.ones(3), 3)
    matrix[0] = [0.25, 0.0, 0.75]
    true = rational(np.eye(3))
    for _ in range(steps):
        true = times(true, rational(matrix))
    found = power(Between.exactly(matrix), steps)
    for row, low, high in zip(true, found.low, found.high, strict=True):
        for one, below, above in zip(row, low, high, strict=True):
            assert Fraction(float(below)) <= one <= Fraction(float(above))
            assert above - below <= 1e-13 * above


def test_operations_never_lose_the_true_number(rng):
    a, b = rng.uniform(0, 3, (2, 500)) * 10.0 ** rng.integers(-200, 100, (2, 500))
    for found, true in (
        (Between.exactly(a) + Between.exactly(b), lambda x, y: x + y),
        (Between.exactly(a) * Between.exactly(b), lambda x, y: x * y),
        (Between.exactly(a) / Between.exactly(b), lambda x, y: x / y),
    ):
        assert np.isfinite(found.high).sum() > 300
        for x, y, low, high in zip(a, b, found.low, found.high, strict=True):
            if np.isfinite(high):
                exact = true(Fraction(float(x)), Fraction(float(y)))
                assert Fraction(float(low)) < exact < Fraction(float(high))


def test_what_underflows_is_not_nothing():
    tiny = Between.exactly(np.array([1e-200, 0.0]))
    squared = tiny * tiny
    assert squared.low.tolist() == [0.0, 0.0]
    assert squared.high[0] > 0
    assert squared.high[1] == 0


def test_logarithms_and_exponentials_are_rounded_outward(rng):
    mpmath = pytest.importorskip("mpmath")
    mpmath.mp.prec = 120
    for number in rng.uniform(1e-9, 40, 200):
        assert log_below(np.asarray(number)) < mpmath.log(number) < log_above(np.asarray(number))
        one = exponential(np.asarray(-number), np.asarray(-number))
        assert float(one.low) < mpmath.exp(-number) < float(one.high)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_the_stationary_law_is_enclosed(rng, size):
    matrix = rng.dirichlet(np.ones(size), size)
    law = stationary(Between.exactly(matrix))
    values, vectors = np.linalg.eig(matrix.T)
    true = np.real(vectors[:, np.argmin(abs(values - 1))])
    true = true / true.sum()
    assert (law.low <= true * (1 + 1e-9)).all()
    assert (law.high >= true * (1 - 1e-9)).all()
    assert (law.high - law.low <= 1e-12).all()


def test_states_that_are_left_have_no_share_and_two_classes_no_law():
    law = stationary(Between.exactly(np.array([[0.5, 0.5, 0], [0, 0.9, 0.1], [0, 0.3, 0.7]])))
    assert law.high[0] == 0
    assert law.low[1:] == pytest.approx([0.75, 0.25])
    with pytest.raises(aw.InvalidInput, match="2 classes"):
        stationary(Between.exactly(np.eye(2)))


def test_one_release_is_what_enumeration_of_outputs_finds(rng):
    for _ in range(20):
        chain = random_chain(rng, int(rng.integers(2, 5)))
        age, epsilon = int(rng.integers(0, 6)), float(rng.uniform(0.1, 3))
        rows = chain.joint(1, 1 + age).backward
        outputs = np.linspace(chain.states[0] - 5, chain.states[-1] + 5, 4001)
        outputs = np.concatenate([outputs, chain.states])
        scale = np.ptp(chain.states) / epsilon
        seen = np.exp(-np.abs(outputs[:, None] - chain.states) / scale) @ rows.T
        worst = np.log(seen.max(axis=1) / seen.min(axis=1)).max()
        loss = loss_about(Path(chain), [sent(1, epsilon, chain.states)], 1 + age)
        assert loss.reached <= worst * (1 + 1e-9) + 1e-12
        assert loss.bound >= worst * (1 - 1e-9)
        assert loss.bound - loss.reached <= 1e-9


def test_vectors_are_tried_at_every_corner_of_their_grid(rng):
    chain = random_chain(rng, 3)
    values = rng.uniform(0, 1, (3, 2))
    one = Sent(1, values, 0.4)
    loss = loss_about(Path(chain), [one], 2)
    points = rng.uniform(-1, 2, (20_000, 2))
    seen = np.exp(-np.abs(points[:, None] - values).sum(axis=-1) / 0.4)
    seen = seen @ chain.joint(1, 2).backward.T
    assert np.log(seen.max(axis=1) / seen.min(axis=1)).max() <= loss.bound
    assert loss.bound - loss.reached < 1e-9


def test_a_release_without_noise_tells_what_the_rows_tell():
    chain = aw.MarkovChain([[0.7, 0.3], [0.4, 0.6]], [0, 1])
    one = Sent(1, np.array([[0.0], [1.0]]), 0.0)
    loss = loss_about(Path(chain), [one], 2)
    rows = chain.joint(1, 2).backward
    assert loss.reached == pytest.approx(np.log(rows.max(axis=0) / rows.min(axis=0)).max())
    assert np.isinf(loss_about(Path(chain), [one], 1).bound)


@pytest.mark.parametrize("seen_at", [2, 3, 5, 8])
def test_several_releases_are_between_attack_and_program(rng, seen_at):
    for size in (2, 3, 4):
        chain = random_chain(rng, size)
        slots, epsilon = [1, 3, 6], 0.8
        loss = loss_about(
            Path(chain), [sent(slot, epsilon, chain.states) for slot in slots], seen_at
        )
        tables = [laplace_outputs(epsilon, chain.states)] * 3
        tried = attack(chain.transition, chain.stationary, slots, tables, seen_at)
        assert loss.reached == pytest.approx(tried, rel=1e-9)
        assert loss.bound >= tried * (1 - 1e-9)


def test_bounds_are_those_of_the_linear_programs(rng):
    for size in (2, 3, 4):
        rows = rng.dirichlet(np.ones(size), size)
        points = np.sort(rng.uniform(0, 2, size))
        losses = np.abs(points[:, None] - points)
        safe = aged_bounds(losses, Between.exactly(rows))
        assert safe == pytest.approx(aged_by_program(losses, rows), abs=1e-6)
        assert (safe >= aged_by_program(losses, rows) - 1e-9).all()


def test_a_solver_that_is_off_never_lowers_a_bound(rng, monkeypatch):
    """Weak duality holds for whatever multipliers come back."""
    rows = rng.dirichlet(np.ones(3), 3)
    losses = 0.7 * (1 - np.eye(3))
    true = aged_by_program(losses, rows)

    def careless(*args, **kwargs):
        found = linprog(*args, **kwargs)
        found.ineqlin.marginals = found.ineqlin.marginals * 0.9 + 0.01
        found.eqlin.marginals = found.eqlin.marginals * 0.8
        return found

    monkeypatch.setattr("agewise.auditing.programs.linprog", careless)
    assert (aged_bounds(losses, Between.exactly(rows)) >= true - 1e-9).all()


@pytest.mark.parametrize(
    ("client", "every", "present", "ever"),
    [
        pytest.param(0, 1, 0.61226, 1.12453, marks=pytest.mark.slow),
        (2, 1, 0.23559, 0.37117),
        (0, 10, 0.11877, 0.13755),
        (1, 10, 0.12036, 0.14073),
    ],
)
def test_releases_for_ever_have_the_losses_of_the_theory(
    paper_chains, client, every, present, ever
):
    path = Path(paper_chains[client])
    before = Lasting(path, sent(20, 0.1), every, None)
    after = Lasting(path, sent(20 + every, 0.1), every, None, ahead=True)
    assert before.bound(20).max() == pytest.approx(present, abs=2e-5)
    assert before.reached(20).max() <= before.bound(20).max()
    assert (before.bound(20) + after.bound(20)).max() == pytest.approx(ever, abs=2e-5)


def test_more_rounds_never_tell_less_and_for_ever_bounds_them(paper_chains):
    path = Path(paper_chains[0])
    told = [Lasting(path, sent(50, 0.5), 3, rounds).bound(52).max() for rounds in (1, 2, 4, 8)]
    ever = Lasting(path, sent(50, 0.5), 3, None)
    assert told == sorted(told)
    assert told[-1] <= ever.bound(52).max()
    assert Lasting(path, sent(50, 0.5), 3, 2).reached(52).max() <= told[1]
    by_list = loss_about(path, [sent(47, 0.5), sent(50, 0.5)], 52)
    assert told[1] == pytest.approx(by_list.bound, rel=1e-9)


def test_a_process_that_never_forgets_adds_up_classically():
    turning = Path(aw.MarkovChain([[0, 1], [1, 0]], [0, 1]))
    lasting = Lasting(turning, sent(5, 1.0, np.array([0.0, 1.0])), 1, 3)
    assert lasting.bound(5).max() == pytest.approx(3.0)
    assert lasting.reached(5).max() == pytest.approx(3.0)


def test_a_rule_that_does_not_settle_has_no_bound(monkeypatch):
    monkeypatch.setattr("agewise.auditing.losses.MOST_ROUNDS", 5)
    turning = Path(aw.MarkovChain([[0, 1], [1, 0]], [0, 1]))
    assert np.isinf(Lasting(turning, sent(5, 1.0, np.array([0.0, 1.0])), 1, None).bound(5).max())


def test_values_that_are_left_for_good_do_not_occur():
    chain = aw.MarkovChain([[0.5, 0.5, 0], [0.5, 0.5, 0], [0.2, 0.2, 0.6]], [0, 1, 2])
    assert Path(chain).support(1).tolist() == [0, 1]
    assert EveryValue(chain).support(1).tolist() == [0, 1, 2]


def test_day_profiles_follow_their_own_hours(rng):
    steps = rng.dirichlet(np.ones(3), (4, 3))
    process = aw.PeriodicChain(steps, [0, 1, 2])
    path = Path(process)
    for start, end in ((1, 2), (3, 9), (6, 15)):
        kernel = path.kernel(start, end)
        assert (kernel.low <= process.kernel(start, end) * (1 + 1e-12)).all()
        assert (kernel.high >= process.kernel(start, end) * (1 - 1e-12)).all()
        assert path.law(end).low == pytest.approx(process.law(end))


def test_no_prior_beats_the_bound_and_the_reported_one_reaches_it(rng, paper_chains):
    for chain in (*paper_chains, random_chain(rng, 3)):
        values = np.arange(chain.states.size, dtype=float)
        one = Sent(1, values[:, None], np.ptp(values) / 0.9)
        for age in (2, 5):
            loss = single_loss(EveryValue(chain), one, 1 + age)
            tried = [
                loss_about(Path(chain, law, 1), [one], 1 + age).reached
                for law in rng.dirichlet(np.full(values.size, 0.3), 40)
            ]
            assert max(tried) <= loss.bound
            assert 0.4 * loss.bound <= loss.reached <= loss.bound
            assert loss.reached >= 0.95 * max(tried)
            classical = float(one.apart(np.arange(values.size)).max())
            ageing = aw.Ageing(chain, age=age, method="any_prior")
            assert loss.bound == pytest.approx(ageing.aged_epsilon(classical), rel=1e-9)


def test_spread_is_infinite_where_a_move_is_impossible():
    kernel = Between.exactly(np.array([[0.5, 0.5], [0.0, 1.0]]))
    assert np.isinf(spread(kernel))
    assert aged_number(0.7, np.inf) == 0.7


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.5])
def test_the_failure_of_gaussian_noise_is_enclosed(epsilon):
    """Fresh data: the closed form of Balle and Wang (2018)."""
    from scipy.stats import norm

    scale = 0.8
    low, high = failure_between(Between.exactly(np.eye(2)), np.array([0.0, 1.0]), scale, epsilon)
    a, b = 1 / (2 * scale), epsilon * scale
    true = norm.cdf(a - b) - np.exp(epsilon) * norm.cdf(-a - b)
    assert low <= true <= high
    assert high - low <= 1e-3 * true


def test_a_process_of_one_state_is_refused():
    chain = aw.birth_death(0.1, 0.2, [20, 50])
    chain.states = np.array([20.0])
    with pytest.raises(aw.InvalidInput, match="one state"):
        Path(chain)
