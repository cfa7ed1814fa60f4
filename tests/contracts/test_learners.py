"""What every learner promises; one class per learner inherits it."""

import itertools
import math

import numpy as np
import pytest

import agewise as aw
from agewise.learning import average, learner_of, release_table, sensitivities
from agewise.loss.training import rehearsals

STATES = np.array([10.0, -4.0, 30.0, 31.0])


class LearnerContract:
    learner = None
    estimator = "best"

    def test_one_row_per_state_and_a_weight_per_coordinate(self):
        table = self.learner.table(STATES)
        assert table.shape[0] == STATES.size
        assert self.learner.weights(STATES).shape == table.shape[1:]
        assert len(self.learner.labels(STATES)) == table.shape[1]
        assert (self.learner.weights(STATES) >= 0).all()

    @pytest.mark.parametrize("norm", [1, 2])
    def test_guarantee_no_record_moves_the_mean_by_more_than_the_sensitivity(self, norm):
        rng = np.random.default_rng(3)
        chain = aw.MarkovChain(rng.dirichlet(np.ones(4), 4), STATES)
        for estimator in ("plain", "propagated"):
            release = release_table(self.learner, chain, 4, 7, estimator)
            reach = float(sensitivities(release, np.asarray(5), norm))
            worst = 0.0
            for _ in range(300):
                records = rng.normal(10, 40, 5)
                other = records.copy()
                other[0] = rng.choice([*STATES, 1e9, -1e9])
                moved = average(records, STATES, release, 5) - average(other, STATES, release, 5)
                worst = max(worst, float(np.linalg.norm(moved, norm)))
            assert 0.5 * reach < worst <= reach

    def test_it_travels_as_plain_data(self):
        assert learner_of(self.learner.to_dict()) == self.learner
        assert hash(learner_of(self.learner.to_dict())) == hash(self.learner)

    def noise_variance(self, mechanism, scale, samples):
        return {"laplace": 2.0, "gaussian": 1.0}[mechanism] * scale**2

    def test_the_gap_is_the_enumerated_one(self):
        """Every pair of states of every record of two clients, and noise by its variance."""
        rng = np.random.default_rng(5)
        chains = [aw.MarkovChain(rng.dirichlet(np.ones(3), 3), [1, 2, 5]) for _ in range(2)]
        learner = self.small()
        clients = [aw.Client(str(i), c, samples=2) for i, c in enumerate(chains)]
        for mechanism, delta in (("laplace", None), ("gaussian", 1e-5)):
            problem = aw.Problem(
                clients,
                4,
                0.7,
                estimator="plain",
                learner=learner,
                mechanism=mechanism,
                delta=delta,
            )
            ages = [2, 1]
            noise = [
                aw.slot_table(c, problem).scale[3 - a] for c, a in zip(clients, ages, strict=True)
            ]
            power = [self.noise_variance(mechanism, one, 2) for one in noise]
            want = enumerated_gap(problem, ages, power)
            assert aw.loss_gap(problem, ages) == pytest.approx(want, rel=1e-10)
            rough = aw.simulate_gap(problem, ages, 40_000, np.random.default_rng(2))
            assert abs(rough - want) < 4 * rough.standard_error
            plan = aw.plan(problem)
            best = min(aw.loss_gap(problem, a) for a in itertools.product(range(4), repeat=2))
            assert plan.gap == pytest.approx(best, rel=1e-9)
            assert plan.lower_bound <= best * (1 + 1e-9)

    def small(self):
        return self.learner

    @pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
    def test_a_run_gives_a_model_and_a_statement(self, mechanism):
        chain = aw.birth_death(0.2, 0.3, [1, 2, 5])
        clients = [aw.Client(name, chain, samples=40) for name in ("north", "south")]
        problem = aw.Problem(
            clients,
            4,
            0.5,
            estimator=self.estimator,
            learner=self.small(),
            mechanism=mechanism,
            delta=1e-5 if mechanism == "gaussian" else None,
        )
        plan = aw.plan(problem)
        result = aw.run(plan)
        assert result.private
        row = result.statement.clients[0]
        assert row.aged_epsilon <= 0.5 * (1 + 1e-9)
        assert (row.aged_delta > 0) == (mechanism == "gaussian")
        assert row.aged_delta <= 1e-5 * (1 + 1e-9)
        assert learner_words(self.small().kind) in result.statement.to_markdown()
        loss = aw.rehearse(plan, 200, np.random.default_rng(4))
        assert abs(loss - plan.gap) < 4 * loss.standard_error


def learner_words(kind):
    return {
        "mean": "the mean of the records",
        "histogram": "share of the records in each state",
        "statistics": "mean of a vector",
        "ridge": "mean products of features, and of features and label",
        "logistic": "mean of clipped gradients",
    }[kind]


def enumerated_gap(problem, ages, noise):
    """E‖Σ p (mean f(X) + noise − mean φ(Y))‖² by summing over all pairs of states."""
    learner, mean, spread = problem.learner, 0.0, 0.0
    for client, weight, age, power in zip(
        problem.clients, problem.weights, ages, noise, strict=True
    ):
        table = learner.table(client.process.states)
        counts = learner.weights(client.process.states)
        root = np.diag(np.sqrt(counts))
        if hasattr(learner, "metric"):
            root = learner.metric(client.process.states)
        joint = client.process.joint(1, 1 + age).matrix
        size = len(table)
        first = sum(
            joint[x, y] * (table[x] - table[y]) for x, y in itertools.product(range(size), repeat=2)
        )
        second = sum(
            joint[x, y] * (root @ (table[x] - table[y] - first)) ** 2
            for x, y in itertools.product(range(size), repeat=2)
        )
        mean = mean + weight * root @ first
        spread += weight**2 * (second.sum() / client.samples + counts.sum() * power)
    return spread + float(np.square(mean).sum())


class TestMean(LearnerContract):
    learner = aw.Mean()

    def test_the_model_is_a_number(self):
        assert self.learner.decode(np.array([3.5]), STATES) == 3.5


class TestHistogram(LearnerContract):
    learner = aw.Histogram()

    def noise_variance(self, mechanism, scale, samples):
        """Of whole numbers added to counts, by their chances."""
        if mechanism == "gaussian" or scale == 0:
            return scale**2
        noise = np.arange(-2000, 2001)
        chance = np.exp(-np.abs(noise) / (samples * scale))
        return (chance @ noise**2) / chance.sum() / samples**2

    def test_quantiles_are_decoded_from_the_shares(self):
        shares = self.learner.decode(np.array([0.3, 0.2, 0.45, 0.05]), STATES)
        assert shares.states == (-4.0, 10.0, 30.0, 31.0)
        assert shares.shares == (0.2, 0.3, 0.45, 0.05)
        assert [shares.quantile(p) for p in (0.1, 0.2, 0.5, 0.51, 1.0)] == [-4, -4, 10, 30, 31]
        noisy = self.learner.decode(np.array([-0.2, 0.1, 1.3, -0.1]), STATES)
        assert (np.diff(noisy.cumulative) >= 0).all()
        assert noisy.quantile(0.5) == 30
        with pytest.raises(aw.InvalidInput, match="probability"):
            shares.quantile(0)

    def test_clients_with_other_states_are_refused(self):
        chains = [aw.birth_death(0.2, 0.2, [1, 2, k]) for k in (3, 4)]
        clients = [aw.Client(str(i), c) for i, c in enumerate(chains)]
        with pytest.raises(aw.InvalidInput, match="the same states for every client"):
            aw.Problem(clients, 4, 0.5, learner=aw.Histogram())


class TestStatistics(LearnerContract):
    learner = aw.Statistics([[1.0, 0], [0, -2], [3, 0.5], [1, 1]], counts=[1.0, 4.0])

    def small(self):
        return aw.Statistics([[1.0, 0], [0, -2], [3, 0.5]], counts=[1.0, 4.0], names=("a", "b"))

    @pytest.mark.parametrize(
        ("table", "words"),
        [
            ([[1.0, math.nan]], "table"),
            ([], "table is empty"),
            ([[1.0], [1.0, 2.0]], "rows of one length"),
            ([[1e200, 0]], "up to 1e"),
            (["a"], "table"),
        ],
    )
    def test_bad_tables_are_refused(self, table, words):
        with pytest.raises(aw.InvalidInput, match=words):
            aw.Statistics(table)

    def test_a_table_of_another_length_is_refused_by_the_problem(self):
        client = aw.Client("c", aw.birth_death(0.2, 0.2, [1, 2, 3, 4]))
        with pytest.raises(aw.InvalidInput, match="4 rows, one per state"):
            aw.Problem([client], 4, 0.5, learner=self.small())


class TestRidge(LearnerContract):
    learner = aw.Ridge(
        [[1.0, 0], [0, -2], [3, 0.5], [1, 1]], [10, 20, 15, 30], penalty=0.01, names=("a", "b")
    )

    def small(self):
        return aw.Ridge([[1.0], [2], [4]], [10, 20, 15], reference=[0.5, 0.25, 0.25])

    def test_weights_are_the_diagonal_of_the_metric(self):
        root = self.learner.metric(STATES)
        np.testing.assert_allclose(self.learner.weights(STATES), np.diag(root.T @ root))


class TestLogistic(LearnerContract):
    """Binary; its gap is the log loss of a rehearsed training, of which one round is enumerated."""

    learner = aw.Logistic([[1.0], [2.0], [-1.0], [0.5]], [0, 1, 0, 1], clip=0.8, rate=2.0)
    estimator = "propagated"

    def small(self):
        return aw.Logistic([[1.0, 0.0], [2.0, 1.0], [-1.0, 0.3]], ["a", "b", "a"])

    def test_it_travels_as_plain_data_while_it_is_trained(self):
        further = self.learner.step([0.3, -0.1], 0.5).step([0.2, 0.4], 0.25)
        assert learner_of(further.to_dict()) == further
        assert further.untrained() == self.learner != further

    def test_the_gap_is_the_enumerated_one(self):
        """With one round, rehearsals differ in their metric only."""
        rng = np.random.default_rng(5)
        chains = [aw.MarkovChain(rng.dirichlet(np.ones(3), 3), [1, 2, 5]) for _ in range(2)]
        clients = [aw.Client(str(i), c, samples=2) for i, c in enumerate(chains)]
        for mechanism, delta in (("laplace", None), ("gaussian", 1e-5)):
            problem = aw.Problem(
                clients,
                4,
                0.7,
                estimator="plain",
                learner=self.small(),
                mechanism=mechanism,
                delta=delta,
            )
            ages, table = [2, 1], self.small().table(np.arange(3.0))
            noise = [
                aw.slot_table(c, problem).scale[3 - a] for c, a in zip(clients, ages, strict=True)
            ]
            want = []
            for one in rehearsals(problem):
                told = aw.Statistics(table @ one.first.T)
                own = problem.replace(learner=told)
                ratio = np.square(one.first).sum() / len(one.first)  # noise on so many coordinates
                scales = np.array(noise) * np.sqrt(ratio)
                power = [self.noise_variance(mechanism, scale, 2) for scale in scales]
                want.append(enumerated_gap(own, ages, power))
            assert aw.loss_gap(problem, ages) == pytest.approx(np.mean(want), rel=1e-9)
            plan = aw.plan(problem)
            best = min(aw.loss_gap(problem, a) for a in itertools.product(range(4), repeat=2))
            assert plan.gap == pytest.approx(best, rel=1e-9)
            assert plan.lower_bound <= best * (1 + 1e-9)


class TestSoftmax(TestLogistic):
    """Three classes: six coefficients."""

    learner = aw.Logistic([[1.0], [2.0], [-1.0], [0.5]], ["x", "y", "z", "y"], clip=0.9, norm=2)

    def small(self):
        return aw.Logistic([[1.0], [2.0], [-1.0]], [3, 1, 2], norm=2)

    def test_it_travels_as_plain_data_while_it_is_trained(self):
        further = self.learner.step(np.linspace(-1, 1, 6), 0.5)
        assert learner_of(further.to_dict()) == further
        assert further.untrained() == self.learner != further


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"kind": "median"}, "one of mean, histogram, statistics, ridge, logistic"),
        ({"kind": "statistics"}, "table is missing"),
        ({"kind": "mean", "clip": 3}, "not a known key"),
        ({}, "one of mean, histogram, statistics, ridge, logistic"),
        ({"kind": "ridge", "features": [[0], [1]]}, "labels is missing"),
    ],
)
def test_unknown_learners_are_refused(entry, words):
    with pytest.raises(aw.InvalidInput, match=words):
        learner_of(entry)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mechanism": "gaussian"}, "delta is missing"),
        ({"mechanism": "gaussian", "delta": 1.0}, "delta is 1.0"),
        ({"delta": 1e-6}, "none with Laplace noise"),
        ({"mechanism": "gaussian", "delta": 1e-6, "calibration": "tight"}, "'tight' with Gaussian"),
        ({"learner": aw.Histogram(), "calibration": "tight"}, "'tight' with a histogram"),
        ({"learner": aw.Histogram(), "objective": "bound"}, "Theorem 1"),
        ({"mechanism": "exponential"}, "mechanism is 'exponential'"),
    ],
)
def test_combinations_that_make_no_sense_are_refused(changes, words):
    with pytest.raises(aw.InvalidInput, match=words):
        aw.scenarios.slow_and_fast().replace(**changes)
