import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

import agewise as aw
from random_chains import random_chain, random_law, random_transition

SEEDS = st.integers(0, 2**32 - 1)
ROUNDING = 1e-12

EXACT_1 = [1, 1, 0.910, 0.796, 0.684, 0.582, 0.492, 0.416, 0.351, 0.295]
SPECTRAL_1 = [1] * 8 + [0.906, 0.762]
EXACT_3 = [1, 1, 0.36, 0.36, 0.130, 0.130, 0.047, 0.047, 0.017, 0.017]
SPECTRAL_3 = [1, 1, 0.805, 0.483, 0.290, 0.174, 0.104, 0.063, 0.038, 0.023]


def delta_by_definition(chain, age, law):
    """Proposition 1's Δ, with loops and nothing shared with the package."""
    kernel = np.linalg.matrix_power(chain.transition, age)
    joint = np.diag(law) @ kernel
    rows = [joint[:, y] / joint[:, y].sum() for y in range(len(law)) if joint[:, y].sum() > 0]
    return max(0.5 * np.abs(a - b).sum() for a in rows for b in rows)


@pytest.mark.parametrize(
    ("client", "method", "wanted"),
    [
        (0, "exact", EXACT_1),
        (1, "exact", EXACT_1),
        (0, "spectral", SPECTRAL_1),
        (1, "spectral", SPECTRAL_1),
        (2, "exact", EXACT_3),
        (2, "spectral", SPECTRAL_3),
    ],
)
def test_the_papers_chains(paper_chains, client, method, wanted):
    np.testing.assert_allclose(
        aw.total_variation(paper_chains[client], range(10), method), wanted, atol=5e-4
    )


def test_the_papers_chains_for_any_prior(paper_chains):
    first, second, third = paper_chains
    assert aw.total_variation(first, 4, "any_prior") == pytest.approx(0.913747, abs=5e-7)
    assert aw.total_variation(second, 6, "any_prior") == pytest.approx(0.741368, abs=5e-7)
    assert aw.total_variation(third, 3, "any_prior") == pytest.approx(0.428571, abs=5e-7)


def test_the_stationary_value_is_not_safe_for_another_law(paper_chains):
    third = paper_chains[2]
    own = aw.total_variation(third, 2, "own_law", law=[0.2, 0.3, 0.5, 0])
    assert own == pytest.approx(0.432, abs=5e-4)
    assert own == aw.total_variation(third, 2, law=[0.2, 0.3, 0.5, 0])
    assert aw.total_variation(third, 2) == pytest.approx(0.36)


@given(SEEDS, st.integers(2, 5), st.integers(1, 6))
def test_exact_and_own_law_follow_the_definition(seed, size, age):
    rng = np.random.default_rng(seed)
    chain, law = random_chain(rng, size), random_law(rng, size)
    assert aw.total_variation(chain, age) == pytest.approx(
        delta_by_definition(chain, age, chain.stationary), abs=ROUNDING
    )
    assert aw.total_variation(chain, age, "own_law", law) == pytest.approx(
        delta_by_definition(chain, age, law), abs=ROUNDING
    )


def any_prior_is_never_below(seed, count):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        size, age = int(rng.integers(2, 6)), int(rng.integers(0, 8))
        chain, law = random_chain(rng, size), random_law(rng, size)
        safe = aw.total_variation(chain, age, "any_prior")
        assert safe >= aw.total_variation(chain, age) - ROUNDING
        if age > 0:
            assert safe >= aw.total_variation(chain, age, "own_law", law) - ROUNDING


def test_any_prior_is_never_below_exact_for_random_chains_and_laws():
    any_prior_is_never_below(seed=1, count=500)


@pytest.mark.slow
def test_any_prior_is_never_below_exact_for_ten_thousand_chains_and_laws():
    any_prior_is_never_below(seed=2, count=10_000)


@pytest.mark.parametrize("seed", range(12))
def test_any_prior_is_the_supremum_over_priors(seed):
    rng = np.random.default_rng(seed)
    size, age = int(rng.integers(2, 4)), int(rng.integers(1, 4))
    chain = random_chain(rng, size, "dense")

    def negative(logits):
        law = np.exp(logits - logits.max())
        return -delta_by_definition(chain, age, law / law.sum())

    best = min(
        minimize(
            negative,
            rng.normal(0, 3, size),
            method="Nelder-Mead",
            options={"maxiter": 4000, "xatol": 1e-10, "fatol": 1e-12},
        ).fun
        for _ in range(12)
    )
    safe = aw.total_variation(chain, age, "any_prior")
    assert -best <= safe + ROUNDING
    assert -best == pytest.approx(safe, abs=1e-5)


def test_any_prior_is_one_where_a_zero_betrays_the_start():
    chain = aw.MarkovChain([[0.5, 0.5, 0], [0.25, 0.5, 0.25], [0.2, 0.3, 0.5]], [1, 2, 3])
    assert aw.total_variation(chain, 1, "any_prior") == 1
    nobody_goes_there = aw.MarkovChain([[0.5, 0.5, 0], [0.25, 0.75, 0], [0.2, 0.8, 0]], [1, 2, 3])
    assert aw.total_variation(nobody_goes_there, 1, "any_prior") < 1


@given(SEEDS, st.integers(2, 6), st.integers(0, 12))
def test_exact_never_exceeds_spectral_for_reversible_chains(seed, size, age):
    rng = np.random.default_rng(seed)
    weights = rng.random((size, size)) ** 3 + 1e-3
    weights += weights.T  # a random walk on weighted edges is reversible
    chain = aw.MarkovChain(weights / weights.sum(axis=1, keepdims=True), np.arange(size))
    assert aw.total_variation(chain, age) <= aw.total_variation(chain, age, "spectral") + ROUNDING


def test_delta_never_grows_with_age(rng):
    for _ in range(50):
        chain = random_chain(rng, int(rng.integers(2, 6)))
        for method in ("exact", "any_prior"):
            assert (np.diff(aw.total_variation(chain, range(12), method)) <= ROUNDING).all()


def test_batches_equal_one_by_one(rng):
    batch = np.stack([random_transition(rng, 4) for _ in range(60)])
    laws = np.stack([random_law(rng, 4) for _ in range(60)])
    ages = [7, 0, 3, 3]
    for method, given_laws in (("exact", None), ("any_prior", None), ("own_law", laws)):
        table = aw.delta_table(batch, ages, method, given_laws)
        single = [
            aw.total_variation(
                aw.MarkovChain(m, range(4)), ages, method, None if given_laws is None else laws[i]
            )
            for i, m in enumerate(batch)
        ]
        np.testing.assert_allclose(table, single, rtol=1e-13)


def test_batches_larger_than_a_block(rng, monkeypatch):
    batch = np.stack([random_transition(rng, 3) for _ in range(25)])
    whole = aw.delta_table(batch, range(5))
    monkeypatch.setattr("agewise.mixing.BLOCK", 7)
    np.testing.assert_allclose(aw.delta_table(batch, range(5)), whole, rtol=1e-14)


def true_delta(chain, age, law):
    """Δ with 80 digits, from the floats of the chain as they are."""
    with mpmath.workdps(80):
        size = len(law)
        step = mpmath.matrix(chain.transition.tolist())
        kernel = step**age
        rows = []
        for y in range(size):
            column = [law[x] * kernel[x, y] for x in range(size)]
            total = mpmath.fsum(column)
            if total > 0:
                rows.append([c / total for c in column])
        return max(
            mpmath.fsum(abs(a - b) for a, b in zip(one, other, strict=True)) / 2
            for one in rows
            for other in rows
        )


@pytest.mark.parametrize("seed", range(40))
def test_delta_is_never_below_the_truth(seed):
    """One-sided, with no tolerance: this is what the slack for rounding is for."""
    rng = np.random.default_rng(seed)
    size, age = int(rng.integers(2, 5)), int(rng.integers(1, 60))
    chain, law = random_chain(rng, size), random_law(rng, size)
    assert aw.total_variation(chain, age, "own_law", law) >= true_delta(chain, age, law.tolist())
    with mpmath.workdps(80):
        step = mpmath.matrix(chain.transition.tolist())
        exact = (step**3000)[0, :] if chain.is_ergodic and abs(chain.eigenvalues[1]) < 0.9 else None
    if exact is not None:
        assert aw.total_variation(chain, age) >= true_delta(chain, age, list(exact))


def kernel_with_many_digits(given, age):
    """The rows as given, made to sum to one, and their power; 700 digits hold chances of 1e-280."""
    step = mpmath.matrix(given.tolist())
    for x in range(step.rows):
        total = mpmath.fsum(step[x, :])
        for y in range(step.cols):
            step[x, y] /= total
    return step**age


def true_any_prior(kernel):
    """tanh(D/4) from the largest cross ratio of four moves."""
    every = range(kernel.rows)
    cross = max(
        kernel[x, y] * kernel[w, z] / (kernel[x, z] * kernel[w, y])
        for x in every
        for w in every
        for y in every
        for z in every
    )
    return mpmath.tanh(mpmath.log(cross) / 4)


def true_own_law(kernel, law):
    columns = [[law[x] * kernel[x, y] for x in range(len(law))] for y in range(len(law))]
    rows = [[c / mpmath.fsum(column) for c in column] for column in columns]
    return max(
        mpmath.fsum(abs(a - b) for a, b in zip(one, other, strict=True)) / 2
        for one in rows
        for other in rows
    )


@pytest.mark.parametrize("seed", range(20))
def test_any_prior_is_never_below_the_truth_for_tiny_chances(seed):
    """Two columns that hardly anybody reaches tell the rows apart, by a few per cent."""
    rng = np.random.default_rng(seed)
    matrix = 10.0 ** -rng.uniform(80, 270) * rng.uniform(0.9, 1.1, (3, 3))
    matrix[:, 2] = 1
    day = aw.PeriodicChain([matrix], range(3))
    with mpmath.workdps(700):
        true = {age: true_any_prior(kernel_with_many_digits(matrix, age)) for age in (1, 3)}
    for age in (1, 3):
        for value in (
            aw.total_variation(aw.MarkovChain(matrix, range(3)), age, "any_prior"),
            aw.delta_table([matrix], [age], "any_prior")[0, 0],
            aw.total_variation(day, age, "any_prior", aggregate_at=9),
        ):
            assert true[age] <= value <= true[age] + 3e-14


@pytest.mark.parametrize("age", [10, 20, 34, 54, 300])
@pytest.mark.parametrize("rows", [[[0.8, 0.2], [2e-5, 1 - 2e-5]], [[0.9999, 1e-4], [0.014, 0.986]]])
@pytest.mark.parametrize("tilt", [-9e-15, 9e-15])
def test_delta_is_never_below_the_truth_where_rows_sum_to_one_but_for_rounding(rows, age, tilt):
    matrix = np.array(rows) * [[1 + tilt], [1 - tilt]]
    chain, day = aw.MarkovChain(matrix, [0, 1]), aw.PeriodicChain([matrix] * 2, [0, 1])
    with mpmath.workdps(80):
        kernel = kernel_with_many_digits(matrix, age)
        step = kernel_with_many_digits(matrix, 1)
        total = step[0, 1] + step[1, 0]
        wanted = {
            ("any_prior", None): true_any_prior(kernel),
            ("exact", None): true_own_law(kernel, [step[1, 0] / total, step[0, 1] / total]),
            ("own_law", (0.25, 0.75)): true_own_law(kernel, [0.25, 0.75]),
        }
    for (method, law), true in wanted.items():
        assert aw.total_variation(chain, age, method, law) >= true
        assert aw.total_variation(day, age, method, law, aggregate_at=400) >= true
    assert aw.total_variation(chain, age, "spectral") >= wanted["exact", None]


def long_day():
    """A day of 3,999 slow slots and a fast one at its end, and the exact kernels of both."""
    slow = np.array([[1 - 2.07e-5, 2.07e-5], [7.1e-5, 1 - 7.1e-5]])
    fast = np.array([[0.832, 0.168], [0.233, 0.767]])
    day = aw.PeriodicChain([slow] * 3999 + [fast], [0, 1])
    return day, kernel_with_many_digits(slow, 3999), kernel_with_many_digits(fast, 1)


def test_the_law_of_a_long_day_leaves_delta_on_the_safe_side():
    """All the products of a day stand behind its law, however young the data."""
    with mpmath.workdps(50):
        day, slow, fast = long_day()
        around = fast * slow
        total = around[0, 1] + around[1, 0]
        true = true_own_law(fast, [around[1, 0] / total, around[0, 1] / total])
    assert true <= aw.total_variation(day, 1, aggregate_at=4001) <= true + 1e-11


@given(SEEDS, st.integers(2, 12))
def test_what_was_rescaled_once_reads_back_unchanged(seed, size):
    rng = np.random.default_rng(seed)
    given_rows = rng.dirichlet(np.full(size, 0.3), size) * rng.uniform(
        1 - 1e-9, 1 + 1e-9, (size, 1)
    )
    given_rows[given_rows < 1e-200] = 0
    once = aw.MarkovChain(given_rows, range(size)).transition
    np.testing.assert_array_equal(aw.MarkovChain(once, range(size)).transition, once)
    assert all(abs(math.fsum(row) - 1) <= (size + 1) * 2**-53 for row in once)
    numpy_says = given_rows / given_rows.sum(axis=1, keepdims=True)
    np.testing.assert_array_equal(aw.MarkovChain(numpy_says, range(size)).transition, numpy_says)


def test_a_law_too_small_for_floats_earns_no_credit():
    step = [[0.5, 0.5, 1e-200, 0], [0.5, 0.5, 1e-200, 0], [0.5, 0.5, 0, 1e-200], [0.5, 0.5, 0, 0]]
    chain = aw.MarkovChain(step, range(4))
    assert aw.total_variation(chain, 1) == 1
    assert aw.total_variation(chain, 1, "own_law", [0.5, 0.5, 1e-150, 0]) == 1
    assert aw.total_variation(aw.PeriodicChain([step], range(4)), 1, aggregate_at=5) == 1
    total = aw.composed_epsilon([aw.Release(t, 1.0) for t in (1, 2, 3)], chain, 4)
    assert total.aged == pytest.approx(3.0)


def test_spectral_is_not_below_exact_for_a_chain_that_is_only_nearly_reversible():
    tilt = np.array([[0, 1, -1], [-1, 0, 1], [1, -1, 0]]) * 0.99e-9
    chain = aw.MarkovChain(np.full((3, 3), 1 / 3) + tilt, [0, 1, 2])
    assert aw.total_variation(chain, 1, "spectral") >= aw.total_variation(chain, 1) > 1e-9


def test_any_prior_needs_no_law_of_a_day_profile():
    still = aw.PeriodicChain([np.eye(2), np.eye(2)], [0, 1])
    assert aw.total_variation(still, 1, "any_prior", aggregate_at=3) == 1


def test_independent_draws_leave_nothing_after_one_slot():
    chain = aw.MarkovChain([[0.3, 0.7], [0.3, 0.7]], [0, 1])
    for method in ("exact", "any_prior"):
        np.testing.assert_array_equal(aw.total_variation(chain, [0, 1, 5], method), [1, 0, 0])


def test_cancellation_never_yields_zero(paper_chains):
    """A Δ of zero would mean no noise at all; what is merely small must stay positive."""
    for method in ("exact", "any_prior"):
        assert (aw.total_variation(paper_chains[2], [100, 1000], method) > 0).all()


def test_underflow_is_answered_on_the_safe_side():
    chain = aw.birth_death(up=1e-120, down=0.5, states=np.arange(6))
    assert aw.total_variation(chain, 4, "any_prior") == 1
    assert aw.total_variation(chain, 4, "own_law", law=[1, 0, 0, 0, 0, 0]) == 1


def test_a_frozen_chain_never_ages():
    law = [0.2, 0.3, 0.5]
    frozen = aw.MarkovChain(np.eye(3), [1, 2, 3])
    assert aw.total_variation(frozen, 50, "own_law", law) == 1
    assert aw.total_variation(frozen, 50, "own_law", [0, 1, 0]) < 1e-12  # nothing to be told


def test_joint_law_from_anywhere():
    pair = aw.JointLaw([[0.4, 0.1], [0.1, 0.4]], [0, 1])
    assert aw.joint_delta(pair) == pytest.approx(0.6)
    assert aw.joint_delta(pair, any_prior=True) == pytest.approx(np.tanh(np.log(16) / 4))
    with pytest.raises(aw.InvalidInput, match="no probability"):
        aw.joint_delta(aw.JointLaw([[0.5, 0.5], [0, 0]], [0, 1]), any_prior=True)


RING = aw.MarkovChain(0.5 * np.roll(np.eye(3), 1, axis=1) + 0.5 * np.eye(3), [1, 2, 3])
FLIP = aw.MarkovChain([[0, 1], [1, 0]], [1, 2])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: aw.total_variation(RING, -1), "age is -1"),
        (lambda: aw.total_variation(RING, 1.5), "age is 1.5.*whole number"),
        (lambda: aw.total_variation(RING, float("nan")), "age is nan"),
        (lambda: aw.total_variation(RING, []), "age is empty"),
        (lambda: aw.total_variation(RING, 10**18), "age is 1000000000000000000"),
        (lambda: aw.total_variation(RING, np.uint64(2**64 - 2**50)), "age is"),
        (lambda: aw.total_variation(RING, 2, "spectral"), "not reversible.*Use exact"),
        (lambda: aw.total_variation(FLIP, 2, "spectral"), "of period 2"),
        (lambda: aw.total_variation(aw.MarkovChain(np.eye(2), [1, 2]), 2, "spectral"), "reducible"),
        (lambda: aw.total_variation(aw.MarkovChain(np.eye(2), [1, 2]), 2), "closed classes"),
        (lambda: aw.total_variation(RING, 2, "own_law"), "law is None"),
        (lambda: aw.total_variation(RING, 2, "exact", [1, 0]), "3 probabilities"),
        (
            lambda: aw.total_variation(aw.birth_death(0.1, 0.1, [1, 2]), 2, "spectral", [1, 0]),
            "no law",
        ),
        (lambda: aw.total_variation(RING, 2, "typo"), "'typo'; allowed: one of exact"),
        (lambda: aw.delta_table(np.eye(3), [1]), "shape"),
        (lambda: aw.delta_table([np.eye(2), [[1, 0], [0.5, 0.4]]], [1]), r"transitions\[1\] row 1"),
        (lambda: aw.delta_table([RING.transition], [1], "own_law", [[1, 0, 0.5]]), "sums to 1.5"),
        (lambda: aw.delta_table([RING.transition], [1], "spectral"), "one of exact"),
    ],
)
def test_bad_input_is_refused_in_one_clear_message(call, words):
    with pytest.raises(aw.InvalidInput, match=words):
        call()
