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
            r"clients\[0\].process.kind is 'guess'; allowed: one of birth_death",
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


def problems_of(text, tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(aw.InvalidInput) as refused:
        aw.load_scenario(path)
    lines = str(refused.value).splitlines()
    assert all(line.startswith(f"{path}: ") for line in lines)
    return [line.removeprefix(f"{path}: ") for line in lines]


def test_all_problems_are_told_at_once_unknown_keys_first(tmp_path):
    text = edited('mixing = "exact"', 'mixing = "exat"')
    for old, new in (
        ("aggregate_at = 10 ", "agregate_at = 10 "),
        ("epsilon = 0.1", "epsilon = -1"),
        ("samples = 100", "samples = 0"),
        ("samples = 250", "sample = 250"),
        ("law = [0.8, 0.2, 0.0, 0.0]", "law = [0.8, 0.3, 0.0, 0.0]"),
        ("up = 0.1", "up = 0.9"),
    ):
        text = text.replace(old, new, 1)
    found = problems_of(text, tmp_path)
    starts = [
        "agregate_at is not a known key (did you mean aggregate_at?); allowed: version, name, ",
        "clients[1].sample is not a known key (did you mean samples?); allowed: name, process, "
        "law, samples, weight, epsilon, turn, members, states.",
        "clients[0]: up + down is 1.1",
        "clients[0]: law of client 'north' is a law that sums to 1.1",
        "clients[0]: samples of client 'north' is 0; allowed: a whole number of 1 or more.",
        "clients[1].samples is missing; allowed: a whole number of 1 or more.",
        "aggregate_at is missing; allowed: a whole number from 1 to 100000.",
        "epsilon is -1; allowed: a finite number above 0.",
        "mixing is 'exat'; allowed: one of exact, own_law, any_prior, spectral. Did you mean "
        "exact?",
    ]
    assert len(found) == len(starts)
    for line, start in zip(found, starts, strict=True):
        assert line.startswith(start)


def test_problems_of_several_clients_and_of_all_together_are_told(tmp_path):
    text = edited("up = 0.1", "up = 0.9").replace("[0.7, 0.3, 0.0, 0.0]", "[0.7, 0.2, 0.0, 0.0]")
    text = text.replace('name = "south"', 'name = "north"\nweight = 0.5')
    found = problems_of(text, tmp_path)
    assert [line.split(" is ")[0] for line in found] == [
        "clients[0]: up + down",
        "clients[1]: transition row 0",
        "clients",
        "weight",
    ]


def test_a_bad_list_of_states_is_told_once(tmp_path):
    found = problems_of(edited("states = [20, 50, 100, 200]", "states = [20, 20, 1, 2]"), tmp_path)
    assert len(found) == 1
    assert "distinct" in found[0]


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (edited('kind = "chain"', 'kind = "chan"'), "Did you mean chain?"),
        (
            edited("down = 0.2", "donw = 0.2"),
            "donw is not a known key (did you mean down?); allowed: up, down.",
        ),
        (TEMPLATE + "\ncapacity = 1\n", "It belongs at the top, before the first table."),
        (edited('estimator = "best"', 'estimator = "propogated"'), "mean propagated?"),
    ],
)
def test_misspelt_words_get_a_suggestion(text, remedy, tmp_path):
    assert problems_of(text, tmp_path)[0].endswith(remedy)


def test_very_many_problems_are_counted(tmp_path):
    text = TEMPLATE[: TEMPLATE.index("[[clients]]")] + 150 * "[[clients]]\nsamples = 0\n"
    found = problems_of(text, tmp_path)
    assert len(found) == 101
    assert found[-1] == "350 more problems like these."


def test_misspelt_built_in_scenarios_get_a_suggestion():
    with pytest.raises(aw.InvalidInput, match=r"Did you mean london\?"):
        aw.load_scenario("lodon")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(aw.InvalidInput, match="one of common_level, day_profile, for_ever, london"):
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


def test_many_rounds_are_no_second_problem(tmp_path):
    path = tmp_path / "s.toml"
    problem = aw.scenarios.for_ever().replace(level=None)
    path.write_text('learner = { kind = "median" }\n' + aw.dump_scenario(problem))
    with pytest.raises(aw.InvalidInput) as refused:
        aw.load_scenario(path)
    assert "learner.kind" in str(refused.value)
    assert "forgets" not in str(refused.value)


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path):
    """As some editors write it."""
    file = tmp_path / "mine.toml"
    file.write_text(aw.dump_scenario(aw.scenarios.london()), encoding="utf-8-sig")
    assert aw.load_scenario(file) == aw.scenarios.london()


@pytest.mark.parametrize("brackets", ["[", "{a="])
def test_a_file_that_is_nested_too_deeply_is_refused(brackets, tmp_path):
    file = tmp_path / "deep.toml"
    file.write_text(f"law = {brackets * 5000}")
    with pytest.raises(aw.InvalidInput, match="nested too deeply"):
        aw.load_scenario(file)
