"""Whoever sees everything: an account of its own of what every client has let out."""

import contextlib
import itertools
import json
import sqlite3

import numpy as np

from agewise.federation.files import ledger_file
from agewise.federation.one_draw import DRAWS


class Violation(AssertionError):
    """Something happened that must not, whatever fails."""


class Observer:
    """Compares what is sent, received and published with what the ledgers hold on disk."""

    def __init__(self, world, plan, place, limit):
        self.world, self.plan, self.place, self.limit = world, plan, place, limit
        self.seen = {}
        """The bytes of each client's release in each run, once they were seen anywhere."""
        self.readers = {}
        self.draws = {}
        """What the server has recorded of its one draw, by run."""

    def close(self):
        for database in self.readers.values():
            database.close()

    def violated(self, what):
        raise Violation("\n".join([f"seed {self.world.seed}: {what}", *self.world.trace]))

    def recorded(self, client):
        """What a client's ledger holds on disk, by run."""
        path = ledger_file(self.place, client)
        if not path.exists():
            return {}
        if client not in self.readers:
            self.readers[client] = sqlite3.connect(path)
        rows = (
            self.readers[client]
            .execute("SELECT key, payload, collect_at, aggregate_at FROM events ORDER BY number")
            .fetchall()
        )
        if len({key for key, *_ in rows}) < len(rows):
            self.violated(f"{client} has released twice in a run")
        for key, payload, *_ in rows:
            if self.seen.setdefault((key, client), payload) != payload:
                self.violated(f"{client} has recorded other bytes than those that were seen")
        return {key: (payload, *slots) for key, payload, *slots in rows}

    def payload(self, client, run):
        """The bytes that a client has recorded for a run; None if there are none."""
        return self.recorded(client).get(run, (None,))[0]

    def uploaded(self, client, payload):
        """Called when bytes leave a client."""
        facts = json.loads(payload)
        if self.payload(client, facts["run"]) != payload:
            self.violated(f"{client} sends what its ledger does not hold")
        self.account(client)

    def received(self, server):
        """Called when something has reached the server."""
        for client, (_, payload) in server.received.items():
            if self.payload(client, server.run) != payload:
                self.violated(f"the server holds an upload of {client} that was never released")

    def account(self, client):
        """Each upload's totals are those of the releases up to it, as NumPy adds them up."""
        known, stated = [], {}
        process = {c.name: c.process for c in self.plan.problem.clients}[client]
        for payload, collect_at, aggregate_at in self.recorded(client).values():
            facts = json.loads(payload)
            known.append((collect_at, facts["classical_epsilon"]))
            if not np.isclose(facts["total_classical"], sum(e for _, e in known), rtol=1e-9):
                self.violated(f"{client} claims a classical total that is not the sum")
            alone = min(facts["aged_epsilon"], formula(process, collect_at, aggregate_at, facts))
            stated[aggregate_at] = max(alone, stated.get(aggregate_at, 0.0))
            total = max(carried(process, known, aggregate_at), stated[aggregate_at])
            if not np.isclose(facts["total_aged"], total, rtol=1e-6):
                self.violated(f"{client} claims {facts['total_aged']} in all, it is {total}")
            if total > self.limit * (1 + 1e-6):
                self.violated(f"{client} has spent {total}, its policy allows {self.limit}")

    def drawn(self, folder):
        """The one draw in the server's ledger, which never changes; None if there is none."""
        if not (folder / DRAWS).exists():
            return None
        with contextlib.closing(sqlite3.connect(folder / DRAWS)) as database:
            rows = database.execute("SELECT key, payload FROM events").fetchall()
        rows = {key: payload for key, payload in rows if not key.endswith(" opened")}
        for run, payload in rows.items():
            if self.draws.setdefault(run, payload) != payload:
                self.violated(f"the server has drawn twice for {run}")
        return {run: json.loads(payload) for run, payload in rows.items()}

    def check_draw(self, folder, record, uploads):
        """The model is the one draw on the sum of the means, and that keeps every promise."""
        made = self.drawn(folder).get(record["run"])
        if made is None or made["aggregate"] != [record["model"]]:
            self.violated("the model is not what the server's ledger holds")
        if set(made["gains"]) != set(uploads):
            self.violated("the draw was made for other clients")
        total = 0.0
        problem = self.plan.problem
        records = sum(c.samples for c in problem.clients)
        heard = sum(c.samples for c in problem.clients if c.name in uploads)
        for client in problem.clients:
            law, z = client.process.law(1), client.process.states
            gain, upload = made["gains"].get(client.name, 0.0), uploads.get(client.name)
            if problem.estimator == "plain":
                gain = 0.0 if upload is None else client.samples / heard
            else:  # what is known of those who are not heard, or hardly
                total += (client.samples / records - gain) * (law @ z)
            if upload is not None:
                total += gain * upload["value"][0]
                if abs(gain) * upload["noise_scale"] > made["drawn_scale"] * (1 + 1e-12):
                    self.violated(f"the draw breaks the promise to {client.name}")
        if not np.isclose(made["value"][0], total, rtol=1e-9):
            self.violated(f"the sum is {made['value']}, the uploads give {total}")

    def expected_model(self, uploads):
        """The weighted mean of the uploads; or of independent records, what is known and heard."""
        problem = self.plan.problem
        if problem.estimator == "plain":
            heard = [c for c in problem.clients if c.name in uploads]
            weights = np.array([c.samples for c in heard]) / sum(c.samples for c in heard)
            return weights @ [uploads[c.name]["value"] for c in heard]
        model, records = 0.0, sum(c.samples for c in problem.clients)
        for client in problem.clients:
            upload, z, weight = uploads.get(client.name), client.process.states, client.samples
            law = client.process.law(1)
            off = z - law @ z
            model += weight / records * (law @ z)
            if upload is not None:
                kernel = client.process.kernel(upload["collect_at"], problem.aggregate_at)
                told = law @ (off * (kernel @ off)) / client.samples
                power = law @ off**2 / client.samples + 2 * upload["noise_scale"] ** 2
                model += weight / records * told / power * (upload["value"][0] - law @ z)
        return model

    def published(self, folder):
        """The record on disk says what the ledgers hold."""
        record = json.loads((folder / "record.json").read_text())
        for row in record["statement"]["clients"]:
            if self.payload(row["client"], record["run"]) is None:
                self.violated(f"a release of {row['client']} was stated that no ledger holds")
        if not record["complete"]:
            return False
        settings = json.loads((folder / "run.json").read_text())
        absent = {c.name for c in self.plan.problem.clients} - set(record["participants"])
        if absent and settings["on_missing"] == "fail":
            self.violated(f"the model was published without {absent}")
        uploads = {
            name: json.loads(self.payload(name, record["run"])) for name in record["participants"]
        }
        if self.plan.problem.noise == "server":
            self.check_draw(folder, record, uploads)
            return True
        model = self.expected_model(uploads)
        if not np.allclose(np.atleast_1d(record["model"]), model, rtol=1e-9):
            self.violated(f"the model is {record['model']}, the uploads give {model}")
        return True


def carried(chain, releases, until):
    """The aged total about a slot, by pairwise losses along the chain; `releases` in order."""
    moves, law = np.asarray(chain.transition), np.asarray(chain.stationary)
    apart = 1 - np.eye(len(law))
    losses, last = 0 * apart, None
    for slot, epsilon in [*releases, (until, 0.0)]:
        if last is not None:
            forward = np.linalg.matrix_power(moves, slot - last)
            losses = aged(losses, (law[:, None] * forward / law).T)
        losses, last = losses + epsilon * apart, slot
    return losses.max()


def formula(chain, collect_at, aggregate_at, facts):
    """The aged ε of one release by the paper's formula: a total is not stated below it."""
    law = np.asarray(chain.stationary)
    forward = np.linalg.matrix_power(np.asarray(chain.transition), aggregate_at - collect_at)
    rows = (law[:, None] * forward / law).T
    delta = np.abs(rows[:, None] - rows).sum(axis=2).max() / 2
    return np.log1p(delta * np.expm1(facts["classical_epsilon"]))


def aged(losses, rows):
    """max ln(rows[y]·v / rows[y′]·v) over v with v(x) ≤ e^{losses[x, x′]} v(x′), for all y, y′.

    The cone has at most as many tight constraints at an extreme ray as it takes to fix v: each
    choice of one state above each other one, or below it, is tried.
    """
    size = len(losses)
    tried = [np.ones(size)]
    for parents in itertools.product(range(size), repeat=size - 1):
        for signs in itertools.product((1, -1), repeat=size - 1):
            logs = {0: 0.0}
            edges = list(zip(range(1, size), parents, signs, strict=True))
            while edges:
                ready = [edge for edge in edges if edge[1] in logs]
                if not ready:
                    break
                for state, parent, sign in ready:
                    tight = losses[state, parent] if sign > 0 else -losses[parent, state]
                    logs[state] = logs[parent] + tight
                edges = [edge for edge in edges if edge[0] not in logs]
            if len(logs) == size:
                v = np.array([logs[x] for x in range(size)])
                if (v[:, None] - v <= losses + 1e-12).all():
                    tried.append(np.exp(v - v.max()))
    told = np.array(tried) @ rows.T
    ratios = np.log(told[:, :, None] / told[:, None, :]).max(axis=0)
    return np.maximum(ratios, 0.0)
