"""Check a run's privacy statement against the clients' ledgers, without using Agewise.

    mkdir exported
    agewise ledger export runs/NAME/ledgers/CLIENT.ledger > exported/CLIENT.json    (each client)
    python examples/check_statement.py runs/NAME exported

Recomputes Δ from the scenario's matrices and composes the exported releases along the chain, with
NumPy alone; compares the uploads' fingerprints, and the model with the uploaded values. Prints one
line a client. Exit code 0: all the same; 1: something differs; 2: a case that it does not cover
(day profiles, tight calibration, the seeded stand-in).
"""

import hashlib
import json
import math
import sys
from pathlib import Path

import numpy as np


def stationary(P):
    values, vectors = np.linalg.eig(P.T)
    law = np.real(vectors[:, np.argmin(abs(values - 1))])
    return law / law.sum()


def exact(P, law, age):
    """The largest total variation between what two present values say about the collected one."""
    joint = law[:, None] * np.linalg.matrix_power(P, age)
    columns = joint[:, joint.sum(axis=0) > 0]
    backward = (columns / columns.sum(axis=0)).T
    return max(abs(a - b).sum() / 2 for a in backward for b in backward)


def any_prior(P, age):
    """tanh(D/4), D the widest log likelihood ratio."""
    K = np.linalg.matrix_power(P, age)
    if (K == 0).any():
        return 1.0
    logs = np.log(K)
    return math.tanh(max(np.ptp(a - b) for a in logs for b in logs) / 4)


def spectral(P, age):
    law = stationary(P)
    second = sorted(abs(np.linalg.eigvals(P)))[-2]
    return min(1.0, math.sqrt((1 - law.min()) / law.min()) * second**age)


def delta(P, law, mixing, age):
    if age == 0:
        return 1.0
    if mixing == "any_prior":
        return any_prior(P, age)
    if mixing == "spectral":
        return spectral(P, age)
    return exact(P, stationary(P) if law is None else np.array(law), age)


def total(events, P, mixing, law, seen_at):
    """Compose along the chain: age what is known, then add what the next slot releases."""
    if mixing == "own_law":
        mixing, law = ("own_law", law) if len(events) == 1 else ("any_prior", None)
    else:
        law = None
    before = sorted((e["collect_at"], e["epsilon"]) for e in events if e["collect_at"] <= seen_at)
    after = math.fsum(e["epsilon"] for e in events if e["collect_at"] > seen_at)
    loss = 0.0
    for (at, epsilon), then in zip(before, [t for t, _ in before[1:]] + [seen_at], strict=True):
        loss = math.log1p(delta(P, law, mixing, then - at) * math.expm1(loss + epsilon))
    return loss + after


def not_covered(what):
    print(f"not covered: {what}")
    return 2


def main(run, exported):
    run = Path(run)
    scenario = json.loads((run / "plan.json").read_text())["scenario"]
    record = json.loads((run / "record.json").read_text())
    starts_at = json.loads((run / "run.json").read_text())["starts_at"]
    statement = record["statement"]
    if scenario["calibration"] != "formula":
        return not_covered(f"calibration {scenario['calibration']}")
    if not statement["private"]:
        return not_covered("a seeded stand-in, about which nothing is claimed")
    ledgers = {}
    for path in Path(exported).glob("*.json"):
        events = json.loads(path.read_text())
        if events:
            ledgers[events[0]["client"]] = events
    clients = {one["name"]: one for one in scenario["clients"]}
    wrong, weighed, weight = 0, 0.0, 0.0
    for row in statement["clients"]:
        name, client = row["client"], clients[row["client"]]
        if "transition" not in client["process"]:
            return not_covered(f"a process of kind {client['process']['kind']}")
        P = np.array(client["process"]["transition"])
        events = ledgers.get(name, [])
        keys = [event["key"] for event in events]
        if record["run"] not in keys:
            print(f"{name}: its ledger does not hold this run: DIFFERENT")
            wrong += 1
            continue
        own = events[keys.index(record["run"])]
        events = [e for e in events[: own["number"]] if e["private"]]  # as it stood then
        found = total(events, P, row["mixing"], client.get("law"), own["aggregate_at"])
        classical = math.fsum(event["epsilon"] for event in events)
        payload = bytes.fromhex(own["payload"])
        same = (
            math.isclose(found, row["total_aged_epsilon"], rel_tol=1e-6)
            and math.isclose(classical, row["total_classical_epsilon"], rel_tol=1e-9)
            and hashlib.sha256(payload).hexdigest() == row["upload_sha256"]
            and own["aggregate_at"] == statement["aggregate_at"] + starts_at
            and own["collect_at"] == row["collect_at"] + starts_at
        )
        wrong += not same
        if row["aggregated"]:
            share = client.get("weight", client["samples"])
            weight += share
            weighed += share * json.loads(payload)["value"][0]
        print(
            f"{name}: aged ε {found:.9g}, stated {row['total_aged_epsilon']:.9g}; "
            f"classical {classical:.9g}, stated {row['total_classical_epsilon']:.9g}: "
            + ("same" if same else "DIFFERENT")
        )
    if record["complete"]:
        same = weight > 0 and math.isclose(weighed / weight, record["model"], rel_tol=1e-9)
        wrong += not same
        print(f"model {record['model']!r}: " + ("same" if same else "DIFFERENT"))
    return int(wrong > 0)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
