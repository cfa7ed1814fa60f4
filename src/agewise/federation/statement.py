"""The privacy statement of a run: what each client's release guarantees, and on what it rests."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from agewise.federation.messages import Upload
from agewise.mixing import ASSUMPTIONS
from agewise.problem import Problem

VERSION = 1

LIMITS = (
    "The aged ε is about a record's value in the aggregation slot; the value that was collected is "
    "protected by the classical ε only.",
    "Ages count to the aggregation slot: whoever sees an upload earlier, the server included, has "
    "data that have aged less.",
    "The processes are taken to be true and publicly known, and records of one client to evolve "
    "independently of each other.",
    "Totals count every release in the client's ledger, as seen in the aggregation slot.",
)


@dataclass(frozen=True)
class ClientStatement:
    """What one client's part in a run guarantees. All ε's are None for the seeded stand-in.

    Odds are e^ε: the factor by which what is published can change anyone's odds about any fact
    of one record.
    """

    client: str
    collect_at: int
    age: int
    delta: float
    mixing: str
    assumptions: str
    noise_scale: float
    classical_epsilon: float | None
    aged_epsilon: float | None
    aged_odds: float | None
    classical_odds: float | None
    releases: int
    total_aged_epsilon: float | None
    total_classical_epsilon: float | None
    upload_sha256: str


@dataclass(frozen=True)
class Statement:
    """What a published model tells about the clients' records."""

    run: str
    plan: str
    aggregate_at: int
    target_epsilon: float
    private: bool
    clients: tuple[ClientStatement, ...]
    limits: tuple[str, ...] = LIMITS

    @property
    def digest(self) -> str:
        """A fingerprint of the whole statement, to quote beside the model."""
        return hashlib.sha256(json.dumps(self._body(), sort_keys=True).encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as plain data; infinities become the word "inf"."""
        return {"version": VERSION, **self._body(), "digest": self.digest}

    def _body(self) -> dict[str, Any]:
        body = asdict(self)
        body["clients"] = [
            {k: "inf" if v == math.inf else v for k, v in row.items()} for row in body["clients"]
        ]
        return body

    def to_markdown(self) -> str:
        """Return the statement as a page to sign off."""
        lines = [f"# Privacy statement of run {self.run}", ""]
        if not self.private:
            lines += [
                "**This run used a seeded stand-in for noise. Nothing is private, and no ε is "
                "claimed.**",
                "",
            ]
        lines += [
            f"Aggregated in slot {self.aggregate_at}, target ε = {self.target_epsilon:g} for every "
            "client.",
            "",
            "| client | collected in | age | Δ | noise scale | aged ε (odds) | classical ε (odds) "
            "| total aged ε | total classical ε | releases |",
            "|---|---|---|---|---|---|---|---|---|---|",
        ]
        for one in self.clients:
            name = one.client.replace("|", "\\|")
            lines.append(
                f"| {name} | {one.collect_at} | {one.age} | {one.delta:.6g} | "
                f"{one.noise_scale:.6g} | {_spent(one.aged_epsilon, one.aged_odds)} | "
                f"{_spent(one.classical_epsilon, one.classical_odds)} | "
                f"{_spent(one.total_aged_epsilon)} | {_spent(one.total_classical_epsilon)} | "
                f"{one.releases} |"
            )
        lines += ["", "What these numbers rest on:", ""]
        lines += [f"- Δ by `{m}`: {ASSUMPTIONS[m]}" for m in self._mixings()]
        lines += [f"- {limit}" for limit in self.limits]
        lines += ["", f"Plan {self.plan}", f"Statement {self.digest}", ""]
        return "\n".join(lines)

    def _mixings(self) -> list[Any]:
        return sorted({one.mixing for one in self.clients})


def state_privacy(
    problem: Problem, run: str, plan: str, private: bool, uploads: list[tuple[Upload, bytes]]
) -> Statement:
    """Write the statement of a run from what its clients uploaded."""
    rows = tuple(
        ClientStatement(
            client=upload.client,
            collect_at=upload.collect_at,
            age=upload.aggregate_at - upload.collect_at,
            delta=upload.delta,
            mixing=upload.mixing,
            assumptions=ASSUMPTIONS[upload.mixing],
            noise_scale=upload.noise_scale,
            classical_epsilon=upload.classical_epsilon,
            aged_epsilon=upload.aged_epsilon,
            aged_odds=_odds(upload.aged_epsilon),
            classical_odds=_odds(upload.classical_epsilon),
            releases=upload.releases,
            total_aged_epsilon=upload.total_aged,
            total_classical_epsilon=upload.total_classical,
            upload_sha256=hashlib.sha256(payload).hexdigest(),
        )
        for upload, payload in uploads
    )
    return Statement(run, plan, problem.aggregate_at, problem.epsilon, private, rows)


def _odds(epsilon: float | None) -> float | None:
    if epsilon is None:
        return None
    return math.exp(epsilon) if epsilon < 700 else math.inf


def _spent(epsilon: float | None, odds: float | None = None) -> str:
    if epsilon is None:
        return "none claimed"
    return f"{epsilon:.6g}" + ("" if odds is None else f" ({odds:.4g})")
