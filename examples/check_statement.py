"""Check a run's privacy statement against the clients' ledgers, without using Agewise.

    agewise ledger export runs/NAME/ledgers/CLIENT.ledger > exported/CLIENT.json    (each client)
    python examples/check_statement.py runs/NAME exported

Recomputes Δ from the scenario's matrices and composes the exported releases along the chain, with
NumPy alone. Formula calibration; mixings exact, own_law and spectral; chains and birth-death.
Prints one line a client and exits with 1 if any total differs.
"""

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


def spectral(P, age):
    law = stationary(P)
    second = sorted(abs(np.linalg.eigvals(P)))[-2]
    return min(1.0, math.sqrt((1 - law.min()) / law.min()) * second**age)


def aged(loss, delta):
    return math.log1p(delta * math.expm1(loss))


def total(events, P, mixing, law, seen_at):
    """Compose along the chain: age what is known, then add what the next slot releases."""
    law = stationary(P) if mixing != "own_law" or law is None else np.array(law)
    loss, at = 0.0, None
    for event in sorted(events, key=lambda e: e["collect_at"]):
        loss, law = step(loss, law, P, mixing, at, event["collect_at"])
        loss, at = loss + event["epsilon"], event["collect_at"]
    return step(loss, law, P, mixing, at, seen_at)[0]


def step(loss, law, P, mixing, at, then):
    if at is None or at == then:
        return loss, law
    delta = spectral(P, then - at) if mixing == "spectral" else exact(P, law, then - at)
    return aged(loss, delta), law @ np.linalg.matrix_power(P, then - at)


def main(run, exported):
    scenario = json.loads((Path(run) / "plan.json").read_text())["scenario"]
    statement = json.loads((Path(run) / "record.json").read_text())["statement"]
    starts_at = json.loads((Path(run) / "run.json").read_text())["starts_at"]
    clients = {one["name"]: one for one in scenario["clients"]}
    wrong = 0
    for row in statement["clients"]:
        events = json.loads((Path(exported) / f"{row['client']}.json").read_text())
        events = [event for event in events if event["private"]]
        client = clients[row["client"]]
        P = np.array(client["process"]["transition"])
        seen_at = statement["aggregate_at"] + starts_at
        found = total(events, P, row["mixing"], client.get("law"), seen_at)
        classical = math.fsum(event["epsilon"] for event in events)
        same = math.isclose(found, row["total_aged_epsilon"], rel_tol=1e-6) and math.isclose(
            classical, row["total_classical_epsilon"], rel_tol=1e-9
        )
        wrong += not same
        print(
            f"{row['client']}: aged ε {found:.9g}, stated {row['total_aged_epsilon']:.9g}; "
            f"classical {classical:.9g}, stated {row['total_classical_epsilon']:.9g}: "
            + ("same" if same else "DIFFERENT")
        )
    return int(wrong > 0)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
