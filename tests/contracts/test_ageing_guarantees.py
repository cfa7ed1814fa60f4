"""The guarantees stated in docstrings, checked by exact enumeration. Names match the docs."""

import math

import numpy as np
import pytest

import agewise as aw
from agewise.privacy.account import Event, enforce, now
from enumeration import random_mechanism, true_loss
from random_chains import random_chain, random_law

ROUNDING = 1e-11


@pytest.mark.parametrize("seed", range(120))
def test_aged_epsilon_bounds_the_true_loss(seed):
    rng = np.random.default_rng(seed)
    size, age = int(rng.integers(2, 4)), int(rng.integers(0, 5))
    chain, law = random_chain(rng, size), random_law(rng, size)
    mechanism, epsilon = random_mechanism(rng, size, 3, rng.uniform(0.05, 3))
    for prior, method, shown in (
        (chain.stationary, "exact", None),
        (law, "own_law", law),
        (law, "any_prior", None),
    ):
        true = true_loss(chain.transition, prior, [(1, mechanism)], 1 + age)
        claimed = aw.aged_epsilon(epsilon, aw.total_variation(chain, age, method, shown))
        assert true <= claimed + ROUNDING, method


@pytest.mark.parametrize("seed", range(60))
def test_composed_epsilon_bounds_the_true_loss(seed):
    rng = np.random.default_rng(1000 + seed)
    size = int(rng.integers(2, 4))
    chain, law = random_chain(rng, size), random_law(rng, size)
    slots = sorted(rng.integers(1, 5, size=int(rng.integers(1, 4))).tolist())
    seen_at = slots[-1] + int(rng.integers(0, 3))
    made = [random_mechanism(rng, size, 2, rng.uniform(0.1, 2)) for _ in slots]
    releases = [aw.Release(slot, epsilon) for slot, (_, epsilon) in zip(slots, made, strict=True)]
    tables = [(slot, table) for slot, (table, _) in zip(slots, made, strict=True)]
    for prior, method, shown in (
        (chain.stationary, "exact", None),
        (law, "own_law", law),
        (law, "any_prior", None),
    ):
        true = true_loss(chain.transition, prior, tables, seen_at)
        total = aw.composed_epsilon(reversed(releases), chain, seen_at, method, shown)
        assert true <= total.aged + ROUNDING, method
        assert total.aged <= total.classical + ROUNDING
        assert total.classical == math.fsum(r.classical_epsilon for r in releases)


@pytest.mark.parametrize("seed", range(60))
def test_what_is_collected_later_is_bounded_too(seed):
    """Releases before and after the slot in question; half a sum of them all would not do."""
    rng = np.random.default_rng(3000 + seed)
    size = int(rng.integers(2, 4))
    chain, law = random_chain(rng, size), random_law(rng, size)
    slots = sorted(rng.integers(1, 6, size=int(rng.integers(2, 4))).tolist())
    seen_at = int(rng.integers(slots[0], slots[-1] + 1))
    made = [random_mechanism(rng, size, 2, rng.uniform(0.1, 2)) for _ in slots]
    releases = [aw.Release(slot, epsilon) for slot, (_, epsilon) in zip(slots, made, strict=True)]
    tables = [(slot, table) for slot, (table, _) in zip(slots, made, strict=True)]
    for prior, method, shown in (
        (chain.stationary, "exact", None),
        (law, "own_law", law),
        (law, "any_prior", None),
    ):
        true = true_loss(chain.transition, prior, tables, seen_at)
        total = aw.composed_epsilon(releases, chain, seen_at, method, shown)
        assert true <= total.aged + ROUNDING, method
        assert total.aged <= total.classical + ROUNDING


def test_a_late_release_is_carried_back_tightly():
    """Two states, randomised response: the bound for one later release is reached."""
    chain = aw.MarkovChain([[0.8, 0.2], [0.3, 0.7]], [0, 1])
    mechanism = np.array([[0.75, 0.25], [0.25, 0.75]])
    total = aw.composed_epsilon([aw.Release(6, math.log(3))], chain, 3).aged
    assert total < math.log1p(0.5**3 * 2)  # what Δ alone would give
    kept = np.linalg.matrix_power(chain.transition, 3) @ mechanism
    reached = np.log(kept.max(axis=0) / kept.min(axis=0)).max()
    assert reached == pytest.approx(total, rel=1e-11)
    assert reached <= total


def test_no_sequence_of_releases_breaks_an_earlier_promise():
    """Whatever a policy let through, the true loss about every slot it was reckoned for is kept."""
    rng, kept, refused = np.random.default_rng(5000), 0, 0
    for case in range(40):
        chain, limit = random_chain(rng, 2), rng.uniform(0.1, 0.4)
        window = int(rng.integers(2, 5)) if case % 4 == 0 else None
        policy = aw.Policy(max_aged_epsilon=limit, window=window)
        known, tables = [], {}
        for number in range(7):
            slot = int(rng.integers(1, 7))
            mechanism, epsilon = random_mechanism(rng, 2, 2, rng.uniform(0.05, 0.5))
            made = Event(
                key=str(number),
                client="c",
                collect_at=slot,
                aggregate_at=slot + int(rng.integers(3)),
                classical_epsilon=epsilon,
                aged_epsilon=epsilon,
                sensitivity=1.0,
                scale=1 / epsilon,
                private=True,
                mixing="any_prior",
                fingerprint=chain.fingerprint,
                made_at=now(),
                payload=b"",
            )
            try:
                enforce(policy, known, made, chain, "any_prior", None)
            except aw.BudgetExceeded:
                refused += 1
                continue
            known.append(made)
            tables[made.key] = (slot, mechanism)
        ends = {event.collect_at for event in known} if window else {99}
        for end in ends:
            group = [
                tables[event.key]
                for event in known
                if window is None or end - window < event.collect_at <= end
            ]
            for reckoned in {event.aggregate_at for event in known}:
                if reckoned >= min(slot for slot, _ in group):
                    law = random_law(rng, 2)
                    assert true_loss(chain.transition, law, group, reckoned) <= limit * (1 + 1e-8)
                    kept += len(group) > 1
    assert kept > 40
    assert refused > 40


def test_adding_up_aged_epsilons_is_unsafe():
    """A search finds chains and mechanisms whose true leakage exceeds the sum of the aged ε's."""
    rng = np.random.default_rng(5)
    worst = {"same slot": 0.0, "next slot": 0.0}
    for case in range(200):
        up, down = rng.dirichlet([1, 1, 1])[:2]
        chain = aw.birth_death(up, down, [1, 2, 3])
        strength = rng.uniform(0.5, 2.5)
        mechanism = np.where(np.eye(3), math.exp(strength), 1.0)  # randomised response
        mechanism /= mechanism.sum(axis=1, keepdims=True)
        kind = "same slot" if case % 2 else "next slot"  # a retry with fresh noise, or a new round
        slots = [1, 1] if kind == "same slot" else [1, 2]
        seen_at = slots[-1] + int(rng.integers(1, 4))
        true = true_loss(
            chain.transition, chain.stationary, [(t, mechanism) for t in slots], seen_at
        )
        unsafe = sum(
            aw.aged_epsilon(strength, aw.total_variation(chain, seen_at - t)) for t in slots
        )
        total = aw.composed_epsilon([aw.Release(t, strength) for t in slots], chain, seen_at)
        assert true <= total.aged + ROUNDING
        worst[kind] = max(worst[kind], true / unsafe)
    assert worst["same slot"] > 1.05, worst
    assert worst["next slot"] > 1.01, worst


def test_the_loss_about_one_of_two_records_is_bounded_too():
    """A mean of two records, the other one unknown: mixing over it cannot add to the loss."""
    rng = np.random.default_rng(8)
    for _ in range(20):
        chain = random_chain(rng, 3)
        age = int(rng.integers(1, 4))
        joint = chain.joint(1, 1 + age)
        back = joint.backward
        possible = range(len(back))
        scale = rng.uniform(0.2, 2) * np.ptp(chain.states) / 2
        epsilon = np.ptp(chain.states) / 2 / scale
        claimed = aw.aged_epsilon(epsilon, aw.total_variation(chain, age))
        grid = np.linspace(chain.states.min() - 3 * scale, chain.states.max() + 3 * scale, 101)
        means = (chain.states[:, None] + chain.states[None, :]) / 2
        density = np.exp(-np.abs(grid[:, None, None] - means) / scale)
        for other in possible:
            given = np.stack(
                [np.einsum("oxz,x,z->o", density, back[y], back[other]) for y in possible]
            )
            assert np.log(given.max(axis=0) / given.min(axis=0)).max() <= claimed + ROUNDING


@pytest.mark.parametrize("seed", range(40))
def test_what_is_private_at_one_age_is_private_at_a_greater_one(seed):
    """Same law at collection and same release; for a day profile, whole days later."""
    rng = np.random.default_rng(2000 + seed)
    size, age = int(rng.integers(2, 5)), int(rng.integers(1, 5))
    law = random_law(rng, size)
    release, scale = rng.normal(0, 1, size), float(rng.uniform(0.1, 2))
    steps = [random_chain(rng, size).transition for _ in range(3)]
    chain, day = aw.MarkovChain(steps[0], range(size)), aw.PeriodicChain(steps, range(size))
    for process, later in ((chain, 1), (chain, 7), (day, 3), (day, 6)):
        young, old = (process.joint(20 - a, 20, law) for a in (age, age + later))
        assert aw.joint_delta(old) <= aw.joint_delta(young) + ROUNDING
        losses = [aw.aged_loss(joint, release, 1, scale) for joint in (old, young)]
        assert losses[0] <= losses[1] + ROUNDING
