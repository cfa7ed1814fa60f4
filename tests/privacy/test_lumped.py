"""What releases tell of a value, where value and habit together make the chain."""

import itertools

import numpy as np
import pytest

import agewise as aw
from agewise.privacy import continual, fixed_points, pairwise


def lumped_epsilon(process, groups, values, epsilon):
    """Releases of the state in every slot before, for ever, about the present state."""
    lifted, table = lift(process, groups, values)
    return aw.continual_epsilon(lifted, 1, epsilon, age=1, release=table)


def lumped_reached(process, groups, values, epsilon):
    lifted, table = lift(process, groups, values)
    return aw.privacy.reached_epsilon(lifted, 1, epsilon, age=1, release=table)


def lift(process, groups, values):
    """The lifted chain and what is released per state, of values per enlarged state."""
    first = np.unique(groups, return_index=True)[1]
    return aw.LiftedChain(process, groups, np.arange(len(first))), np.asarray(values)[first]


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
        known = aw.continual_epsilon(chain, every=1, classical_epsilon=epsilon, age=1)
        found = lumped_epsilon(chain, np.arange(4), chain.states, epsilon)
        assert found == pytest.approx(known, rel=1e-7)


@pytest.mark.parametrize("levels", [2, 3])
def test_the_quick_way_to_the_bound_for_ever_is_the_proven_one(levels):
    chain, groups = habitual(levels), pairs(levels)
    release = pairwise.release_losses(0.5, chain.states, groups[:, None].astype(float))
    rows = pairwise.backward_of(chain, 0, 1)
    steady = fixed_points.steady_losses(
        lambda losses: pairwise.aged_losses(losses, rows), release[None]
    )
    mixed = np.where(groups == np.arange(2)[:, None], chain.stationary, 0)
    mixed /= mixed.sum(axis=1, keepdims=True)
    one = type(rows)((mixed @ rows.table[0])[None], rows.rounding)
    unknown = float(pairwise.aged_losses(steady, one).max())
    found = lumped_epsilon(chain, groups, groups, 0.5)
    assert unknown * (1 - 1e-7) <= found <= unknown * 1.01


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
    assert 0.7 * claimed <= lumped_reached(chain, groups, groups, epsilon) <= claimed


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
    ("groups", "named"),
    [
        ([0, 1], "groups"),
        ([0, 2, 0, 2], "groups"),
        ([0, 0, 0, 0], "groups"),
        ([0.0, 1.0, 0.0, 1.0], "groups"),
        ([0, 1, 2, 1], "states"),
    ],
)
def test_groups_that_make_no_sense_are_refused(groups, named):
    with pytest.raises(aw.InvalidInput) as refused:
        aw.LiftedChain(habitual(), groups, [0, 1])
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


@pytest.mark.parametrize("levels", [2, 3])
@pytest.mark.parametrize("promise", ["present", "every_moment", 2])
def test_guarantee_any_promise_holds_about_the_state(levels, promise):
    """Ten outputs out in the tails: about the state in any slot, the others before and after it."""
    chain, groups, epsilon = habitual(levels), pairs(levels), 0.5
    lifted = aw.LiftedChain(chain, groups, [0, 1])
    claimed = aw.continual_epsilon(lifted, 1, epsilon, promise=promise)
    assert aw.privacy.reached_epsilon(lifted, 1, epsilon, promise=promise) <= claimed
    asked = {"present": [9], "every_moment": range(10), 2: [7, 8, 9]}[promise]
    reached = max(told_about(chain, groups, epsilon, 10, slot) for slot in asked)
    assert 0.6 * claimed <= reached <= claimed
    total = aw.composed_epsilon(
        [aw.Release(slot, epsilon) for slot in range(10)], lifted, max(asked), release=None
    )
    assert told_about(chain, groups, epsilon, 10, max(asked)) <= total.aged <= claimed * (1 + 1e-9)


def told_about(chain, groups, epsilon, count, slot):
    """What the worst of all strings of outputs tells about the state in one slot: two readers."""
    likelihood = np.exp(epsilon * np.array([1 - groups, groups]))
    forward = chain.stationary[None]
    for at in range(slot + 1):
        forward = forward @ chain.transition if at else forward
        forward = np.concatenate([forward * one for one in likelihood])
    backward = np.ones((1, groups.size))
    for _ in range(count - slot - 1):
        backward = np.concatenate([backward * one for one in likelihood]) @ chain.transition.T
    joint = (forward[:, None] * backward[None]).reshape(-1, groups.size)
    of_state = np.stack([joint[:, groups == s].sum(axis=1) for s in (0, 1)])
    prior = np.array([chain.stationary[groups == s].sum() for s in (0, 1)])
    logs = np.log(of_state / prior[:, None])
    habit = np.log(joint / chain.stationary).reshape(len(joint), -1, 2)
    return max(np.abs(logs[1] - logs[0]).max(), np.abs(habit[:, :, 1] - habit[:, :, 0]).max())


def test_several_releases_of_a_lifted_chain_cost_less_than_without_ageing():
    lifted = aw.LiftedChain(habitual(stays=0.6), pairs(2), [0, 1])
    releases = [aw.Release(slot, 0.5) for slot in (1, 5, 9)]
    total = aw.composed_epsilon(releases, lifted, 12)
    assert total.aged < 0.5 < total.classical == 1.5
    one = aw.composed_epsilon(releases[-1:], lifted, 12).aged
    assert one >= aw.Ageing(lifted, 3, aggregate_at=12).aged_epsilon(0.5) * (1 - 1e-12)
    with pytest.raises(aw.InvalidInput, match="law"):
        aw.composed_epsilon(releases, lifted, 12, "own_law", [0.5, 0.5])


def test_any_prior_is_about_any_law_of_the_enlarged_states():
    chain = habitual()
    lifted = aw.LiftedChain(chain, pairs(2), [0, 1])
    asked = aw.total_variation(lifted, 3, "any_prior", aggregate_at=9)
    assert asked == pytest.approx(aw.total_variation(chain, 3, "any_prior"), rel=1e-12)
    assert asked > aw.total_variation(lifted, 3, aggregate_at=9)


def test_old_names_say_what_they_are_called_now():
    chain, groups = habitual(), pairs(2)
    lifted = aw.LiftedChain(chain, groups, [0, 1])
    with pytest.warns(DeprecationWarning, match="lumped_epsilon is now continual_epsilon"):
        found = aw.privacy.lumped_epsilon(chain, groups, groups, 0.5)
    assert found == aw.continual_epsilon(lifted, 1, 0.5, age=1)
    with pytest.warns(DeprecationWarning, match="lumped_reached is now reached_epsilon"):
        found = aw.privacy.lumped_reached(chain, groups, np.eye(2)[groups], 0.5)
    assert found == aw.privacy.reached_epsilon(lifted, 1, 0.5, age=1)
    refused = pytest.raises(aw.InvalidInput, match="several within group 0")
    with refused, pytest.warns(DeprecationWarning, match="lumped"):
        aw.privacy.lumped_epsilon(chain, groups, [0, 1, 0.5, 1], 0.5)
    for old, new in (("steady", "continual"), ("affordable", "per_release")):
        for module in (aw, aw.privacy):
            with pytest.warns(DeprecationWarning, match=f"{old}_epsilon is now .*{new}_epsilon"):
                found = getattr(module, f"{old}_epsilon")
            assert found is getattr(aw, f"{new}_epsilon")


def free_and_sticky():
    """One class forgets its state at once, the other hardly leaves it."""
    inner = np.array([[[0.5, 0.5], [0.5, 0.5]], [[0.99, 0.01], [0.01, 0.99]]])
    classes = np.array([[0.99, 0.01], [0.01, 0.99]])
    return aw.MarkovChain(np.einsum("cd,cse->csde", classes, inner).reshape(4, 4), range(4))


def test_guarantee_any_prior_is_about_classes_that_go_with_states_too():
    """A later release, and a prior by which the state says what the class is."""
    chain = habitual(stays=0.95)
    told = np.exp(np.array([0.0, 1.0, 0.0, 1.0]))
    likelihood = np.log(chain.transition @ told)
    apart = np.abs(likelihood[0] - likelihood[3])  # (0, low) or (1, high)
    lifted = aw.LiftedChain(chain, pairs(2), [0, 1])
    later = [aw.Release(2, 1.0)]
    assert aw.composed_epsilon(later, lifted, 1, "any_prior").aged >= apart
    assert aw.composed_epsilon(later, lifted, 1).aged < apart  # which has the class by its law


def test_states_of_classes_that_nobody_numbers_are_all_compared():
    """One state occurs in one class only: whoever knows the other class is covered as well."""
    chain = free_and_sticky()
    joined = aw.LiftedChain(chain, [0, 1, 2, 1], [0, 1, 2])
    release = [[0.0], [1.0], [0.0]]  # states 0 and 2 are in one class each, state 1 in both
    backward = (chain.stationary[:, None] * chain.transition).T / chain.stationary[:, None]
    told = np.log(backward @ np.exp([0.0, 1.0, 0.0, 1.0]))
    claimed = aw.composed_epsilon([aw.Release(1, 1.0)], joined, 2, release=release).aged
    assert claimed >= abs(told[2] - told[3])
    assert claimed >= abs(told[0] - told[1])


def test_a_rule_about_a_lifted_chain_is_about_its_states_and_never_below_its_rounds():
    lifted = aw.LiftedChain(habitual(), pairs(2), [0, 1])
    losses = np.array([[0.0, 0.3], [0.3, 0.0]])
    bound = continual.rule_bound(lifted, 3, losses)
    known = aw.continual_epsilon(lifted, 3, 0.3, promise="every_moment")
    assert known <= bound * (1 + 1e-6) < np.inf
