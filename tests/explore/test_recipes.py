"""The Python and the commands of the page give the numbers of the page."""

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import in_process
from agewise.explore.model import Model
from agewise.explore.recipes import PICTURES, needs_file, recipe

AGEWISE = str(Path(sys.executable).with_name("agewise"))
QUERIES = {
    "as it is": {"source": "common_level"},
    "options": {
        "source": "common_level",
        "epsilon": "0.35",
        "mixing": "any_prior",
        "loading": "12.5",
        "memory": "0.9",
    },
    "one age": {"source": "london", "age": "4", "epsilon": "0.2"},
    "records": {"source": "london", "records": "1000", "noise": "server"},
    "no level": {"source": "common_level", "loading": "0"},
    "rounds": {"source": "for_ever", "rounds": "6", "every": "12", "promise": "every_moment"},
}
FILE = {"records", "no level"}


@pytest.fixture(scope="module")
def model():
    return Model("common_level")


def printed(code, folder):
    out, here = io.StringIO(), Path.cwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(code, "recipe", "exec"), {})
    finally:
        os.chdir(here)
    return out.getvalue()


def ready(model, query, folder):
    choices = model.read(query)
    source = model.source(choices.source)
    if needs_file(choices, source):
        (folder / "explored.toml").write_text(model.scenario(choices), encoding="utf-8")
    return choices, source


@pytest.mark.parametrize("case", QUERIES)
def test_the_python_of_each_picture_gives_its_numbers(model, case, tmp_path):
    choices, source = ready(model, QUERIES[case], tmp_path)
    assert needs_file(choices, source) == (case in FILE)
    said = {}
    for key in PICTURES:
        code = recipe(key, choices, source)[0]
        if key == "loss":  # twelve more targets would show no more
            code = re.sub(r"in \(.*\):", f"in (0.01, {choices.epsilon!r}):", code)
        said[key] = printed(code, tmp_path)
    losses = {one.epsilon: one for one in model.curve(choices, seconds=0.001).losses}
    losses |= {0.01: model.curve(replace(choices, epsilon=0.01), seconds=0).losses[0]}
    for line in said["loss"].splitlines():
        epsilon, *numbers = map(float, line.split())
        one = losses[epsilon]
        assert numbers == [one.gap, one.nothing_collected, one.classical_fresh]
    assert f"{model.plan(choices).gap:.6g}" in said["timeline"]
    assert (tmp_path / "plan.png").exists()
    deltas = [float(x) for x in re.findall(r"[\d.]+(?:e-\d+)?", said["ages"].split("[")[1])]
    assert deltas[0] == 1.0
    numbers = [float(x) for x in re.findall(r"\d\.\d+(?:e-?\d+)?", said["spent"])]
    spent = model.spent(choices)
    assert numbers[-1] == spent.every_moment[-1]
    assert spent.present[0] in numbers


@pytest.mark.parametrize("case", ["options", "one age", "records", "rounds"])
def test_the_command_of_the_plan_gives_the_numbers_of_the_page(model, case, tmp_path):
    choices, source = ready(model, QUERIES[case], tmp_path)
    words = shlex.split(recipe("timeline", choices, source)[1])
    assert words[:2] == ["agewise", "plan"]
    done = in_process.command(*words[1:], "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told, plan = json.loads(done.stdout), model.plan(choices)
    assert (tmp_path / "out" / "plan.png").exists()
    assert told["gap"] == plan.gap
    assert told["nothing_collected"] == plan.nothing_collected
    assert told["classical_fresh"] == plan.classical_fresh
    assert told["ages"] == plan.ages
    assert told["noise_scales"] == plan.noise_scales


def test_the_other_commands_run_as_they_stand(model, tmp_path):
    choices, source = ready(model, QUERIES["one age"], tmp_path)
    ages = shlex.split(recipe("ages", choices, source)[1])
    rounds = shlex.split(recipe("spent", *ready(model, QUERIES["rounds"], tmp_path))[1])
    assert rounds[:3] == ["agewise", "rounds", "for_ever"]
    loop = recipe("loss", choices, source)[1].replace("agewise", shlex.quote(AGEWISE))
    few = re.sub(r"in [\d. ]+;", "in 0.1 0.2;", loop)
    done = subprocess.run(
        ["sh", "-c", few], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.count('"nothing_collected"') == 2
    assert f'"gap": {model.plan(choices).gap!r}' in done.stdout
    for words in (ages, [*rounds, "--now", "2"]):
        done = in_process.command(*words[1:], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "ages.png").exists()
    assert list(tmp_path.glob("runs/*/rounds.png"))
