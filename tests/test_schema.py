"""The schema that editors get says of scenario files what the reader says."""

import json
import tomllib
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import agewise as aw
import in_process
from agewise.scenario import TEMPLATE, problem_to_dict, scenario_schema, schema_text
from random_problems import random_problem

DOCS = Path(__file__).parents[1] / "docs"
SCHEMA = scenario_schema()
jsonschema.Draft202012Validator.check_schema(SCHEMA)
EDITOR = jsonschema.Draft202012Validator(SCHEMA)


run = in_process.command


def test_the_published_schema_is_current():
    """If not: agewise schema > docs/scenario.schema.json."""
    assert (DOCS / "scenario.schema.json").read_text(encoding="utf-8") == schema_text()


def tables(schema, path="scenario"):
    """Every table of the schema, by where it is."""
    if "properties" in schema:
        yield path, schema["properties"]
        for name, one in schema["properties"].items():
            yield from tables(one, f"{path}.{name}")
    for one in (*schema.get("oneOf", ()), *([schema["items"]] if "items" in schema else ())):
        yield from tables(one, path)


def test_every_key_is_explained():
    """Those of learners are in the reference of their classes."""
    found = [one for one in tables(SCHEMA) if not one[0].startswith("scenario.learner")]
    # the head, clients, five kinds of processes, two of chains in one, levels, knowledge
    assert len(found) == 11
    for path, keys in found:
        unexplained = {key for key, one in keys.items() if not one.get("description")}
        assert unexplained <= ({"kind"} if path == "scenario.knowledge" else set()), path


def test_limits_and_words_are_those_of_the_record():
    epsilon = SCHEMA["properties"]["epsilon"]
    assert (epsilon["exclusiveMinimum"], epsilon["type"]) == (0, "number")
    samples = SCHEMA["properties"]["clients"]["items"]["properties"]["samples"]
    assert samples == {
        "type": "integer",
        "minimum": 1,
        "default": 100,
        "description": "How many records it collects.",
    }
    with pytest.raises(aw.InvalidInput, match=r"samples .* is 0; allowed: a whole number of 1 or"):
        aw.Client("a", aw.birth_death(0.2, 0.2, [1, 2]), samples=0)


@pytest.mark.parametrize("name", sorted(aw.scenarios.BUILT_IN))
def test_built_in_scenarios_fit(name):
    EDITOR.validate(problem_to_dict(aw.load_scenario(name)))


@pytest.mark.parametrize("seed", range(10))
def test_random_problems_fit(seed):
    problem = random_problem(np.random.default_rng(seed), capacity=2, slots=5)
    EDITOR.validate(problem_to_dict(problem))


@pytest.mark.parametrize(
    "learner",
    [
        aw.Mean(),
        aw.Histogram(),
        aw.Statistics([[1, 0], [0, 1], [1, 1]], counts=[1, 2], names=["a", "b"]),
        aw.Ridge([[0, 1], [1, 1], [2, 0]], [0.5, 1, 2], penalty=0.1, names=["x", "y"]),
        aw.Logistic([[0, 1], [1, 1], [2, 0]], [0, 1, 1], rate=0.3),
    ],
    ids=lambda one: one.kind,
)
def test_learners_fit(learner):
    clients = [aw.Client("a", aw.birth_death(0.2, 0.2, [1, 2, 3]))]
    problem = aw.Problem(clients, 3, 0.5, estimator="plain", learner=learner)
    EDITOR.validate(problem_to_dict(problem))


def document(**changes):
    return {**tomllib.loads(TEMPLATE), **changes}


def test_the_template_fits_and_names_the_schema():
    EDITOR.validate(document())
    assert TEMPLATE.startswith("#:schema scenario.schema.json\n")


CLIENT = document()["clients"][0]


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 0},
        {"epsilon": "much"},
        {"epsilom": 0.1},
        {"aggregate_at": 0},
        {"aggregate_at": 1.5},
        {"mixing": "guess"},
        {"version": 2},
        {"rounds": "always"},
        {"unit": "two\nlines"},
        {"states": []},
        {"clients": []},
        {"learner": {"kind": "median"}},
        {"learner": {"kind": "statistics"}},
        {"learner": {"kind": "mean", "table": [[1]]}},
        {"level": [{"loading": 20}]},
        {"knowledge": {"kind": "measured"}},
        {"mechanism": "gaussian", "delta": 1.0},
        {"clients": [{**CLIENT, "samples": 0}]},
        {"clients": [{**CLIENT, "process": {"kind": "birth_death", "up": 0.1}}]},
        {"clients": [{**CLIENT, "process": {"kind": "chan", "transition": [[1]]}}]},
        {"clients": [{key: CLIENT[key] for key in ("name", "samples")}]},
    ],
    ids=str,
)
def test_what_an_editor_marks_is_refused_by_the_reader_too(changes, tmp_path):
    bad = document(**changes)
    assert not EDITOR.is_valid(bad)
    with pytest.raises(aw.InvalidInput):
        aw.load_scenario(_written(tmp_path, bad))


def _written(folder, content):
    import tomli_w

    path = folder / "s.toml"
    path.write_text(tomli_w.dumps(content), encoding="utf-8")
    return path


def test_init_leaves_the_schema_beside_the_scenario(tmp_path):
    assert run("init", "mine", cwd=tmp_path).returncode == 0
    assert json.loads((tmp_path / "scenario.schema.json").read_text(encoding="utf-8")) == SCHEMA
    (tmp_path / "scenario.schema.json").write_text("another's")
    assert run("init", "yours", cwd=tmp_path).returncode == 0
    assert (tmp_path / "scenario.schema.json").read_text() == "another's"


def test_schema_prints_what_is_published():
    assert run("schema").stdout == schema_text()


def test_check_says_what_a_scenario_holds(tmp_path):
    run("init", "mine", cwd=tmp_path)
    done = run("check", "mine.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2: north, south" in done.stdout
    assert "Next: agewise plan mine.toml" in done.stderr
    told = json.loads(run("check", "mine.toml", "--json", cwd=tmp_path).stdout)
    assert told["scenario"] == "mine.toml"
    assert told["holds"] == problem_to_dict(aw.load_scenario(tmp_path / "mine.toml"))


def test_check_lists_every_problem_of_a_scenario(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text(TEMPLATE.replace("epsilon = 0.1", "epsilon = -1", 1).replace("north", "south"))
    done = run("check", path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "epsilon is -1" in done.stderr
    assert "2 named 'south'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.toml"], "'nowhere.toml'; allowed: a TOML file"),
        (["nowhere"], "run folder is nowhere"),
        (["london", "--ledgers", "x"], "--ledgers is given with a scenario"),
    ],
)
def test_check_refuses_what_is_neither(arguments, words, tmp_path):
    done = run("check", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())
