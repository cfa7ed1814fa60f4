"""Ridge regression on records as they are: the classical guarantee, and what it rests on."""

import itertools
import math

import numpy as np
import pytest
from examples.central.ridge import fit_ridge, record_reach

import agewise as aw
from agewise.learning.ridge_model import EMPHASIS, entries
from agewise.privacy import Gaussian, Laplace


def far_records(rng, width):
    """Rows of length 1 in all directions, and labels at both ends."""
    rows = rng.normal(size=(60, width)) * (rng.random((60, width)) < rng.random())
    rows = np.sign(rows) if rng.random() < 0.5 else rows
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return rows, np.sign(rng.normal(size=60))


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("width", [1, 2, 3, 10])
def test_guarantee_no_two_records_are_further_apart_than_the_reach(norm, width):
    rng, worst = np.random.default_rng(6), 0.0
    for _ in range(200):
        told = entries(*far_records(rng, width))
        apart = np.linalg.norm(told[:, None] - told, ord=norm, axis=2)
        worst = max(worst, float(apart.max()))
    assert 0.75 * record_reach(width, norm) < worst <= record_reach(width, norm)


def furthest(width, norm):
    """The bound in closed form, by the product c of two rows of length 1; labels −1 or 1."""
    c = np.linspace(-1, 1, 200_001)
    apart, together = np.sqrt(2 - 2 * c), np.sqrt(2 + 2 * c)
    if norm == 2:
        same = (2 + EMPHASIS**2) * apart**2 + 2 - 2 * c**2
        other = 2 * apart**2 + 2 - 2 * c**2 + EMPHASIS**2 * (4 + together**2)
        return math.sqrt(max(same.max(), other.max()))
    squares = math.sqrt(width * (width + 1) / 2) * np.sqrt(2 - 2 * c**2)
    root = math.sqrt(width)
    same = (math.sqrt(2) + EMPHASIS) * root * apart + squares
    other = math.sqrt(2) * root * apart + squares + EMPHASIS * (2 + root * together)
    return max(same.max(), other.max())


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("width", [1, 2, 4, 10, 30, 200])
def test_guarantee_the_reach_is_the_closed_form_on_the_safe_side(norm, width, monkeypatch):
    wanted = furthest(width, norm)
    assert wanted <= record_reach(width, norm) <= 1.001 * wanted
    for angles in (2, 3, 5, 8):  # whatever lies between the angles that are tried
        monkeypatch.setattr("examples.central.ridge.ANGLES", angles)
        assert record_reach(width, norm) >= wanted


@pytest.mark.parametrize(
    ("draws", "off"), [(400, 0.15), pytest.param(1500, 0.1, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("delta", [None, 1e-6])
def test_the_errors_of_a_fit_to_records_are_those_of_many_draws(delta, draws, off):
    rng = np.random.default_rng(9)
    rows = rng.uniform(-1, 1, (3000, 1))
    labels = 0.5 * rows[:, 0]
    models = [
        fit_ridge(
            rows, labels, bounds=(-1, 1), label_bounds=(-1, 1), epsilon=3, delta=delta, rng=rng
        )
        for _ in range(draws)
    ]
    spread = np.std([[m.intercept, *m.coefficients] for m in models], axis=0)
    told = np.mean([[m.intercept_error, *m.standard_errors] for m in models], axis=0)
    np.testing.assert_allclose(told, spread, rtol=off)


@pytest.mark.parametrize("delta", [None, 1e-6])
def test_guarantee_whatever_a_record_says_the_sums_move_by_the_sensitivity_at_most(
    delta, monkeypatch
):
    """The value and the sensitivity as the mechanism gets them."""
    seen = []

    def draw(self, value, *, sensitivity, scale, failure=0.0):
        seen.append((value, sensitivity, scale))
        return self.imitate(value, scale=0.0, rng=np.random.default_rng(0))

    monkeypatch.setattr(Laplace if delta is None else Gaussian, "draw", draw)
    rng = np.random.default_rng(7)
    rows, labels = rng.uniform(-1, 1, (6, 3)), rng.uniform(-1, 1, 6)
    for other in itertools.product([-1e12, 0.0, 1e12], repeat=4):
        changed, moved = rows.copy(), labels.copy()
        changed[0], moved[0] = other[:3], other[3]
        for one, label in ((rows, labels), (changed, moved)):
            fit_ridge(one, label, bounds=(-1, 1), label_bounds=(-1, 1), epsilon=0.5, delta=delta)
        (before, reach, scale), (after, _, _) = seen[-2:]
        assert np.linalg.norm(after - before, 1 if delta is None else 2) <= reach
        assert reach <= record_reach(3, 1 if delta is None else 2) / 6 * (1 + 1e-9)
        assert delta is not None or scale >= reach / 0.5
    assert len(seen) == 2 * 81


def test_a_fit_to_records_finds_the_line():
    rng = np.random.default_rng(8)
    rows = rng.uniform([0, -5], [10, 5], (20_000, 2))
    labels = 3 * rows[:, 0] - rows[:, 1] + 5 + rng.normal(0, 1, 20_000)
    model = fit_ridge(
        rows, labels, bounds=([0, -5], [10, 5]), label_bounds=(-10, 50), epsilon=1, rng=rng
    )
    np.testing.assert_allclose(model.coefficients, [3, -1], atol=0.3)
    assert model.loss(rows, labels) < 2
    private = fit_ridge(
        rows, labels, bounds=([0, -5], [10, 5]), label_bounds=(-10, 50), epsilon=1, delta=1e-6
    )
    assert private.loss(rows, labels) < 2


def test_a_fit_to_few_records_says_that_noise_drowns_them():
    model = fit_ridge(
        [1.0, 2.0, 3.0], [1.0, 2.0, 3.0], bounds=(0, 4), label_bounds=(0, 4), epsilon=0.01
    )
    assert "drowns the statistics" in model.note
    assert ((model.predict([0.0, 4.0]) >= 0) & (model.predict([0.0, 4.0]) <= 4)).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bounds": (1, 1)}, "bounds is .*the least below the largest"),
        ({"bounds": 3}, "bounds is 3"),
        ({"bounds": ([0, 0, 0], 1)}, "bounds is"),
        ({"bounds": (0, math.inf)}, "bounds is inf"),
        ({"label_bounds": (5, 2)}, "label_bounds is"),
        ({"epsilon": 0}, "epsilon is 0"),
        ({"delta": 0}, "delta is 0"),
        ({"penalty": -1}, "penalty is -1"),
        ({"features": [[1.0, math.nan], [1, 2]]}, r"features\[0, 1\] is nan"),
        ({"labels": [1.0, 2.0, 3.0]}, "labels is of shape"),
        ({"labels": ["a", "b"]}, "labels is"),
        ({"names": ["a"]}, "2 different words"),
    ],
)
def test_bad_records_and_bounds_are_refused(changes, words):
    given = {"features": [[1.0, 2.0], [3.0, 4.0]], "labels": [1.0, 2.0], "bounds": (0, 5)}
    given |= {"label_bounds": (0, 5), "epsilon": 1.0} | changes
    with pytest.raises(aw.InvalidInput, match=words):
        fit_ridge(given.pop("features"), given.pop("labels"), **given)
