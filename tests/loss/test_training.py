"""What noise and age cost a trained model: rehearsed tables against trainings drawn one by one."""

import numpy as np
import pytest
from scipy.special import expit

import agewise as aw
from agewise import evaluate
from agewise.loss.training import rehearsals

X = np.array([[-1.5], [-0.5], [0.5], [1.5]])
LABELS = [0, 1, 0, 1]
LEARNER = aw.Logistic(X, LABELS, clip=0.8, penalty=0.05)
CHAINS = [
    aw.MarkovChain(
        0.5 * np.eye(4) + 0.5 * np.random.default_rng(k).dirichlet(np.ones(4), 4), [0, 1, 2, 3]
    )
    for k in range(2)
]


def problem(**changes):
    clients = [aw.Client(str(k), one, samples=400 + 200 * k) for k, one in enumerate(CHAINS)]
    choices = {"estimator": "plain", "learner": LEARNER, "rounds": 5, "every": 4, **changes}
    return aw.Problem(clients, 4, 1.0, **choices)


def one_training(given, ages, scales, rng):
    """The model of noised and aged releases, and of the same records fresh and without noise."""
    told, fresh = given.learner, given.learner
    for _ in range(given.rounds):
        heard, now = 0.0, 0.0
        for client, weight, age, scale in zip(
            given.clients, given.weights, ages, scales, strict=True
        ):
            kernel = np.linalg.matrix_power(client.process.transition, age)
            joint = client.process.stationary[:, None] * kernel
            counts = rng.multinomial(client.samples, joint.ravel()).reshape(4, 4) / client.samples
            rows = told.table(np.arange(4.0))
            released = kernel @ rows if given.estimator == "propagated" else rows
            noise = rng.laplace(0, scale, 2)
            heard = heard + weight * (counts.sum(axis=1) @ released + noise)
            now = now + weight * (counts.sum(axis=0) @ fresh.table(np.arange(4.0)))
        told, fresh = told.step(heard), fresh.step(now)
    return np.array(told.model.vector), np.array(fresh.model.vector)


@pytest.mark.parametrize(
    ("estimator", "ages"), [("plain", [0, 0]), ("plain", [3, 1]), ("propagated", [3, 2])]
)
def test_the_gap_is_that_of_trainings_drawn_one_by_one(estimator, ages):
    given, rng = problem(estimator=estimator), np.random.default_rng(7)
    made = evaluate(given, [4 - age for age in ages])
    inputs = np.hstack([X, np.ones((4, 1))])
    law = sum(w * c.process.stationary for w, c in zip(given.weights, given.clients, strict=True))
    losses = []
    for _ in range(400):
        told, fresh = one_training(given, ages, made.noise_scales, rng)
        chance = expit(inputs @ fresh)
        curved = (inputs.T * (law * chance * (1 - chance))) @ inputs + 0.05 * np.eye(2)
        losses.append((told - fresh) @ curved @ (told - fresh) / 2)
    error = np.std(losses) / np.sqrt(len(losses))
    assert abs(np.mean(losses) - made.gap) < 4 * error + 0.05 * made.gap


def test_the_schedule_is_the_best_for_the_models_own_loss():
    given = problem(estimator="plain")
    made = aw.plan(given)
    every = [aw.loss_gap(given, [a, b]) for a in range(4) for b in range(4)]
    assert made.gap == pytest.approx(min(every))
    assert made.lower_bound <= min(every) * (1 + 1e-9)
    assert aw.Plan.from_json(made.to_json()) == made
    assert any("nats" in note and "standard error" in note for note in made.notes)


def test_tables_do_not_change_while_the_model_does():
    """One plan serves all rounds; another start is another training."""
    given = problem()
    made, further = aw.plan(given), LEARNER.step([0.3, -0.2]).step([0.1, 0.1])
    later = made.at(further)
    assert aw.Plan.from_json(later.to_json()) == later
    assert later.digest != made.digest
    assert aw.loss_gap(later.problem, made.ages) == made.gap
    assert rehearsals(later.problem) is rehearsals(given)
    started = problem(learner=aw.Logistic(X, LABELS, clip=0.8, coefficients=[2.0, -1.0]))
    assert rehearsals(started)[0].power != rehearsals(given)[0].power


def test_rivals_of_a_training():
    """Classical noise is that of ε/rounds each; nothing collected leaves the spread of the mean."""
    given = problem(estimator="propagated")
    made = aw.plan(given)
    power = np.mean([one.power for one in rehearsals(given)])
    reach = 2 * 0.8 / np.array([400, 600]) / (1.0 / 5)
    assert made.classical_fresh == pytest.approx(
        power * 2 * np.square(given.weights * reach).sum(), rel=1e-6
    )
    old = given.replace(aggregate_at=40, every=40)
    forgotten = evaluate(old, [1, 1])
    assert forgotten.gap == pytest.approx(forgotten.nothing_collected, rel=1e-3)
    once = aw.plan(problem(noise="server"))
    assert once.draw_scale is not None
    assert once.classical_fresh < aw.plan(problem()).classical_fresh
    assert 0 < once.noise_gap <= once.gap
