"""What a finished run shows of itself."""

import numpy as np
import pytest

import agewise as aw


@pytest.fixture(scope="module")
def results():
    chain = aw.birth_death(0.2, 0.3, [1, 2, 5])
    clients = [aw.Client(f"<b>client</b> {i}", chain, samples=20) for i in range(3)]
    problem = aw.Problem(clients, 4, 0.5, unit="Wh")
    learners = (
        aw.Mean(),
        aw.Histogram(),
        aw.Statistics([[1.0, 2], [0, 1], [3, 3]]),
        aw.Ridge([[1.0, 2], [0, 1], [3, 3]], [4, 5, 9], names=("<b>age</b>", "size")),
    )
    return {
        one.kind: aw.run(aw.plan(problem.replace(learner=one)), rng=np.random.default_rng(1))
        for one in learners
    }


@pytest.mark.parametrize("kind", ["mean", "histogram", "statistics", "ridge"])
def test_results_are_short_readable_and_drawn(results, kind, tmp_path):
    result = results[kind]
    assert len(repr(result)) < 200
    assert "\n" not in repr(result)
    assert "not private" in repr(result)
    assert "expected loss" in str(result)
    assert str(result).startswith("verdict on the plan") == (result.plan.verdict is not None)
    assert "<b>" not in result._repr_html_()
    assert len(repr(result.statement)) < 200
    assert str(result.statement) == result.statement.to_markdown()
    figure = result.plot(tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size > 1000
    if kind == "ridge":
        (axes,) = figure.axes
        slopes = result.model.coefficients
        tops = [bar.get_height() for bar in axes.patches]
        np.testing.assert_allclose(tops, np.multiply(slopes, [3, 2]))  # per range of the feature
        assert result.to_dict()["fitted"]["coefficients"] == list(slopes)
        assert f"size: {slopes[1]:.4g} ± {result.model.standard_errors[1]:.2g}" in str(result)
    elif kind != "mean":
        (axes,) = figure.axes
        tops = [bar.get_height() for bar in axes.patches]
        np.testing.assert_allclose(tops, result.aggregate)
        low, high = axes.get_ylim()
        errors = 2 * np.sqrt(aw.loss_gap(result.plan.problem, result.plan.ages))
        assert low <= min(tops)
        assert high >= max(tops)
        assert high - low < max(tops) - min(0, *tops) + 6 * errors


def test_the_errors_of_coordinates_add_up_to_the_loss(results):
    from agewise.loss.estimator import coordinate_gaps

    for kind in ("mean", "histogram", "statistics"):
        problem, ages = results[kind].plan.problem, results[kind].plan.ages
        parts = coordinate_gaps(problem, ages)
        assert parts.sum() == pytest.approx(aw.loss_gap(problem, ages), rel=1e-12)


def test_choices_of_the_other_engine_are_refused(results):
    plan = results["mean"].plan
    with pytest.raises(aw.InvalidInput, match="superlink is x; allowed: none with engine 'local'"):
        aw.run(plan, superlink="x")
    with pytest.raises(aw.InvalidInput, match="ledgers"):
        aw.run(plan, "flower", ledgers="somewhere")
    with pytest.raises(TypeError, match="unexpected keyword"):
        aw.run(plan, legders="misspelt")
