"""`agewise audit`: subjects, exit codes, output, and one message for bad input."""

import json
from pathlib import Path

import pytest

import in_process

ROOT = Path(__file__).parents[2]
GALLERY = "examples/audit_gallery.py"


def run(*words):
    return in_process.command("audit", *words, cwd=ROOT)


def test_a_scenario_holds_and_a_picture_is_drawn(tmp_path):
    done = run("london", "--draws", "0", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "no claim refuted" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"audit.json", "audit.png", "audit.svg"}


def test_a_false_claim_ends_with_code_5_and_one_document():
    done = run(f"{GALLERY}:noise_too_small", "--draws", "20000", "--seed", "1", "--json")
    assert done.returncode == 5
    document = json.loads(done.stdout)
    assert document["refuted"]
    assert document["findings"][0]["draws"] == 20000


def test_a_function_is_given_its_process_and_its_claim(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import numpy as np\n"
        "def release(records, rng):\n"
        "    return np.round(records.mean() + rng.laplace(0, 180.0), 3)\n"
    )
    words = [f"{file}:release", "--draws", "4000", "--seed", "1", "--age", "2"]
    assert run(*words, "--claim", "1").returncode == 0
    assert run(*words, "--claim", "0.1", "--own-law", "--client", "client 2").returncode == 5


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["nowhere.py:release", "--claim", "1"], "a Python file that is there"),
        ([f"{GALLERY}:nothing"], "without 'nothing'"),
        ([f"{GALLERY}:STATES"], "a function, a BlackBox or a plan"),
        ([GALLERY], "FILE.py:NAME"),
        ([f"{GALLERY}:by_own_range"], "--claim"),
        ([f"{GALLERY}:by_own_range", "--claim", "0"], "claim is 0.0"),
        ([f"{GALLERY}:by_own_range", "--claim", "1", "--client", "nobody"], "--client"),
        ([f"{GALLERY}:noised", "--claim", "1"], "one that raised"),
        (["nosuchmodule:release", "--claim", "1"], "ModuleNotFoundError"),
        (["london", "--tier", "guessed"], "tier is 'guessed'"),
        (["london", "--draws", "-1"], "--draws"),
        (["london", "--error", "2"], "error is 2.0"),
        (["tests"], "the folder of a run"),
        (["nosuch.json"], "plan is nosuch.json"),
        (["no such scenario"], "no such scenario"),
    ],
)
def test_bad_input_is_one_message_and_code_2(words, match):
    import re

    done = run(*words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert re.search(match, " ".join(done.stderr.split())), done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"scenario": {}}', '{"scenario": 3, "assignments": []}']
)
def test_documents_that_are_no_plan_are_refused(tmp_path, text):
    file = tmp_path / "plan.json"
    file.write_text(text)
    done = in_process.command("audit", file)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_numbers_of_a_plan_that_make_no_sense_are_refused(tmp_path):
    import agewise as aw

    document = aw.plan(aw.scenarios.london()).to_dict()
    for name, value in (("noise_scale", -1.0), ("aged_epsilon", "much"), ("collect_at", 1.5)):
        changed = json.loads(json.dumps(document))
        changed["assignments"][0][name] = value
        file = tmp_path / "plan.json"
        file.write_text(json.dumps(changed))
        done = run(str(file), "--draws", "0")
        assert done.returncode == 2, name
        assert name in done.stderr


def test_help_says_what_it_is_for():
    done = run("--help")
    assert "Exit code 0" in done.stdout
    assert "agewise audit london" in done.stdout
