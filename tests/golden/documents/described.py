"""What is in documents, without Agewise: their versions, a few facts, and the names of their keys.

It reads JSON, TOML and SQL as they stand, so that it also reads what no code reads any more.
"""

from __future__ import annotations

import json
import math
import sqlite3
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

CLIENTS = ("north", "south", "west")


def documents(folder: Path) -> dict[str, dict[str, Any]]:
    """Each document by its name: its kind, its version, and what whoever reads it must find.

    A run's folder is one, with all that is in it.
    """
    found: dict[str, tuple[str, Path]] = {}
    found |= {path.name: ("scenario", path) for path in folder.glob("*.toml")}
    found |= {path.name: ("plan", path) for path in folder.glob("*.json")}
    found |= {path.name: ("orders", path) for path in folder.glob("messages")}
    for path in folder.glob("runs/*"):
        ended = "run" if (path / "record.json").exists() else "stopped"
        kind = "rounds" if (path / "rounds.json").exists() else ended
        found[f"runs/{path.name}"] = kind, path
    for path in [*folder.glob("*.ledger"), *folder.glob("*/*.ledger"), *folder.rglob("*.draws")]:
        copied = path.parent.name == "old_copies" and (folder / "state").exists()
        kind = "old copy" if copied else "ledger"
        found[path.relative_to(folder).as_posix()] = kind, path
    return {
        name: {"kind": kind, **FACTS[kind](path)}
        for name, (kind, path) in sorted(found.items(), key=lambda one: (one[1][0], one[0]))
    }


def of_scenario(path: Path) -> dict[str, Any]:
    told = tomllib.loads(path.read_text(encoding="utf-8"))
    return {"version": told["version"], "clients": len(told["clients"])}


def of_plan(path: Path) -> dict[str, Any]:
    told = parsed(path)
    slots = {one["client"]: one["collect_at"] for one in told["assignments"]}
    return {"version": told["version"], "objective": told["objective"], "slots": slots}


def of_orders(path: Path) -> dict[str, Any]:
    told = {one.name: parsed(one) for one in sorted(path.iterdir())}
    (version,) = {one["version"] for one in told.values()}
    return {"version": version, "scales": {k: one["noise_scale"] for k, one in told.items()}}


def of_ledger(path: Path) -> dict[str, Any]:
    with closing(opened(path)) as database:
        (schema,) = database.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
        columns = [row[1] for row in database.execute("PRAGMA table_info(events)")]
        name = "epsilon" if "epsilon" in columns else "classical_epsilon"
        spent = [row[0] for row in database.execute(f"SELECT {name} FROM events")]
    return {"version": schema, "events": len(spent), "epsilon": math.fsum(spent)}


def of_run(path: Path) -> dict[str, Any]:
    record = parsed(path / "record.json")
    versions = of_stopped(path) | {"statement": record["statement"]["version"]}
    return versions | {"uploads": len(record["participants"]), "loss": record["expected_gap"]}


def of_stopped(path: Path) -> dict[str, Any]:
    return {"version": parsed(path / "run.json")["version"]}


def of_rounds(path: Path) -> dict[str, Any]:
    each, statement = parsed(path / "record.json")["rounds"], of_run(path / "00001")["statement"]
    versions = {"version": parsed(path / "rounds.json")["version"], "statement": statement}
    epsilon, losses = ([one[name] for one in each] for name in ("epsilon", "expected_gap"))
    return versions | {"rounds": len(each), "epsilon": epsilon, "losses": losses}


FACTS = {
    "scenario": of_scenario,
    "plan": of_plan,
    "orders": of_orders,
    "ledger": of_ledger,
    "old copy": of_ledger,
    "run": of_run,
    "stopped": of_stopped,
    "rounds": of_rounds,
}


def shapes(folder: Path) -> set[tuple[str, str]]:
    """The versions, and the names of all keys, with the kind of file that they are in."""
    found: set[tuple[str, str]] = set()
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        name = "order" if path.parent.name == "messages" else path.name
        if path.suffix == ".toml":
            keys = set(keys_of(tomllib.loads(path.read_text(encoding="utf-8"))))
        elif path.suffix == ".json":
            name = "plan" if path.parent == folder else name
            name = "witness" if path.parent.name == "ledgers" else name
            keys = set(keys_of(parsed(path)))
        elif path.suffix == ".jsonl":
            keys = set()
            for line in path.read_text(encoding="utf-8").splitlines():
                keys |= set(keys_of(json.loads(line)))
        elif path.suffix == ".ledger" or path.name == "server.draws":
            keys = set(columns_of(path))
        else:
            continue
        kind = path.suffix if path.suffix in (".toml", ".ledger") else name
        found |= {(kind, key) for key in keys}
    return found


def columns_of(path: Path) -> Iterator[str]:
    """The tables of a ledger, what is noted beside its events, and the keys of its payloads."""
    with closing(opened(path)) as database:
        for (text,) in database.execute("SELECT sql FROM sqlite_master WHERE type = 'table'"):
            yield " ".join(text.split())
        for key, value in database.execute("SELECT key, value FROM meta"):
            yield f"{key.split()[0]}{f' {value}' if key == 'schema' else ''}"
        for (payload,) in database.execute("SELECT payload FROM events"):
            yield from keys_of(json.loads(payload or "null"))


def keys_of(document: Any, where: str = "") -> Iterator[str]:
    """The path of each value, and the value of each version."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield from keys_of(value, f"{where}.{'CLIENT' if key in CLIENTS else key}")
    elif isinstance(document, list):
        for value in document:
            yield from keys_of(value, f"{where}[]")
    else:
        yield f"{where} {document}" if where.endswith("version") else where


def opened(path: Path) -> sqlite3.Connection:
    """A ledger, without leaving anything beside it."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)


def parsed(path: Path) -> Any:
    """A file of JSON."""
    return json.loads(path.read_text(encoding="utf-8"))
