"""Write a small document of every kind that a version of Agewise writes, and pack them.

    python tests/golden/documents/archives.py LABEL

makes LABEL.tar.xz here with the code that is imported: what is installed, or an earlier version by
PYTHONPATH. What a version cannot do yet is left out. Nothing that was written is edited. What the
archive holds is added to manifest.json, as documents that are read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import lzma
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from described import documents

HERE = Path(__file__).parent
MANIFEST = HERE / "manifest.json"
AGGREGATE_AT, EPSILON = 3, 0.5


def main(label: str) -> None:
    """Make the documents in a folder of their own, pack them, and say what they are."""
    if (HERE / f"{label}.tar.xz").exists():
        sys.exit(f"{label} is there already: what it holds never changes. Give another label.")
    folder = Path(tempfile.mkdtemp(prefix="agewise-"))
    os.environ["AGEWISE_STATE"] = str(folder / "state")
    with contextlib.chdir(folder):
        make()
    pack(folder, HERE / f"{label}.tar.xz")
    known = json.loads(MANIFEST.read_text(encoding="utf-8")) if MANIFEST.exists() else {}
    made = {name: {**facts, "now": "read"} for name, facts in documents(folder).items()}
    MANIFEST.write_text(written({**known, label: made}), encoding="utf-8")
    shutil.rmtree(folder)


def written(manifest: dict[str, dict[str, Any]]) -> str:
    """A manifest with a document on each line."""
    archives = []
    for label, entries in manifest.items():
        lines = (f"  {json.dumps(name)}: {json.dumps(facts)}" for name, facts in entries.items())
        archives.append(f"{json.dumps(label)}: {{\n" + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(archives) + "\n}\n"


def make() -> None:
    """Write all documents to the current folder."""
    import agewise as aw  # after AGEWISE_STATE is set

    begun()
    made = {name: aw.plan(problem) for name, problem in problems(aw).items()}
    for name, plan in made.items():
        write(f"{name}.toml", aw.dump_scenario(plan.problem).encode())
        write(f"{name}.json", plan.to_json().encode())
    if not hasattr(aw, "run"):
        release(aw)
        return
    for name, plan in made.items():
        if name in ("rounds", "ever") and not hasattr(aw, "run_rounds"):
            continue
        with orders_kept(f"messages/{name}"):
            if name == "simple":
                aw.run(plan, folder="runs/simple", ledgers="ledgers")
            elif name == "alike":
                aw.run(plan, folder="runs/alike", ledgers="clients.ledger")
            elif name == "ever":
                aw.run_rounds(plan, folder="runs/ever", rounds=2)
            elif name == "rounds":
                aw.run_rounds(plan, folder="runs/rounds")
            else:
                aw.run(plan, folder=f"runs/{name}")
    plan = made["simple"]
    shutil.copytree("ledgers", "old_copies")
    more = {"starts_at": AGGREGATE_AT, "policy": aw.Policy(20 * EPSILON)}
    aw.run(plan, folder="runs/later", ledgers="ledgers", **more)
    aw.run(plan, folder="runs/missing", on_missing="renormalise", drop=["south"])
    aw.run(plan, rng=np.random.default_rng(1), folder="runs/stand_in")
    with contextlib.suppress(Stopped):
        aw.run(plan, folder="runs/stopped", watch=stop)


def begun() -> None:
    """The scenario that `agewise init` begins with."""
    with (
        contextlib.suppress(SystemExit),
        contextlib.redirect_stdout(io.StringIO()),
        mock.patch.object(sys, "argv", ["agewise", "init", "begun.toml"]),
    ):
        import_module("agewise.cli").main()
    Path("scenario.schema.json").unlink(missing_ok=True)


def problems(aw: Any) -> dict[str, Any]:
    """Small problems by what is special about them."""
    process = aw.birth_death(0.2, 0.3, [1, 2, 3])
    clients = [aw.Client(name, process, samples=5) for name in ("north", "south")]
    simple = aw.Problem(clients, AGGREGATE_AT, EPSILON, capacity=1)
    has = {field.name for kind in (simple, clients[0]) for field in dataclasses.fields(kind)}
    made = {"simple": simple}
    if "mechanism" in has:
        noise = {"mechanism": "gaussian", "delta": 1e-5}
        made["gaussian"] = simple.replace(learner=aw.Histogram(), **noise)
    if "level" in has:
        level = import_module("agewise.knowledge").Level(0.2, 0.9)
        made["level"] = simple.replace(level=level, capacity=None, estimator="best")
    if "noise" in has:
        made["server"] = simple.replace(noise="server")
    if "members" in has:
        gateways = [dataclasses.replace(one, members=4) for one in clients]
        made["members"] = simple.replace(clients=gateways)
    if "rounds" in has:
        lasting = simple.replace(rounds=3, every=AGGREGATE_AT, promise="every_moment")
        made["rounds"] = lasting
        made["ever"] = lasting.replace(rounds=None, promise="present")
    if find_spec("agewise.privacy.accounts"):  # one file for all clients
        third = dataclasses.replace(clients[0], name="west")
        made["alike"] = simple.replace(clients=[*clients, third], capacity=None)
    return {name: problem.replace(name=name) for name, problem in made.items()}


class Stopped(Exception):
    """A run is cut off."""


def stop(step: Any, *_: object) -> None:
    """Watch a run, and cut it off after the first step of a client."""
    if step.client:
        raise Stopped


@contextlib.contextmanager
def orders_kept(folder: str) -> Iterator[None]:
    """Write the orders that a server gives meanwhile, as they would travel."""
    server = import_module("agewise.federation.server").Server
    usual, told = server.orders, list[bytes]()

    def orders(self: Any, slot: int) -> Any:
        due = usual(self, slot)
        told.extend(one.encode() for one in due)
        return due

    server.orders = orders
    try:
        yield
    finally:
        server.orders = usual
    for number, order in enumerate(dict.fromkeys(told), start=1):
        write(f"{folder}-{number}.json", order)


def release(aw: Any) -> None:
    """A ledger of one release, of versions that had no runs yet."""
    process = aw.birth_death(0.2, 0.3, [1, 2, 3])
    facts = {"key": "one", "client": "north", "collect_at": 1, "aggregate_at": AGGREGATE_AT}
    noise = {"epsilon": EPSILON, "sensitivity": 0.2, "scale": 0.4, "private": True}
    rest = {"made_at": "2026-01-01T00:00:00+00:00", "payload": b"1.5"}
    module = import_module("agewise.privacy.ledger")
    if "aged_epsilon" in module.Event.__annotations__:
        noise["aged_epsilon"] = EPSILON
    event = module.Event(**facts, **noise, **rest, fingerprint=process.fingerprint)
    with module.Ledger("north.ledger") as ledger:
        ledger.release("one", lambda *_: event, module.Policy(), process)


def write(name: str, content: bytes) -> None:
    """Write a file, and the folder it is in."""
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_bytes(content)


def pack(folder: Path, target: Path) -> None:
    """The same files give the same bytes."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(one for one in folder.rglob("*") if one.is_file()):
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
            entry.size, entry.mode = path.stat().st_size, 0o600
            archive.addfile(entry, io.BytesIO(path.read_bytes()))
    target.write_bytes(lzma.compress(made.getvalue(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    main(*sys.argv[1:])
