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
    "errors", "report", "process", "mixing", "mechanism", "learning", "privacy", "problem", "terms",
    "loss", "scheduling", "scenarios", "scenario", "planning", "schemes", "federation", "fitting",
    "figures", "reproduction", "__init__", "cli",
]  # fmt: skip


def layer(module):
    parts = module.split(".")
    return ORDER.index(parts[1] if len(parts) > 1 else "__init__")


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.name)
def test_imports_run_downward_only(path):
    relative = path.relative_to(PACKAGE)
    own = ORDER.index(relative.parts[0].removesuffix(".py"))
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("agewise"):
            names = (
                [f"{node.module}.{a.name}" for a in node.names]
                if node.module == "agewise"
                else [node.module]
            )
            for name in names:
                part = name.split(".")[1]
                target = ORDER.index(part) if part in ORDER else ORDER.index("__init__")
                assert target <= own, f"{relative} imports {name}, which stands above it"


def test_all_is_sorted_complete_and_resolves():
    assert aw.__all__ == sorted(aw.__all__)
    for name in aw.__all__:
        assert getattr(aw, name) is not None
    public = {
        name
        for name, value in vars(aw).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("agewise.")
    }
    assert public <= set(aw.__all__)


def test_importing_the_package_is_light():
    code = (
        "import sys, agewise; heavy = 'matplotlib', 'flwr', 'polars', 'opendp', 'typer';"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_assert_guards_anything_in_the_package():
    for path in PACKAGE.rglob("*.py"):
        assert not any(isinstance(n, ast.Assert) for n in ast.walk(ast.parse(path.read_text()))), (
            path
        )


def claims():
    rows = re.findall(r"^\| (.+?) \| .+? \| `(.+?)` \| `(.+?)` \|$",
                      (ROOT / "docs" / "claims.md").read_text(), re.MULTILINE)  # fmt: skip
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


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda p: p.name)
def test_links_between_pages_resolve(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_version_is_the_same_everywhere():
    text = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{aw.__version__}"' in text
    assert f"version: {aw.__version__}" in (ROOT / "CITATION.cff").read_text()
