"""The shape of the project: imports run downward, names resolve, claims have tests."""

import ast
import functools
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
    "records",
    "process",
    "mixing",
    "mechanism",
    "learning",
    "privacy",
    "knowledge",
    "problem",
    "calibration",
    "loss",
    "scheduling",
    "scenarios",
    "scenario",
    "planning",
    "readings",
    "federation",
    "fitting",
    "auditing",
    "paper",
    "figures",
    "__init__",
    "testing",
    "explore",
    "cli",
]
"""Modules and packages, the lowest first: each imports itself and those before it only."""
UPWARD = {("planning/objectives.py", "paper")}
"""The one exception: search by an objective of the paper, imported when it is asked for."""


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


def test_imports_run_downward_only():
    for path in modules():
        own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        assert own in ORDER, f"{own} has no place in the order of imports"
        for name in imported(ast.parse(path.read_text())):
            above = ORDER.index(name) > ORDER.index(own)
            above = above and (path.relative_to(PACKAGE).as_posix(), name) not in UPWARD
            assert not above, f"{path} imports {name}, which is above {own}"


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


FIRST_VERSION = """
Ageing AgewiseError Assignment Bound BudgetExceeded Certificate Client Comparison ComparisonRow
CostTables Estimate Event Histogram InvalidInput JointLaw Ledger LedgerDamaged MarkovChain Mean
MeasuredLaw Noise Noised PeriodicChain Plan Policy Problem Process Release RunIncomplete RunResult
Schedule SchemeRow Shares SlotTable Statistics Target Total aged_approximate aged_epsilon
aged_loss birth_death chain_tables check_schedule classical_epsilon compare compare_schemes
composed_epsilon cost_tables delta_limit delta_table dump_scenario figures fit fitting
joint_delta laplace load_scenario loss_bound loss_gap noise_scale plan read_readings
rehearse replan resume run scenarios seeded_laplace sensitivity simulate_gap slot_table
solve_schedule solve_stream
"""
"""Names that other people's scripts may use: they stay, shown or not."""


def test_names_of_the_first_version_still_work():
    for name in FIRST_VERSION.split():
        value = getattr(aw, name)
        assert getattr(value, "__name__", name).split(".")[-1] == name
        assert (name in aw.__all__) == (name in dir(aw)), name


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("affordable_epsilon", "per_release_epsilon"),
        ("delta", "total_variation"),
        ("price", "evaluate"),
        ("steady_epsilon", "continual_epsilon"),
    ],
)
def test_names_that_changed_warn_and_still_work(old, new):
    with pytest.warns(DeprecationWarning, match=f"agewise.{old} is now agewise.{new}"):
        found = getattr(aw, old)
    assert found is getattr(aw, new)
    assert old not in aw.__all__


@pytest.mark.parametrize("name", ["aged_epsilon", "classical_epsilon"])
def test_arguments_that_changed_their_names_warn_and_still_work(name):
    function = getattr(aw, name)
    with pytest.warns(DeprecationWarning, match="delta of .* is now total_variation"):
        assert function(0.3, delta=0.4) == function(0.3, total_variation=0.4)
    ageing = aw.Ageing(aw.birth_death(0.3, 0.3, [0, 1]), 2)
    with pytest.warns(DeprecationWarning, match="total_variation"):
        assert ageing.delta == ageing.total_variation


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
    (
        COMMAND.format(["plan", "--json"]),
        "matplotlib flwr polars opendp scipy.stats scipy.fft sklearn agewise.paper",
    ),
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


DEEP = {
    "auditing": 16,
    "contracts": 15,
    "end_to_end": 4,
    "explore": 11,
    "federation": 23,
    "federation/flower": 26,
    "fitting": 16,
    "helpers": 32,
    "knowledge": 2,
    "learning": 2,
    "loss": 5,
    "mechanism": 2,
    "planning": 7,
    "privacy": 25,
    "process": 7,
    "readings": 1,
    "scheduling": 12,
    "statistical": 1,
    "tests": 31,
}
"""Statements by which tests import what is not public, by folder: write lower counts here."""


def explained():
    """Paths of all that is public: in the package itself, and on the pages of the reference."""
    yield from (f"agewise.{name}" for name in (*aw.__all__, *FIRST_VERSION.split()))
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    yield from re.findall(r"^\.\. (?:auto\w+|py:data):: (agewise[\w.]*)", pages, re.MULTILINE)
    for group in (*GROUPS, "testing"):
        names = importlib.import_module(f"agewise.{group}").__all__
        yield from (f"agewise.{group}.{name}" for name in names)


def deep(tree, public):
    """Statements of a file that import something of the package that is not public."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        own = [name for name in names if name.split(".")[0] == "agewise"]
        if set(own) - public - {"agewise"}:
            yield node


def folder_of(path):
    """Its folder; whatever only helps tests is counted by itself."""
    if not path.name.startswith("test_"):
        return "helpers"
    return str(path.parent.relative_to(ROOT / "tests")).replace(".", "tests")


def test_tests_import_less_and_less_that_is_not_public():
    """A count that rises is a test that breaks when the inside changes; one that falls is kept."""
    public, found = set(explained()), dict.fromkeys(DEEP, 0)
    for path in (ROOT / "tests").rglob("*.py"):
        count = len(list(deep(ast.parse(path.read_text()), public)))
        if count:
            found[folder_of(path)] = found.get(folder_of(path), 0) + count
    more = {name: count for name, count in found.items() if count > DEEP.get(name, 0)}
    assert not more, f"import these by a public path: {more}, allowed are {DEEP}"
    assert found == DEEP, "fewer than DEEP says: lower it"


def test_a_deep_import_is_seen():
    lines = (
        "import agewise as aw",
        "from agewise import Client, plan",
        "from agewise.planning import Plan",  # public as aw.Plan
        "from agewise.planning import Assignment",
        "import agewise.process.chain",
        "from agewise import cli, run",
        "from agewise.privacy import Ledger, ledger_file",
        "import numpy",
    )
    seen = [node.lineno for node in deep(ast.parse("\n".join(lines)), set(explained()))]
    assert seen == [3, 5, 6, 7]


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


CHOICES = {
    "laplace gaussian": ("mechanism/",),
    "exact own_law any_prior spectral": ("mixing.py",),
    "plain propagated best": ("learning/learner.py", "problem/problem.py"),
    "mean histogram statistics ridge logistic": ("learning/",),
    "client server": ("problem/problem.py",),
    "formula sharp tight": ("calibration/rules.py",),
    "independent level measured": ("knowledge/",),
}
"""The names of what a problem may choose, and where such a name may be asked for."""

BY_NAME = {
    "auditing": 19,
    "calibration": 1,
    "cli": 11,
    "explore": 1,
    "federation": 16,
    "figures": 1,
    "fitting": 11,
    "loss": 3,
    "paper": 2,
    "planning": 3,
    "privacy": 8,
    "problem": 4,
    "testing": 1,
}
"""Where else something depends on such a name, by part of the package: write lower counts here."""


def asked_by_name(tree, path):
    """Comparisons with the name of a choice, but for those where it is at home."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare):
            continue
        names = {
            part.value
            for side in (node.left, *node.comparators)
            for part in (side.elts if isinstance(side, ast.Tuple | ast.Set | ast.List) else [side])
            if isinstance(part, ast.Constant)
        }
        for choice, homes in CHOICES.items():
            if names & set(choice.split()) and not path.startswith(homes):
                yield node


def test_choices_are_asked_what_they_do_not_what_they_are_called():
    """So that another mechanism, adversary, estimator or learner is one more file."""
    found = {}
    for path in modules():
        part = path.relative_to(PACKAGE)
        count = len(list(asked_by_name(ast.parse(path.read_text()), str(part))))
        if count:
            found[part.parts[0]] = found.get(part.parts[0], 0) + count
    assert found == BY_NAME


@pytest.mark.parametrize(
    "line",
    [
        'problem.noise == "server"',
        'if target.mechanism != "laplace": pass',
        'problem.mixing in ("exact", "spectral")',
    ],
)
def test_a_choice_that_is_asked_by_name_is_seen(line):
    assert len(list(asked_by_name(ast.parse(line), "planning/plan.py"))) == 1
    assert not list(asked_by_name(ast.parse('named("server")'), "planning/plan.py"))
    assert not list(asked_by_name(ast.parse('kind == "gaussian"'), "mechanism/gaussian.py"))


@functools.cache
def parsed(path):
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def claimed():
    """The page of claims, up to what was measured."""
    return (ROOT / "docs" / "claims.md").read_text().partition("\n## ")[0]


def claims():
    """What computes each claim, and its test."""
    return re.findall(r"^\| .+? \| .+? \| `(.+?)` \| `(.+?)` \|$", claimed(), re.MULTILINE)


def test_claims_are_found():
    lines = [x for x in claimed().splitlines() if x[:2] == "| "]
    assert len(claims()) == len(lines) - 1 >= 15


@functools.cache
def functions(path):
    return {n.name for n in ast.walk(parsed(path)) if isinstance(n, ast.FunctionDef)}


def test_every_claim_names_a_function_and_a_test():
    for function, test in claims():
        module, name = function.rsplit(".", 1)
        importlib.import_module(module)
        assert callable(getattr(sys.modules[module], name)), function
        path, *_, case = test.split("::")
        assert case in functions(path), test


def left_to_test_all(tree, name):
    """Whether each mark on a test, its class or its file leaves all of it to `make test-all`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            yield "mark.slow" in ast.unparse(node.value)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            if name not in {getattr(one, "name", "") for one in ast.walk(node)}:
                continue
            for mark in node.decorator_list:
                yield ast.unparse(mark) == "pytest.mark.slow"
                if ast.unparse(mark).startswith("pytest.mark.parametrize"):
                    cases = mark.args[1]
                    if isinstance(cases, ast.List | ast.Tuple):
                        yield all("mark.slow" in ast.unparse(case) for case in cases.elts)


def test_every_claim_has_its_test_in_the_quick_suite():
    """Of its cases some may be slow: the others would fail if the claim were not so."""
    for _, test in claims():
        path, *_, case = test.split("::")
        assert not any(left_to_test_all(parsed(path), case)), case


def test_what_is_listed_as_slow_is_there_and_no_claim_rests_on_it_alone():
    claimed = {tuple(test.split("::")) for _, test in claims()}
    listed = (ROOT / "tests" / "slow.txt").read_text().splitlines()
    assert listed == sorted(set(listed))
    for line in listed:
        test, case, _ = line.partition("[")
        path, *names = test.split("::")
        functions = [n.name for n in ast.walk(parsed(path)) if isinstance(n, ast.FunctionDef)]
        inherited = names[0] in ("TestLocalRuns", "TestFlowerRuns")
        assert inherited or names[-1] in functions, line
        assert case or (path, *names) not in claimed, line


@pytest.mark.parametrize(
    "lines",
    [
        "@pytest.mark.slow\ndef test_it(): pass",
        "@pytest.mark.slow\nclass TestAll:\n    def test_it(self): pass",
        "pytestmark = [pytest.mark.slow]\ndef test_it(): pass",
        "@pytest.mark.parametrize('n', [pytest.param(1, marks=pytest.mark.slow)])\n"
        "def test_it(n): pass",
    ],
)
def test_a_claim_whose_test_is_slow_is_seen(lines):
    assert any(left_to_test_all(ast.parse(lines), "test_it"))
    assert not any(left_to_test_all(ast.parse(lines.replace("slow", "usual")), "test_it"))


def numbers():
    """Losses with the page that prints each, and the test that would fail without it."""
    page = (ROOT / "docs" / "claims.md").read_text()
    table = page.partition("\n## Losses with a common level")[2]
    return re.findall(r"^\| ([\d.]+) \| .+ \| \[\w+\]\((.+)\) \| `(.+)` \|$", table, re.MULTILINE)


def test_numbers_are_found():
    assert len(numbers()) == 8


@pytest.mark.parametrize(("number", "page", "test"), numbers())
def test_every_number_stands_on_its_page_and_in_its_test(number, page, test):
    """On the page with as many digits as it shows, in the test with all of them."""
    shown = re.findall(r"\d+\.\d+", (ROOT / "docs" / page).read_text())
    assert any(len(x) >= 5 and f"{float(number):.{len(x.split('.')[1])}f}" == x for x in shown)
    path, case = test.split("::")
    source = (ROOT / path).read_text()
    one = next(n for n in ast.parse(source).body if getattr(n, "name", "") == case)
    told = [*one.decorator_list, one]
    assert any(number in (ast.get_source_segment(source, part) or "") for part in told)


def test_the_table_of_changes_names_what_is_there():
    page = (ROOT / "docs" / "design.md").read_text()
    table = page[page.index("## What a change touches") : page.index("## Rules that keep")]
    rows = [row.split("|")[2:4] for row in table.splitlines() if row.startswith("| ")][1:]
    assert len(rows) == 13
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
