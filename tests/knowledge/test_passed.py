"""What a common level moves in reports, against sums over a fine grid of levels."""

import itertools

import numpy as np
import pytest
from scipy.stats import norm

from agewise.knowledge.passed import Report, covariances

WATT_HOURS = (20.0, 50.0, 100.0, 200.0)
MIXED = (7.0, -3.0, 1.0)  # states need not be in order


def plainly(report, readings):
    """What the report of a reading is, in so many words."""
    states = sorted(report.states)
    if report.fresh:
        return np.minimum(np.maximum(readings, states[0]), states[-1])
    shown = np.full(np.shape(readings), states[0])
    for below, above in itertools.pairwise(states):
        shown[readings > (below + above) / 2] = above
    return shown


def on_a_grid(one, other, correlation):
    """Covariances by own states, over a grid of two normal levels."""
    step = 1e-4 if abs(correlation) == 1 else 0.01
    first = np.arange(-6, 6, step)[:, None] + step / 2
    weight = norm.pdf(first[:, 0]) * step
    second = correlation * first
    if abs(correlation) < 1:
        second = second + np.sqrt(1 - correlation**2) * first.T
    inner = weight if abs(correlation) < 1 else np.ones(1)
    left = np.stack([plainly(one, own + one.spread * first[:, 0]) for own in one.states])
    left = left - (left @ weight)[:, None]
    right = [plainly(other, own + other.spread * second) @ inner for own in other.states]
    return left * weight @ np.stack(right, axis=1)


@pytest.mark.parametrize("correlation", [1.0, 0.98, 0.4, -0.7, -1.0])
@pytest.mark.parametrize("fresh", [(True, True), (True, False), (False, True), (False, False)])
def test_guarantee_covariances_are_those_of_reports_of_moved_readings(fresh, correlation):
    for states, others, spreads in (
        (WATT_HOURS, WATT_HOURS, (20.0, 20.0)),
        (MIXED, WATT_HOURS, (3.0, 60.0)),
    ):
        one, other = Report(states, fresh[0], spreads[0]), Report(others, fresh[1], spreads[1])
        wanted = on_a_grid(one, other, correlation)
        room = 2e-3 * spreads[0] * spreads[1]
        assert covariances(one, other, correlation) == pytest.approx(wanted, abs=room)
        assert np.abs(wanted).max() > 50 * room


@pytest.mark.parametrize("fresh", [True, False])
def test_means_and_slopes_are_those_of_a_grid(fresh):
    level = norm.ppf((np.arange(400_000) + 0.5) / 400_000)
    for states, spread in ((WATT_HOURS, 20.0), (MIXED, 3.0)):
        report = Report(states, fresh, spread)
        shown = plainly(report, np.array(states)[:, None] + spread * level)
        assert report.mean == pytest.approx(shown.mean(axis=1), abs=1e-3)
        assert report.slope == pytest.approx((shown * level).mean(axis=1), abs=1e-3)


def test_a_level_that_never_reaches_the_clip_passes_whole():
    report = Report((-1e6, 1e6), True, 5.0)
    middle = Report((-1e6, 0.0, 1e6), True, 5.0)
    assert covariances(middle, middle, 0.3)[1, 1] == pytest.approx(25 * 0.3, rel=1e-9)
    assert middle.slope[1] == pytest.approx(5.0, rel=1e-12)
    assert report.slope == pytest.approx([2.5, 2.5], rel=1e-9)  # half of it is cut off


def test_a_level_that_crosses_no_border_moves_no_aged_report():
    far = Report((0.0, 1000.0), False, 1.0)
    assert np.abs(covariances(far, far, 1.0)).max() == 0
    assert far.mean.tolist() == [0.0, 1000.0]


def test_without_a_level_reports_are_the_states():
    for fresh in (True, False):
        still = Report(WATT_HOURS, fresh, 0.0)
        assert still.mean.tolist() == list(WATT_HOURS)
        assert not still.slope.any()
        assert not covariances(still, Report(WATT_HOURS, True, 20.0), 1.0).any()


def test_which_report_comes_first_does_not_matter():
    one, other = Report(WATT_HOURS, True, 20.0), Report(WATT_HOURS, False, 13.0)
    for correlation in (0.999999, 0.98, -0.5):
        there = covariances(one, other, correlation)
        assert there == pytest.approx(covariances(other, one, correlation).T, abs=1e-9)
