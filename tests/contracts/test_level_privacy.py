"""ε about a record's own part, the level known: against every string of outputs and every level."""

import dataclasses

import numpy as np
import pytest

import agewise as aw
from agewise.auditing.exact import examine
from agewise.federation import SimulatedRecords
from agewise.learning import under_levels
from agewise.privacy import Policy
from agewise.privacy.pairwise import release_losses
from attacks import backward
from parties import ClientAgent, OrderRefused, Profile, Server, stand_in_noise
from random_chains import random_chain

STATES = np.array([20.0, 50.0, 100.0, 200.0])
FOR_EVER = aw.scenarios.for_ever()


def near(readings, states=STATES):
    """The nearest state of each reading, found by looking at all of them."""
    return states[np.abs(readings[..., None] - states).argmin(axis=-1)]


def told_by_one_string(chain, reports, scale, every, age, releases):
    """The most that one output, again and again, tells two present values apart by.

    `reports` are what each state counts for. A lower bound on what all releases tell.
    """
    rows, _ = backward(chain.stationary, np.linalg.matrix_power(chain.transition, every))
    last, _ = backward(chain.stationary, np.linalg.matrix_power(chain.transition, age))
    worst = 0.0
    for output in (-np.inf, np.inf, *np.unique(reports)):
        away = np.abs(output - reports) if np.isfinite(output) else -np.sign(output) * reports
        likelihood = np.exp(-(away - away.min()) / scale)
        seen = likelihood
        for _ in range(releases - 1):
            seen = (rows @ seen) * likelihood
            seen = seen / seen.max()
        present = last @ seen
        worst = max(worst, float(np.log(present.max() / present.min())))
    return worst


@pytest.mark.parametrize("place", [0, 1, 2])
def test_guarantee_no_known_level_tells_more_than_the_target(place):
    """Constant levels, all of which an adversary may know: releases go on until nothing changes."""
    plan = aw.evaluate(FOR_EVER, [7, 7, 7])
    chain, one = FOR_EVER.clients[place].process, plan.assignments[place]
    stretched = [
        told_by_one_string(chain, near(STATES + level) / 100, one.noise_scale, 10, 3, 60)
        for level in np.arange(-190.0, 191.0, 6.0)
    ]
    assert max(stretched) <= 0.1
    assert max(stretched) > 0.08  # and the room is used


def test_the_account_without_stretched_distances_breaks_its_claim():
    """Client 3 at age 3 with a level of 54 Wh: 50 and 100 are reported 100 apart, not 50."""
    plain = aw.evaluate(FOR_EVER.replace(level=None), [7, 7, 7]).assignments[2]
    chain = FOR_EVER.clients[2].process
    told = told_by_one_string(chain, near(STATES + 54) / 100, plain.noise_scale, 10, 3, 60)
    assert told == pytest.approx(0.142, abs=5e-4)
    still = told_by_one_string(chain, STATES / 100, plain.noise_scale, 10, 3, 60)
    assert still <= 0.1


def test_the_audit_proves_the_plan_and_refutes_one_that_forgets_the_level():
    plan, plain = (
        aw.evaluate(FOR_EVER, [7, 7, 7]),
        aw.evaluate(FOR_EVER.replace(level=None), [7, 7, 7]),
    )
    less = tuple(
        dataclasses.replace(
            one, noise_scale=other.noise_scale, classical_epsilon=other.classical_epsilon
        )
        for one, other in zip(plan.assignments, plain.assignments, strict=True)
    )
    for told, verdict in (
        (plan, "proven"),
        (dataclasses.replace(plan, assignments=less), "refuted"),
    ):
        found = [
            one
            for one in examine(FOR_EVER, told.assignments)
            if one.claim.startswith("ε about each publication")
        ]
        assert [one.verdict for one in found] == [verdict] * 3
        if verdict == "refuted":
            assert found[2].at_least == pytest.approx(0.142, abs=5e-4)


def test_guarantee_every_shift_is_among_the_tables():
    rng = np.random.default_rng(3)
    for _ in range(50):
        states = rng.permutation(rng.normal(0, 10, int(rng.integers(2, 7))))
        tables = {tuple(one) for one in under_levels(states, states[:, None])[..., 0].tolist()}
        for shift in rng.normal(0, 20, 200):
            assert tuple(near(states + shift, states).tolist()) in tables
        assert len(tables) <= states.size * (states.size - 1) + 1


def test_stretched_distances_are_the_largest_over_all_shifts():
    shares = release_losses(1.0, STATES, under_levels(STATES, STATES[:, None]))
    wanted = [[0, 100, 150, 180], [100, 0, 100, 180], [150, 100, 0, 150], [180, 180, 150, 0]]
    assert shares == pytest.approx(np.array(wanted) / 180, rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_guarantee_levels_that_move_tell_no_more_than_the_account(seed):
    """Another level at every release, drawn at random: the total bounds what its string tells."""
    rng = np.random.default_rng(seed)
    chain = random_chain(rng, int(rng.integers(2, 5)), "dense")
    states, spent, every = chain.states, float(rng.uniform(0.1, 1.0)), int(rng.integers(1, 4))
    tables = under_levels(states, states[:, None])
    bound = aw.continual_epsilon(chain, every, spent, release=tables)
    rows, _ = backward(chain.stationary, np.linalg.matrix_power(chain.transition, every))
    scale, reached = np.ptp(states) / spent, 0.0
    for _ in range(300):
        seen = np.ones(states.size)
        for _ in range(12):
            reports = tables[rng.integers(len(tables)), :, 0]
            output = rng.choice(reports)
            seen = (rows @ seen) * np.exp(-np.abs(output - reports) / scale)
            seen = seen / seen.max()
            reached = max(reached, float(np.log(seen.max() / seen.min())))
    assert reached <= bound
    assert reached > 0.2 * bound


def test_tight_noise_is_refused_with_a_level():
    with pytest.raises(
        aw.InvalidInput, match="calibration is 'tight' with a level; allowed: sharp"
    ):
        aw.scenarios.common_level().replace(calibration="tight")


class TestClient:
    problem = aw.scenarios.common_level()

    def agent(self, shift, problem=None):
        client = self.problem.clients[1]
        profile = Profile.of(client, problem or self.problem, Policy())
        records = SimulatedRecords(client, 3, lambda slot: shift)
        return ClientAgent(profile, records, None, stand_in_noise(1, client.name))

    def order(self, ages):
        plan = aw.evaluate(self.problem, [10 - age for age in ages])
        server = Server(plan, "run", private=False)
        for slot in range(1, 11):
            for order in server.orders(slot):
                if order.client == "client 2":
                    return order
        raise AssertionError

    @pytest.mark.parametrize("age", [0, 3])
    def test_fresh_readings_are_reported_as_they_are_and_aged_ones_as_states(self, age):
        agent, order = self.agent(17.0), self.order((0, age, 0))
        terms = agent.check(order)
        records = agent.source.collect(order.collect_at, 100)
        wanted = records.clip(20, 200) if age == 0 else near(records)
        assert agent.collect(order, terms) == pytest.approx([wanted.mean()], rel=1e-12)
        assert agent.clipped == 0  # a level of 20 Wh explains 17
        far = self.agent(317.0)
        far.collect(order, far.check(order))
        assert far.clipped == 100

    def test_an_order_that_says_nothing_of_the_level_is_refused(self):
        order = self.order((0, 0, 0))
        with pytest.raises(OrderRefused, match=r"level is False in the order; .* allows True only"):
            self.agent(0.0).check(order.model_copy(update={"level": False}))
        without = self.problem.replace(level=None)
        with pytest.raises(OrderRefused, match=r"level is True in the order; .* allows False only"):
            self.agent(0.0, without).check(order)

    def test_guarantee_no_reading_moves_a_fresh_mean_beyond_the_sensitivity(self):
        agent, order = self.agent(0.0), self.order((0, 0, 0))
        terms = agent.check(order)
        means = [
            float(agent.train(terms, np.array([odd, *[100.0] * 99]))[0])
            for odd in (-1e9, 20.0, 63.7, 200.0, 1e9)
        ]
        assert max(means) - min(means) <= terms.sensitivity
        assert max(means) - min(means) > 0.999 * terms.sensitivity
