import tomllib

import numpy as np
import pytest

import agewise as aw
from agewise.scenario import TEMPLATE
from random_problems import random_problem


@pytest.mark.parametrize("name", ["london", "london_fitted", "slow_and_fast", "day_profile"])
def test_built_in_scenarios_round_trip(name, tmp_path):
    problem = aw.load_scenario(name)
    path = tmp_path / "copy.toml"
    path.write_text(aw.dump_scenario(problem), encoding="utf-8")
    again = aw.load_scenario(path)
    assert again == problem
    assert (again.name, again.unit) == (problem.name, problem.unit)
    assert aw.dump_scenario(again) == path.read_text()


@pytest.mark.parametrize("seed", range(20))
def test_random_problems_round_trip(seed, tmp_path):
    problem = random_problem(np.random.default_rng(seed), capacity=2, slots=5)
    path = tmp_path / "copy.toml"
    path.write_text(aw.dump_scenario(problem), encoding="utf-8")
    assert aw.load_scenario(path) == problem


def test_the_template_is_a_scenario(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(TEMPLATE, encoding="utf-8")
    problem = aw.load_scenario(path)
    assert [c.name for c in problem.clients] == ["north", "south"]
    assert aw.plan(problem, method="exhaustive").gap > 0


def edited(old, new):
    assert old in TEMPLATE
    return TEMPLATE.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (edited("aggregate_at = 10 ", "aggregate_when = 10 "), "aggregate_at is missing"),
        (edited("epsilon = 0.1", "epsilon = 0.1\nepsilom = 3"), "epsilom is not a known key"),
        (edited("epsilon = 0.1", 'epsilon = "much"'), "epsilon is 'much'; allowed: .*number"),
        (edited("epsilon = 0.1", "epsilon = -1"), "epsilon is -1"),
        (edited("epsilon = 0.1", "epsilon = nan"), "epsilon is nan"),
        (edited("aggregate_at = 10 ", "aggregate_at = 1.5 "), "aggregate_at is 1.5"),
        (edited("aggregate_at = 10 ", "aggregate_at = true "), "aggregate_at is True"),
        (edited('mixing = "exact"', 'mixing = "guess"'), "mixing is 'guess'"),
        (edited("samples = 100", "samples = 0"), r"clients\[0\]: samples of client 'north' is 0"),
        (edited("samples = 100", "sample = 100"), r"clients\[0\].samples is missing"),
        (edited("law = [0.8, 0.2, 0.0, 0.0]", "law = [0.8, 0.2]"), "law of client 'north'"),
        (edited("law = [0.8, 0.2, 0.0, 0.0]", "law = [0.8, 0.3, 0.0, 0.0]"), "sums to 1.1"),
        (edited("up = 0.1", "up = 0.9"), r"clients\[0\]: up \+ down"),
        (
            edited('kind = "birth_death"', 'kind = "guess"'),
            r"clients\[0\].process.kind is guess; allowed: 'birth_death'",
        ),
        (edited("  [0.7, 0.3, 0.0, 0.0],\n", "  [0.7, 0.2, 0.0, 0.0],\n"), "row 0 .*sums to 0.9"),
        (edited("states = [20, 50, 100, 200]", ""), r"clients\[0\].states is missing"),
        (edited("states = [20, 50, 100, 200]", "states = [20, 20, 100, 200]"), "distinct"),
        (edited('name = "south"', 'name = "north"'), "2 named 'north'"),
        (edited("version = 1", "version = 2"), "version is 2"),
        (edited("samples = 250", "samples = 250\nweight = 0.5"), "1 of 2 clients"),
        (TEMPLATE[: TEMPLATE.index("[[clients]]")], "clients is missing"),
        (TEMPLATE[: TEMPLATE.index("[[clients]]")] + "clients = []", "one or more Client"),
        ("= nonsense", "a valid TOML file"),
    ],
)
def test_bad_scenarios_get_one_clear_message(text, words, tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(aw.InvalidInput, match=words):
        aw.load_scenario(path)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(aw.InvalidInput, match="one of day_profile, london"):
        aw.load_scenario("nowhere")
    with pytest.raises(aw.InvalidInput, match="readable file"):
        aw.load_scenario(tmp_path)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(aw.InvalidInput, match="not UTF-8"):
        aw.load_scenario(binary)


def test_written_scenarios_are_plain_toml():
    document = tomllib.loads(aw.dump_scenario(aw.scenarios.london()))
    assert document["clients"][0]["law"] == [0.8, 0.2, 0, 0]
