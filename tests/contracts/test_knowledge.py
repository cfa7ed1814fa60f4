"""What every kind of knowledge promises; one class per kind inherits it."""

from typing import ClassVar

import numpy as np
import pytest
from scipy.stats import norm

import agewise as aw
from agewise.knowledge import Independent, Level, Levels, Measured, measured_of
from agewise.loss.gap import nothing_collected
from agewise.loss.tables import all_moments, known_tables
from agewise.scenario import problem_from_dict, problem_to_dict
from random_knowledge import measured

STATES = [1.0, 4.0, 9.0]


def problem(**choices):
    rng = np.random.default_rng(4)
    clients = [
        aw.Client(name, aw.MarkovChain(rng.dirichlet(np.ones(3), 3), STATES), samples=20)
        for name in ("a", "b", "c")
    ]
    return aw.Problem(clients, 4, 0.5, **{"estimator": "best", **choices})


def shared_of(moments):
    """What factors say, whichever they are: covariances of reports, and with the target."""
    heard = moments.factors[:, 0]
    return np.column_stack([heard @ heard.T, heard @ moments.target_factors[0]])


class KnowledgeContract:
    choices: ClassVar = {}

    @pytest.fixture
    def known(self):
        return problem(**self.choices)

    def test_moments_are_covariances(self, known):
        """Own and shared parts together are a covariance matrix of target and releases."""
        for _, moments in all_moments(known):
            for slot in range(known.aggregate_at):
                for c in range(known.width):
                    own = np.array(
                        [
                            [moments.target_variance[slot, c], moments.covariance[slot, c]],
                            [moments.covariance[slot, c], moments.variance[slot, c]],
                        ]
                    )
                    assert np.linalg.eigvalsh(own)[0] >= -1e-12
        assert moments.factors.shape == (4, known.width, moments.target_factors.shape[-1])

    def test_guarantee_the_best_estimate_is_never_worse_than_nothing_collected(self, known):
        rng = np.random.default_rng(7)
        for _ in range(20):
            ages = rng.integers(0, 4, 3).tolist()
            tables = known_tables(known)
            assert tables.gains.clients == 3
            nothing = nothing_collected(known, ages)
            assert aw.loss_gap(known, ages) <= nothing * (1 + 1e-12)

    def test_it_is_subset_with_its_clients(self, known):
        kept = known.keep(known.clients[1:])
        assert [c.name for c in kept.clients] == ["b", "c"]
        whole, part = list(all_moments(known)), list(all_moments(kept))
        for (_, one), (_, other) in zip(whole[1:], part, strict=True):
            assert shared_of(one) == pytest.approx(shared_of(other))
            assert one.target_variance == pytest.approx(other.target_variance)

    def test_it_travels_with_the_scenario_and_the_plan(self, known):
        assert problem_from_dict(problem_to_dict(known)) == known
        plan = aw.plan(known)
        assert aw.Plan.from_json(plan.to_json()) == plan
        assert plan.gap <= plan.classical_fresh * (1 + 1e-12)
        assert any(known.known.words() in note for note in plan.notes)

    def test_equal_knowledge_is_one_key(self, known):
        again = problem(**self.choices)
        assert known.known == again.known
        assert hash(known) == hash(again)


class TestIndependent(KnowledgeContract):
    def test_kind(self, known):
        assert known.known == Independent()


class TestLevel(KnowledgeContract):
    choices: ClassVar = {"level": Level(2.0, 0.9)}

    def test_covariances_are_those_of_reports(self, known):
        """Steps cross borders at 2.5 and 6.5: sums of what both cross, over a grid of levels."""
        _, moments = next(iter(all_moments(known)))
        shared = moments.factors[:, 0] @ moments.factors[:, 0].T
        law = known.clients[0].law_at(1)
        level = 2.0 * norm.ppf((np.arange(100_000) + 0.5) / 100_000)
        read = np.array(STATES)[:, None] + level
        aged = law @ (1.0 + 3 * (read > 2.5) + 5 * (read > 6.5))
        assert shared[0, 0] == pytest.approx(aged.var(), rel=1e-3)
        assert shared[-1, -1] == pytest.approx((law @ np.clip(read, 1, 9)).var(), rel=1e-3)
        assert moments.target_factors[0] @ moments.target_factors[0] == pytest.approx(4.0)
        for slot, report in ((0, aged), (3, law @ np.clip(read, 1, 9))):
            with_now = moments.factors[slot, 0] @ moments.target_factors[0]
            kept = 0.9 ** (3 - slot)
            assert with_now == pytest.approx((report * level).mean() * kept, rel=1e-3)


class TestSeveralLevels(KnowledgeContract):
    choices: ClassVar = {
        "level": [Level([1.0, -2.0, 0.0], [1.0, 0.5, 0.25, 0.125]), Level(3.0, 1.0)]
    }

    def test_loadings_may_differ(self, known):
        assert isinstance(known.known, Levels)
        moments = [known for _, known in all_moments(known)]
        now = [moment.target_factors[0] for moment in moments]
        assert now[0] @ now[1] == pytest.approx(-2.0 + 9.0)
        assert now[2] @ now[2] == pytest.approx(9.0)
        rng = np.random.default_rng(5)
        half, whole = rng.standard_normal((2, 400_000))
        for loads, other, moved in ((0, 1, (1.0, -2.0)), (1, 2, (-2.0, 0.0))):
            fresh = [
                known.clients[i].law_at(4)
                @ np.clip(np.array(STATES)[:, None] + a * half + 3 * whole, 1, 9)
                for i, a in zip((loads, other), moved, strict=True)
            ]
            both = moments[loads].factors[3, 0] @ moments[other].factors[3, 0]
            assert both == pytest.approx(np.cov(*fresh)[0, 1], abs=0.05)


class TestMeasured(KnowledgeContract):
    choices: ClassVar = {"knowledge": measured(("a", "b", "c"), slots=4, states=3)}

    def test_it_knows_every_estimator_and_learner(self):
        assert isinstance(problem(**self.choices).known, Measured)
        for estimator in ("plain", "propagated", "best"):
            one = problem(**{**self.choices, "estimator": estimator, "learner": aw.Histogram()})
            assert aw.plan(one).gap > 0


BEST = {"estimator": "best"}


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"level": Level([1.0, 2.0], 0.9)}, "loading is 2 numbers; allowed: one number, or 3"),
        ({"level": Level(1.0, [1.0, 0.9])}, "correlation is 2 lags; allowed: one number, or 4"),
        ({"level": Level(1.0, [1.0, 0.99, 0.1, 0.0])}, "positive semi-definite"),
        ({"level": "high"}, "a Level"),
        ({"level": Level(1.0, 0.9), "estimator": "propagated"}, "best or plain"),
        ({"level": Level(1.0, 0.9), "learner": aw.Histogram()}, "but with the learner mean"),
        ({"objective": "bound"}, "objective is 'bound' with the server's knowledge"),
        ({"knowledge": measured(("a", "b", "x"), slots=4, states=3)}, "not in the problem: 'x'"),
        ({"knowledge": measured(("a", "b"), slots=4, states=3)}, "no word of: 'c'"),
        ({"knowledge": measured(("b", "a", "c"), slots=4, states=3)}, "another order"),
        ({"knowledge": measured(("a", "b", "c"), slots=5, states=3)}, "5 slots and 3 states"),
        ({"knowledge": measured(("a", "b", "c"), slots=4, states=2)}, "4 slots and 2 states"),
        ({"knowledge": "much"}, "measured knowledge, or none"),
        ({"knowledge": {"days": 3}}, "knowledge.kind is missing; allowed: one of measured"),
        (
            {"knowledge": measured(("a", "b", "c"), 4, 3), "level": Level(1.0, 0.9)},
            "given with measured knowledge",
        ),
    ],
)
def test_knowledge_that_does_not_fit_is_refused(choices, words):
    with pytest.raises(aw.InvalidInput, match=words):
        problem(**{**BEST, **choices})


@pytest.mark.parametrize(
    ("loading", "correlation", "words"),
    [
        (1.0, 1.2, "correlation is 1.2; allowed: from 0 to 1"),
        (1.0, -0.1, "correlation is -0.1"),
        (1.0, float("nan"), "correlation is nan"),
        (1.0, [0.9, 0.8], "starts with 1"),
        (1.0, [], "starts with 1"),
        (1.0, [1.0, 2.0], r"correlation\[1\] is 2.0"),
        (float("inf"), 0.9, "loading is inf"),
        ([[1.0]], 0.9, "loading is of shape"),
        ([], 0.9, "loading is empty"),
        ("20", 0.9, "loading is '20'; allowed: one number"),
        (True, 0.9, "loading is True; allowed: one number"),
        (1e101, 0.9, "loading is 1e\\+101; allowed: at most 1e\\+100"),
        (1.0, {0: 1.0}, "correlation is {0: 1.0}"),
    ],
)
def test_bad_levels_are_refused(loading, correlation, words):
    with pytest.raises(aw.InvalidInput, match=words):
        Level(loading, correlation)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"clients": 5}, "knowledge.clients is 5; allowed: a list of names"),
        ({"clients": [1, "b", "c"]}, "allowed: a list of names"),
        ({"clients": "abc"}, "allowed: a list of names"),
        ({"assumes": 5}, "knowledge.assumes is 5; allowed: one line of text"),
        ({"assumes": "two\nlines"}, "one line of text"),
    ],
)
def test_measured_knowledge_of_nobody_or_in_odd_words_is_refused(change, words):
    document = measured(("a", "b", "c"), slots=4, states=3).to_dict()
    with pytest.raises(aw.InvalidInput, match=words):
        measured_of({**document, **change})
