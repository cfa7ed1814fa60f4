"""The commands that write a page to hand over, and those that the explorer shows."""

import json
from html.parser import HTMLParser

import pytest
from explorer import meters

import agewise as aw
import in_process
from agewise.cli.schedules import slots_of_ages

run = in_process.command


class Loads(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found, self.alt = [], 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.alt += tag == "desc"
        for name, value in attributes:
            if name in ("src", "href", "xlink:href") and not value.startswith("#"):
                self.found.append(value)


@pytest.fixture(scope="module")
def readings(tmp_path_factory):
    return meters(tmp_path_factory.mktemp("readings") / "meters <b>.csv")


FIT = ["--adversary", "population", "--unit", "<Wh>", "--yes"]


def test_fit_writes_a_page_beside_the_scenario(readings, tmp_path):
    done = run("fit", readings, *FIT, "--json", "--out", "mine.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "mine.html").read_text(encoding="utf-8")
    loads = Loads(text)
    assert loads.found == []
    assert loads.alt == 2
    assert "<Wh>" not in text
    told = json.loads(done.stdout)
    for line in told["assumptions"]["verdict"]:
        assert line in text
    assert f"{told['clients'][0]['limits'][0]:.3f}" in text
    plan = aw.plan(aw.load_scenario(tmp_path / "mine.toml"))
    assert f"{plan.classical_fresh:.6g}" in text
    assert f"{plan.nothing_collected:.6g}" in text
    assert "Sharp edges that apply" in text
    again = run("fit", readings, *FIT, "--out", "mine.toml", cwd=tmp_path)
    assert again.returncode == 2
    (tmp_path / "mine.toml").unlink()
    again = run("fit", readings, *FIT, "--out", "mine.toml", cwd=tmp_path)
    assert again.returncode == 2
    assert "mine.html, which exists" in again.stderr
    assert not (tmp_path / "mine.toml").exists()


def test_a_page_is_not_put_beside_a_scenario_with_noise_of_its_own(readings, tmp_path):
    noisy = [*FIT, "--count-epsilon", "1", "--ledgers", "ledgers", "--states", "150,900"]
    done = run("fit", readings, *noisy, "--out", "mine.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "mine.html").exists()
    done = run("fit", readings, *noisy, "--out", "b.toml", "--report", "own", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "for the fitter&#x27;s eyes only" in (tmp_path / "own" / "report.html").read_text()


def test_run_and_rounds_write_pages_that_check_agrees_with(tmp_path):
    one = aw.Client("one", aw.birth_death(0.3, 0.3, (0, 1)), samples=50)
    problem = aw.Problem([one], 2, 0.5, rounds=2, every=2)
    (tmp_path / "small.toml").write_text(aw.dump_scenario(problem), encoding="utf-8")
    for words in (["run", "london", "--repetitions", "0"], ["rounds", "small.toml"]):
        folder = tmp_path / words[0]
        done = run(*words, "--out", folder, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        (made,) = folder.iterdir()
        page = made / "report.html"
        assert "report.html" in done.stderr
        assert Loads(page.read_text(encoding="utf-8")).found == []
        assert run("check", made, cwd=tmp_path).returncode == 0
        page.write_text(page.read_text(encoding="utf-8").replace("classical ε", "strong ε"))
        done = run("check", made, "--json", cwd=tmp_path)
        assert done.returncode == 5
        assert all("report.html" in one["where"] for one in json.loads(done.stdout)["differences"])


def test_plan_prices_ages_that_are_given(tmp_path):
    done = run("plan", "london", "--ages", "0,9,9", "--json", cwd=tmp_path)
    london = aw.scenarios.london()
    assert json.loads(done.stdout)["gap"] == aw.evaluate(london, [10, 1, 1]).gap
    done = run("plan", "london", "--ages", "0,9", cwd=tmp_path)
    assert done.returncode == 2
    assert "3 ages from 0 to 9, with commas" in done.stderr
    for ages in ("0,9,10", "0,9,-1", "a,b,c", "", "0,9,9.5"):
        with pytest.raises(aw.InvalidInput, match="3 ages from 0 to 9"):
            slots_of_ages(london, ages)
    done = run("plan", "london", "--ages", "0,9,9", "--method", "random", cwd=tmp_path)
    assert done.returncode == 2
    assert "by itself" in done.stderr
