import json
import re
import signal
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest
import tomli_w

import agewise as aw
import in_process
from agewise import cli
from agewise.cli.aftermath import aftermath
from agewise.cli.checking import REFUTED
from agewise.cli.lazily import COMMANDS, load
from agewise.cli.streams import PIPE_CLOSED
from agewise.privacy import LedgerForked, LedgerReplaced, LedgerRolledBack

AGEWISE = [str(Path(sys.executable).with_name("agewise"))]

LEVEL = ["--estimator", "best", "--level", "20,0.98"]


run = in_process.command


@pytest.fixture(autouse=True)
def _usual_width(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)


def test_ages_as_json():
    done = run("ages", "--json", "--epsilon", 0.3, "--mixing", "exact")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert len(rows) == 30
    last = next(r for r in rows if r["client"] == "client 3" and r["age"] == 4)
    chain = aw.scenarios.london().clients[2].process
    assert last["delta"] == pytest.approx(aw.total_variation(chain, 4))
    assert last["noise_scale"] == pytest.approx(1.8 / aw.classical_epsilon(0.3, last["delta"]))


def test_ages_as_a_table_and_figures(tmp_path):
    done = run("ages", "--out", tmp_path / "new" / "folder")
    assert done.returncode == 0, done.stderr
    assert "classical ε" in done.stdout
    assert {p.name for p in (tmp_path / "new" / "folder").iterdir()} == {
        "ages.png",
        "ages.svg",
        "ages.csv",
    }
    assert (tmp_path / "new" / "folder" / "ages.csv").read_text().count("\n") == 31


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ages", "--epsilon", "0"], "epsilon is 0.0; allowed: a finite number above 0"),
        (["ages", "--epsilon", "nan"], "epsilon is nan"),
        (["ages", "--epsilon", "much"], "not a valid float"),
        (["ages", "--mixing", "typo"], "'typo' is not one of 'exact'"),
        (["ages", "nowhere"], "nowhere"),
        (["ages", "--out", "/proc/none"], "--out is /proc/none"),
        (["typo"], "No such command"),
        (["plan", "--epsilon", "1e-200"], "finite noise"),
        (["plan", "--calibration", "tight"], "tight with mixing exact or own_law"),
        (["plan", "--capacity", "0"], "capacity is 0"),
        (["plan", "--seed", "-1"], "--seed is -1"),
        (["plan", "--level", "20"], "--level is '20'; allowed: two numbers, LOADING,CORRELATION"),
        (["plan", "--level", "20,0.98,1"], "--level is '20,0.98,1'"),
        (["run", "--level", "much,0.98"], "--level is 'much,0.98'"),
        (["plan", "--level", "20,1.1"], "level.correlation is 1.1; allowed: from 0 to 1"),
        (["compare", "--level", "nan,0.98"], "level.loading is nan"),
        (["plan", "--level", "20,0.98", "--estimator", "propagated"], "allowed: best or plain"),
        (["run", "--plan", "plan.json", *LEVEL], "given with --plan; allowed: one or the other"),
        (["plan", "--out", "/proc/none"], "--out is /proc/none"),
        (["schemes", "--epsilon", "-1"], "epsilon is -1"),
        (["reproduce", "all", "--out", "/proc/none"], "--out is /proc/none"),
        (["reproduce", "fig9"], "Invalid value for '[FIGURE]': 'fig9' is not one of 'fig1'"),
        (["init", "/proc/none/x"], "NAME is /proc/none/x.toml"),
        (["init", ""], "NAME is ''"),
        (["init", "london"], "not the name of a built-in"),
        (["plan", "--now", "4", "--collected", "x"], "--collected is 'x'; allowed: NAME=SLOT"),
        (["plan", "--collected", "client 1=2"], "--collected is given without --now"),
        (["plan", "--now", "99"], "now is 99"),
        (["plan", "lodon"], "Did you mean london?"),
        (
            ["plan", "--keep-best", "--method", "random"],
            "--keep-best is given with --method random",
        ),
    ],
)
def test_bad_input_ends_in_one_message_and_code_2(arguments, words):
    done = in_process.command(*arguments)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr


def test_every_command_is_listed_with_its_own_first_words():
    for name, (module, words) in COMMANDS.items():
        help_text = load(name).help.split("\n\n")[0]
        assert " ".join(help_text.split()) == words, name
        own = import_module(f"agewise.cli.{module}").commands.registered_commands
        if name not in ("ledger", "deploy"):
            names = {one.name or one.callback.__name__ for one in own}
            assert names == {other for other in COMMANDS if COMMANDS[other][0] == module}


def test_every_module_with_commands_is_listed():
    found = [import_module(f"agewise.cli.{one.name}") for one in iter_modules(cli.__path__)]
    listed = {f"agewise.cli.{module}" for module, _ in COMMANDS.values()}
    assert {one.__name__ for one in found if hasattr(one, "commands")} == listed


def test_a_misspelt_command_is_told_the_next_one():
    done = run("plam")
    assert done.returncode == 2
    assert "No such command 'plam'. Did you mean 'plan'?" in done.stderr


def test_a_wrong_value_names_its_option_and_no_variable():
    done = run("run", "london", "--epsilon", "x")
    assert done.returncode == 2
    assert "Invalid value for '--epsilon': 'x' is not a valid float." in done.stderr


def test_help_and_version():
    assert aw.__version__ in run("--version").stdout
    assert "Exit codes" in run("--help").stdout
    assert "Example" in run("ages", "--help").stdout
    assert "Ctrl-C go on with --resume;" in run("run", "--help").stdout  # lines fill the terminal


def test_plan_as_json_reads_back_as_a_plan():
    done = run("plan", "london", "--epsilon", 0.3, "--mixing", "exact", "--json")
    assert done.returncode == 0, done.stderr
    made = aw.Plan.from_json(done.stdout)
    assert made.ages == [0, 9, 8]
    assert made.gap == pytest.approx(20.976, abs=6e-4)
    assert done.stderr == ""


def test_plan_for_people_states_what_its_epsilon_assumes(tmp_path):
    done = run("plan", "--capacity", 1, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stdout.split())
    assert "ε assumes records that evolve independently" in words
    assert {p.name for p in tmp_path.iterdir()} == {"plan.json", "plan.png", "plan.svg"}
    assert aw.Plan.from_json((tmp_path / "plan.json").read_text()).collect_at == [10, 1, 2]


def test_a_plan_with_a_level_has_its_gains_and_rivals():
    done = run("plan", *LEVEL, "--mixing", "exact", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["ages"] == [9, 0, 4]
    assert document["gap"] == pytest.approx(135.4837, abs=1e-4)
    assert document["classical_fresh"] == pytest.approx(193.648, abs=1e-3)
    assert document["nothing_collected"] > 404
    assert len(document["gains"]) == 3
    made = aw.Plan.from_json(done.stdout)
    assert made.problem.level == (aw.Level(20.0, 0.98),)
    two = json.loads(run("plan", *LEVEL, "--level", "5,0", "--json").stdout)
    assert [one["loading"] for one in two["scenario"]["level"]] == [20.0, 5.0]


def test_a_verdict_stands_first():
    """The server's knowledge of the paper's clients beats the paper's plan."""
    lines = run("plan").stdout.splitlines()
    assert lines[0].startswith("Collect fresh data, and let the server use what it knows")
    assert "verdict" not in " ".join(lines)
    step = "agewise plan london --estimator best --ages 0 --out fresh && "
    assert f"Next: {step}agewise run --plan fresh/plan.json" in lines
    idle = run("plan", "--estimator", "best", "--epsilon", 0.01).stdout
    assert idle.startswith("Collect nothing: what the server knows already loses 4.70")
    assert "Next: Publish 76.6667 Wh, the mean that is known already" in idle
    assert run("plan", *LEVEL).stdout.startswith("london: aggregate in slot 10")


def test_comparisons_with_a_level():
    done = run("compare", *LEVEL[2:], "--mixing", "exact,any_prior", "--json")
    rows = json.loads(done.stdout)
    assert [round(row["gap"], 1) for row in rows] == [135.5, 147.8, 404.7, 193.6]
    rest = json.loads(run("compare", *LEVEL, "--json").stdout)
    assert [row["estimator"] for row in rest] == ["best", None, None]


def test_schemes_as_json():
    done = run("schemes", "--epsilon", 0.1, "--json")
    rows = json.loads(done.stdout)
    assert [row["scheme"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert rows[3]["ages"] == [1, 9, 9]
    assert rows[3]["gap"] == pytest.approx(132.003, abs=6e-4)
    assert rows[3]["bound"] == pytest.approx(414.382, abs=6e-4)
    assert {"epsilon", "mean_noise", "achieved_epsilon"} <= set(rows[0])


def test_schemes_for_people():
    done = run("schemes", "--epsilon", 0.03, "--epsilon", 0.1)
    assert "6) optimal + adaptive" in done.stdout
    assert "1045" in done.stdout
    known = [line.split() for line in done.stdout.splitlines() if "nothing collected" in line]
    assert [line[-2] for line in known] == ["4.70889", "4.70889"]
    assert "4.69303" in done.stdout  # classical, fresh, server's knowledge used


@pytest.mark.parametrize("command", ["plan", "compare", "schemes", "run --repetitions 0"])
def test_what_epsilon_covers_is_said_in_the_same_words(command, tmp_path):
    done = in_process.command(*command.split(), cwd=tmp_path)
    told = " ".join(done.stdout.split())
    assert "ε covers one record: compared with the same day had its value been another" in told
    uncovered = "what the release tells of the day, what all records share, and through it of every"
    assert f"ε does not cover {uncovered}" in told


def test_init_writes_a_file_that_plans_and_never_overwrites(tmp_path):
    assert run("init", "mine", cwd=tmp_path).returncode == 0
    assert run("plan", "mine.toml", cwd=tmp_path).returncode == 0
    (tmp_path / "mine.toml").write_text("precious")
    refused = run("init", "mine", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--force" in refused.stderr
    assert (tmp_path / "mine.toml").read_text() == "precious"
    assert run("init", "mine", "--force", cwd=tmp_path).returncode == 0


def test_a_bad_scenario_leaves_nothing_behind(tmp_path):
    (tmp_path / "bad.toml").write_text("epsilon = 3")
    done = run("plan", "bad.toml", "--out", "figures", cwd=tmp_path)
    assert done.returncode == 2
    assert "bad.toml: aggregate_at is missing" in " ".join(done.stderr.split())
    assert not (tmp_path / "figures").exists()


def ends_with():
    """The exit codes that the sources name, but 1: that of errors in Agewise itself."""
    found = {"0", str(PIPE_CLOSED), str(REFUTED)}
    for path in Path(cli.__file__).parents[1].rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        found |= set(re.findall(r"exit_code(?:: int)? = (\d+)$", source, re.MULTILINE))
        found |= set(re.findall(r"(?:typer\.Exit|sys\.exit)\((\d+)\)", source))
    return found - {"1"}


def test_every_exit_code_is_told_wherever_they_are_listed():
    docs = Path(__file__).parents[1]
    readme = (docs / "README.md").read_text(encoding="utf-8").partition("Exit codes:")[2]
    table = re.findall(r"^\| (\d+) \| ", readme.partition("\n## ")[0], re.MULTILINE)
    howto = (docs / "docs" / "howto.md").read_text(encoding="utf-8")
    sentence = howto.partition("Exit codes: ")[2].partition("\n\n")[0]
    codes = r"(?:^|, )\[?(\d+) [a-z]"
    listed = re.findall(codes, cli.app.info.epilog.removeprefix("Exit codes: "))
    assert table == listed == re.findall(codes, sentence.replace("\n", " "))
    assert set(table) == ends_with() >= {"2", "3", "4", "5", "6", "7", "8"}
    ledgers = (docs / "docs" / "running.md").read_text(encoding="utf-8")
    assert re.findall(r"\(`(Ledger\w+)`\) \| (\d) \|", ledgers) == [
        (kind.__name__, str(kind.exit_code))
        for kind in (LedgerRolledBack, LedgerForked, LedgerReplaced)
    ]


def test_the_readme_names_every_command_for_ledgers():
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    row = next(line for line in readme.splitlines() if line.startswith("| `agewise ledger "))
    assert [name for name in load("ledger").commands if name not in re.findall(r"\w+", row)] == []


def test_completion_is_offered():
    assert "--install-completion" in run("--help").stdout


@pytest.fixture
def ledger(tmp_path):
    from agewise.privacy import Event, Ledger, Policy

    chain = aw.birth_death(0.2, 0.3, [1, 2, 3])
    path = tmp_path / "north.ledger"
    with Ledger(path) as book:
        for key, private in (("a", True), ("b", False)):
            made = Event(
                key,
                "north",
                3,
                7,
                0.5,
                0.4,
                1.0,
                2.0,
                private,
                "exact",
                "f",
                "2026-01-01T00:00:00+00:00",
                b"\x01",
            )
            book.release(key, lambda _, made=made: made, Policy(), chain)
    return path


def test_ledgers_are_shown_verified_and_exported(ledger):
    before = ledger.read_bytes()
    assert "classical ε in all: 0.5" in run("ledger", "show", ledger).stdout
    rows = json.loads(run("ledger", "show", ledger, "--json").stdout)
    assert [row["classical_epsilon"] for row in rows] == [0.5, None]
    assert "2 events" in run("ledger", "verify", ledger).stdout
    assert json.loads(run("ledger", "export", ledger).stdout)[0]["payload"] == "01"
    assert run("ledger", "export", ledger, "--csv").stdout.count("\n") == 3
    assert ledger.read_bytes() == before


def test_a_damaged_ledger_is_refused(ledger, tmp_path):
    ledger.write_bytes(ledger.read_bytes()[:3000])
    for command in ("show", "verify", "export"):
        done = run("ledger", command, ledger)
        assert done.returncode == 2
        assert "Set it aside" in " ".join(done.stderr.split())
    assert run("ledger", "show", tmp_path / "nowhere").returncode == 2


def test_replanning_from_the_command_line():
    done = run("plan", "--now", 4, "--collected", "client 2=1", "--json")
    assert json.loads(done.stdout)["collect_at"] == [10, 1, 4]


def test_names_with_strange_letters_do_no_harm(tmp_path):
    from agewise.scenario import TEMPLATE

    text = TEMPLATE.replace('name = "north"', r'name = "[bold]x[/] $\\frac{$"')
    (tmp_path / "odd.toml").write_text(text, encoding="utf-8")
    done = run("plan", "odd.toml", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "[bold]x[/]" in done.stdout


def test_run_leaves_record_statement_and_picture(tmp_path):
    done = run("run", "--out", tmp_path, "--repetitions", 50)
    assert done.returncode == 0, done.stderr
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith("london-")
    assert {"record.json", "statement.md", "timeline.png", "timeline.svg", "ledgers"} <= {
        p.name for p in folder.iterdir()
    }
    words = " ".join(done.stdout.split())
    assert "standard errors from the plan's 127.07" in words
    assert "4.53935 Wh², server's knowledge used" in words
    assert "slot   1  client 2 uploaded" in done.stderr
    shown = run("ledger", "verify", folder / "ledgers" / "client 1.ledger")
    assert "1 event, unchanged since written." in shown.stdout


def test_what_a_verdict_tells_to_do_does_it(tmp_path):
    """The command after "Collect fresh data" makes the plan that the verdict speaks of."""
    done = run("plan", "--estimator", "best", "--ages", 0, "--out", tmp_path / "fresh")
    assert done.returncode == 0, done.stderr
    made = aw.Plan.from_json((tmp_path / "fresh" / "plan.json").read_text())
    assert made.ages == [0, 0, 0]
    assert made.gap == pytest.approx(4.53935, abs=1e-5)
    made = ("--plan", tmp_path / "fresh" / "plan.json", "--out", tmp_path / "runs")
    went = run("run", *made, "--repetitions", 20)
    assert went.returncode == 0, went.stderr


def test_a_run_with_a_level_says_what_it_covers_and_is_rehearsed(tmp_path):
    done = run("run", *LEVEL, "--out", tmp_path, "--repetitions", 20)
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stdout.split())
    assert "standard errors from the plan" in words
    for told in (
        "nothing collected 40",
        "classical, fresh, each client 193.648 Wh²",
        "ε covers a record's own part, the common level known",
        "ε does not cover what the release tells of the day, the common level",
        "the level standard deviation 20 Wh before a release, 11.",
    ):
        assert told in words
    assert "verdict on the plan" not in words
    paper = run("run", "--seed", 5, "--repetitions", 0, "--out", tmp_path)
    assert "verdict on the plan Collect fresh data" in " ".join(paper.stdout.split())


def test_run_as_json(tmp_path):
    missing = ("--on-missing", "replan", "--drop", "client 3")
    asked = ("run", "--json", "--seed", 5, "--out", tmp_path, *missing, "--repetitions", 0)
    done = run(*asked)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["private"] is False
    assert document["missing"] == {"client 3": "no upload by the deadline"}
    assert document["rehearsal"] is None
    assert document["statement"]["clients"][0]["aged_epsilon"] is None
    assert json.loads(run(*asked).stdout)["model"] == document["model"]


def test_run_of_a_plan_file(tmp_path):
    run("plan", "slow_and_fast", "--out", tmp_path)
    done = run(
        "run",
        "--plan",
        tmp_path / "plan.json",
        "--out",
        tmp_path / "runs",
        "--json",
        "--repetitions",
        0,
    )
    assert json.loads(done.stdout)["scenario"] == "slow_and_fast"


@pytest.mark.parametrize("interrupt", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_says_how_to_go_on(tmp_path, interrupt):
    wall = ["--clock", "wall", "--slot-seconds", "86400", "--on-missing", "renormalise"]
    begun = subprocess.Popen(
        [*AGEWISE, "run", *wall, "--out", str(tmp_path)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    for line in begun.stderr:
        if "client 3 uploaded" in line:
            begun.send_signal(interrupt)
            break
    _, rest = begun.communicate()
    assert begun.returncode == 130, rest
    (folder,) = tmp_path.iterdir()
    assert f"--resume {folder}" in rest
    assert "Released already: 2 of 3 clients: client 2, client 3." in rest
    settings = json.loads((folder / "run.json").read_text())
    settings["started"] -= 10 * 86400  # it is resumed when all its slots have passed
    (folder / "run.json").write_text(json.dumps(settings))
    done = run("run", "--resume", folder, "--json", "--repetitions", 0)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["participants"] == ["client 2", "client 3"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--drop", "client 2"], 4, "did not complete: client 'client 2' missing in slot 1"),
        (["--drop", "nobody"], 2, "drop is 'nobody'"),
        (["--max-classical-epsilon", "0.05"], 3, "0.05 remains. Nothing was released"),
        (["--max-aged-epsilon", "-1"], 2, "max_aged_epsilon is -1"),
        (["--window", "0"], 2, "window is 0"),
        (["--max-release-epsilon", "0.05"], 3, "its policy allows 0.05 each time"),
        (["--repetitions", "1"], 2, "--repetitions is 1"),
        (["--readings", "missing.csv"], 2, "ledgers is missing"),
        (["--readings", "missing.csv", "--ledgers", "ledgers"], 2, "an existing file"),
        (["--plan", "missing.json"], 2, "--plan is missing.json (No such file"),
        (["--plan", "missing.json", "--epsilon", "1"], 2, "--epsilon is given with --plan"),
        (["--resume", "nowhere"], 2, "without run.json"),
        (["--clock", "wall", "--slot-seconds", "-3"], 2, "slot_seconds is -3"),
        (["--out", "/proc/none"], 2, "/proc/none"),
        (["--seed", "-1"], 2, "--seed is -1"),
        (["--epsilon", "0"], 2, "epsilon is 0"),
    ],
)
def test_runs_that_are_refused(tmp_path, arguments, code, words):
    done = in_process.command("run", *arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert code == 4 or not list(tmp_path.iterdir())


def test_a_failed_run_says_where_it_is_and_who_has_released(tmp_path):
    done = run("run", "--drop", "client 1", "--out", "runs", cwd=tmp_path)
    assert done.returncode == 4
    (folder,) = (tmp_path / "runs").iterdir()
    assert "did not complete: client 'client 1' missing in slot 10" in done.stderr
    assert f"It was to be aggregated in slot 10. Folder: runs/{folder.name}" in done.stderr
    assert "Released already: 2 of 3 clients: client 2, client 3." in done.stderr
    assert f"agewise check runs/{folder.name}" in done.stderr
    first = run("run", "--drop", "client 2", "--drop", "client 3", "--out", "runs", cwd=tmp_path)
    assert "Released already: nothing." in first.stderr


def test_releases_of_many_clients_count_by_the_journal_alone(tmp_path):
    chain = aw.birth_death(0.2, 0.3, [1, 2, 3])
    crowd = [aw.Client(f"c{i}", chain, samples=5) for i in range(105)]
    aw.run(aw.plan(aw.Problem(crowd, 4, 0.5)), folder=tmp_path / "run")
    (tmp_path / "run" / "clients.ledger").unlink()
    assert "Released already: 105 of 105 clients" in aftermath(tmp_path / "run")


def test_releases_that_never_reached_the_server_count_as_released(tmp_path):
    done = run("run", "--drop", "client 1", "--out", tmp_path, "--ledgers", tmp_path / "ledgers")
    assert done.returncode == 4
    folder = next(p for p in tmp_path.iterdir() if p.name.startswith("london-"))
    (folder / "journal.jsonl").write_text("")
    told = aftermath(folder)
    assert "Released already: 2 of 3 clients: client 2, client 3." in told
    assert f"--ledgers {tmp_path / 'ledgers'}" in told
    (folder / "record.json").unlink()
    assert f"Go on with: agewise run --resume {folder}" in aftermath(folder)
    (folder / "run.json").write_text("{")
    assert f"{folder} cannot be read" in aftermath(folder)


@pytest.mark.parametrize("command", ["plan", "run", "deploy"])
def test_learners_that_need_a_table_belong_in_the_file(tmp_path, command):
    words = ["deploy", "init", tmp_path / "fed"] if command == "deploy" else [command]
    done = run(*words, "london", "--learner", "ridge")
    assert done.returncode == 2
    told = " ".join(done.stderr.split())
    assert "--learner is ridge; allowed: mean or histogram. Say in the scenario file" in told
    assert not list(tmp_path.iterdir())
    other = run("plan", "--learner", "median")
    assert other.returncode == 2
    assert "one of mean, histogram" in " ".join(other.stderr.split())


def test_a_ridge_regression_from_a_scenario_file(tmp_path):
    path = tmp_path / "homes.toml"
    problem = aw.scenarios.london().replace(
        learner=aw.Ridge([0, 1, 3, 2], [20, 50, 100, 200], names=["rooms"]), epsilon=1.0
    )
    path.write_text(aw.dump_scenario(problem), encoding="utf-8")
    done = run("run", path, "--seed", 1, "--out", tmp_path / "runs", "--repetitions", 20)
    assert done.returncode == 0, done.stderr
    assert "rooms: " in done.stdout
    folder = next((tmp_path / "runs").iterdir())
    assert run("check", folder).returncode == 0
    assert run("compare", path).returncode == 0
    document = tomllib.loads(path.read_text())
    document["learner"]["features"] = [[1.0], [1.0], [1.0], [1.0]]
    path.write_text(tomli_w.dumps(document))
    bad = run("plan", path)
    assert bad.returncode == 2
    assert "feature 'rooms' is 1 in every state" in " ".join(bad.stderr.split())


def test_a_deployment_is_laid_out_for_the_choices_given(tmp_path):
    choices = ["--learner", "histogram", "--mechanism", "gaussian", "--delta", "1e-6"]
    done = run("deploy", "init", tmp_path / "fed", "london", *choices, "--insecure")
    assert done.returncode == 0, done.stderr
    for path in (tmp_path / "fed").glob("nodes/*/node.toml"):
        node = tomllib.loads(path.read_text())
        assert node["scenario"]["learner"] == {"kind": "histogram"}
        assert (node["scenario"]["mechanism"], node["policy"]["max_delta"]) == ("gaussian", 1e-6)
    on_it = ["--engine", "flower", "-d", tmp_path / "fed", "--out", tmp_path]
    other = run("run", "london", *on_it)
    assert other.returncode == 2
    assert "mechanism is laplace in the order; client 'client 2' allows gaussian" in other.stderr
    same = run("run", "london", *on_it, *choices)
    assert f"agewise deploy up {tmp_path / 'fed'}" in same.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["fed"]  # nothing was begun


def test_deployments_are_laid_out_from_the_command_line(tmp_path):
    done = run("deploy", "init", tmp_path / "fed", "slow_and_fast", "--max-aged-epsilon", 1)
    assert done.returncode == 0, done.stderr
    assert "4 nodes" in done.stderr
    text = next((tmp_path / "fed" / "nodes").iterdir()).joinpath("node.toml").read_text()
    assert "max_aged_epsilon = 1.0" in text
    down = run("deploy", "status", tmp_path / "fed", "--json")
    assert down.returncode == 4
    assert json.loads(down.stdout)["up"] is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["deploy", "init", "/proc/none"], "deployment folder is /proc/none"),
        (["deploy", "init", "fed", "--port", "99999"], "port is 99999"),
        (["deploy", "init", "fed", "--max-aged-epsilon", "0"], "max_aged_epsilon is 0"),
        (["deploy", "init", "fed", "--readings", "r.csv", "--stand-in-seed", "1"], "simulated"),
        (["deploy", "up", "nowhere"], "agewise deploy init"),
        (["deploy", "down", "nowhere"], "agewise deploy init"),
        (["deploy", "status", "nowhere"], "agewise deploy init"),
        (["run", "--engine", "flower", "-d", "nowhere"], "agewise deploy init"),
        (["run", "--engine", "flower", "--superlink", "nowhere"], "HOST:PORT"),
        (["run", "--engine", "flower", "--superlink", "127.0.0.1:9"], "where none answers"),
        (["run", "--engine", "flower", "--drop", "client 1"], "none with engine 'flower'"),
        (["run", "-d", "fed"], "none with engine 'local'"),
        (["run", "--engine", "flower", "--wait", "0"], "wait is 0"),
    ],
)
def test_federations_that_are_refused(tmp_path, arguments, words):
    done = in_process.command(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir()), "something half-written"


def test_no_rounds_at_all_are_refused_by_the_name_of_the_option(tmp_path):
    done = run("rounds", "--now", 0, "--out", tmp_path)
    assert done.returncode == 2
    assert done.stderr.strip() == "Error: --now is 0; allowed: a whole number, 1 or more."
    assert not list(tmp_path.iterdir())


def test_rounds_go_on_from_the_command_line(tmp_path):
    done = run("rounds", "for_ever", "--now", 2, "--out", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [one["number"] for one in told["rounds"]] == [1, 2]
    assert max(one["epsilon"] for one in told["rounds"]) <= 0.1 * (1 + 1e-9)
    folder = Path(told["folder"])
    assert {"record.json", "statement.md", "rounds.png", "ledgers"} <= {
        path.name for path in folder.iterdir()
    }
    more = run("rounds", "--resume", folder, "--now", 3)
    assert more.returncode == 0, more.stderr
    assert "3 of every 10 slots for ever" in " ".join(more.stdout.split())
    checked = run("check", folder)
    assert checked.returncode == 0, checked.stdout
    assert "all of it follows" in checked.stdout
    both = run("rounds", "--resume", folder, "--epsilon", 5)
    assert both.returncode == 2
    assert "--epsilon" in both.stderr
