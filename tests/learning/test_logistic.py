"""Logistic regression over rounds: gradients, clip, steps, errors, and what is refused."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import expit

import agewise as aw
from agewise.learning import Progress, learner_of

X = np.array([[1.0, -2.0], [0.5, 3.0], [-1.0, 0.2], [2.0, 1.0]])
BINARY = aw.Logistic(X, [0, 1, 1, 0], clip=50.0, penalty=0.0)
THREE = aw.Logistic(X, ["a", "b", "c", "a"], clip=50.0, penalty=0.0)
STATES = np.arange(4.0)


def log_loss(learner, vector, state):
    """By hand: the log of one over the probability of a state's own label."""
    inputs = np.append(X[state], 1.0)
    scores = vector.reshape(-1, 3) @ inputs
    scores = np.append(0.0, scores) if len(scores) == 1 else scores
    place = learner.known.classes.index(learner.known.labels[state])
    return math.log(np.exp(scores).sum()) - scores[place]


@pytest.mark.parametrize("learner", [BINARY, THREE], ids=["binary", "softmax"])
def test_rows_are_the_gradients_of_the_log_loss(learner):
    at = np.random.default_rng(1).normal(size=learner.table(STATES).shape[1])
    rows = learner.gradients(at)
    for state, k in itertools.product(range(4), range(at.size)):
        step = np.eye(at.size)[k] * 1e-6
        slope = log_loss(learner, at + step, state) - log_loss(learner, at - step, state)
        assert rows[state, k] == pytest.approx(slope / 2e-6, abs=1e-7)
    assert np.array_equal(learner.clipped(at), rows)


@pytest.mark.parametrize("labels", [[0, 1, 1, 0], ["a", "b", "c", "a"]], ids=["binary", "softmax"])
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("clip", [0.7, 100.0])
def test_guarantee_no_two_rows_are_further_apart_than_the_reach(labels, norm, clip):
    """Whatever a server sends: small, large and absurd coefficients."""
    rng, learner = np.random.default_rng(2), aw.Logistic(X, labels, clip=clip, norm=norm)
    width, worst = learner.table(STATES).shape[1], {1: 0.0, 2: 0.0}
    sizes = [*np.repeat(10.0 ** np.arange(-2, 4), 80), 1e50, 1e100]
    for size in sizes:
        rows = learner.clipped(size * np.clip(rng.normal(size=width), -1, 1))
        assert np.isfinite(rows).all()
        assert (np.linalg.norm(rows, norm, axis=1) <= clip * (1 + 1e-12)).all()
        for of in (1, 2):
            apart = np.linalg.norm(rows[:, None] - rows, of, axis=2).max()
            worst[of] = max(worst[of], float(apart))
    for of in (1, 2):
        assert worst[of] <= learner.reach(of)
    if clip == 0.7:
        assert worst[norm] > 0.8 * learner.reach(norm)
        assert learner.reach(norm) == pytest.approx(1.4, rel=1e-9)


def test_a_step_is_against_the_gradient_and_iterates_are_averaged():
    learner = aw.Logistic(X, [0, 1, 1, 0], rate=0.5, penalty=0.1, coefficients=[1.0, 0.0, -1.0])
    first = learner.step([0.2, 0.4, 0.0])
    one = np.array([1 - 0.5 * (0.2 + 0.1), -0.5 * 0.4, -1 + 0.5 * 0.1])
    assert np.allclose(first.current, one)
    assert np.allclose(first.model.vector, one)
    second = first.step([0.0, 0.0, 1.0])
    two = one - 0.5 / math.sqrt(2) * (np.array([0, 0, 1.0]) + 0.1 * one)
    assert np.allclose(second.current, two)
    assert np.allclose(second.model.vector, (one + 2 * two) / 3)
    assert second.model.rounds == 2
    assert learner.model.vector == (1.0, 0.0, -1.0)
    assert learner.decode(np.array([0.2, 0.4, 0.0]), STATES) == first.model
    assert (learner.model.rounds, first.model.standard_error) == (0, 0.0)
    free = aw.Logistic(X, [0, 1, 1, 0], rate=1.0, penalty=0, coefficients=[1.0, 2.0, 3.0])
    assert np.allclose(free.step([0.0, 0.0, 0.0]).current, [1.0, 2.0, 3.0])


def test_default_steps_train_a_model_that_is_as_good_as_the_optimum():
    """Without noise, against a minimiser of the same loss from scipy."""
    from scipy.optimize import minimize

    share = np.array([0.4, 0.3, 0.1, 0.2])
    learner = aw.Logistic(X, [0, 1, 1, 0], clip=50.0)

    def loss(vector):
        own = sum(p * log_loss(learner, vector, s) for s, p in enumerate(share))
        return own + 0.005 * np.square(vector).sum()

    best = minimize(loss, np.zeros(3), tol=1e-10).fun
    for _ in range(300):
        learner = learner.step(share @ learner.table(STATES))
    assert best <= loss(np.array(learner.model.vector)) <= best + 0.02


def test_standard_errors_are_what_noise_makes_of_the_coefficients():
    """Constant gradients: noise through steps and averages, by drawing it."""
    rng, ends = np.random.default_rng(3), []
    start = aw.Logistic(X, [0, 1, 1, 0], rate=0.7, penalty=0.3)
    for _ in range(2000):
        learner = start
        for scale in (0.5, 1.0, 2.0, 0.1):
            learner = learner.step(rng.normal(0, scale, 3), scale**2)
        ends.append(learner.model.vector)
    spread = np.std(ends)
    assert learner.model.standard_error == pytest.approx(spread, rel=0.05)
    assert (learner.model.standard_errors == learner.model.standard_error).all()


def test_a_model_predicts():
    learner = aw.Logistic(X, ["no", "yes", "yes", "no"], names=["size", "age"])
    model = learner.step([0.5, -1.0, 0.25]).model
    rate = learner.usual_rate
    assert rate == pytest.approx(16 / (0.25 + 9 + 1))
    assert np.allclose(model.coefficients, [-0.5 * rate, rate])
    assert model.intercept == pytest.approx(-0.25 * rate)
    chance = model.predict_probability(X)
    yes = expit(X @ model.coefficients + model.intercept)
    assert np.allclose(chance, np.stack([1 - yes, yes], axis=1))
    assert model.predict(X).tolist() == np.where(yes > 0.5, "yes", "no").tolist()
    labels = ["no", "yes", "yes", "no"]
    want = -np.log(np.where(np.array(labels) == "yes", yes, 1 - yes)).mean()
    assert model.loss(X, labels) == pytest.approx(want)
    assert model.accuracy(X, labels) == np.mean((yes > 0.5) == (np.array(labels) == "yes"))
    assert model.to_dict()["names"] == ["size", "age"]
    three = THREE.step(np.arange(9.0)).model
    assert three.coefficients.shape == (3, 2)
    assert three.intercept.shape == (3,)
    assert np.allclose(three.predict_probability(X).sum(axis=1), 1)
    assert THREE.labels(STATES)[:3] == ["a: x1", "a: x2", "a: intercept"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"labels": [1, 1, 1, 1]}, "labels is 1.0 only; allowed: 2 classes or more"),
        ({"labels": [1, 0]}, "4 labels"),
        ({"labels": [0, 1, math.nan, 0]}, "labels"),
        ({"features": [[1.0, 5], [2, 5], [3, 5], [4, 5]]}, "5 in every state"),
        ({"features": [[math.nan, 1], [1, 2], [3, 4], [5, 6]]}, "features"),
        ({"clip": 0.0}, "clip is 0"),
        ({"clip": math.inf}, "clip is inf"),
        ({"rate": -1.0}, "rate is -1"),
        ({"penalty": -1.0}, "penalty is -1"),
        ({"norm": 3}, "norm is 3; allowed: 1 or 2"),
        ({"coefficients": [1.0, math.nan, 0.0]}, "coefficients"),
        ({"coefficients": [1.0, 0.0]}, "coefficients is 2 numbers; allowed: 3 finite numbers"),
        ({"coefficients": [1.0, 0.0, 1e101]}, r"up to 1e\+100"),
        ({"names": ["x"]}, "names"),
    ],
)
def test_bad_input_is_refused(changes, words):
    given = {"features": X, "labels": [0, 1, 1, 0], **changes}
    with pytest.raises(aw.InvalidInput, match=words):
        aw.Logistic(**given)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"coefficients": [1.0, math.inf, 0.0]}, "progress.coefficients"),
        ({"coefficients": [1.0, 0.0]}, "progress.coefficients is 2 numbers"),
        ({"average": [1e300, 0.0, 0.0]}, "progress.average"),
        ({"rounds": 0}, "progress.rounds is 0"),
        ({"spread": [1.0, 2.0]}, "progress.spread is 2 numbers"),
        ({"spread": [math.nan, 2.0, 1.0]}, "progress.spread"),
        ({"more": 1}, "progress.more is not a known key; allowed: coefficients, average, rounds"),
    ],
)
def test_a_state_of_training_that_makes_no_sense_is_refused(told, words):
    good = aw.Logistic(X, [0, 1, 1, 0]).step([0.1, 0.2, 0.3]).to_dict()
    with pytest.raises(aw.InvalidInput, match=words):
        learner_of({**good, "progress": {**good["progress"], **told}})


def test_what_a_model_is_asked_must_fit():
    model = BINARY.step([0.1, 0.2, 0.3]).model
    with pytest.raises(aw.InvalidInput, match="2 columns, one per feature"):
        model.predict([[1.0, 2.0, 3.0]])
    with pytest.raises(aw.InvalidInput, match=r"labels\[1\] is 7"):
        model.loss(X[:2], [0, 7])
    with pytest.raises(aw.InvalidInput, match="1 labels; allowed: 2"):
        model.accuracy(X[:2], [0])
    with pytest.raises(aw.InvalidInput, match="aggregate is 2 numbers"):
        BINARY.step([0.1, 0.2])
    with pytest.raises(aw.InvalidInput, match="4 rows; allowed: 3 rows"):
        BINARY.table(np.arange(3.0))
    with pytest.raises(aw.InvalidInput, match=r"learner\.labels is missing"):
        learner_of({"kind": "logistic", "features": [[1.0], [2.0]]})


def test_a_huge_step_stays_finite():
    far = BINARY.step([1e200, -1e300, 0.0])
    assert np.abs(far.current).max() == 1e100
    assert np.isfinite(far.table(STATES)).all()
    assert isinstance(far.progress, Progress)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"estimator": "best"}, "plain or propagated"),
        ({"level": aw.Level(loading=1.0, correlation=0.5)}, "level is given with a logistic"),
        ({"promise": "every_moment", "mechanism": "gaussian", "delta": 1e-6}, "present"),
        ({"rounds": None, "mechanism": "gaussian", "delta": 1e-6}, "rounds is without an end"),
    ],
)
def test_choices_that_training_does_not_know_are_refused(changes, words):
    chain = aw.birth_death(0.3, 0.3, [1, 2, 3, 4])
    problem = aw.Problem(
        [aw.Client("c", chain)], 4, 0.5, estimator="plain", learner=BINARY, rounds=3, every=4
    )
    with pytest.raises(aw.InvalidInput, match=words):
        problem.replace(**changes)
