"""Logistic regression on records as they are: the classical guarantee, and what it rests on."""

import math

import numpy as np
import pytest
from examples.central.logistic import fit_logistic

import agewise as aw
from agewise.privacy import Gaussian, Laplace, Noised

MECHANISMS = {"laplace": Laplace(), "gaussian": Gaussian()}

RNG = np.random.default_rng(4)
X = RNG.normal(size=(300, 2)) * [1.0, 5.0]
Y = np.where(X[:, 0] + RNG.normal(size=300) > 0, "up", "down")
GIVEN = {"classes": ("down", "up"), "bound": 3.0, "epsilon": 1.0}


def released(monkeypatch, kind, x, y, **changes):
    """The means that would be noised, and what the noise was set for, with the noise left out."""
    seen = []

    def draw(_, value, *, sensitivity, scale, failure=0.0):
        seen.append((np.asarray(value), sensitivity, scale))
        return Noised(np.zeros_like(value), scale, 1.0, private=True, failure=failure)

    monkeypatch.setattr(type(MECHANISMS[kind]), "draw", draw)
    fit_logistic(x, y, **{**GIVEN, **changes})
    return seen


@pytest.mark.parametrize(("kind", "delta", "norm"), [("laplace", None, 1), ("gaussian", 1e-6, 2)])
def test_guarantee_no_record_moves_a_mean_by_more_than_the_sensitivity(
    monkeypatch, kind, delta, norm
):
    """At the first step; later ones clip the same way."""
    rng, worst = np.random.default_rng(5), 0.0
    for _ in range(40):
        other, flipped = X.copy(), Y.copy()
        other[0] = rng.normal(size=2) * 10.0 ** rng.integers(-2, 6)
        flipped[0] = "down" if Y[0] == "up" else "up"
        one = released(monkeypatch, kind, X, Y, delta=delta, rounds=1)
        two = released(monkeypatch, kind, other, flipped, delta=delta, rounds=1)
        (value, reach, scale), (moved, same, _) = one[0], two[0]
        assert same == reach
        worst = max(worst, float(np.linalg.norm(value - moved, norm)))
    assert 0.6 * reach < worst <= reach
    spent = MECHANISMS[kind].certified(reach, scale, delta or 0.0)
    assert 0.99 < spent <= 1.0


def test_guarantee_all_rounds_share_epsilon(monkeypatch):
    """Laplace by the sum; Gaussian by √rounds, which is how ρ adds up."""
    once = released(monkeypatch, "laplace", X, Y, rounds=1)[0]
    four = released(monkeypatch, "laplace", X, Y, rounds=4)
    assert len(four) == 4
    assert four[0][2] == pytest.approx(4 * once[2])
    once = released(monkeypatch, "gaussian", X, Y, rounds=1, delta=1e-6)[0]
    four = released(monkeypatch, "gaussian", X, Y, rounds=4, delta=1e-6)
    assert four[0][2] == pytest.approx(2 * once[2])
    fit = fit_logistic(X, Y, **GIVEN, rounds=7)
    assert fit.epsilon <= 1.0
    assert fit.epsilon == pytest.approx(1.0)


def test_the_noise_is_drawn_and_has_the_scale_that_is_told():
    """At an ε so small that the model is nothing but noise."""
    draws = []
    for _ in range(400):
        fit = fit_logistic(X, Y, **{**GIVEN, "epsilon": 1e-5}, rounds=1, rate=1.0)
        draws.extend(fit.model.vector)
    size = np.abs(draws).mean()
    assert size == pytest.approx(fit.scale, rel=6 / math.sqrt(len(draws)))
    assert fit.model.standard_error == pytest.approx(math.sqrt(2) * fit.scale)


def test_it_learns_and_more_epsilon_helps():
    losses = []
    for epsilon in (0.02, 50.0):
        fits = [fit_logistic(X, Y, **{**GIVEN, "epsilon": epsilon}).model for _ in range(10)]
        scaled = X * np.minimum(1, 3.0 / np.linalg.norm(X, axis=1))[:, None]
        losses.append(np.mean([fit.loss(scaled, Y) for fit in fits]))
    assert losses[1] < 0.65 < losses[0]


def test_usual_rounds_follow_from_public_numbers(monkeypatch):
    for epsilon, rounds in ((0.01, 1), (1.0, 10), (2.0, 20), (9.0, 30)):
        assert len(released(monkeypatch, "laplace", X, Y, epsilon=epsilon)) == rounds


def test_several_classes():
    labels = np.where(X[:, 1] > 2, "far", Y)
    fit = fit_logistic(X, labels, classes=("down", "far", "up"), bound=3.0, epsilon=20.0)
    assert fit.model.coefficients.shape == (3, 2)
    assert fit.model.accuracy(X, labels) > 0.5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"labels": np.where(Y == "up", "UP", Y)}, r"labels\[\d+\] is 'UP'; allowed: 'down', 'up'"),
        ({"labels": Y[:5]}, "300, one per record"),
        ({"features": np.where(X > 2, np.nan, X)}, "features"),
        ({"bound": 0.0}, "bound is 0"),
        ({"epsilon": -1.0}, "epsilon is -1"),
        ({"delta": 1.0}, "delta is 1"),
        ({"delta": 0.0}, "delta is 0"),
        ({"rounds": 0}, "rounds is 0"),
        ({"clip": math.nan}, "clip is nan"),
        ({"rate": 0.0}, "rate is 0"),
        ({"classes": ("up", "up")}, "2 or more, all different"),
        ({"classes": ("up",)}, "2 or more, all different"),
        ({"penalty": -1.0}, "penalty is -1"),
        ({"names": ["one"]}, "names"),
    ],
)
def test_bad_input_is_refused(changes, words):
    with pytest.raises(aw.InvalidInput, match=words):
        fit_logistic(**{"features": X, "labels": Y, **GIVEN, **changes})
