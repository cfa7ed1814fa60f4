"""What people see: narrow and plain terminals, closed pipes, Ctrl-C."""

import io
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import agewise as aw
from agewise.cli import app, planning
from agewise.cli.layout import Column, print_facts, print_table

AGEWISE = str(Path(sys.executable).with_name("agewise"))


def run(*arguments, cwd=None, **environment):
    kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LANG", "LC_ALL")}
    return subprocess.run(
        [AGEWISE, *map(str, arguments)],
        capture_output=True,
        cwd=cwd,
        check=False,
        env={**kept, **environment},
    )


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    problem = aw.scenarios.london()
    aw.run(aw.plan(problem), folder=out / "one")
    return out / "one" / "ledgers" / "client 2.ledger"


NUMBERS = {
    "plan": ["13.93", "0.7622", "0.1293"],
    "schemes": ["295.395", "643.3"],
    "ages": ["0.1293", "13.93"],
    "run --seed 1 --repetitions 0": ["13.93", "0.7622"],
    "ledger show": ["0.1293", "13.93"],
}


def invoked(*arguments, width):
    done = CliRunner(env={"COLUMNS": str(width)}).invoke(app, [str(one) for one in arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("width", [80, 60, 40])
@pytest.mark.parametrize("command", NUMBERS)
def test_tables_never_cut_a_number(command, width, ledger, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = invoked(*command.split(), *([ledger] if "ledger" in command else []), width=width)
    assert "…" not in text
    for number in NUMBERS[command]:
        assert re.search(rf"(?<![\w.]){re.escape(number)}(?![\w.])", text), number
    # Paths, and commands to copy, stay in one line.
    short = [x.rstrip() for x in text.splitlines() if ".ledger" not in x and "Next: " not in x]
    longest = max(map(len, short))
    assert longest <= width or width == 40


def shown(width, columns, rows):
    screen = Console(file=io.StringIO(), width=width)
    print_table(screen, "numbers", columns, rows)
    return screen.file.getvalue()


def test_a_table_takes_the_widest_form_that_fits():
    columns = [Column("client", words=True), Column("noise scale"), Column("odds", spare=True)]
    rows = [("a client with a long name", "123456.789012", "1.2345678901")]
    assert "noise scale" in shown(80, columns, rows)
    assert "odds" in shown(45, columns, rows)
    dropped = shown(34, columns, rows)
    assert "Left out for want of room: odds." in " ".join(dropped.split())
    assert "123456.789012" in dropped
    stacked = shown(20, columns, rows)
    assert "odds         1.2345678901" in stacked
    assert "noise scale  123456.789012" in stacked


def test_noise_scale_and_noise_power_have_their_own_names_and_units():
    assert "noise scale (Wh)" in invoked("plan", width=120)
    assert "noise scale (Wh)" in invoked("ages", width=120)
    schemes = invoked("schemes", width=120)
    assert "mean noise power (Wh²)" in schemes
    assert "bound (Wh²)" in schemes


PLAIN = [{"PYTHONIOENCODING": "ascii"}, {"LANG": "C"}, {"LC_ALL": "C"}]


@pytest.mark.parametrize("plain", PLAIN[1:], ids=["LANG", "LC_ALL"])
def test_help_for_plain_terminals_has_words_for_letters(plain):
    helped = run("plan", "--help", **plain).stdout.decode("ascii")
    assert "Privacy target eps" in helped
    assert "?" not in helped


@pytest.mark.parametrize(
    "plain", [PLAIN[0], *(pytest.param(one, marks=pytest.mark.slow) for one in PLAIN[1:])]
)
def test_plain_terminals_get_words_for_letters(plain, tmp_path):
    done = run("run", "--epsilon", 20, "--out", tmp_path, "--repetitions", 20, **plain)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode("ascii")
    for word in ("aged eps above 10", "Delta", "Wh^2", "+/-"):
        assert word in text
    helped = run("plan", "--help", **plain).stdout.decode("ascii")
    assert "Privacy target eps" in helped
    refused = run("run", "--max-classical-epsilon", 0.05, "--out", tmp_path, **plain)
    assert refused.returncode == 3
    told = refused.stderr.decode("ascii")
    assert "eps" in told
    assert "?" not in text + helped + told
    (folder,) = tmp_path.iterdir()
    assert "aged ε" in (folder / "statement.md").read_text(encoding="utf-8")


def test_facts_are_aligned_after_letters_are_spelt_out():
    screen = Console(file=io.TextIOWrapper(io.BytesIO(), "ascii"), width=60)
    print_facts(screen, [("ε", "one"), ("longer", "two")])
    screen.file.flush()
    assert screen.file.buffer.getvalue().decode().splitlines()[0].index("one") == 8


@pytest.mark.parametrize(
    "arguments", [["plan"], ["plan", "--json"], ["--help"], ["--version"], ["ledger"]]
)
def test_a_closed_pipe_ends_a_command_quietly(arguments, ledger):
    if arguments == ["ledger"]:
        arguments = ["ledger", "export", str(ledger), "--csv"]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [AGEWISE, *arguments], stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert done.returncode == 141
    assert done.stderr == b""


@pytest.mark.parametrize("module", ["agewise.planning", "agewise.cli.streams", "shellingham"])
def test_ctrl_c_while_modules_are_imported_is_quiet(module, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
    )
    done = run("plan", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_ctrl_c_with_keep_best_prints_the_best_schedule_and_its_gap(tmp_path, monkeypatch, rng):
    chains = [aw.birth_death(*rng.uniform(0.02, 0.4, 2), [20, 50, 100, 200]) for _ in range(30)]
    clients = [aw.Client(str(i), one, samples=50 + i) for i, one in enumerate(chains)]
    path = tmp_path / "many.toml"
    path.write_text(aw.dump_scenario(aw.Problem(clients, 20, 0.1, estimator="plain")))

    @contextmanager
    def interrupting(_description):
        def advance(_done, _total):
            raise KeyboardInterrupt

        yield advance

    monkeypatch.setattr(planning, "progress_bar", interrupting)
    done = CliRunner().invoke(app, ["plan", str(path), "--keep-best"])
    assert done.exit_code == 0
    words = " ".join(done.stdout.split())
    assert "The search was interrupted; this is the best schedule until then." in words
    assert "no schedule has an objective below" in words
    assert "relative gap" in words
    assert CliRunner().invoke(app, ["plan", str(path)]).exit_code == 130
