"""What plans, runs, ledgers, statements and checks say, each number under what it means.

A renamed key, a merged folder or a new version of a message changes the readers here, and no
number of `facts.jsonl`. Only public names and commands are used. Times, names of runs and hashes
are no facts.
"""

import itertools
import json
import math
import tempfile
from pathlib import Path

import cells
import numpy as np

import agewise as aw
import in_process

FACTS = Path(__file__).with_name("facts.jsonl")


def facts_of(cell):
    """All facts of a cell. Values are those of the seeded run; claims are of the private one."""
    with tempfile.TemporaryDirectory() as place:
        made = cells.plan(cell)
        private = Run(made, cell, Path(place, "private"))
        seeded = Run(made, cell, Path(place, "seeded"), np.random.default_rng(7))
        found = {
            "plan": plan_facts(made),
            "plan travels": travels(made),
            "scenario travels": scenario_travels(made.problem, Path(place, "scenario.toml")),
            "private": claims(private.facts()),
            "check finds": private.check(),
            "seeded": values(seeded.facts()),
            "resumed is the same": resumed_is_the_same(made, cell, Path(place, "cut"), seeded),
        }
    return {"cell": cell} | plain(kept(cell, found))


def travels(made):
    """Whether a plan that was written and read says the same."""
    again = aw.Plan.from_json(made.to_json())
    return again == made and plain(plan_facts(again)) == plain(plan_facts(made))


def scenario_travels(problem, path):
    path.write_text(aw.dump_scenario(problem), encoding="utf-8")
    return aw.load_scenario(path) == problem


class Run:
    """A plan that was carried out in a folder; what it leaves there is read by `facts`."""

    def __init__(self, made, cell, folder, rng=None, **choices):
        self.folder, self.ledgers = folder / "run", folder / "ledgers"
        if cell["ledgers"] == "one file":
            self.ledgers = folder / "all.ledger"
        if made.problem.mechanism == "gaussian":
            choices["policy"] = aw.Policy(max_delta=0.5)
        if cell["missing"] != "nobody":
            choices["on_missing"] = cell["missing"]
        if choices.get("engine") == "flower":
            self.ledgers = self.folder / "deployment" / "nodes"
        else:
            choices["ledgers"] = self.ledgers
            choices["drop"] = gone(cell)
        self.many = made.problem.rounds != 1
        if self.many:
            self.result = aw.run_rounds(made, rng, rounds=3, folder=self.folder, **choices)
        else:
            self.result = aw.run(made, rng=rng, folder=self.folder, **choices)

    def facts(self):
        found = {"private": self.result.private, "ledgers": ledger_facts(self.ledgers)}
        if not self.many:
            found["outcome"] = outcome_facts(self.result)
            return found | round_facts(self.folder)
        for one in self.result.rounds:
            place = self.folder / f"{one.number:05d}"
            found[f"round {one.number}"] = published_facts(one) | round_facts(place)
        return found

    def check(self):
        """What `agewise check` says differs: nothing, of an honest run."""
        words = "check", self.folder, "--json"
        if self.folder not in self.ledgers.parents:
            words = *words, "--ledgers", self.ledgers
        done = in_process.command(*words)
        assert done.returncode in (0, 5), done.stderr
        told = json.loads(done.stdout)
        assert told["compared"] > 10
        return [one["where"] for one in told["differences"]]


class Resumed(Run):
    """A run in another folder, like the one given, that goes on."""

    def __init__(self, run, folder):
        self.folder, self.ledgers, self.many = folder / "run", folder / run.ledgers.name, run.many
        self.result = (aw.resume_rounds if self.many else aw.resume)(self.folder)


def gone(cell):
    """The clients that never answer."""
    return [] if cell["missing"] == "nobody" else ["c"]


class Cut(BaseException):
    """What a kill looks like from inside."""


def resumed_is_the_same(made, cell, folder, seeded):
    """Whether a seeded run that was cut off after its second step and resumed says the same."""
    steps = itertools.count(1)

    def cut(*_):
        if next(steps) == 2:
            raise Cut

    try:
        Run(made, cell, folder, np.random.default_rng(7), watch=cut)
    except Cut:
        again = Resumed(seeded, folder)
        return not list(differences(plain(seeded.facts()), plain(again.facts())))
    return "it has no second step"


# What follows reads formats: the only part that a new one changes.


def plan_facts(made):
    facts = {
        "slots": made.collect_at,
        "scales": made.noise_scales,
        "spent": made.classical_epsilons,
        "loss": made.gap,
        "objective": made.objective,
        "lower bound": made.lower_bound,
        "nothing collected": made.nothing_collected,
        "classical, fresh": made.classical_fresh,
        "gains": np.ravel(np.asarray(made.gains, dtype=float)),
        "silent": made.unheard,
    }
    for one in made.assignments:
        facts[f"client {one.client}"] = {
            "age": one.age,
            "total variation": one.delta,
            "reach": one.sensitivity,
            "aged": one.aged_epsilon,
        }
    return facts


def outcome_facts(result):
    """What came of one round, with the plan as it was carried out."""
    return {
        "model": result.aggregate,
        "realised loss": result.realised_loss,
        "heard": sorted(result.participants),
        "missing": sorted(result.missing),
        "slots": result.plan.collect_at,
    }


def published_facts(one):
    """What came of one round of many."""
    return {
        "model": one.aggregate,
        "estimate": one.estimate,
        "loss": one.expected_gap,
        "loss of the estimate": one.estimate_gap,
        "realised loss": one.realised_loss,
        "published": one.published_at,
        "aged": one.epsilon,
        "spent": one.classical,
        "heard": one.participants,
        "missing": sorted(one.missing),
    }


def round_facts(folder):
    """What the folder of a round says: what reached the server, and the statement."""
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    statement = record["statement"]
    facts = {
        f"client {row['client']}": {name: row[key] for name, key in ROW.items()}
        for row in statement["clients"]
    }
    for client, told in uploads(folder):
        facts.setdefault(f"client {client}", {}).update(
            {name: told[key] for name, key in UPLOAD.items()}
        )
    return {"scale of the server's draw": statement.get("draw_scale")} | facts


ROW = {  # meaning: key of a row of the statement
    "target": "target_epsilon",
    "age": "age",
    "aggregated": "aggregated",
    "samples": "samples",
    "scale": "noise_scale",
    "spent": "classical_epsilon",
    "aged": "aged_epsilon",
    "odds": "aged_odds",
    "failure": "classical_delta",
    "aged failure": "aged_delta",
    "releases": "releases",
    "spent in all": "total_classical_epsilon",
    "aged in all": "total_aged_epsilon",
    "failure in all": "total_classical_delta",
    "aged failure in all": "total_aged_delta",
}

UPLOAD = {  # meaning: key of what a client sent
    "value": "value",
    "collected": "collect_at",
    "published": "aggregate_at",
    "members": "members",
    "noise by": "noise",
    "reach": "sensitivity",
    "total variation": "delta",
    "adversary": "mixing",
    "mechanism": "mechanism",
    "private": "private",
    "scale that was sent": "noise_scale",
    "spent, as sent": "classical_epsilon",
    "spent in all, as sent": "total_classical",
    "aged in all, as sent": "total_aged",
}


def uploads(folder):
    """Pairs of client and upload, from the journal of a round."""
    for line in (folder / "journal.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if "clients" in entry:  # alike, and answered together
            told = json.loads(entry["first"])
            for client, value in zip(entry["clients"], entry["values"], strict=True):
                yield client, told | {"value": json.loads(value)}
        elif "payload" in entry:
            told = json.loads(entry["payload"])
            if told["kind"] == "upload":
                yield told["client"], told


EVENT = {  # meaning: name of the field of a ledger's event
    "collected": "collect_at",
    "published": "aggregate_at",
    "spent": "classical_epsilon",
    "aged": "aged_epsilon",
    "failure": "delta",
    "aged failure": "aged_delta",
    "reach": "sensitivity",
    "scale": "scale",
    "private": "private",
    "adversary": "mixing",
    "mechanism": "kind",
    "noise by": "noise",
    "members": "members",
}


def ledger_facts(place):
    """What each client's ledger holds, one entry a release; what is not finite is None."""
    facts = {}
    for event in events(place):
        entry = {name: event[key] for name, key in EVENT.items()}
        entry = {name: None if one == math.inf else one for name, one in entry.items()}
        facts.setdefault(f"client {event['client']}", []).append(entry)
    return facts


def events(place):
    if place.is_file():  # the accounts of all
        return json.loads(in_process.command("ledger", "export", place).stdout)
    found = []
    for path in sorted(place.rglob("*.ledger")):
        with aw.Ledger.read(path) as ledger:
            found += [event.facts() for event in ledger.events()]
    return found


# What is kept of them, and how they are compared.

VALUES = {"value", "model", "estimate", "realised loss"}
"""Facts that hang on what was drawn."""


def claims(facts):
    """Facts without what was drawn."""
    if isinstance(facts, dict):
        return {key: claims(value) for key, value in facts.items() if key not in VALUES}
    return [claims(one) for one in facts] if isinstance(facts, list) else facts


def values(facts):
    """What was drawn, and whether anything private is claimed of it."""
    if not isinstance(facts, dict):
        return None
    kept = {}
    for key, value in facts.items():
        if key in VALUES or key == "private":
            kept[key] = value
        elif (inner := values(value)) not in (None, {}):
            kept[key] = inner
    return kept


def kept(cell, facts):
    """What of a cell's facts does not hang on how a tie was broken."""
    tied = cell["group"] == "alike" and cell["capacity"] == "two"
    return whoever_is_where(facts) if tied else facts


def whoever_is_where(facts):
    """Facts in which clients alike are a set: who of them takes which slot is a tie.

    Another order of sums may break it otherwise, so that what was drawn is left out, too.
    """
    if isinstance(facts, list | tuple):
        simple = all(isinstance(one, int | float | str) for one in facts)
        return sorted(facts) if simple else [whoever_is_where(one) for one in facts]
    if not isinstance(facts, dict):
        return facts
    kept, alike = {}, []
    for key, value in facts.items():
        if key in ("client b", "client b2", "client b3"):
            alike.append(whoever_is_where(value))
        elif key not in VALUES:
            kept[key] = whoever_is_where(value)
    return kept | ({"clients alike": sorted(alike, key=repr)} if alike else {})


def plain(value):
    """Facts as JSON holds them; infinities as words."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def canary():
    """Draws from a seed: where NumPy draws others, values are not compared."""
    drawn = np.random.default_rng([7, 1]).laplace(size=3)
    return [float(one).hex() for one in drawn] + np.random.default_rng(9).geometric(0.3, 4).tolist()


CLOSE = 1e-9
LOOSE = {"lower bound": 1e-6, "objective": 1e-6}
"""What a search stops at."""
NEAR_ZERO = 1e-12


def differences(told, found, path="", drawn=True):
    """Yield where facts differ: path, what was told, what was found."""
    last = path.rpartition("/")[2].partition("[")[0]
    if not drawn and last in VALUES:
        return
    if isinstance(told, dict) and isinstance(found, dict):
        for key in told | found:
            one, other = told.get(key, "absent"), found.get(key, "absent")
            yield from differences(one, other, f"{path}/{key}", drawn)
    elif isinstance(told, list) and isinstance(found, list) and len(told) == len(found):
        for place, (one, other) in enumerate(zip(told, found, strict=True)):
            yield from differences(one, other, f"{path}[{place}]", drawn)
    elif isinstance(told, float) and type(found) in (int, float):
        room = LOOSE.get(last, CLOSE) * max(abs(told), abs(found)) + NEAR_ZERO
        if not abs(told - found) <= room:
            yield path, told, found
    elif type(told) is not type(found) or told != found:
        yield path, told, found


def stored():
    """The facts that are stored, one entry for each cell; and whether NumPy still draws alike."""
    first, *rest = map(json.loads, FACTS.read_text(encoding="utf-8").splitlines())
    return rest, first["canary"] == canary()
