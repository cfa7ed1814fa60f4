"""An ordinary app with scikit-learn, and the same one with Agewise."""

import difflib
import importlib
import sys
import tomllib
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict
from flwr.serverapp.strategy import FedAvg

import agewise as aw
import in_process
from agewise.federation.flower import strategy
from agewise.federation.flower.app import write_template
from agewise.federation.flower.strategy import AgedStrategy
from agewise.testing import FlowerGrid, FlowerNode
from deployments import init_deployment

EXAMPLE = Path(__file__).parents[3] / "examples" / "flower_sklearn"
SCENARIO = aw.load_scenario(EXAMPLE / "plants.toml")


def files(kind):
    found = sorted(p for p in (EXAMPLE / kind).rglob("*") if p.suffix in (".py", ".toml"))
    return {str(p.relative_to(EXAMPLE / kind)): p.read_text().splitlines() for p in found}


def changed_lines(before, after):
    """Lines that are added, changed or taken away; a changed line counts once."""
    blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in blocks if tag != "equal")


def test_an_app_is_made_age_aware_by_ten_lines():
    plain, aged = files("plain"), files("aged")
    assert list(plain) == list(aged)
    assert 0 < sum(changed_lines(plain[name], aged[name]) for name in plain) <= 10


def test_the_guide_shows_the_lines_of_the_example():
    guide = (EXAMPLE.parents[1] / "docs" / "flower.md").read_text()
    shown = {line for line in guide.splitlines() if line[:1] in "+-"}
    lines = [
        line
        for name, before in files("plain").items()
        for line in difflib.unified_diff(before, files("aged")[name], lineterm="", n=0)
        if line[:3] not in ("+++", "---") and line[0] in "+-"
    ]
    assert lines
    assert set(lines) <= shown


@pytest.fixture
def deployment(tmp_path, monkeypatch):
    made = init_deployment(tmp_path / "fed", SCENARIO, tls=True, seed=3, stand_in=True)
    monkeypatch.setenv("FLWR_HOME", made.environment["FLWR_HOME"])
    numbers = {node.name: number for number, node in enumerate(made.nodes, start=101)}
    monkeypatch.setattr(type(made), "node_numbers", lambda _: numbers)
    return made


def run(kind, deployment, monkeypatch, **choices):
    """Run one of the apps on nodes in this process."""
    monkeypatch.syspath_prepend(str(EXAMPLE / kind))
    for name in [name for name in sys.modules if name.split(".")[0] == "plants"]:
        monkeypatch.delitem(sys.modules, name)
    document = tomllib.loads((EXAMPLE / kind / "pyproject.toml").read_text())
    config = document["tool"]["flwr"]["app"]["config"] | choices
    client = importlib.import_module("plants.client_app").app
    nodes = [
        FlowerNode(
            client,
            {
                "agewise-config": str(deployment.folder / node.folder / "node.toml"),
                "partition-id": number,
                "num-partitions": len(deployment.nodes),
            },
            config,
        )
        for number, node in enumerate(deployment.nodes)
    ]
    context = Context(1, 1, {}, RecordDict(), config)
    importlib.import_module("plants.server_app").app(FlowerGrid(nodes), context)
    for name in [name for name in sys.modules if name.split(".")[0] == "plants"]:
        del sys.modules[name]


@pytest.mark.slow
def test_both_apps_learn(deployment, monkeypatch, capsys):
    """The aged one by the deployment's own plan and keys, under Flower's number of the run."""
    run("plain", deployment, monkeypatch)
    run("aged", deployment, monkeypatch)
    plain, aged = [
        [float(part.split()[1]) for part in line.split(",")]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("accuracy")
    ]
    assert plain[0] == aged[0] == pytest.approx(0.797)
    assert plain[1] < aged[1] < plain[1] + 0.05
    for node, planned in zip(deployment.nodes, aw.plan(SCENARIO).assignments, strict=True):
        with aw.Ledger.read(deployment.folder / node.folder / "releases.ledger") as ledger:
            events = ledger.events()
        assert [e.key for e in events] == [f"flower-7-{number:05d}" for number in range(1, 6)]
        assert [e.collect_at for e in events] == [
            SCENARIO.every * number + planned.collect_at for number in range(5)
        ]
        assert events[0].sensitivity == pytest.approx(2 * 6.0 / 200)


def test_the_aged_app_releases_by_the_deployments_plan(deployment, monkeypatch, capsys):
    """One round of the above."""
    run("aged", deployment, monkeypatch, **{"num-server-rounds": 1})
    assert "accuracy" in capsys.readouterr().out
    for node, planned in zip(deployment.nodes, aw.plan(SCENARIO).assignments, strict=True):
        with aw.Ledger.read(deployment.folder / node.folder / "releases.ledger") as ledger:
            (event,) = ledger.events()
        assert (event.key, event.collect_at) == ("flower-7-00001", planned.collect_at)


def test_a_strategy_needs_a_plan_outside_of_a_deployment(tmp_path, monkeypatch):
    monkeypatch.setattr(strategy, "get_flwr_home", lambda: tmp_path / "flwr")
    with pytest.raises(aw.InvalidInput, match="plan is None; allowed: a plan, where"):
        AgedStrategy(FedAvg())


def test_the_template_is_the_example(tmp_path):
    folder = tmp_path / "mine"
    done = in_process.command("deploy", "app", folder)
    assert done.returncode == 0, done.stderr
    for name, lines in files("aged").items():
        assert (folder / name).read_text().splitlines() == lines
    assert aw.load_scenario(folder / "plants.toml") == SCENARIO
    assert not list(folder.rglob("__pycache__"))
    with pytest.raises(aw.InvalidInput, match="allowed: a new or empty folder"):
        write_template(folder)
