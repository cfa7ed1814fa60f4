import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import agewise as aw
from agewise.calibration import classical_failures, terms, terms_of
from agewise.learning import mean_rounding
from agewise.paper.bound import _setting
from agewise.privacy import aged_loss
from random_problems import achieved_epsilon

LAST = 100_000
DAY = aw.PeriodicChain([[[0.6, 0.4], [0.3, 0.7]], [[0.9, 0.1], [0.2, 0.8]]], [0, 1])


class Counted:
    """Passes everything on to a process, and counts how often a kernel is asked for."""

    homogeneous = None  # so that it is asked slot by slot

    def __init__(self, process):
        self.process, self.asked = process, 0

    def __getattr__(self, name):
        return getattr(self.process, name)

    def kernel(self, collect_at, aggregate_at):
        self.asked += 1
        return self.process.kernel(collect_at, aggregate_at)


@pytest.mark.parametrize("calibration", ["formula", "tight"])
@pytest.mark.parametrize("process", [aw.birth_death(0.4, 0.4, [20, 50, 100, 200]), DAY])
def test_slots_in_which_nothing_changes_any_more_share_a_row(process, calibration):
    process = Counted(process)
    client = aw.Client("a", process, samples=10)
    problem = aw.Problem([client], LAST, 0.1, estimator="propagated", calibration=calibration)
    table = aw.slot_table(client, problem)
    assert process.asked <= 500  # twice a row: for the table, and for the release
    assert len(table.kernel_rows) == len(table.law_rows) == len(table.release_rows) <= 250
    for name in ("row", "delta", "sensitivity", "scale", "classical_epsilon", "ages"):
        assert getattr(table, name).shape == (LAST,)
    np.testing.assert_array_equal(table.ages, np.arange(LAST)[::-1])
    for slot in (1, 2, 77_777, LAST - 300, LAST - 3, LAST):  # as if it had been asked for alone
        alone = aw.slot_table(client, problem, [slot])
        for name in ("delta", "sensitivity", "scale", "classical_epsilon", "release", "laws"):
            np.testing.assert_array_equal(getattr(table, name)[slot - 1], getattr(alone, name)[0])
    np.testing.assert_array_equal(table.kernels[LAST - 4], process.kernel(LAST - 3, LAST))


@pytest.mark.parametrize("calibration", ["formula", "tight"])
@pytest.mark.parametrize("law", [None, [0.6, 0.3, 0.1, 0.0]])
def test_each_slot_has_the_noise_of_its_joint_law(calibration, law):
    chain = aw.birth_death(0.3, 0.1, [20, 50, 100, 200])
    client = aw.Client("a", chain, law, samples=7)
    mixing = "exact" if law is None else "own_law"
    choices = {"mixing": mixing, "estimator": "propagated", "calibration": calibration}
    problem = aw.Problem([client], 6, 0.2, **choices)
    table = aw.slot_table(client, problem)
    for slot in range(1, 6 if calibration == "tight" else 7):  # fresh: every state counts
        joint = chain.joint(slot, 6, law)
        given = (
            {}
            if calibration == "tight"
            else {"delta": aw.total_variation(chain, 6 - slot, mixing, law)}
        )
        one = aw.noise_scale(
            joint, chain.steps(6 - slot) @ chain.states, 7, 0.2, calibration, **given
        )
        cell = table.scale[slot - 1], table.sensitivity[slot - 1], table.classical_epsilon[slot - 1]
        assert cell == pytest.approx((one.scale, one.sensitivity, one.classical_epsilon), rel=1e-9)


@pytest.mark.parametrize("samples", [7, 7000])  # scales above one, and below
def test_achieved_epsilon_is_the_smaller_of_what_can_be_proven(samples):
    chain = aw.birth_death(0.3, 0.1, [20, 50, 100, 200])
    client = aw.Client("a", chain, samples=samples)
    formula = aw.Problem([client], 6, 0.2, calibration="formula")
    table = aw.slot_table(client, formula)
    for column in range(6):
        spent = float(table.classical_epsilon[column])
        aged = aw.aged_epsilon(spent, float(table.delta[column]))
        assert achieved_epsilon(table, column) == aged
        half = aw.aged_epsilon(spent / 2, float(table.delta[column]))
        cell = terms_of(table, column)
        assert cell.aged_epsilon(2 * cell.scale, spent / 2) == half
    tight = formula.replace(calibration="tight")
    table = aw.slot_table(client, tight)
    for column in range(6):
        got = achieved_epsilon(table, column)
        assert 0.2 * (1 - 1e-9) <= got <= 0.2
        if column < 5:
            scale = float(table.scale[column])
            loss = aw.aged_loss(chain.joint(column + 1, 6), table.release[column], samples, scale)
            assert loss < got
    assert terms_of(table, 0).aged_epsilon(1.0, 0.0) == 0


def test_achieved_epsilon_where_tight_calibration_needs_no_noise():
    chain = aw.birth_death(0.3, 0.3, [0, 1])
    client = aw.Client("a", chain, samples=7)
    problem = aw.Problem([client], 9, 3.0, calibration="tight")
    table = aw.slot_table(client, problem)
    assert table.scale[0] == 0
    assert table.classical_epsilon[0] == np.inf
    rows = chain.joint(1, 9).backward
    apart = np.log(rows.max(axis=0) / rows.min(axis=0)).max()
    assert achieved_epsilon(table, 0) == pytest.approx(apart, rel=1e-12)


def test_what_old_slots_share_is_what_each_of_them_would_have():
    """Against products of all the matrices in between."""
    chain = aw.birth_death(0.1, 0.2, [20, 50, 100, 200])
    far = np.linalg.matrix_power(chain.transition, 3001)
    np.testing.assert_allclose(chain.kernel(1, 3002), far, rtol=1e-12)
    np.testing.assert_allclose(chain.joint(1, 3002).matrix, chain.stationary[:, None] * far)
    for first in (1, 2):
        product = np.eye(2)
        for slot in range(first, 302):
            product = product @ DAY.transitions[(slot - 1) % 2]
        np.testing.assert_allclose(DAY.kernel(first, 302), product, rtol=1e-13)
        joint = DAY.law(first)[:, None] * product
        np.testing.assert_allclose(DAY.joint(first, 302).matrix, joint, rtol=1e-12)


def test_delta_of_old_data_is_that_of_the_youngest_like_them():
    chain = aw.birth_death(0.4, 0.4, [20, 50, 100, 200])
    for method in ("exact", "any_prior", "spectral"):
        deltas = aw.total_variation(chain, [chain.settled, chain.settled + 1, 10**6], method)
        assert deltas[0] == deltas[1] == deltas[2] < 1e-12
    skewed = aw.PeriodicChain([[[0.5, 0.5], [0.5, 0.5]], [[0.99, 0.01], [0.3, 0.7]]], [0, 1])
    old = aw.total_variation(skewed, [40, 41, 42, 43], "own_law", [0.5, 0.5], aggregate_at=2)
    np.testing.assert_array_equal(old[:2], old[2:])
    far = aw.Release(-(10**12), 1.0)  # whatever the gap, in no time
    assert aw.composed_epsilon([far], DAY, 2).aged < 1e-11
    assert aw.composed_epsilon([far], chain, 2, "own_law", [1, 0, 0, 0]).aged < 1e-11


@pytest.mark.parametrize(
    "chain",
    [
        aw.MarkovChain([[0, 1], [1, 0]], [0, 1]),  # goes to and fro for ever
        aw.birth_death(1e-7, 1e-7, [0, 1]),
        aw.PeriodicChain([[[0, 1], [1, 0]]], [0, 1]),
    ],
)
def test_processes_that_never_settle_have_a_row_for_every_slot(chain):
    assert chain.settled is None
    client = aw.Client("a", chain, [1 / len(chain.states)] * len(chain.states), samples=5)
    table = aw.slot_table(client, aw.Problem([client], 300, 0.1, mixing="own_law"))
    np.testing.assert_array_equal(table.row, np.arange(300))
    assert len(table.kernel_rows) == 300


def test_a_state_that_is_left_for_good_still_tells_however_rarely_it_is_seen():
    """Its probability vanishes from the floats, so that the kernel seems to have settled."""
    leaving = aw.MarkovChain([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0.1, 0.9]], [0, 1, 2])
    assert aw.total_variation(leaving, 50_000, "own_law", [0.4, 0.3, 0.3]) == 1
    assert aw.total_variation(leaving, 50_000, "any_prior") == 1
    assert leaving.joint(1, 50_000, [0.4, 0.3, 0.3]).underflowed
    assert aw.total_variation(leaving, 50_000) < 1e-10


def test_a_plan_over_very_many_slots_tabulates_few():
    clients = [
        aw.Client("slow", aw.birth_death(0.1, 0.2, [0, 1, 2, 3]), samples=10),
        aw.Client("day", DAY, samples=20),
    ]
    problem = aw.Problem(clients, LAST, 0.01, estimator="plain")
    plan = aw.plan(problem)
    setting = _setting(problem)
    assert setting.moments.shape[1] < 1000
    recent = problem.replace(aggregate_at=1000)
    shorter = aw.plan(recent)
    assert plan.ages == shorter.ages
    assert plan.gap == pytest.approx(shorter.gap, rel=1e-12)
    for ages in ([999, 0], [998, 999], [1, 997]):
        expected = pytest.approx(aw.loss_gap(recent, ages), rel=1e-12)
        assert aw.loss_gap(problem, ages) == expected
        assert aw.loss_bound(problem, ages) == aw.loss_bound(recent, ages)


def test_guarantee_the_classical_failure_never_ages_to_more_than_the_target():
    """δ_c·Δ ≤ δ̄ in fractions, and hardly less; half of all runs may fail at most."""
    rng = np.random.default_rng(3)
    for failure in (1e-300, 1e-9, 1e-6, 0.01, 0.3):
        deltas = np.concatenate([rng.uniform(failure, 1, 50), [1.0]])
        found = classical_failures(failure, deltas).tolist()
        for one, delta in zip(found, deltas.tolist(), strict=True):
            assert Fraction(one) * Fraction(delta) <= Fraction(failure)
            assert one == 0.5 or one * delta >= failure * (1 - 1e-14)
    assert classical_failures(0.01, np.array([0.0]))[0] == 0.5
    assert classical_failures(0.0, np.array([0.0, 0.5])).tolist() == [0, 0]


def test_guarantee_noise_as_calibrated_keeps_to_the_target_whatever_rounds():
    """To the last digit, for each calibration, age and target."""
    rng, with_noise = np.random.default_rng(5), 0
    calibrations = ("formula", "sharp", "tight")
    for calibration, age, _ in itertools.product(calibrations, (1, 2, 5), range(6)):
        chain = aw.birth_death(*rng.uniform(0.05, 0.45, 2), [20.0, 50.0, 100.0])
        target = aw.Target(float(10 ** rng.uniform(-3, 0.5)), "exact", calibration)
        own = terms(aw.Client("a", chain, samples=7), target, aw.Mean(), "plain", 10 - age, 10)
        assert own.aged_epsilon(own.scale, own.classical_epsilon) <= target.epsilon
        with_noise += own.scale > 0
        spent = own.spent(own.scale / 2)
        assert own.aged_epsilon(own.scale / 2, spent) > target.epsilon or own.scale == 0
    assert with_noise > 40


def test_guarantee_tight_noise_counts_what_rounding_of_the_mean_tells():
    """A mean is off by `mean_rounding` at most: two of them, over a scale as small as that."""
    chain = aw.birth_death(0.3, 0.2, [20.0, 50.0, 100.0])
    client = aw.Client("a", chain, samples=1)
    own = terms(client, aw.Target(0.3, "exact", "tight"), aw.Mean(), "plain", 7, 10)
    values = own.release[:, 0]
    joint = chain.joint(7, 10)
    for scale in (1e-12, 1e-9, 10.0):
        room = 2 * float(mean_rounding(values)) / scale
        told = own.aged_epsilon(scale, own.spent(scale)) - aged_loss(joint, values, 1, scale)
        assert told >= min(room, 1e-3) * (1 - 1e-6)
        assert told <= room + 1e-11
    assert own.aged_epsilon(0.0, np.inf) >= 0


def test_a_failure_that_ages_is_never_lost_by_underflow():
    chain = aw.birth_death(0.3, 0.2, [20.0, 50.0, 100.0])
    target = aw.Target(0.3, "exact", "formula", "gaussian", 1e-6)
    own = terms(aw.Client("a", chain), target, aw.Mean(), "plain", 5, 10)
    assert 0 < own.delta < 1
    assert own.aged_delta(0.25) == own.delta * 0.25
    assert replace(own, delta=1e-200).aged_delta(1e-200) == 5e-324
    assert own.aged_delta(0.0) == 0
    assert replace(own, delta=0.0).aged_delta(0.5) == 0


@pytest.mark.parametrize("calibration", ["sharp", "tight"])
def test_guarantee_a_law_too_small_for_floats_is_given_the_noise_of_the_formula(calibration):
    """What such a law lost is not known: no row of it may be taken for what the client hides."""
    steep = aw.MarkovChain([[0, 1, 0], [0, 1 - 1e-200, 1e-200], [1e-200, 0, 1 - 1e-200]], [0, 1, 2])
    client = aw.Client("a", steep, samples=5)
    own, plain = (
        aw.slot_table(client, aw.Problem([client], 4, 0.3, estimator="plain", calibration=one))
        for one in (calibration, "formula")
    )
    lost = [slot for slot in range(1, 4) if steep.joint(slot, 4).underflowed]
    assert lost
    for slot in lost:
        assert own.scale[slot - 1] == plain.scale[slot - 1] > 0
