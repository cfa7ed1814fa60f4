"""Ageing, exactly: against the table of the theory, random mechanisms and searches over priors."""

import itertools
import math

import mpmath
import numpy as np
import pytest

import agewise as aw
from agewise.privacy.ageing import (
    hockey_sticks,
    measured_forward,
    sharp_forward,
    sharp_inverse,
    worst_losses,
)
from enumeration import random_mechanism, true_loss
from harness.seeds import seeds
from random_chains import random_chain, random_law

LONDON = aw.scenarios.london()


@pytest.mark.parametrize(
    ("client", "age", "spent", "formula", "exact", "any_formula", "any_exact"),
    [
        (1, 4, 1.0, 0.776774, 0.694337, 0.943935, 0.910585),
        (1, 9, 3.0, 1.892758, 0.850571, 2.333804, 1.282468),
        (3, 3, 0.5, 0.209888, 0.176801, 0.245315, 0.213379),
    ],
)
def test_the_table_of_the_theory(client, age, spent, formula, exact, any_formula, any_exact):
    chain = LONDON.clients[client - 1].process
    for method, by_formula, sharp in (
        ("exact", formula, exact),
        ("any_prior", any_formula, any_exact),
    ):
        assert aw.aged_epsilon(spent, aw.total_variation(chain, age, method)) == pytest.approx(
            by_formula, abs=6e-7
        )
        assert aw.Ageing(chain, age, method).aged_epsilon(spent) == pytest.approx(sharp, abs=6e-7)


@pytest.mark.parametrize(
    ("client", "age", "formula", "sharp"), [(1, 9, 1.161950, 1.618279), (3, 3, 1.030335, 1.603226)]
)
def test_the_inverses_of_the_theory(client, age, formula, sharp):
    chain = LONDON.clients[client - 1].process
    assert aw.classical_epsilon(0.5, aw.total_variation(chain, age)) == pytest.approx(
        formula, abs=6e-7
    )
    assert aw.Ageing(chain, age).classical_epsilon(0.5) == pytest.approx(sharp, abs=6e-7)


def checked(seeds):
    """Sharp against formula, against random mechanisms, and there and back."""
    reached = 0.0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        size, age = int(rng.integers(2, 5)), int(rng.integers(0, 5))
        chain, law = random_chain(rng, size), random_law(rng, size)
        mechanism, spent = random_mechanism(rng, size, 4, rng.uniform(0.05, 4))
        if seed % 2:  # the kind that reaches the bound: two likelihoods, at a random set of states
            inside = rng.random(size) < 0.5
            mechanism = np.where(inside[:, None], [[0.8, 0.2]], [[0.2, 0.8]])
            spent = math.log(4.0)
        for prior, method, shown in (
            (chain.stationary, "exact", None),
            (law, "own_law", law),
            (law, "any_prior", None),
        ):
            ageing = aw.Ageing(chain, age, method, shown)
            claimed = ageing.aged_epsilon(spent)
            if size ** (age + 1) <= 300:
                true = true_loss(chain.transition, prior, [(1, mechanism)], 1 + age)
                assert true <= claimed * (1 + 1e-11) + 1e-13, (seed, method)
                reached = max(reached, true / claimed if method != "any_prior" and age else 0)
            assert claimed <= aw.aged_epsilon(spent, ageing.total_variation)
            for target in (1e-4, spent / 3, 1.0, 30.0):
                needed = ageing.classical_epsilon(target)
                assert ageing.aged_epsilon(needed) <= target
                assert needed >= aw.classical_epsilon(target, ageing.total_variation) * (1 - 1e-12)
                if math.isfinite(needed) and needed < 30:
                    assert ageing.aged_epsilon(needed * 1.001) > target * (1 - 1e-9)
    return reached


def test_guarantee_sharp_ageing_is_safe_and_never_above_the_formula():
    assert checked(range(250)) > 0.95  # and some mechanism reaches it


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_guarantee_sharp_ageing_is_safe_on_ten_thousand_chains(block):
    checked(range(1000 + 500 * block, 1500 + 500 * block))


@pytest.mark.parametrize("seed", seeds(8, 25))
def test_no_prior_beats_the_tanh_law(seed):
    """Two-point priors reach it; a search over priors never exceeds it."""
    rng = np.random.default_rng(seed)
    size, age = int(rng.integers(2, 4)), int(rng.integers(1, 4))
    chain = aw.MarkovChain(rng.dirichlet(np.ones(size), size), np.arange(size))
    spent = rng.uniform(0.1, 3)
    claimed = aw.Ageing(chain, age, "any_prior").aged_epsilon(spent)
    d = 4 * math.atanh(aw.total_variation(chain, age, "any_prior"))
    want = 4 * math.atanh(math.tanh(d / 4) * math.tanh(spent / 4))
    assert claimed == pytest.approx(want, rel=1e-9)
    worst = 0.0
    for x in range(size):
        for other in range(size):
            for share in np.linspace(0.005, 0.995, 100) if x != other else ():
                law = np.zeros(size)
                law[x], law[other] = share, 1 - share
                worst = max(worst, aw.Ageing(chain, age, "own_law", law).aged_epsilon(spent))
    for _ in range(100):
        law = rng.dirichlet(np.full(size, 0.5))
        worst = max(worst, aw.Ageing(chain, age, "own_law", law).aged_epsilon(spent))
    assert 0.98 * claimed < worst <= claimed * (1 + 1e-9)


def test_no_noise_is_needed_beyond_the_largest_ratio():
    chain = LONDON.clients[0].process
    rows = chain.joint(1, 10).backward
    largest = math.log((rows[:, None] / rows).max())
    ageing = aw.Ageing(chain, 9)
    assert ageing.classical_epsilon(largest * 1.0001) == math.inf
    assert ageing.classical_epsilon(largest * 0.9999) < math.inf
    assert ageing.aged_epsilon(math.inf) == pytest.approx(largest, rel=1e-9)
    assert aw.Ageing(chain, 0).aged_epsilon(2.0) == 2.0
    assert aw.Ageing(chain, 0).classical_epsilon(2.0) == 2.0


def test_the_hockey_stick_at_zero_is_the_total_variation():
    joint = LONDON.clients[0].process.joint(1, 5)
    stick = hockey_sticks(joint.backward[None], np.array([0.0]), np.array([0.0]))[0]
    assert stick == pytest.approx(aw.joint_delta(joint), rel=1e-12)


def test_sharp_noise_meets_the_target_and_is_never_more():
    for mixing in ("exact", "own_law", "any_prior", "spectral"):
        problem = LONDON.replace(mixing=mixing, calibration="sharp", estimator="propagated")
        formula = problem.replace(calibration="formula")
        for client in problem.clients:
            sharp, plain = aw.slot_table(client, problem), aw.slot_table(client, formula)
            assert (sharp.scale <= plain.scale * (1 + 1e-12)).all()
            assert (sharp.scale < plain.scale * 0.99).any() == (mixing != "spectral")
        for assignment in aw.plan(problem).assignments:
            assert assignment.aged_epsilon <= 0.1 * (1 + 1e-12)


def test_limits_from_readings_are_limits_on_the_hockey_stick_too():
    problem = aw.scenarios.london_fitted()
    sharp, plain = (aw.plan(problem.replace(calibration=c)) for c in ("sharp", "formula"))
    assert sharp.gap == plain.gap


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda c: aw.Ageing(c, -1), "age"),
        (lambda c: aw.Ageing(c, 2, "own_law"), "law"),
        (lambda c: aw.Ageing(c, 2).aged_epsilon(0), "epsilon is 0"),
        (lambda c: aw.Ageing(c, 2).classical_epsilon(math.inf), "epsilon is inf"),
        (lambda c: aw.Ageing(c, 2, "typo"), "method"),
    ],
)
def test_bad_input_is_refused(paper_chains, call, words):
    with pytest.raises(aw.InvalidInput, match=words):
        call(paper_chains[0])


def exact_worst(rows, spent, off):
    """The largest loss over all rows that are off by so much, over all sets of states, exactly."""
    factor, off = mpmath.expm1(mpmath.mpf(spent)), mpmath.mpf(off)
    chosen = itertools.product([0, 1], repeat=len(rows[0]))
    sets = [[x for x, taken in enumerate(one) if taken] for one in chosen]
    best = mpmath.mpf(0)
    for (q, d), one in itertools.product(itertools.permutations(rows, 2), sets):
        top, bottom = (mpmath.fsum(mpmath.mpf(row[x]) for x in one) for row in (q, d))
        ratio = (1 + factor * top * (1 + off)) / (1 + factor * bottom * (1 - off))
        best = max(best, mpmath.log(ratio))
    return best


def exact_stick(rows, target, off):
    """The hockey-stick of order e^target in the same way."""
    factor, off = mpmath.exp(mpmath.mpf(target)), mpmath.mpf(off)
    return max(
        mpmath.fsum(
            max(mpmath.mpf(x) * (1 + off) - factor * mpmath.mpf(y) * (1 - off), 0)
            for x, y in zip(q, d, strict=True)
        )
        for q, d in itertools.permutations(rows, 2)
    )


@pytest.mark.parametrize("off", [0.0, 1e-9, 1e-3])
@pytest.mark.parametrize("seed", range(12))
def test_guarantee_rows_that_are_off_are_rounded_outward(seed, off):
    """Rows off by as much as they may be, each to the worse side: never below, and hardly above."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 6))
    rows = rng.dirichlet(np.ones(size), 3)
    rows[0, rng.integers(size)] = 0
    spent = 10 ** rng.uniform(-3, 1.2)
    target = 10 ** rng.uniform(-3, 0)
    found = float(worst_losses(rows, np.array(spent), off))
    stick = float(hockey_sticks(rows[None], np.array([target]), np.array([off]))[0])
    with mpmath.workdps(50):
        loss, excess = exact_worst(rows, spent, off), exact_stick(rows, target, off)
        assert loss <= found <= loss * (1 + 1e-9) + 1e-13
        assert min(excess, 1) <= stick <= excess * (1 + 1e-9) + 1e-13


def test_guarantee_the_tanh_law_is_rounded_outward():
    """Both ways, in exact arithmetic, from minute losses to large ones."""
    rng = np.random.default_rng(0)
    for target, delta in zip(
        10 ** rng.uniform(-6, 0.5, 200), rng.uniform(0.05, 0.99, 200), strict=True
    ):
        spent = float(sharp_inverse("cross_ratio", np.array([target]), np.array([delta]), None)[0])
        with mpmath.workdps(40):
            if math.isfinite(spent):
                assert exact_tanh(spent, delta) <= target
            aged = float(sharp_forward("cross_ratio", np.array(target), delta, None, 0.0))
            true = exact_tanh(target, delta)
            assert true <= aged <= true * (1 + 1e-12)


def exact_tanh(spent, delta):
    return 4 * mpmath.atanh(mpmath.mpf(delta) * mpmath.tanh(mpmath.mpf(spent) / 4))


def exact_measured(spent, targets, limits):
    """ln of the f at which k·E(f) = f − 1, E by chords between the limits, by halving."""
    gain, points = mpmath.expm1(mpmath.mpf(spent)), [mpmath.exp(mpmath.mpf(t)) for t in targets]

    def stick(f):
        for (one, high), (other, low) in itertools.pairwise(zip(points, limits, strict=True)):
            if f <= other:
                return high + (mpmath.mpf(low) - mpmath.mpf(high)) * (f - one) / (other - one)
        return mpmath.mpf(limits[-1])

    low, high = mpmath.mpf(1), 2 + gain * limits[0]
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if gain * stick(middle) > middle - 1 else (low, middle)
    return mpmath.log(high)


@pytest.mark.parametrize("seed", range(8))
def test_guarantee_limits_at_some_targets_bound_the_loss_and_are_rounded_up(seed):
    """Against exact arithmetic, where the chord before, between or beyond the limits decides."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.ones(4), 4)
    known = np.concatenate([[0.0], np.sort(rng.uniform(0.05, 1.2, 1 + seed % 4))])
    copies = np.broadcast_to(rows, (len(known), 4, 4))
    limits = hockey_sticks(copies, known, np.zeros(len(known))) + 0.01
    places = set()
    for spent in 10 ** rng.uniform(-2, 0.7, 12):
        found = float(measured_forward(np.array(spent), known, limits))
        assert found >= worst_losses(rows, np.array(spent), 0.0)
        with mpmath.workdps(40):
            true = exact_measured(spent, known.tolist(), limits.tolist())
            assert true <= found <= true * (1 + 1e-11)
        places.add(int(np.searchsorted(known, found)))
    assert len(places) > 1
    assert measured_forward(np.array(math.inf), known, limits) == math.inf
