import numpy as np
import pytest

import agewise as aw
from random_chains import random_transition


@pytest.fixture
def day(rng):
    return aw.PeriodicChain([random_transition(rng, 3) for _ in range(4)], [1, 2, 3])


def test_kernel_multiplies_the_matrices_of_the_slots(day):
    first, second, third, fourth = day.transitions
    np.testing.assert_allclose(day.kernel(3, 6), third @ fourth @ first)
    np.testing.assert_allclose(
        day.kernel(2, 12),
        (second @ third @ fourth @ first @ second @ third @ fourth @ first @ second @ third),
    )
    np.testing.assert_array_equal(day.kernel(7, 7), np.eye(3))


def test_periodic_law_moves_round_the_day(day):
    for slot in range(1, 9):
        np.testing.assert_allclose(
            day.law(slot) @ day.kernel(slot, slot + 1), day.law(slot + 1), rtol=1e-12
        )
    np.testing.assert_allclose(day.joint(2, 5).aggregation_law, day.law(5), rtol=1e-12)


def test_one_matrix_a_day_is_a_homogeneous_chain(rng):
    matrix = random_transition(rng, 4)
    day, chain = aw.PeriodicChain([matrix], range(4)), aw.MarkovChain(matrix, range(4))
    np.testing.assert_allclose(day.law(3), chain.stationary, rtol=1e-12)
    for method in ("exact", "any_prior"):
        np.testing.assert_allclose(
            aw.total_variation(day, range(6), method, aggregate_at=9),
            aw.total_variation(chain, range(6), method),
            atol=1e-13,  # what is allowed for rounding differs
        )
    law = [0.1, 0.2, 0.3, 0.4]
    assert aw.total_variation(day, 3, "own_law", law, aggregate_at=5) == pytest.approx(
        aw.total_variation(chain, 3, "own_law", law)
    )


def test_delta_depends_on_the_time_of_day():
    calm, busy = [[0.99, 0.01], [0.01, 0.99]], [[0.55, 0.45], [0.45, 0.55]]
    day = aw.PeriodicChain([calm, calm, busy, busy], [0, 1])
    assert aw.total_variation(day, 2, aggregate_at=3) == pytest.approx(0.98**2)
    assert aw.total_variation(day, 2, aggregate_at=5) == pytest.approx(0.1**2)


def test_sampled_paths_follow_the_day(day, rng):
    paths = day.sample_paths(rng, slots=4, size=100_000, first_slot=3)
    seen = [(paths[:, 3] == v).mean() for v in day.states]
    np.testing.assert_allclose(seen, day.law(6), atol=5 * np.sqrt(0.25 / 100_000))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: aw.PeriodicChain([[0.5, 0.5], [0.5, 0.5]], [0, 1]), "slots of the day"),
        (
            lambda: aw.PeriodicChain([np.eye(2), [[1, 0], [0.5, 0.4]]], [0, 1]),
            r"transitions\[1\] row 1",
        ),
        (lambda: aw.PeriodicChain([np.eye(2)], [0, 1, 2]), "2 values"),
        (lambda: aw.PeriodicChain([np.eye(2)], [0, 1]).laws, "closed classes"),
        (lambda: aw.total_variation(aw.PeriodicChain([np.eye(2)], [0, 1]), 1), "aggregate_at"),
        (
            lambda: aw.total_variation(aw.PeriodicChain([np.eye(2)], [0, 1]), 1, "spectral"),
            "spectral",
        ),
    ],
)
def test_bad_input_is_refused_in_one_clear_message(call, words):
    with pytest.raises(aw.InvalidInput, match=words):
        call()
