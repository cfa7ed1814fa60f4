"""The shape of the project: imports run downward, names resolve, claims have tests."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import agewise as aw

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "agewise"
ORDER = [
    "errors",
    "report",
    "progress",
    "wording",
    "documents",
    "checks",
    "arrays",
    "process",
    "mixing",
    "mechanism",
    "learning",
    "privacy",
    "knowledge",
    "clients",
    "target",
    "problem",
    "slot_tables",
    "terms",
    "chain_terms",
    "loss",
    "scheduling",
    "scenarios",
    "scenario",
    "schema",
    "planning",
    "schemes",
    "readings",
    "federation",
    "fitting",
    "auditing",
    "figures",
    "reproduction",
    "__init__",
    "explore",
    "cli",
]
"""Modules and packages, the lowest first: each imports itself and those before it only."""
LONGEST = 400
STILL_LONGER: set[str] = set()
"""Files that want splitting. None may be added."""


def modules():
    return sorted(PACKAGE.rglob("*.py"))


def imported(tree):
    """Names of the modules and packages directly below agewise that a file imports."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the whole path"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            top, *below = name.split(".")
            if top == "agewise":
                yield below[0] if below and below[0] in ORDER else "__init__"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_run_downward_only(path):
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert own in ORDER, f"{own} has no place in the order of imports"
    for name in imported(ast.parse(path.read_text())):
        assert ORDER.index(name) <= ORDER.index(own), f"{own} imports {name}, which is above it"


def test_newcomers_are_told_to_read_in_that_order():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    told = re.findall(r"`(\w+)`", page[page.index("**Reading order**") : page.index(". The\n")])
    assert told == [name for name in ORDER if name in told]
    assert len(told) > 25


def test_an_import_from_above_is_seen():
    lines = (
        "from agewise import cli",
        "from agewise.federation.rehearsing import replay",
        "import agewise.process.chain",
        "import agewise",
        "import numpy",
    )
    tree = ast.parse("\n".join(lines))
    assert list(imported(tree)) == ["cli", "federation", "process", "__init__"]


def test_files_stay_short():
    lengths = {str(p.relative_to(PACKAGE)): len(p.read_text().splitlines()) for p in modules()}
    assert {name for name, lines in lengths.items() if lines > LONGEST} == STILL_LONGER


FIRST_VERSION = """
Ageing AgewiseError Assignment Bound BudgetExceeded Certificate Client Comparison ComparisonRow
CostTables Estimate Event Histogram InvalidInput JointLaw Ledger LedgerDamaged MarkovChain Mean
MeasuredLaw Noise Noised PeriodicChain Plan Policy Problem Process Release RunIncomplete RunResult
Schedule SchemeRow Shares SlotTable Statistics Target Total aged_approximate aged_epsilon
aged_loss birth_death chain_tables check_schedule classical_epsilon compare compare_schemes
composed_epsilon cost_tables delta delta_limit delta_table dump_scenario figures fit fitting
joint_delta laplace load_scenario loss_bound loss_gap noise_scale plan price read_readings
rehearse replan resume run scenarios seeded_laplace sensitivity simulate_gap slot_table
solve_schedule solve_stream
"""
"""Names that other people's scripts may use: they stay, shown or not."""


@pytest.mark.parametrize("name", FIRST_VERSION.split())
def test_names_of_the_first_version_still_work(name):
    value = getattr(aw, name)
    assert getattr(value, "__name__", name).split(".")[-1] == name
    assert (name in aw.__all__) == (name in dir(aw))


GROUPS = ["figures", "fitting", "knowledge", "learning", "privacy", "scheduling"]


@pytest.mark.parametrize("group", GROUPS)
def test_groups_explain_themselves_and_their_names_resolve(group):
    module = getattr(aw, group)
    assert group in aw.__all__
    assert module.__doc__
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert not hasattr(module, "nothing_of_that_name")


def test_all_is_sorted_complete_and_resolves():
    assert aw.__all__ == sorted(aw.__all__)
    assert len(aw.__all__) - len(GROUPS) <= 48
    for name in aw.__all__:
        assert getattr(aw, name) is not None
    public = {
        name
        for name, value in vars(aw).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("agewise.")
    }
    assert public <= set(aw.__all__)


COMMAND = "sys.argv[1:] = {!r}\nfrom agewise.cli import main\nmain()"
LIGHT = [
    ("import agewise", "matplotlib flwr polars opendp typer pydantic scipy"),
    (COMMAND.format(["--help"]), "matplotlib flwr polars opendp scipy agewise.problem pydantic"),
    (COMMAND.format(["ages"]), "matplotlib flwr polars opendp scipy agewise.planning"),
    (COMMAND.format(["plan", "--json"]), "matplotlib flwr polars opendp scipy.stats sklearn"),
    (
        "import agewise as aw\naw.run(aw.plan(aw.scenarios.london()))",
        "matplotlib flwr polars scipy.stats sklearn opendp.extras",
    ),
    (  # a process that Flower starts for every message
        "import agewise.federation.flower.client_app\n"
        "from agewise.process import birth_death\n"
        "birth_death(0.1, 0.2, [1, 2, 3]).joint(1, 4)",
        "matplotlib polars opendp scipy agewise.planning agewise.scheduling agewise.loss",
    ),
]


@pytest.mark.parametrize(
    ("what", "heavy"), LIGHT, ids=["import", "help", "ages", "plan", "run", "node"]
)
def test_nothing_heavy_is_imported_before_it_is_needed(what, heavy):
    code = (
        f"import sys, atexit\natexit.register(lambda: print(*sys.modules, file=sys.stderr))\n{what}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert "agewise" in loaded
    assert loaded.isdisjoint(heavy.split())


def test_what_is_imported_on_demand_is_what_it_says():
    assert aw.fit is importlib.import_module("agewise.fitting.fit").fit
    assert aw.read_readings is importlib.import_module("agewise.readings").read_readings
    assert not hasattr(aw, "nothing_of_that_name")
    assert set(aw.__all__) <= set(dir(aw))


def test_no_assert_guards_anything_in_the_package():
    for path in modules():
        nodes = ast.walk(ast.parse(path.read_text()))
        assert not any(isinstance(node, ast.Assert) for node in nodes), path


def test_infinity_is_spelt_in_one_place():
    spelt = {
        str(path.relative_to(PACKAGE))
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value == "inf"
    }
    assert spelt == {"wording.py"}


PROCESSES = {"MarkovChain", "MeasuredLaw", "PeriodicChain"}
KNOW_PROCESSES = ("process/", "scenario.py")
"""Where it may matter which process it is; everywhere else it is what it says of itself."""


def told_apart(tree):
    """Names of process classes that a file tests objects for."""
    for node in ast.walk(tree):
        tested = []
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {
            "isinstance",
            "issubclass",
        }:
            tested = node.args[1:]
        elif isinstance(node, ast.Compare):
            tested = node.comparators
        elif isinstance(node, ast.MatchClass):
            tested = [node.cls]
        for part in tested:
            for name in ast.walk(part):
                word = getattr(name, "id", getattr(name, "attr", ""))
                if word in PROCESSES:
                    yield word


def test_processes_are_asked_not_told_apart():
    for path in modules():
        if not str(path.relative_to(PACKAGE)).startswith(KNOW_PROCESSES):
            assert not list(told_apart(ast.parse(path.read_text()))), path


@pytest.mark.parametrize(
    "line",
    [
        "isinstance(process, MarkovChain)",
        "isinstance(process, aw.MarkovChain | str)",
        "issubclass(kind, (str, MarkovChain))",
        "type(process) is MarkovChain",
        "match process:\n    case MarkovChain(): pass",
    ],
)
def test_a_process_told_apart_is_seen(line):
    assert list(told_apart(ast.parse(line))) == ["MarkovChain"]
    assert not list(told_apart(ast.parse("MarkovChain(transition, states)")))


def claims():
    rows = re.findall(
        r"^\| (.+?) \| .+? \| `(.+?)` \| `(.+?)` \|$",
        (ROOT / "docs" / "claims.md").read_text(),
        re.MULTILINE,
    )
    return [pytest.param(function, test, id=claim) for claim, function, test in rows]


def test_claims_are_found():
    lines = [x for x in (ROOT / "docs" / "claims.md").read_text().splitlines() if x[:2] == "| "]
    assert len(claims()) == len(lines) - 1 >= 15


@pytest.mark.parametrize(("function", "test"), claims())
def test_every_claim_names_a_function_and_a_test(function, test):
    module, name = function.rsplit(".", 1)
    importlib.import_module(module)
    assert callable(getattr(sys.modules[module], name))
    path, case = test.split("::")
    tree = ast.parse((ROOT / path).read_text())
    assert case in {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


def test_the_table_of_changes_names_what_is_there():
    page = (ROOT / "docs" / "design.md").read_text()
    table = page[page.index("## What a change touches") : page.index("## Rules that keep")]
    rows = [row.split("|")[2:4] for row in table.splitlines() if row.startswith("| ")][1:]
    assert len(rows) == 12
    for folder, changed in rows:
        files = re.findall(r"`([a-z_/]+\.py)`", changed)
        assert 1 <= len(files) <= 2
        for path in [*files, *re.findall(r"`([a-z_/]+/)`", folder)]:
            assert (PACKAGE / path).exists(), path


@pytest.mark.parametrize("first", ["laplace", "local", "virtual"])
def test_the_names_of_a_choice_are_spelt_out_once(first):
    lists = [
        f"{path.relative_to(PACKAGE)}: {line}"
        for path in modules()
        for line in path.read_text().splitlines()
        if f'Literal["{first}", ' in line
    ]
    assert len(lists) == 1, lists


def test_version_is_the_same_everywhere():
    text = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{aw.__version__}"' in text
    assert f"version: {aw.__version__}" in (ROOT / "CITATION.cff").read_text()


def test_no_two_files_of_tests_have_one_name():
    """They are imported by their bare names, so that one would hide the other."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(set(names)) == len(names)


def test_no_line_is_hidden_from_the_formatter():
    hidden = "fmt: " + "skip"
    folders = ("src", "tests", "examples", "benchmarks")
    files = [path for one in folders for path in (ROOT / one).rglob("*.py")]
    assert [str(path) for path in files if hidden in path.read_text(encoding="utf-8")] == []
