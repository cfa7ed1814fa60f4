"""Ridge regression by sums: the model, its loss, its errors, and what noise does to it."""

import itertools
import json
import math

import numpy as np
import pytest

import agewise as aw
from agewise.learning import Accuracy, RidgeModel
from agewise.learning.ridge_model import EMPHASIS, entries, unpack
from agewise.loss.estimator import accuracy_of

FEATURES = [[18.0, 0.0], [40.0, 2.0], [65.0, 1.0], [30.0, 3.0], [50.0, 0.5]]
LABELS = [200.0, 310.0, 290.0, 350.0, 240.0]
RIDGE = aw.Ridge(FEATURES, LABELS, penalty=0.02, names=("age", "rooms"))
STATES = np.arange(5.0)
CHAIN = aw.MarkovChain(np.full((5, 5), 0.06) + 0.7 * np.eye(5), STATES)
LAW = np.array([0.1, 0.3, 0.2, 0.25, 0.15])


def penalised(model, rows, labels, shares, learner=RIDGE):
    """The penalised mean squared error of a model, in units of labels, from records."""
    half = np.ptp(learner.known.rows, axis=0) / 2
    centred = (learner.known.rows - learner.known.rows.min(axis=0) - half) / half
    longest = np.linalg.norm(centred, axis=1).max()
    slopes = np.asarray(model.coefficients) * half * longest
    errors = model.intercept + np.asarray(rows) @ model.coefficients - labels
    return shares @ errors**2 + learner.penalty * (slopes**2).sum()


def exact(size=8):
    return Accuracy(np.zeros(size), np.zeros((size, size)))


def test_without_noise_the_model_is_the_ridge_regression_of_the_records():
    """Against least squares on the records themselves, penalty rows appended."""
    model = RIDGE.decode(LAW @ RIDGE.table(STATES), STATES, exact())
    half = np.ptp(FEATURES, axis=0) / 2
    middle = (np.max(FEATURES, axis=0) + np.min(FEATURES, axis=0)) / 2
    scaled = (np.asarray(FEATURES) - middle) / half
    longest = np.linalg.norm(scaled, axis=1).max()
    design = np.column_stack([np.ones(5), scaled / longest]) * np.sqrt(LAW)[:, None]
    extra = math.sqrt(RIDGE.penalty) * np.eye(3)[1:]
    # The intercept is not penalised about the middle of the labels, slopes are about 0.
    wanted = np.r_[(np.asarray(LABELS) - 275) * np.sqrt(LAW), 0, 0]
    found = np.linalg.lstsq(np.vstack([design, extra]), wanted, rcond=None)[0]
    slopes = found[1:] / (half * longest)
    np.testing.assert_allclose(model.coefficients, slopes, rtol=1e-9)
    assert model.intercept == pytest.approx(275 + found[0] - slopes @ middle)
    assert model.regularisation == RIDGE.penalty
    assert model.labels_within == (200.0, 350.0)
    assert model.note == ""
    assert model.standard_errors == (0.0, 0.0)
    assert RIDGE.decode(LAW @ RIDGE.table(STATES), STATES).standard_errors is None


@pytest.mark.parametrize("penalty", [1e-4, 0.3, 1.0, 4.0, 100.0])
def test_without_noise_nothing_is_lifted_though_features_repeat_each_other(penalty):
    twins = aw.Ridge([[0, 0], [1, 1], [2, 2]], [1, 5, 2], penalty=penalty)
    states = np.arange(3.0)
    for shares in np.vstack([np.eye(3), np.full(3, 1 / 3)]):
        model = twins.decode(shares @ twins.table(states), states)
        assert model.regularisation == twins.penalty


def test_entries_and_matrices_are_one_another():
    rows, labels = np.array([[0.5, -0.25], [0.1, 0.9]]), np.array([1.0, -0.5])
    moments, products = unpack(entries(rows, labels))
    for k in range(2):
        full = np.array([1.0, *rows[k]])
        np.testing.assert_allclose(moments[k], np.outer(full, full))
        np.testing.assert_allclose(products[k], full * labels[k])
    difference = entries(rows, labels)[0] - entries(rows, labels)[1]
    matrix, vector = unpack(difference, 0.0)
    apart = (matrix**2).sum() + EMPHASIS**2 * (vector**2).sum()
    assert (difference**2).sum() == pytest.approx(apart)  # lengths are those of the matrices
    assert len(RIDGE.labels(STATES)) == difference.size
    assert RIDGE.labels(STATES)[-3:] == ["y", "age·y", "rooms·y"]


def test_predictions_stay_within_the_labels_and_the_loss_is_their_mean_square():
    model = RidgeModel(("a",), (2.0,), 1.0, None, None, 0.1, (0.0, 10.0))
    assert model.predict([1.0, 4.0, 40.0, -9.0]).tolist() == [3.0, 9.0, 10.0, 0.0]
    assert model.loss([[1.0], [4.0]], [3.0, 5.0]) == 8.0
    with pytest.raises(aw.InvalidInput, match=r"features is of shape \(1, 2\)"):
        model.predict([[1.0, 2.0]])
    with pytest.raises(aw.InvalidInput, match=r"labels is of shape"):
        model.loss([[1.0]], [1.0, 2.0])
    assert "a 2" in repr(model)


# --- the loss that schedules are chosen by


def test_the_metric_is_the_excess_risk_of_small_errors():
    """At the reference itself: excess of the penalised mean squared error, by records."""
    learner = aw.Ridge(FEATURES, LABELS, penalty=0.02, reference=LAW)
    truth = LAW @ learner.table(STATES)
    best = learner.decode(truth, STATES)
    rng = np.random.default_rng(1)
    for _ in range(20):
        error = 1e-5 * rng.normal(size=truth.size)
        model = learner.decode(truth + error, STATES)
        excess = penalised(model, FEATURES, LABELS, LAW, learner) - penalised(
            best, FEATURES, LABELS, LAW, learner
        )
        assert excess == pytest.approx(np.square(learner.metric(STATES) @ error).sum(), rel=2e-3)


@pytest.mark.parametrize("estimator", ["plain", "propagated", "best"])
@pytest.mark.parametrize("noise", ["client", "server"])
def test_the_gap_is_the_simulated_one(estimator, noise):
    clients = [aw.Client(name, CHAIN, LAW, samples=30) for name in ("a", "b")]
    clients.append(aw.Client("c", aw.MarkovChain(np.full((5, 5), 0.2), STATES), samples=50))
    problem = aw.Problem(
        clients, 4, 2.0, learner=RIDGE, estimator=estimator, noise=noise, mixing="exact"
    )
    for ages in ([0, 2, 1], aw.plan(problem).ages):
        rough = aw.simulate_gap(problem, ages, 40_000, np.random.default_rng(2))
        assert abs(rough - aw.loss_gap(problem, ages)) < 4 * rough.standard_error


@pytest.mark.parametrize(("estimator", "ages"), [("propagated", [3, 2]), ("best", [0, 2])])
def test_the_gap_of_many_records_is_the_real_excess_risk(estimator, ages):
    """Records drawn, aged, noised and decoded; excess against the ridge of the fresh records."""
    learner = aw.Ridge(FEATURES, LABELS, penalty=0.02, reference=np.full(5, 0.2))
    clients = [aw.Client(name, CHAIN, samples=40_000) for name in ("a", "b")]
    problem = aw.Problem(clients, 4, 2.0, learner=learner, estimator=estimator)
    plan = aw.evaluate(problem, [4 - age for age in ages])
    rng, excesses = np.random.default_rng(3), []
    table = learner.table(STATES)
    gains = np.asarray(plan.gains).reshape(2, -1)
    for _ in range(1500):
        told, fresh = np.asarray(plan.offset, float), 0.0
        for k, client in enumerate(clients):
            kernel = CHAIN.kernel(4 - ages[k], 4)
            cells = rng.multinomial(client.samples, (0.2 * kernel).ravel()).reshape(5, 5)
            release = kernel @ table if estimator == "propagated" else table
            scale = plan.assignments[k].noise_scale
            mean = cells.sum(axis=1) / client.samples @ release
            told = told + gains[k] * (mean + rng.laplace(0, scale, mean.size))
            fresh = fresh + 0.5 * cells.sum(axis=0) / client.samples
        model, best = (learner.decode(one, STATES) for one in (told, fresh @ table))
        excesses.append(
            penalised(model, FEATURES, LABELS, fresh, learner)
            - penalised(best, FEATURES, LABELS, fresh, learner)
        )
    error = np.std(excesses) / math.sqrt(len(excesses))
    assert abs(np.mean(excesses) - plan.gap) < 4 * error
    assert error < 0.1 * plan.gap


def test_the_certified_schedule_is_the_best_of_all():
    clients = [aw.Client("a", CHAIN, samples=30), aw.Client("b", CHAIN, LAW, samples=60)]
    for estimator in ("plain", "propagated", "best"):
        problem = aw.Problem(clients, 4, 0.5, learner=RIDGE, estimator=estimator)
        best = min(aw.loss_gap(problem, ages) for ages in itertools.product(range(4), repeat=2))
        assert aw.plan(problem).gap == pytest.approx(best, rel=1e-9)


def test_with_the_best_estimate_no_schedule_loses_more_than_collecting_nothing():
    clients = [aw.Client("a", CHAIN, samples=30), aw.Client("b", CHAIN, samples=60)]
    problem = aw.Problem(clients, 4, 0.01, learner=RIDGE, estimator="best")
    plan, averaged = aw.plan(problem), aw.plan(problem.replace(estimator="propagated"))
    assert plan.gap <= plan.nothing_collected
    assert any("one gain" in note for note in plan.notes)
    assert averaged.nothing_collected == pytest.approx(plan.nothing_collected, rel=1e-9)
    assert averaged.classical_fresh == pytest.approx(plan.classical_fresh, rel=1e-9)


# --- what is known of its errors


@pytest.mark.parametrize("estimator", ["plain", "propagated", "best"])
def test_the_errors_of_an_aggregate_add_up_to_the_loss(estimator):
    clients = [aw.Client("a", CHAIN, LAW, samples=30), aw.Client("b", CHAIN, samples=60)]
    for noise in ("client", "server"):
        problem = aw.Problem(clients, 4, 0.5, learner=RIDGE, estimator=estimator, noise=noise)
        found = accuracy_of(problem, [2, 1])
        root = RIDGE.metric(STATES)
        total = np.trace(root @ found.error @ root.T)
        assert total == pytest.approx(aw.loss_gap(problem, [2, 1]), rel=1e-9)
        assert (found.noise <= np.diag(found.error) * (1 + 1e-9)).all()
        assert found.noise @ RIDGE.weights(STATES) == pytest.approx(
            aw.evaluate(problem, [2, 3]).noise_gap, rel=1e-9
        )


def test_standard_errors_are_those_of_many_draws():
    truth, scale = LAW @ RIDGE.table(STATES), 1e-3
    noise = np.full(truth.size, scale**2)
    accuracy = Accuracy(noise, np.diag(noise))
    rng = np.random.default_rng(4)
    models = [
        RIDGE.decode(truth + rng.normal(0, scale, truth.size), STATES, accuracy)
        for _ in range(4000)
    ]
    told = RIDGE.decode(truth, STATES, accuracy)
    spread = np.std([[m.intercept, *m.coefficients] for m in models], axis=0)
    np.testing.assert_allclose([told.intercept_error, *told.standard_errors], spread, rtol=0.06)


# --- regularisation


def drowned(level, seed=5):
    """The model of the reference with noise of a standard deviation on every sum."""
    truth = LAW @ RIDGE.table(STATES)
    noise = np.full(truth.size, level**2)
    noised = truth + np.random.default_rng(seed).normal(0, level, truth.size)
    return noised, RIDGE.decode(noised, STATES, Accuracy(noise, np.diag(noise)))


@pytest.mark.parametrize("level", [0.05, 0.3, 10.0, 1e6, 1e12])
def test_every_eigenvalue_is_lifted_to_what_noise_alone_gives(level):
    noised, model = drowned(level)
    moments, _ = unpack(noised)
    lift = model.regularisation - RIDGE.penalty
    matrix = moments + np.diag([0, 1, 1]) * RIDGE.penalty + lift * np.eye(3)
    # One row of the noise: an entry on the diagonal, two off it, which are half as loud squared.
    wanted = 2 * math.sqrt(level**2 * (1 + 2 / 2))
    assert np.linalg.eigvalsh(matrix)[0] >= wanted * (1 - 1e-9)
    assert lift == 0 or np.linalg.eigvalsh(matrix)[0] == pytest.approx(wanted)


@pytest.mark.parametrize("seed", range(5))
def test_drowned_statistics_give_a_stable_answer_and_a_word(seed):
    _, model = drowned(1e9, seed)
    assert "the noise drowns the statistics" in model.note
    half = np.ptp(FEATURES, axis=0) / 2 * math.sqrt(2)
    # |θ| ≤ |b|/level in scaled units, and b is noise of less than the level.
    assert (np.abs(model.coefficients) * half < 75 * 3).all()
    assert np.isfinite(model.standard_errors).all()
    assert ("note", model.note) in model.facts()


def test_some_directions_drown_before_others():
    notes = [drowned(level)[1].note for level in (1e-6, 0.15, 0.6)]
    assert notes[0] == ""
    assert "directions of the features" in notes[1]
    assert notes[2].startswith("the noise drowns the statistics: no feature")


# --- what everything else does with it


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_a_scenario_a_plan_a_run_and_its_check(tmp_path, mechanism):
    clients = [aw.Client(name, CHAIN, samples=500) for name in ("north", "south")]
    delta = 1e-6 if mechanism == "gaussian" else None
    problem = aw.Problem(clients, 4, 1.0, learner=RIDGE, mechanism=mechanism, delta=delta)
    path = tmp_path / "scenario.toml"
    path.write_text(aw.dump_scenario(problem), encoding="utf-8")
    assert aw.load_scenario(path) == problem
    plan = aw.plan(problem)
    again = aw.Plan.from_json(plan.to_json())
    assert (again.digest, again.gap) == (plan.digest, plan.gap)
    result = aw.run(plan, folder=tmp_path / "run")
    from agewise.federation import check_run

    assert not check_run(tmp_path / "run").differences
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["fitted"]["names"] == ["age", "rooms"]
    assert result.model.predict(FEATURES).shape == (5,)


@pytest.mark.parametrize("estimator", ["propagated", "best"])
def test_rounds_have_a_model_each(estimator):
    clients = [aw.Client(name, CHAIN, samples=500) for name in ("north", "south")]
    problem = aw.Problem(
        clients, 4, 1.0, learner=RIDGE, rounds=3, every=4, promise="present", estimator=estimator
    )
    result = aw.run_rounds(aw.plan(problem), np.random.default_rng(1))
    assert len(result.models) == 3
    assert all(isinstance(model, RidgeModel) for model in result.models)
    assert all(model.standard_errors is not None for model in result.models)
    assert result.mean_loss == pytest.approx(np.mean([r.realised_loss for r in result.rounds]))


# --- bad input


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"labels": ["a", "b", "c", "d", "e"]}, "labels is .*numbers, two different"),
        ({"labels": [1, 1, 1, 1, 1]}, r"labels is \[1.0\]; allowed: numbers, two different"),
        ({"penalty": 0}, "penalty is 0"),
        ({"penalty": math.nan}, "penalty is nan"),
        ({"reference": [0.5, 0.5]}, "reference is .*5 shares, one per state"),
        ({"reference": [1, 1, 1, 1, 1]}, "add up to 1"),
        ({"reference": [2, -1, 0, 0, 0]}, "add up to 1"),
        ({"features": [[1, 2]] * 5}, "feature 'x1' is 1 in every state"),
        ({"names": ["age"]}, "2 different words"),
    ],
)
def test_bad_learners_are_refused(changes, words):
    with pytest.raises(aw.InvalidInput, match=words):
        aw.Ridge(**{"features": FEATURES, "labels": LABELS, **changes})


def test_other_numbers_of_states_are_refused():
    with pytest.raises(aw.InvalidInput, match=r"learner\.features is 5 rows; allowed: 3 rows"):
        aw.Problem([aw.Client("c", aw.birth_death(0.1, 0.1, [1, 2, 3]))], 4, 1.0, learner=RIDGE)
