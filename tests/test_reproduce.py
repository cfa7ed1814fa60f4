"""The figures come out as the numbers in reproduce/ say, from the command line."""

import csv
import json
from pathlib import Path

import pytest

import agewise as aw
import in_process

ROOT = Path(__file__).parents[1] / "reproduce"
FIGURES = sorted(p.name for p in ROOT.iterdir() if p.is_dir())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """All figures, which takes some ten seconds."""
    return reproduced("all", tmp_path_factory.mktemp("figures"))


def reproduced(name, out):
    """The folder of what the command made, and what it says."""
    done = in_process.command("reproduce", name, "--out", out, "--json")
    assert done.returncode == 0, done.stderr
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


def as_expected(name, out):
    """Whether a figure's numbers are those in its folder."""
    expected, got = rows(ROOT / name / "expected.csv"), rows(out / f"{name}.csv")
    assert len(got) == len(expected) > 0
    for one, other in zip(got, expected, strict=True):
        assert one.keys() == other.keys()
        for key, value in other.items():
            if is_number(value):
                assert float(one[key]) == pytest.approx(float(value), rel=1e-4, abs=1e-9), key
            else:
                assert one[key] == value, key


def test_one_figure_from_the_command_line(tmp_path):
    out, _ = reproduced("fig1", tmp_path)
    as_expected("fig1", out)


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_numbers_are_as_expected(made, name):
    as_expected(name, made[0])


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_best_plan_is_never_above_its_rivals(made):
    assert all(len(rows(made[0] / name)) > 3 for name in ("worth.csv", "level.csv"))
    for row in rows(made[0] / "worth.csv"):
        rivals = float(row["nothing_collected"]), float(row["classical_fresh"])
        assert float(row["gap"]) <= min(rivals) * (1 + 1e-9)
    for row in rows(made[0] / "level.csv"):
        rivals = [float(row[name]) for name in row if name.startswith(("nothing", "classical"))]
        assert float(row["planned, any prior"]) <= min(rivals) * (1 + 1e-9)


@pytest.mark.slow
def test_claims_are_told(made):
    claims = {c["claim"]: c["holds"] for c in made[1]["claims"]}
    assert claims["fresh is best for client 1; an interior slot for clients 2 and 3"] is True
    assert claims["the printed points follow from the stated setting"] is False
    for reading in ("any number of uploads per slot", "one upload per slot"):
        assert claims[f"4 outperforms all others, 5 included ({reading})"] is False
