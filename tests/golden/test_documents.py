"""What earlier versions wrote is read as it was meant, or refused by its number; never changed.

The documents are those of `documents/manifest.json`, which says what becomes of each.
"""

import contextlib
import hashlib
import io
import json
import os
import re
import runpy
import shutil
import tarfile

import pytest
from archives import HERE, MANIFEST, make, pack
from described import documents, shapes

import agewise as aw
import in_process
from agewise.federation import Order
from parties import BadMessage

ARCHIVES = json.loads(MANIFEST.read_text(encoding="utf-8"))
SCRIPT = runpy.run_path(str(HERE.parents[2] / "examples" / "check_statement.py"))
NEWEST = list(ARCHIVES)[-1]


def unpacked(label, folder):
    with tarfile.open(HERE / f"{label}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def contents(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def scenario(path, facts):
    assert in_process.command("check", path).returncode == 0
    assert len(aw.load_scenario(path).clients) == facts["clients"]


def plan(path, facts):
    read = aw.Plan.from_json(path.read_text(encoding="utf-8"))
    assert {one.client: one.collect_at for one in read.assignments} == facts["slots"]
    assert read.objective == facts["objective"]


def orders(path, facts):
    read = {one.name: Order.decode(one.read_bytes()) for one in path.iterdir()}
    assert {name: order.noise_scale for name, order in read.items()} == facts["scales"]


def ledger(path, facts):
    events = json.loads(in_process.command("ledger", "show", path, "--json").stdout)
    assert len(events) == facts["events"]
    spent = sum(float(event["classical_epsilon"]) for event in events)
    assert spent == pytest.approx(facts["epsilon"], rel=1e-12)
    done = in_process.command("ledger", "verify", path)
    assert (done.returncode, "unchanged since written" in done.stdout) == (0, True)
    assert in_process.command("ledger", "export", path).returncode == 0
    if not facts["version"].startswith("6"):  # it is shown, and nothing more is released from it
        with pytest.raises(aw.InvalidInput, match=f"of schema {facts['version']}; allowed: schema"):
            aw.Ledger(path)


def old_copy(path, facts):
    """The witness knows what it has forgotten."""
    done = in_process.command("ledger", "verify", path)
    assert (done.returncode, done.stdout) == (6, "")
    assert "is an old copy: it has 1 events, and had 2. Nothing is released" in done.stderr


def run(path, facts):
    report = checked(path)
    assert (report["verified"], report["differences"]) == (facts["uploads"], [])
    if path.name in ("simple", "server"):
        assert by_script(path) == (0, "all the same")
    if path.name == "simple":  # of the others too, but that takes longer
        assert in_process.command("audit", path, *ledgers_of(path), "--draws", 0).returncode == 0


def stopped(path, facts):
    """It goes on, in a copy."""
    copy = shutil.copytree(path, path.parents[2] / "elsewhere" / path.name)
    assert sorted(aw.resume(copy).participants) == ["north", "south"]
    assert checked(copy)["differences"] == []


def rounds(path, facts):
    """They go on for one more, in a copy, if that was planned."""
    report = checked(path)
    assert (report["verified"], report["differences"]) == (2 * facts["rounds"], [])
    copy = shutil.copytree(path, path.parents[2] / "elsewhere" / path.name)
    done = facts["rounds"]
    told = aw.resume_rounds(copy, rounds=done + (path.name == "ever")).rounds
    assert len(told) == done + (path.name == "ever")
    assert [one.epsilon for one in told[:done]] == facts["epsilon"]
    assert [one.expected_gap for one in told[:done]] == facts["losses"]
    assert checked(copy)["differences"] == []


READ = {
    "scenario": scenario,
    "plan": plan,
    "orders": orders,
    "ledger": ledger,
    "old copy": old_copy,
    "run": run,
    "stopped": stopped,
    "rounds": rounds,
}


def ledgers_of(path):
    """Where the ledgers of a run lie that are not in its own folder."""
    names = {"simple": "ledgers", "later": "ledgers", "alike": "clients.ledger"}
    return ["--ledgers", path.parents[1] / names[path.name]] if path.name in names else []


def checked(path):
    done = in_process.command("check", path, *ledgers_of(path), "--json")
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def by_script(path):
    """What the script that does without Agewise ends with, and the end of what it says."""
    exported = path.parents[2] / "exported" / path.name
    exported.mkdir(parents=True)
    kept = path / "ledgers" if (path / "ledgers").exists() else path.parents[1] / "ledgers"
    for ledger in [*kept.glob("*.ledger"), *path.glob("server.draws")]:
        name = f"{ledger.name.removesuffix('.ledger')}.json"
        (exported / name).write_text(in_process.command("ledger", "export", ledger).stdout)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = SCRIPT["main"](path, exported)
    return code, said.getvalue().strip().rpartition(": ")[2]


def attempts(facts, path):
    """What one might do with a document that is refused."""
    own, kind = ledgers_of(path), facts["kind"]
    if kind == "plan":
        return [["audit", path]]
    if kind == "ledger":
        return [["ledger", "verify", path]]
    resume = ["rounds" if kind == "rounds" else "run", "--resume", path]
    if kind == "stopped":
        return [resume]
    looks = [["check", path, *own], ["audit", path, *own]]
    return [*looks, resume] if kind == "rounds" or "run folder" in facts["says"] else looks


def refused(path, facts):
    kind, says = facts["kind"], facts["says"]
    if kind == "orders":
        for one in path.iterdir():
            with pytest.raises(BadMessage, match=says):
                Order.decode(one.read_bytes())
        return
    if kind == "plan":
        with pytest.raises(aw.InvalidInput, match=says):
            aw.Plan.from_json(path.read_text(encoding="utf-8"))
    if kind == "run":
        told = f"statements of version {facts['statement']}, only of 6"
        assert by_script(path) == (2, told)
    for words in attempts(facts, path):
        done = in_process.command(*words)
        assert (done.returncode, done.stdout) == (2, ""), words
        (line,) = done.stderr.splitlines()
        assert re.search(says, line), words


def differs(path, facts):
    """Numbers of this kind have changed since, and their format has kept its number."""
    if facts["kind"] == "plan":
        with pytest.raises(aw.InvalidInput, match=facts["says"]):
            aw.Plan.from_json(path.read_text(encoding="utf-8"))
        return
    done = in_process.command("check", path, "--json")
    (found,) = json.loads(done.stdout)["differences"]
    assert (done.returncode, found["where"]) == (5, facts["says"])


@pytest.mark.parametrize("label", ARCHIVES)
def test_documents_of_earlier_versions(label, tmp_path, monkeypatch):
    folder = unpacked(label, tmp_path / label)
    monkeypatch.setenv("AGEWISE_STATE", str(folder / "state"))
    before = contents(folder)
    for name, facts in ARCHIVES[label].items():
        now = {"read": READ[facts["kind"]], "refused": refused, "differs": differs}
        try:
            now[facts["now"]](folder / name, facts)
        except (AssertionError, aw.AgewiseError, BadMessage) as error:
            error.add_note(f"{name}: {facts}")
            raise
        assert contents(folder) == before, name


@pytest.mark.parametrize("label", ARCHIVES)
def test_the_manifest_is_about_what_is_in_the_archives(label, tmp_path):
    told = {
        name: {fact: value for fact, value in facts.items() if fact not in ("now", "says")}
        for name, facts in ARCHIVES[label].items()
    }
    assert told == documents(unpacked(label, tmp_path))


def test_archives_are_small_and_all_known():
    sizes = {path.name: path.stat().st_size for path in HERE.glob("*.xz")}
    assert set(sizes) == {f"{label}.tar.xz" for label in ARCHIVES}
    assert max(sizes.values()) < 40_000
    assert sum(sizes.values()) < 500_000


def test_what_is_written_now_is_in_the_newest_archive(tmp_path, monkeypatch):
    """Whoever changes what is written adds an archive: `make documents LABEL=...`."""
    archived = shapes(unpacked(NEWEST, tmp_path / "old"))
    (tmp_path / "new").mkdir()
    monkeypatch.setenv("AGEWISE_STATE", str(tmp_path / "new" / "state"))
    monkeypatch.chdir(tmp_path / "new")
    make()
    now = shapes(tmp_path / "new")
    assert now - archived == set(), "no archive has these"
    assert archived - now == set(), "these are not written any more"


def test_the_same_files_give_the_same_archive(tmp_path):
    for name, when in (("one", 1), ("other", 2)):
        folder = tmp_path / name
        folder.mkdir()
        for file in ("a", "b") if when == 1 else ("b", "a"):
            (folder / file).write_text(file)
            os.utime(folder / file, (when, when))
        pack(folder, tmp_path / f"{name}.tar.xz")
    assert (tmp_path / "one.tar.xz").read_bytes() == (tmp_path / "other.tar.xz").read_bytes()
