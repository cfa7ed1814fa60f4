import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

import agewise as aw
from agewise.privacy import Laplace
from agewise.privacy.calibration import tight_scales
from random_chains import random_chain, random_law


def loss_by_search(joint, release, samples, scale):
    """The aged loss of the Laplace mechanism on a dense grid of outputs, written afresh."""
    points = np.asarray(release, float) / samples
    spread = np.ptp(points) + scale
    outputs = np.concatenate(
        [points, np.linspace(points.min() - spread, points.max() + spread, 4001)]
    )
    exponent = -np.abs(outputs[:, None] - points[None, :]) / scale
    exponent -= exponent.max(axis=1, keepdims=True)
    likelihood = np.exp(exponent) @ joint.backward.T
    return float(np.log(likelihood.max(axis=1) / likelihood.min(axis=1)).max())


def loss_with_many_digits(joint, release, samples, scale):
    """The same at the released values, with 60 digits, from the joint law's floats."""
    with mpmath.workdps(60):
        columns = [[mpmath.mpf(p) for p in column] for column in joint.matrix.T if column.any()]
        rows = [[p / mpmath.fsum(column) for p in column] for column in columns]
        points = [mpmath.mpf(float(v)) / samples for v in release]
        worst = mpmath.mpf(0)
        for output in points:
            weights = [mpmath.exp(-abs(output - p) / mpmath.mpf(scale)) for p in points]
            seen = [mpmath.fdot(row, weights) for row in rows]
            worst = max(worst, mpmath.log(max(seen) / min(seen)))
        return worst


def cases(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        size, age = int(rng.integers(2, 5)), int(rng.integers(1, 6))
        chain = random_chain(rng, size)
        joint = chain.joint(1, 1 + age, random_law(rng, size) if rng.random() < 0.5 else None)
        release = chain.states if rng.random() < 0.5 else chain.steps(age) @ chain.states
        yield joint, release, int(rng.integers(1, 200)), float(np.exp(rng.uniform(-5, 1)))


def test_tight_scale_meets_the_target_and_wastes_nothing():
    noiseless = 0
    for joint, release, samples, epsilon in cases(150, seed=11):
        tight = aw.noise_scale(joint, release, samples, epsilon, "tight")
        formula = aw.noise_scale(joint, release, samples, epsilon)
        assert tight.scale <= formula.scale
        if tight.scale == 0:
            noiseless += 1
            back = joint.backward
            with np.errstate(divide="ignore", invalid="ignore"):
                assert np.nanmax(np.log(back.max(axis=0) / back.min(axis=0))) <= epsilon
            continue
        true = loss_by_search(joint, release, samples, tight.scale)
        assert true <= epsilon + 1e-10
        assert true >= epsilon - 1e-6
        assert loss_with_many_digits(joint, release, samples, tight.scale) <= epsilon
    assert 0 < noiseless < 100, "both kinds of case must occur"


def test_formula_scale_meets_the_target():
    for joint, release, samples, epsilon in cases(150, seed=12):
        noise = aw.noise_scale(joint, release, samples, epsilon)
        assert loss_with_many_digits(joint, release, samples, noise.scale) <= epsilon


def test_exact_evaluation_equals_the_search():
    for joint, release, samples, _ in cases(60, seed=13):
        for scale in (0.01, 0.3, 5.0):
            step = scale * np.ptp(release) / samples
            assert aw.aged_loss(joint, release, samples, step) == pytest.approx(
                loss_by_search(joint, release, samples, step), abs=1e-9
            )


def test_fresh_data_need_classical_noise(paper_chains):
    joint = paper_chains[0].joint(10, 10)
    for rule in ("formula", "tight"):
        noise = aw.noise_scale(joint, joint.states, 100, 0.1, rule)
        assert noise.scale == pytest.approx(18.0, rel=1e-9)
        assert noise.classical_epsilon == pytest.approx(0.1, rel=1e-9)


def test_scale_epsilon_and_sensitivity_fit_together(paper_chains):
    for age in range(1, 10):
        joint = paper_chains[2].joint(10 - age, 10)
        for rule in ("formula", "tight"):
            noise = aw.noise_scale(joint, joint.states, 100, 0.3, rule)
            assert noise.sensitivity / noise.classical_epsilon >= noise.scale
            assert noise.sensitivity == pytest.approx(1.8)


def test_a_law_that_rules_states_out_does_not_shrink_the_sensitivity(paper_chains):
    joint = paper_chains[0].joint(9, 10, [0.8, 0.2, 0, 0])
    assert aw.noise_scale(joint, joint.states, 100, 0.1).sensitivity >= 1.8


def test_delta_zero_needs_no_noise():
    chain = aw.MarkovChain([[0.3, 0.7], [0.3, 0.7]], [0, 1])
    noise = aw.noise_scale(chain.joint(1, 2), [0, 1], 10, 0.1, delta=aw.total_variation(chain, 1))
    assert noise.scale == 0
    assert noise.classical_epsilon == math.inf


def test_a_constant_release_spends_nothing():
    joint = aw.birth_death(0.1, 0.2, [1, 2]).joint(1, 2)
    noise = aw.noise_scale(joint, [0.0, 0.0], 10, 0.1)
    assert noise.scale < 1e-300
    assert aw.sensitivity([5, 5], 10) < 1e-14


def test_many_cells_at_once_equal_one_by_one(paper_chains):
    joints = [paper_chains[0].joint(10 - age, 10) for age in (2, 4, 8)]
    targets = np.array([0.05, 0.1, 0.4])
    single = [
        aw.noise_scale(j, j.states, 100, e, "tight").scale
        for j, e in zip(joints, targets, strict=True)
    ]
    ceilings = np.array(
        [aw.noise_scale(j, j.states, 100, e).scale for j, e in zip(joints, targets, strict=True)]
    )
    together = tight_scales(
        np.stack([j.backward for j in joints]),
        np.stack([j.states for j in joints]),
        np.full(3, 100),
        targets,
        ceilings,
        np.array([j.rounding for j in joints]),
    )
    np.testing.assert_allclose(together, single, rtol=1e-11)


def test_sensitivity_covers_the_rounding_of_the_mean(rng):
    from agewise.learning import average

    table = np.array([0.1, 0.7, 1e6 + 0.3])[:, None]
    states = np.array([0.1, 0.7, 1e6 + 0.3])
    for _ in range(200):
        records = rng.choice(states, 7)
        changed = records.copy()
        changed[rng.integers(7)] = rng.choice(states)
        moved = abs(average(records, states, table, 7)[0] - average(changed, states, table, 7)[0])
        assert moved <= aw.sensitivity(states, 7)


def test_sensitivity_covers_two_roundings_of_a_spread_of_a_few_ulps():
    low, high = 1.959613820328443, 1.9596138203284574
    means = [math.fsum([high] * k + [low] * (41 - k)) / 41 for k in range(42)]
    assert max(abs(b - a) for a, b in itertools.pairwise(means)) <= aw.sensitivity([low, high], 41)


@pytest.mark.parametrize("samples", [1, 3, 7, 49, 1000])
@pytest.mark.parametrize("states", [(0.0, 1.0), (-0.1, 0.2), (-7.0, 1e-3)])
def test_sensitivity_covers_means_of_any_make_up(states, samples):
    """In exact arithmetic: how far the rounded means of neighbouring data sets lie apart."""
    low, high = states
    means = [
        Fraction(math.fsum([high] * k + [low] * (samples - k)) / samples)
        for k in range(samples + 1)
    ]
    widest = max(abs(b - a) for a, b in itertools.pairwise(means))
    told = Fraction(aw.sensitivity(states, samples))
    assert widest <= told
    assert told <= Fraction(high - low) / samples + 10 * Fraction(math.ulp(max(-low, high)))


@pytest.mark.parametrize("rounding", [0.0, 0.01])
@pytest.mark.parametrize("epsilon", [0.3, 2.0, 20.0])
@pytest.mark.parametrize("values", [(0.0, 1.0, 3.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)])
def test_tight_noise_keeps_room_for_all_rounding_and_wastes_none(values, epsilon, rounding):
    """A law known up to a relative error r makes a loss that may be off by 4r. Ties do no harm."""
    joint = aw.birth_death(1e-9, 1e-9, [0, 1, 2]).joint(1, 2)
    ceiling = np.array([np.ptp(values) / (epsilon - 4 * rounding) * 1.01])
    scale = tight_scales(
        joint.backward[None],
        np.array([values]),
        np.array([1]),
        np.array([epsilon]),
        ceiling,
        np.array([rounding]),
    )[0]
    with mpmath.workdps(60):
        loss = loss_with_many_digits(joint, values, 1, float(scale))
        moved = 2 * mpmath.mpf(math.ulp(max(values))) / mpmath.mpf(float(scale))
        assert loss + moved <= mpmath.mpf(epsilon) - 4 * mpmath.mpf(rounding)
    assert loss >= epsilon - 4 * rounding - 1e-13 * epsilon
    assert aw.aged_loss(joint, values, 1, float(scale)) == pytest.approx(float(loss), rel=1e-14)


def test_loss_without_noise_is_that_of_the_released_value():
    joint = aw.JointLaw([[0.2, 0.1, 0.1], [0.1, 0.2, 0.1], [0.05, 0.05, 0.1]], [0, 1, 2])
    rows = joint.backward
    apart = np.log(rows.max(axis=0) / rows.min(axis=0)).max()
    assert aw.aged_loss(joint, [0, 1, 2], 4, 0.0) == pytest.approx(apart, rel=1e-14)
    merged = rows[:, 0] + rows[:, 1], rows[:, 2]  # two states of the same value
    apart = max(np.log(m.max() / m.min()) for m in merged)
    assert aw.aged_loss(joint, [1, 1, 2], 4, 0.0) == pytest.approx(apart, rel=1e-14)


def test_what_depends_on_no_record_spends_nothing_with_noise_or_without():
    np.testing.assert_array_equal(
        Laplace().spent(np.array([0.0, 0.0, 1.0]), np.array([0.0, 2.0, 0.0])), [0, 0, np.inf]
    )


@pytest.mark.parametrize(("base", "samples"), [(1.7e9, 10**7), (1.7e9, 10**6), (1e15, 1000)])
def test_tight_noise_covers_the_rounding_of_large_means(base, samples):
    """Where one record moves the rounded mean by more than its share, noise follows the mean."""
    states = np.array([base, base + 1])
    joint = aw.birth_death(0.01, 0.01, states).joint(1, 2)
    moved = float(np.spacing(base))  # one ulp of the mean
    noise = aw.noise_scale(joint, states, samples, 0.1, "tight")
    shifted = aw.JointLaw(joint.matrix, [0.0, moved])
    assert aw.aged_loss(shifted, [0.0, moved], 1, noise.scale) <= 0.1


def test_tight_noise_ends_where_numbers_do():
    joint = aw.birth_death(0.2, 0.2, [0, 1e-322]).joint(1, 2)
    assert aw.noise_scale(joint, [0, 1e-322], 1, 0.1, "tight").scale >= 0


def test_underflow_earns_no_credit_for_ageing():
    chain = aw.birth_death(1e-120, 0.5, np.arange(6.0))
    law = [0.5, 0.5, 0, 0, 0, 0]
    joint = chain.joint(1, 5, law)
    assert joint.underflowed
    for rule in ("formula", "tight"):
        noise = aw.noise_scale(joint, chain.states, 1, 0.1, rule)
        assert noise.classical_epsilon <= 0.1
    assert aw.aged_loss(joint, chain.states, 1, 50.0) == pytest.approx(0.1)
    problem = aw.Problem(
        [aw.Client("a", chain, law, 1)],
        5,
        0.1,
        mixing="own_law",
        estimator="plain",
        calibration="tight",
    )
    assert aw.slot_table(problem.clients[0], problem).classical_epsilon[0] <= 0.1


def test_tight_noise_on_an_offset_is_that_without_it():
    chain = aw.birth_death(0.2, 0.1, [0, 1, 3])
    for offset in (0.0, 1e6):
        moved = aw.MarkovChain(chain.transition, chain.states + offset)
        joint = moved.joint(1, 4)
        noise = aw.noise_scale(joint, moved.states, 50, 0.2, "tight")
        assert loss_with_many_digits(joint, moved.states, 50, noise.scale) <= 0.2


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda j: aw.noise_scale(j, [1, 2], 10, 0.1), r"shape \(4,\)"),
        (lambda j: aw.noise_scale(j, j.states, 0, 0.1), "samples is 0"),
        (lambda j: aw.noise_scale(j, j.states, 10, 0), "epsilon is 0"),
        (lambda j: aw.noise_scale(j, j.states, 10, math.nan), "epsilon is nan"),
        (lambda j: aw.noise_scale(j, j.states, 10, 0.1, "typo"), "calibration"),
        (lambda j: aw.noise_scale(j, j.states, 10, 0.1, "tight", 0.5), "none with tight"),
        (lambda j: aw.noise_scale(j, j.states, 10, 0.1, delta=2.0), "delta is 2.0"),
        (lambda j: aw.noise_scale(j, [1, 2, 3, math.inf], 10, 0.1), r"release\[3\] is inf"),
        (lambda j: aw.aged_loss(j, j.states, 10, -1.0), "scale is -1"),
    ],
)
def test_bad_input_is_refused_in_one_clear_message(paper_chains, call, words):
    with pytest.raises(aw.InvalidInput, match=words):
        call(paper_chains[0].joint(5, 10))
