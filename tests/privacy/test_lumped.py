"""What releases tell of a value, where value and habit together make the chain."""

import itertools

import numpy as np
import pytest

import agewise as aw
from agewise.privacy.lumped import TOLERANCE, lumped_epsilon
from agewise.privacy.pairwise import aged_losses, backward_of, release_losses, steady_losses


def habitual(levels=2, stays=0.9, seed=0):
    """A chain on (habit, value): the habit says how often the value is high, and seldom changes."""
    rng = np.random.default_rng(seed)
    high = np.linspace(0.2, 0.8, levels)
    moves = np.zeros((levels, levels))
    for one in range(levels):
        near = [other for other in (one - 1, one + 1) if 0 <= other < levels]
        moves[one, one] = stays
        moves[one, near] = (1 - stays) / len(near)
    matrix = np.empty((2 * levels, 2 * levels))
    for c, s, d, e in itertools.product(range(levels), (0, 1), range(levels), (0, 1)):
        sticky = 0.1 * (1 if s == e else -1) + rng.uniform(-0.02, 0.02) * (1 if e else -1)
        matrix[2 * c + s, 2 * d + e] = moves[c, d] * ((high[d] if e else 1 - high[d]) + sticky)
    matrix = np.maximum(matrix, 0)
    return aw.MarkovChain(matrix / matrix.sum(axis=1, keepdims=True), np.arange(2.0 * levels))


def pairs(levels):
    return np.tile([0, 1], levels)


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_one_state_per_value_is_the_present_promise_one_slot_later(paper_chains, epsilon):
    for chain in paper_chains:
        known = aw.steady_epsilon(chain, every=1, classical_epsilon=epsilon, age=1)
        found = lumped_epsilon(chain, np.arange(4), chain.states, epsilon)
        assert known * (1 - 1e-9) <= found <= known * (1 + 100 * TOLERANCE)


@pytest.mark.parametrize("levels", [2, 3])
def test_the_quick_way_to_the_bound_for_ever_is_the_proven_one(levels):
    chain, groups = habitual(levels), pairs(levels)
    release = release_losses(0.5, chain.states, groups[:, None].astype(float))
    rows = backward_of(chain, 0, 1)
    steady = steady_losses(lambda losses: aged_losses(losses, rows), release[None])
    mixed = np.where(groups == np.arange(2)[:, None], chain.stationary, 0)
    mixed /= mixed.sum(axis=1, keepdims=True)
    one = type(rows)((mixed @ rows.table[0])[None], rows.rounding)
    unknown = float(aged_losses(steady, one).max())
    found = lumped_epsilon(chain, groups, groups, 0.5)
    assert unknown * (1 - 1e-9) <= found <= unknown * 1.01


@pytest.mark.parametrize(("levels", "epsilon"), [(2, 0.3), (2, 1.0), (4, 0.5)])
def test_guarantee_no_string_of_releases_tells_more_and_some_nearly_as_much(levels, epsilon):
    """All strings of ten outputs far out in the tails, where one value is e^ε times as likely."""
    chain, groups = habitual(levels), pairs(levels)
    claimed = lumped_epsilon(chain, groups, groups, epsilon)
    likelihood = np.exp(epsilon * np.array([1 - groups, groups]))
    forward = chain.stationary[None]
    for _ in range(10):
        forward = np.concatenate([forward * one for one in likelihood]) @ chain.transition
    of_value = np.stack([forward[:, groups == s].sum(axis=1) for s in (0, 1)])
    prior = np.array([chain.stationary[groups == s].sum() for s in (0, 1)])
    logs = np.log(of_value / prior[:, None])
    habit = np.log(forward / chain.stationary).reshape(len(forward), -1, 2)
    reached = max(np.abs(logs[1] - logs[0]).max(), np.abs(habit[:, :, 1] - habit[:, :, 0]).max())
    assert 0.7 * claimed <= reached <= claimed


def test_by_slot_of_day_a_day_of_like_slots_is_one_slot():
    chain = habitual()
    day = aw.PeriodicChain([chain.transition] * 2, chain.states)
    alike = [lumped_epsilon(process, pairs(2), pairs(2), 0.5) for process in (chain, day)]
    assert alike[0] == pytest.approx(alike[1], rel=1e-3)


def test_the_longer_a_habit_lasts_the_more_it_tells():
    lasting = [lumped_epsilon(habitual(stays=p), pairs(2), pairs(2), 0.5) for p in (0.6, 0.9, 0.99)]
    assert lasting == sorted(lasting)
    assert lasting[0] < 0.5 * lasting[-1]


def test_a_law_measured_lag_by_lag_gets_no_credit():
    law = aw.MeasuredLaw([np.eye(2) / 2] * 2, [1.0, 1.0], [0, 1], confidence=0.95, day=2)
    with pytest.raises(aw.InvalidInput, match="no credit over rounds"):
        lumped_epsilon(law, [0, 1], [0, 1], 0.5)


@pytest.mark.parametrize(
    ("groups", "values", "named"),
    [
        ([0, 1], [0, 1, 0, 1], "groups, values"),
        ([0, 2, 0, 2], [0, 1, 0, 1], "groups"),
        ([0, 0, 0, 0], [0, 0, 0, 0], "groups"),
        ([0, 1, 0, 1], [0, 1, 0.5, 1], "values"),
        ([0.0, 1.0, 0.0, 1.0], [0, 1, 0, 1], "groups"),
    ],
)
def test_groups_that_make_no_sense_are_refused(groups, values, named):
    with pytest.raises(aw.InvalidInput) as refused:
        lumped_epsilon(habitual(), groups, values, 0.5)
    assert refused.value.field == named


def test_vectors_are_told_apart_by_their_distance_and_unit_vectors_bound_them_all():
    """Three values: on a line the outer two are furthest apart, as unit vectors any two are."""
    rng = np.random.default_rng(4)
    chain = aw.MarkovChain(rng.dirichlet(np.ones(6), 6), range(6))
    groups = np.tile(np.arange(3), 2)
    line = lumped_epsilon(chain, groups, groups, 0.5)
    column = lumped_epsilon(chain, groups, groups[:, None], 0.5)
    assert column == line
    apart = lumped_epsilon(chain, groups, np.eye(3)[groups], 0.5)
    assert apart > 1.01 * line
    two = aw.MarkovChain([[0.8, 0.2], [0.3, 0.7]], [0, 1])
    assert lumped_epsilon(two, [0, 1], np.eye(2), 0.5) == lumped_epsilon(two, [0, 1], [0, 1], 0.5)
    with pytest.raises(aw.InvalidInput, match="several within group 0"):
        lumped_epsilon(chain, groups, np.eye(6), 0.5)


def test_a_value_that_does_not_occur_in_a_slot_hides_nothing():
    """A transient value, and one that a day profile rules out every other slot."""
    chain = aw.MarkovChain([[0.9, 0.1, 0], [0.1, 0.9, 0], [0.2, 0.3, 0.5]], states=[0, 1, 2])
    rest = aw.MarkovChain([[0.9, 0.1], [0.1, 0.9]], states=[0, 1])
    alone = lumped_epsilon(rest, [0, 1], [0, 1], 1.0)
    assert lumped_epsilon(chain, [0, 1, 2], [0, 1, 0.5], 1.0) == pytest.approx(alone, rel=1e-3)
    first = [[0.95, 0.05, 0], [0.05, 0.95, 0], [0.5, 0.5, 0]]
    second = [[0.5, 0.4, 0.1], [0.4, 0.5, 0.1], [0.3, 0.3, 0.4]]
    daily = aw.PeriodicChain([first, second], states=[0, 1, 2])
    assert lumped_epsilon(daily, [0, 1, 2], [0, 1, 0.5], 1.0) > 0.92  # what an attack reaches


def test_habits_that_not_all_values_have_are_compared_too():
    """Value 0 has one habit, value 1 two: those who know the first compare states 0 and 1."""
    chain = aw.MarkovChain([[0.5, 0.25, 0.25], [0.02, 0.97, 0.01], [0.45, 0.05, 0.5]], range(3))
    assert lumped_epsilon(chain, [0, 1, 1], [0, 1, 1], 1.0) > 2.19  # what an attack reaches
