"""The figures come out as the numbers in reproduce/ say, from the command line."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

import agewise as aw

ROOT = Path(__file__).parents[1] / "reproduce"
FIGURES = sorted(p.name for p in ROOT.iterdir() if p.is_dir())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("figures")
    command = [
        str(Path(sys.executable).with_name("agewise")),
        "reproduce",
        "all",
        "--out",
        str(out),
    ]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    return out, json.loads(done.stdout)


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


def test_every_figure_is_covered():
    assert FIGURES == ["fig1", "fig2", "fig3a", "fig3b", "gains", "level", "worth"]


@pytest.mark.parametrize("name", FIGURES)
def test_numbers_are_as_expected(made, name):
    expected, got = rows(ROOT / name / "expected.csv"), rows(made[0] / f"{name}.csv")
    assert len(got) == len(expected) > 0
    for one, other in zip(got, expected, strict=True):
        assert one.keys() == other.keys()
        for key, value in other.items():
            if is_number(value):
                assert float(one[key]) == pytest.approx(float(value), rel=1e-4, abs=1e-9), key
            else:
                assert one[key] == value, key


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_its_pictures_scenario_and_page(made, name):
    for ending in ("png", "svg"):
        assert (made[0] / f"{name}.{ending}").stat().st_size > 5000
    assert (ROOT / name / "README.md").exists()
    scenario, london = aw.load_scenario(ROOT / name / "scenario.toml"), aw.scenarios.london()
    processes = [client.process.fingerprint for client in scenario.clients]
    assert processes == [client.process.fingerprint for client in london.clients]
    if name not in ("level", "worth"):
        assert scenario.replace(capacity=None) == london


def test_the_best_plan_is_never_above_its_rivals(made):
    for row in rows(made[0] / "worth.csv"):
        rivals = float(row["nothing_collected"]), float(row["classical_fresh"])
        assert float(row["gap"]) <= min(rivals) * (1 + 1e-9)
    for row in rows(made[0] / "level.csv"):
        rivals = [float(row[name]) for name in row if name.startswith(("nothing", "classical"))]
        assert float(row["planned, any prior"]) <= min(rivals) * (1 + 1e-9)


def test_claims_are_told(made):
    claims = {c["claim"]: c["holds"] for c in made[1]["claims"]}
    assert claims["fresh is best for client 1; an interior slot for clients 2 and 3"] is True
    assert claims["the printed points follow from the stated setting"] is False
    assert claims["4 outperforms all others, 5 included"] is False
