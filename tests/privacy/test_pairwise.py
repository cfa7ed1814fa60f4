"""Pairwise losses of many releases: numbers of the theory, and steps against linear programs."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

import agewise as aw
from agewise.privacy import Laplace, fixed_points, pairwise
from agewise.privacy.pairwise import (
    Rows,
    aged_losses,
    backward_of,
    forward_of,
    release_losses,
)
from agewise.privacy.spanning import worst_ratios
from attacks import aged_by_program, backward
from random_chains import random_chain

steady_losses = fixed_points.steady_losses
CAO = np.array([[0.8, 0.2], [0.0, 1.0]])
ALIKE = np.array([[0.8, 0.2], [0.2, 0.8]])
ONE = 0.1 * (1 - np.eye(2))[None]


def exact(table):
    return Rows(np.asarray(table, dtype=float)[None], np.zeros(1))


def random_losses(rng, count, size, most):
    """Metrics, for that is what losses are: distances between random points."""
    points = rng.uniform(0, most, (count, size, 2))
    return np.abs(points[:, :, None] - points[:, None]).max(axis=-1)


@pytest.mark.parametrize(
    ("client", "every", "present", "ever"),
    [
        (0, 1, 0.61226, 1.12453),
        (1, 1, 0.59446, 1.08891),
        (2, 1, 0.23559, 0.37117),
        (0, 10, 0.11877, 0.13755),
        (1, 10, 0.12036, 0.14073),
        (2, 10, 0.10062, 0.10123),
    ],
)
def test_the_table_for_ever(paper_chains, client, every, present, ever):
    chain = paper_chains[client]
    assert aw.continual_epsilon(chain, every, 0.1) == pytest.approx(present, abs=5.1e-6)
    both = aw.continual_epsilon(chain, every, 0.1, promise="every_moment")
    assert both == pytest.approx(ever, abs=5.1e-6)
    assert aw.privacy.rule_epsilon(chain, every, 0.1) == pytest.approx(present, abs=5.1e-6)
    rule = aw.privacy.rule_epsilon(chain, every, 0.1, promise="every_moment")
    assert rule == pytest.approx(ever, abs=5.1e-6)


@pytest.mark.parametrize(("spent", "steady"), [(0.5, 0.5799), (1, 1.1692), (2, 2.3592)])
def test_a_release_every_four_slots(paper_chains, spent, steady):
    assert aw.continual_epsilon(paper_chains[2], 4, spent) == pytest.approx(steady, abs=5e-5)


@pytest.mark.parametrize(
    ("slots", "wanted"), [(0, 0.05329), (2, 0.07715), (4, 0.11877), (20, 0.13411)]
)
def test_the_bridge_between_the_two_promises(paper_chains, slots, wanted):
    found = aw.continual_epsilon(paper_chains[0], 10, 0.1, age=4, promise=slots)
    assert found == pytest.approx(wanted, abs=5.1e-6)


def test_what_is_affordable(paper_chains):
    wanted = {
        ("every_moment", 0): (0.07282, 0.07107, 0.09878),
        ("present", 0): (0.08424, 0.08309, 0.09939),
        ("present", 4): (0.18527, 0.17744, 0.70422),
    }
    for (promise, age), each in wanted.items():
        for chain, spent in zip(paper_chains, each, strict=True):
            found = aw.per_release_epsilon(chain, 10, 0.1, age, promise)
            assert found == pytest.approx(spent, abs=8e-6)


def test_the_vectors_of_cao():
    """Ten releases: what each tells together with those before it, and with those after it too."""
    known = [ONE]
    for _ in range(9):
        known.append(aged_losses(known[-1], exact(CAO)) + ONE)
    past = np.array([losses.max() for losses in known])
    assert past.round(2).tolist() == [0.1, 0.18, 0.25, 0.3, 0.35, 0.39, 0.42, 0.45, 0.48, 0.5]
    both = [(b + f - ONE).max() for b, f in zip(known, known[::-1], strict=True)]
    wanted = [0.5, 0.56, 0.6, 0.62, 0.64, 0.64, 0.62, 0.6, 0.56, 0.5]
    assert np.round(both, 2).tolist() == wanted


@pytest.mark.parametrize(
    ("rows", "spent", "steady"), [(CAO, 0.1, 0.64591), (ALIKE, 0.1, 0.24877), (CAO, 0.23, math.inf)]
)
def test_the_suprema_of_cao(rows, spent, steady):
    found = fixed_points.steady_losses(
        lambda losses: aged_losses(losses, exact(rows)), 10 * spent * ONE
    )
    assert found.max() == pytest.approx(steady, abs=5.1e-6)
    assert found[0, 0, 0] == 0


def test_a_bound_for_ever_is_above_its_iterates_and_hardly_so(paper_chains):
    """An iterate from below is no bound, however many rounds there were."""
    slow = aw.birth_death(0.004, 0.003, [1, 2, 3])
    for chain, spent in ((paper_chains[0], 0.1), (paper_chains[0], 1e-5), (slow, 0.1)):
        rows, release = backward_of(chain, 1, 2), release_losses(spent, chain.states)[None]
        bound = fixed_points.steady_losses(
            lambda losses, rows=rows: aged_losses(losses, rows), release
        )
        losses = release
        for _ in range(5000):
            losses = aged_losses(losses, rows) + release
        assert (losses <= bound).all()
        assert (bound <= losses * (1 + 1e-6)).all()
        assert (aged_losses(bound, rows) + release <= bound).all()


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 9])
@pytest.mark.parametrize("most", [0.01, 1.0, 6.0])
def test_trees_equal_linear_programs(size, most):
    rng = np.random.default_rng(size)
    losses, rows = random_losses(rng, 4, size, most), rng.dirichlet(np.ones(size), (4, size))
    rows[1] = np.where(rows[1] < 0.2, 0, rows[1])
    rows[1] /= rows[1].sum(axis=1, keepdims=True)
    found = aged_losses(losses, Rows(rows, np.zeros(4)))
    wanted = np.array([aged_by_program(*one) for one in zip(losses, rows, strict=True)])
    assert found == pytest.approx(wanted, abs=(1e-12 if size <= 5 else 2e-11) * most + 1e-14)
    searched = worst_ratios(losses, rows)
    assert (searched >= wanted - 1e-13).all()
    assert searched == pytest.approx(wanted, abs=2e-11 * most)


def test_many_states_are_searched_and_many_clients_at_once(monkeypatch):
    rng = np.random.default_rng(3)
    losses, rows = random_losses(rng, 300, 3, 2.0), rng.dirichlet(np.ones(3), (300, 3))
    together = aged_losses(losses, Rows(rows, np.zeros(300)))
    monkeypatch.setattr(pairwise, "_BLOCK", 1000)
    in_blocks = aged_losses(losses, Rows(rows, np.zeros(300)))
    assert np.array_equal(together, in_blocks)
    monkeypatch.setattr(pairwise, "TREES", 2)
    called = []
    monkeypatch.setattr(
        pairwise, "worst_ratios", lambda *given: called.append(1) or worst_ratios(*given)
    )
    some = Rows(rows[:3], np.zeros(3))
    assert aged_losses(losses[:3], some) == pytest.approx(together[:3], abs=1e-9)
    assert called


def test_rows_need_not_be_square():
    """What is asked about may have fewer values than what was released."""
    rng = np.random.default_rng(1)
    losses, rows = random_losses(rng, 1, 4, 1.0), rng.dirichlet(np.ones(4), 2)
    found = aged_losses(losses, exact(rows))
    assert found[0] == pytest.approx(aged_by_program(losses[0], rows), abs=1e-12)


def test_losses_that_are_no_metric_count_as_the_metric_below_them():
    losses = np.array([[0, 0.1, 5.0], [0.1, 0, 0.2], [5.0, 0.2, 0]])
    rows = np.array([[0.7, 0.1, 0.2], [0.1, 0.3, 0.6], [0.3, 0.3, 0.4]])
    found = aged_losses(losses[None], exact(rows))[0]
    assert found == pytest.approx(aged_by_program(losses, rows), abs=1e-12)


def exact_maximum(losses, rows):
    """The same maximum in 40 digits, over every spanning tree with every direction of its edges."""
    size = len(losses)
    edges = list(itertools.permutations(range(size), 2))
    best = mpmath.mpf(0)
    for tree in itertools.combinations(edges, size - 1):
        logs = {0: mpmath.mpf(0)}
        for _ in range(size):
            for x, z in tree:  # ln v(x) = ln v(z) + L[x, z]
                if z in logs and x not in logs:
                    logs[x] = logs[z] + losses[x, z]
                elif x in logs and z not in logs:
                    logs[z] = logs[x] - losses[x, z]
        if len(logs) < size or any(
            logs[x] - logs[z] > losses[x, z] + mpmath.mpf(10) ** -35 for x, z in edges
        ):
            continue
        for top, low in itertools.permutations(rows, 2):
            ratio = sum(mpmath.mpf(p) * mpmath.exp(logs[x]) for x, p in enumerate(top)) / sum(
                mpmath.mpf(p) * mpmath.exp(logs[x]) for x, p in enumerate(low)
            )
            best = max(best, mpmath.log(ratio))
    return best


@pytest.mark.parametrize("seed", range(30))
def test_guarantee_rounding_is_outward(seed):
    """Against exact arithmetic, losses from minute to large, rows that sum to one exactly."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 4))
    losses = random_losses(rng, 1, size, 10 ** rng.uniform(-9, 1.5))
    cells = rng.integers(0, 2**20, (size, size)).astype(float)
    cells[:, 0] += 2**22 - cells.sum(axis=1)
    rows = cells / 2**22
    found = aged_losses(losses, exact(rows)).max()
    with mpmath.workdps(40):
        true = exact_maximum(losses[0], rows)
        assert true <= found
        assert found <= true + losses.max() * 5e-14


def test_rows_that_are_off_are_covered():
    rows, error = np.array([[0.6, 0.4], [0.3, 0.7]]), 1e-4
    found = aged_losses(5 * ONE, Rows(rows[None], np.array([error])))[0]
    for sign in (1, -1):
        moved = rows * (1 + sign * error * np.array([[1, -1], [-1, 1]]))
        moved /= moved.sum(axis=1, keepdims=True)
        assert (aged_losses(5 * ONE, exact(moved))[0] <= found).all()
    plain = aged_losses(5 * ONE, exact(rows))[0]
    assert plain.max() < found.max() <= plain.max() + 2.1 * error * 0.5


def test_what_is_not_known_is_not_credited():
    rng = np.random.default_rng(0)
    losses, rows = random_losses(rng, 1, 3, 1.0), np.full((1, 3, 3), 1 / 3)
    none = aged_losses(losses, Rows(rows, np.ones(1)))[0]
    assert none == pytest.approx(losses.max() * (1 - np.eye(3)), rel=1e-15)
    large = losses * 1000
    assert aged_losses(large, Rows(rows, np.zeros(1))).max() == large.max()
    huge = pairwise.all_pairs(np.array([math.inf]), 3)
    assert aged_losses(huge, Rows(rows, np.zeros(1))).max() == math.inf
    assert aged_losses(0 * losses, Rows(rows, np.zeros(1))).max() == 0


def test_losses_that_fit_floats_are_credited_and_those_beyond_are_not():
    rows = exact([[0.6, 0.4], [0.3, 0.7]])
    within, beyond = (aged_losses(most * 10 * ONE, rows).max() for most in (299, 301))
    assert within == pytest.approx(math.log(2), rel=1e-9)
    assert beyond == 301


@pytest.mark.parametrize("seed", range(10))
def test_rows_are_those_of_the_process(seed):
    rng = np.random.default_rng(seed)
    chain = random_chain(rng, 3)
    law = rng.dirichlet(np.ones(3))
    stated, occurs = backward(law, chain.steps(4))
    found = backward_of(chain, 3, 7, law)
    assert found.table[0][occurs] == pytest.approx(stated[occurs], rel=1e-12)
    own, _ = backward(chain.stationary, chain.steps(4))
    assert backward_of(chain, 3, 7).table[0] == pytest.approx(own, rel=1e-11)
    assert forward_of(chain, 3, 7).table[0] == pytest.approx(chain.steps(4), rel=1e-12)
    assert 0 < found.rounding[0] < 1e-12
    assert backward_of(chain, 3, 7, law, 1e-3).rounding[0] > 1e-3


def test_values_that_cannot_occur_add_nothing():
    chain = aw.birth_death(0.2, 0.3, [1, 2, 3])
    rows = backward_of(chain, 1, 2, [1, 0, 0])  # the third value takes two slots to reach
    assert rows.table[0].tolist() == [[1, 0, 0]] * 3
    assert aged_losses((1 - np.eye(3))[None], rows).max() < 1e-12


def test_what_floats_cannot_hold_is_not_credited():
    rare = aw.MarkovChain([[1 - 1e-200, 1e-200], [0.5, 0.5]], [0, 1])
    assert backward_of(rare, 1, 2).rounding[0] < 1
    assert backward_of(rare, 1, 2, [1e-100, 1 - 1e-100]).rounding[0] == 1
    day = aw.PeriodicChain([[[1 - 1e-200, 1e-200], [0, 1]], [[1, 0], [1e-200, 1 - 1e-200]]], [0, 1])
    assert forward_of(day, 1, 2).rounding[0] < 1
    steep = aw.MarkovChain([[0, 1, 0], [0, 1 - 1e-200, 1e-200], [1e-200, 0, 1 - 1e-200]], [0, 1, 2])
    assert forward_of(steep, 1, 3).rounding[0] == 1


def test_the_losses_of_one_release():
    states = np.array([20.0, 50.0, 100.0, 200.0])
    mean = release_losses(0.9, states)
    assert mean[0] == pytest.approx([0, 0.15, 0.4, 0.9], rel=1e-13)
    assert mean.max() == 0.9
    assert np.array_equal(mean, release_losses(0.9, states, aw.Mean()))
    table = [[0, 0], [1, 0], [0, 1], [3, 1]]
    assert release_losses(1.0, states, table)[1] == pytest.approx([0.25, 0, 0.5, 0.75], rel=1e-13)
    assert np.array_equal(release_losses(0.9, states, "any"), 0.9 * (1 - np.eye(4)))
    assert not release_losses(0.9, states, [7, 7, 7, 7]).any()
    third = release_losses(1.0, np.array([0.0, 1.0, 3.0]))[0, 1]
    assert third >= mpmath.mpf(1) / 3  # rounded up


def exact_losses(epsilon, tables):
    """ε times how far each two states are apart in the worst table, as a share of the most."""
    exact = [[[Fraction(one) for one in row] for row in table] for table in tables.tolist()]
    states = range(len(exact[0]))

    def apart(table, x, z):
        return sum(abs(a - b) for a, b in zip(table[x], table[z], strict=True))

    worst = [[max(apart(table, x, z) for table in exact) for z in states] for x in states]
    return [[Fraction(epsilon) * one / max(map(max, worst)) for one in row] for row in worst]


@pytest.mark.parametrize("seed", range(10))
def test_guarantee_each_two_states_lose_no_less_than_in_the_worst_table(seed):
    """Against fractions, from one table of one column to several of several."""
    rng = np.random.default_rng(seed)
    tables = rng.normal(size=(1 + seed % 3, 4, 1 + seed // 3)).round(seed)
    epsilon = float(rng.uniform(0.01, 3))
    given = tables if len(tables) > 1 else tables[0]
    found = release_losses(epsilon, np.arange(4.0), given)
    for row, exactly in zip(found.tolist(), exact_losses(epsilon, tables), strict=True):
        for one, least in zip(row, exactly, strict=True):
            assert least <= Fraction(one)
            assert one <= float(least) * (1 + 1e-14)
    assert found.max() == epsilon


@pytest.mark.parametrize("seed", range(10))
def test_guarantee_the_metric_below_losses_is_rounded_up(seed):
    """Against shortest paths in fractions, of losses that are no metric."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(3, 7))
    losses = 10 ** rng.uniform(-3, 1, (1, size, size)) * (1 - np.eye(size))
    paths = [[Fraction(one) for one in row] for row in losses[0].tolist()]
    for middle, x, z in itertools.product(range(size), repeat=3):
        paths[x][z] = min(paths[x][z], paths[x][middle] + paths[middle][z])
    found = pairwise.closed_losses(losses)[0]
    assert (found < losses[0]).any()
    for x, z in itertools.product(range(size), repeat=2):
        assert paths[x][z] <= Fraction(found[x, z].item())
        assert found[x, z] <= float(paths[x][z]) * (1 + 1e-14)


@pytest.mark.parametrize("share", [0.0, 1 - 1e-6, 1 - 1e-8, 1.01])
def test_guarantee_a_guess_that_is_off_does_not_lower_the_bound(paper_chains, share):
    """Whatever is guessed, what is returned has been proven; or there is no bound."""
    chain = paper_chains[1]
    rows, release = backward_of(chain, 1, 2), release_losses(0.1, chain.states)[None]

    def age(losses):
        return aged_losses(losses, rows)

    wanted = fixed_points.steady_losses(age, release).max()
    found = fixed_points.steady_losses(age, release, lambda losses: share * age(losses))
    assert np.isinf(found).any() or (age(found) + release <= found).all()
    assert found.max() >= wanted * (1 - 1e-6)
    begun = fixed_points.steady_losses(age, release, start=share * release)
    assert (age(begun) + release <= begun).all()


def test_losses_that_slow_down_unevenly_are_followed_to_their_bound():
    """Guesses that move on by half, by more and by all in turn, over thousands of rounds."""
    release = 0.1 * (1 - np.eye(2))[None]
    shares = itertools.cycle((0.5, 0.6, 1.0))

    def age(losses):
        return 0.99 * losses

    def guess(losses):
        return losses - release + next(shares) * (age(losses) + release - losses)

    found = steady_losses(age, release, guess)
    assert (age(found) + release <= found).all()
    assert found.max() == pytest.approx(10, rel=1e-6)


def test_losses_that_do_not_slow_down_are_given_up():
    release, rounds = 1e-3 * (1 - np.eye(2))[None], itertools.count()

    def age(losses):
        next(rounds)
        return losses

    assert np.isinf(steady_losses(age, release)).any()
    assert next(rounds) <= 2 * fixed_points.STRIDE


def test_the_losses_of_a_release_are_those_of_the_mechanism():
    states = np.array([20.0, 50.0, 100.0, 200.0])
    scale = 180 / 7 / 0.9
    by_mechanism = Laplace().pairwise(states[:, None], 7, scale)
    assert release_losses(0.9, states) == pytest.approx(by_mechanism, rel=1e-12)
