"""What can be audited, by name: scenarios, plans, runs, and functions of Python files."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from pathlib import Path as File
from typing import Any

from agewise.auditing.black_box import BlackBox
from agewise.auditing.plans import Claims, read_claims
from agewise.errors import InvalidInput
from agewise.federation.journal import ROUNDS, SETTINGS
from agewise.planning import Plan
from agewise.problem import Problem
from agewise.scenario import load_scenario

PYTHON = re.compile(r"(?P<module>[^:]+):(?P<name>[A-Za-z_]\w*)$")


def resolve(text: str) -> Any:
    """A problem, the claims of a plan, the folder of a run, or an object of a Python file."""
    path = File(text)
    if path.is_dir():
        if (path / SETTINGS).exists() or (path / ROUNDS).exists():
            return path
        raise InvalidInput("subject", text, "the folder of a run", "It holds no run.json.")
    if path.suffix == ".json":
        return read_claims(path)
    found = PYTHON.fullmatch(text)
    if found and not path.exists():
        return _load(found["module"], found["name"])
    if path.suffix == ".py":
        raise InvalidInput("subject", text, "FILE.py:NAME", "Name the function after a colon.")
    return load_scenario(text)


def _load(module: str, name: str) -> Any:
    """An object of a Python file or of an installed module."""
    try:
        loaded = _from_file(File(module)) if module.endswith(".py") else _installed(module)
    except InvalidInput:
        raise
    except Exception as error:
        raise InvalidInput(
            "subject",
            f"{module}, which raised {type(error).__name__}: {error}",
            "one that can be imported",
        ) from error
    if not hasattr(loaded, name):
        raise InvalidInput(
            "subject", f"{module} without {name!r}", "a function, a BlackBox or a plan in it"
        )
    value = getattr(loaded, name)
    if not callable(value) and not isinstance(value, BlackBox | Claims | Plan | Problem):
        raise InvalidInput("subject", f"{module}:{name}", "a function, a BlackBox or a plan")
    return value


def _installed(module: str) -> Any:
    return importlib.import_module(module)


def _from_file(file: File) -> Any:
    if not file.is_file():
        raise InvalidInput("subject", str(file), "a Python file that is there")
    spec = importlib.util.spec_from_file_location(f"audited_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise InvalidInput("subject", str(file), "a Python file")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    return loaded
