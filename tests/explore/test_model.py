"""The numbers of the explorer, without a page."""

import math
from dataclasses import replace

import pytest

import agewise as aw
from agewise.explore.choices import Choices
from agewise.explore.model import GRID, KEPT_UPLOADS, Model, Source
from agewise.planning.promise import epsilon_after
from agewise.scenarios import BUILT_IN


@pytest.fixture(scope="module")
def model():
    return Model("common_level")


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_scenario_by_itself_is_what_it_is(model, name):
    choices = model.read({"source": name})
    assert model.problem(choices) == BUILT_IN[name]()
    assert choices.changes(BUILT_IN[name]()) == {}
    assert model.read(choices.query()) == choices


def test_what_is_chosen_is_what_is_planned(model):
    query = {
        "source": "for_ever",
        "epsilon": "0.35",
        "rounds": "7",
        "every": "12",
        "promise": "every_moment",
        "loading": "15",
        "memory": "0.9",
        "mixing": "any_prior",
        "records": "50",
    }
    choices = model.read(query)
    base = aw.scenarios.for_ever()
    wanted = base.replace(
        clients=[replace(client, samples=50) for client in base.clients],
        epsilon=0.35,
        rounds=7,
        every=12,
        promise="every_moment",
        level=aw.Level(15.0, 0.9),
        mixing="any_prior",
    )
    assert model.problem(choices) == wanted
    assert model.plan(choices).gap == aw.plan(wanted).gap
    assert aw.load_scenario is not None
    assert model.read(choices.query()) == choices


def test_a_scenario_to_save_loads_to_the_same_problem(model, tmp_path):
    choices = model.read({"source": "london", "epsilon": "0.3", "records": "250"})
    path = tmp_path / "explored.toml"
    path.write_text(model.scenario(choices), encoding="utf-8")
    assert aw.load_scenario(path) == model.problem(choices)


def test_one_age_for_all_is_priced_not_searched(model):
    choices = model.read({"source": "london", "age": "4"})
    assert model.plan(choices).gap == aw.evaluate(aw.scenarios.london(), [6, 6, 6]).gap
    assert model.plan(choices).lower_bound is None


def test_records_keep_their_shares(model):
    base = BUILT_IN["day_profile"]()
    samples = [client.samples for client in base.clients]
    mean = round(sum(samples) / len(samples))
    doubled = model.problem(model.read({"source": "day_profile", "records": str(2 * mean)}))
    for client, own in zip(doubled.clients, samples, strict=True):
        assert client.samples == pytest.approx(2 * own, abs=2)
    least = model.problem(model.read({"source": "day_profile", "records": "1"}))
    assert min(client.samples for client in least.clients) == 1
    one = aw.Problem([aw.Client("one", aw.birth_death(0.3, 0.3, (0, 1)), samples=1)], 3, 0.5)
    assert Choices.of("one", one).records == 1


def test_no_level_is_none_at_all(model):
    problem = model.problem(model.read({"source": "common_level", "loading": "0"}))
    assert problem.level is None


def test_levels_that_sliders_cannot_say_stay_as_they_are():
    levels = (aw.Level((5.0, 6.0, 7.0), 0.9),)
    base = aw.scenarios.common_level().replace(level=levels)
    choices = Choices.read({"loading": "3", "memory": "0.5"}, "own", base)
    assert choices.loading is None
    assert choices.problem(base).level == levels


def test_many_rounds_leave_stated_laws_out_and_say_so(model):
    choices = model.read({"source": "common_level", "rounds": "5"})
    assert choices.leaves_out_laws(model.source("common_level").problem)
    assert all(client.law is None for client in model.problem(choices).clients)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"epsilon": "0"}, "epsilon is 0; allowed: a finite number above 0"),
        ({"epsilon": "-1"}, "epsilon is -1"),
        ({"epsilon": "nan"}, "epsilon is nan"),
        ({"epsilon": "inf"}, "epsilon is inf"),
        ({"epsilon": "much"}, "epsilon is 'much'; allowed: a finite number above 0"),
        ({"records": "0"}, "records is 0; allowed: a whole number from 1"),
        ({"records": "1.5"}, "records is 1.5"),
        ({"records": "9" * 30}, "records is 1e+30"),
        ({"loading": "-3"}, "loading is -3.0; allowed: 0 or more"),
        ({"loading": "nan"}, "loading is nan"),
        ({"loading": "inf"}, "level.loading is inf"),
        ({"memory": "1.2"}, "level.correlation is 1.2; allowed: from 0 to 1"),
        ({"age": "10"}, "age is 10; allowed: a whole number from 0 to 9"),
        ({"age": "-1"}, "age is -1.0"),
        ({"rounds": "0"}, "rounds is 0"),
        ({"rounds": "3", "every": "5"}, "aggregate_at is 10; allowed: 1 to 5"),
        ({"every": "0"}, "every is 0"),
        ({"promise": "yesterday"}, "promise is 'yesterday'"),
        ({"mixing": "none"}, "mixing is 'none'; allowed: one of exact"),
        ({"estimator": "propagated"}, "Moving records forward shrinks what they share"),
        ({"rounds": "3", "calibration": "formula"}, "calibration is 'formula' with many rounds"),
        ({"source": "nowhere"}, "source is 'nowhere'"),
    ],
)
def test_what_is_not_possible_is_refused_in_words(model, query, words):
    with pytest.raises(aw.InvalidInput) as refused:
        model.plan(model.read(query))
    assert words in str(refused.value)


def test_the_curve_is_what_planning_gives_and_comes_piece_by_piece():
    fresh = Model("london")
    choices = fresh.read({"epsilon": "0.25"})
    first = fresh.curve(choices, seconds=0)
    assert len(first.losses) == 1
    assert first.open == len(GRID)
    while (more := fresh.curve(choices, seconds=0)).open:
        assert more.open < first.open
    assert [one.epsilon for one in more.losses] == sorted({*GRID, 0.25})
    for one in more.losses:
        plan = aw.plan(aw.scenarios.london().replace(epsilon=one.epsilon))
        assert one.gap == plan.gap
        assert one.classical_fresh == plan.classical_fresh
        assert one.nothing_collected == plan.nothing_collected


def test_another_target_needs_one_more_plan_only(model):
    choices = model.read({"source": "london"})
    model.curve(choices)
    assert model.curve(replace(choices, epsilon=0.77), seconds=0).open == 0


@pytest.mark.parametrize("mixing", ["exact", "any_prior", "spectral", "own_law"])
def test_delta_by_age_is_that_of_the_method(model, mixing):
    choices = model.read({"source": "london", "mixing": mixing})
    for client in aw.scenarios.london().clients:
        law = client.law if mixing == "own_law" else None
        told = model.deltas(choices)[client.name]
        assert len(told) == aw.scenarios.london().aggregate_at
        for age, value in enumerate(told):
            assert value == pytest.approx(
                aw.total_variation(client.process, age, mixing, law), rel=1e-9
            )


@pytest.mark.parametrize("mixing", ["exact", "any_prior", "own_law"])
def test_epsilon_after_one_release_falls_as_ageing_says(model, mixing):
    choices = model.read({"source": "common_level", "mixing": mixing})
    plan, spent = model.plan(choices), model.spent(choices)
    assert spent.present[0] == max(one.aged_epsilon for one in plan.assignments)
    assert list(spent.present) == sorted(spent.present, reverse=True)
    assert set(spent.every_moment) == {max(plan.classical_epsilons)}
    for later, value in zip(spent.at[1:], spent.present[1:], strict=True):
        bounds = []
        for client, one in zip(plan.problem.clients, plan.assignments, strict=True):
            law = client.law if mixing == "own_law" else None
            ageing = aw.Ageing(client.process, one.age + later, mixing, law)
            bounds.append(ageing.aged_epsilon(one.classical_epsilon))
        assert value <= max(*bounds, 0) + 1e-12
        assert value >= min(max(bounds), spent.present[0]) * 0.5 or value == 0


@pytest.mark.parametrize("promise", ["present", "every_moment"])
def test_epsilon_over_rounds_keeps_what_is_promised(model, promise):
    choices = model.read({"source": "for_ever", "promise": promise})
    spent = model.spent(choices)
    kept = spent.present if promise == "present" else spent.every_moment
    assert max(kept) <= 0.1 * (1 + 1e-6)
    assert all(a <= b * (1 + 1e-9) for a, b in zip(spent.present, spent.every_moment, strict=True))
    assert spent.present[-1] == epsilon_after(model.plan(choices), spent.at[-1], "present")
    plan = model.plan(choices)
    assert (spent.at[0], spent.at[-1]) == (1, 100)
    assert spent.classical[-1] == 100 * max(plan.classical_epsilons) > 10 * max(kept)


def test_later_slots_of_laws_that_differ_by_slot_are_left_open(model):
    assert model.spent(model.read({"source": "day_profile"})).at == (0,)


def test_epsilon_over_time_is_refused_where_it_is_not_worked_out(tmp_path):
    path = tmp_path / "gaussian.toml"
    problem = aw.scenarios.london().replace(
        mechanism="gaussian", delta=1e-6, calibration="sharp", mixing="exact"
    )
    path.write_text(aw.dump_scenario(problem), encoding="utf-8")
    gaussian = Model(str(path))
    with pytest.raises(aw.InvalidInput, match="mechanism is gaussian"):
        gaussian.spent(gaussian.read({}))


@pytest.mark.parametrize("query", [{"source": "london"}, {"source": "for_ever", "rounds": "2"}])
def test_a_statement_is_that_of_a_private_run(model, query):
    text = model.statement(model.read(query))
    assert text.startswith("# Privacy statement of")
    assert "stand-in" not in text
    assert model.statement(model.read(query)) is text  # the page and the report tell of one run


def test_a_scenario_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(aw.InvalidInput, match="agewise init"):
        Model(str(tmp_path / "none.toml"))


def test_of_many_uploads_the_last_ones_are_kept():
    many = Model("london")
    base, fitted = aw.scenarios.london(), object()
    for number in range(KEPT_UPLOADS + 3):
        many.add(Source(f"readings-{number}", "mine", base, None, fitted))
    kept = [key for key in many.sources if key.startswith("readings-")]
    assert kept == [f"readings-{number}" for number in range(3, KEPT_UPLOADS + 3)]
    assert many.source(None).key == "london"
    assert math.isfinite(many.plan(many.read({})).gap)
