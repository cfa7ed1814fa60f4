"""The privacy statement of a run: what each client's release guarantees, and on what it rests."""

from __future__ import annotations

import hashlib
import html
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from agewise.errors import InvalidInput
from agewise.federation.messages import Upload
from agewise.federation.statement_rows import Rows
from agewise.federation.uploads import Received
from agewise.learning import LEARNED, Learner
from agewise.mechanism import MECHANISMS
from agewise.mixing import assumption
from agewise.planning import Plan
from agewise.planning.promise import promise_in_words, rounds_in_words
from agewise.problem import Client, Problem

VERSION = 6

TRUST = {
    "client": "Nobody is trusted with the records: each client adds its noise itself. The server "
    "sees the noised means as they are uploaded, at the classical ε; whoever sees the model only, "
    "at the aged ε.",
    "server": "The server is trusted: it sees the clients' means as they are, and adds noise once, "
    "when the model is published. The ε's below are about the model. If that trust is misplaced, "
    "the classical ε is infinite.",
}
"""Who is trusted with what, by who adds the noise."""

EARLY = (
    "Ages count to the aggregation slot: whoever sees an upload earlier, the server included, has "
    "data that have aged less."
)
SEEN = (
    "Ages count to the aggregation slot. The server, whoever runs it and whoever reads its files "
    "have the clients' means as they are, from the moment of their upload."
)

LIMITS = (
    "The aged ε is about a record's value in the aggregation slot; the value that was collected is "
    "protected by the classical ε only.",
    EARLY,
    "The processes are taken to be true and publicly known, and records of one client to evolve "
    "independently of each other, given whatever they have in common.",
    "Every ε compares what is published with what would have been, had one record been another and "
    "all else the same, what everybody has in common included: what the release tells of that, the "
    "sort of day it is say, is not covered.",
    "Totals count every release in the client's ledger until then, as seen in the aggregation "
    "slot; those made under another process count in full.",
    "What is collected later also tells about earlier values, these included: a total grows with "
    "every later release of the client, and its own policy limits by how much.",
)


def limits_of(problem: Problem, noised: bool) -> tuple[str, ...]:
    """What the ε's of a run do not say; over many rounds they say more than for one."""
    limits = LIMITS if noised else tuple(SEEN if one is EARLY else one for one in LIMITS)
    if problem.rounds == 1 and problem.promise == "present":
        return limits
    about = (
        f"Every aged ε is about {promise_in_words(problem)}; the noise is set for "
        f"{rounds_in_words(problem)}."
    )
    if problem.rounds == 1:
        return (about, *limits[1:])
    if problem.promise == "present":
        about += " The value that was collected is protected by the classical ε only."
        return (about, *limits[1:])
    rule = (
        "That holds as long as each client keeps to a rule, at most one release every "
        f"{problem.every} slots, of the classical ε stated at most: its own policy must hold it to "
        "that (the default one does)."
    )
    return (about, *limits[1:-2], limits[-2].replace(", as seen in the aggregation slot", ""), rule)


def refuse_earlier(where: Path, statement: Any) -> None:
    """Refuse what an earlier version stated, by rules that are not known here."""
    version = statement.get("version") if isinstance(statement, dict) else None
    if type(version) is int and 1 <= version < VERSION:
        raise InvalidInput(
            "statement",
            f"{where} of version {version}",
            f"version {VERSION}",
            "Check it with the release of Agewise that wrote it.",
        )


@dataclass(frozen=True)
class ClientStatement:
    """What one client's part in a run guarantees. All ε's and δ's are None for the seeded stand-in.

    `delta` is the Δ of the age; the δ's of (ε, δ) are 0 for Laplace noise.

    `upload_sha256` is None where the upload is a mean without noise: trying values would find it.
    Odds are e^ε: the factor by which what is published can change anyone's odds between two values
    of one record, all else the same: what clients share included, which no ε covers.
    """

    client: str  #: its name
    aggregated: bool  #: whether its release is part of the model
    target_epsilon: float  #: what its aged ε must keep to
    collect_at: int  #: slot of collection
    age: int  #: slots from collection to aggregation
    samples: int  #: records in its release, of each member
    members: int  #: clients alike behind it
    delta: float
    mixing: str  #: whose prior knowledge Δ holds for
    assumptions: str  #: what that takes for granted, in words
    sensitivity: float  #: how far one record can move the release
    noise_scale: float  #: of the noise, in the unit of the release
    classical_epsilon: float | None  #: about the records as collected
    aged_epsilon: float | None  #: about the records at aggregation
    aged_odds: float | None  #: e^ε of the aged ε
    classical_odds: float | None  #: e^ε of the classical ε
    aged_delta: float | None  #: δ that goes with the aged ε
    classical_delta: float | None  #: δ that goes with the classical ε
    releases: int  #: in its ledger until then, this one counted
    total_aged_epsilon: float | None  #: of all of them, about aggregation
    total_classical_epsilon: float | None  #: of all of them, the plain sum
    total_aged_delta: float | None  #: δ of all of them, aged
    total_classical_delta: float | None  #: δ of all of them, the plain sum
    upload_sha256: str | None


@dataclass(frozen=True)
class Statement:
    """What a run told about the clients' records: by its model, and to the server.

    `model` is None for a run that did not complete. `missing` clients may have released too, if
    their upload never arrived: their own ledgers say so. `not_due` were never asked: the run ended
    before their slot. `noise` says who adds it, `trust` who is trusted with what; `draw_scale` is
    the scale of the server's one draw, None where there was none.
    """

    noise: str
    trust: str
    run: str  #: its name
    plan: str  #: fingerprint of the plan
    made_at: str  #: date and time, UTC
    model: float | list[float] | None
    aggregate_at: int  #: the slot of aggregation
    target_epsilon: float  #: of every client without its own
    target_delta: float  #: 0 for Laplace noise
    learner: str  #: the kind of learner
    estimator: str  #: what was averaged
    calibration: str  #: how the noise was set
    private: bool  #: whether all noise came from the real mechanism
    clients: Rows  #: one row per client that released
    missing: tuple[str, ...]
    not_due: tuple[str, ...]
    notes: tuple[str, ...]  #: what the numbers rest on, of this plan
    mechanism: str  #: the noise
    draw_scale: float | None = None
    unit: str = ""  #: of the records
    limits: tuple[str, ...] = LIMITS  #: what the numbers rest on, of any plan

    def __repr__(self) -> str:
        return f"Statement(run={self.run[:60]!r}, {len(self.clients)} clients)"

    def __str__(self) -> str:
        return self.to_markdown()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.to_markdown())}</pre>"

    @cached_property
    def digest(self) -> str:
        """A fingerprint of the whole statement, to quote beside the model."""
        # As of the whole written at once, of which the rows of many clients take longest.
        without = json.dumps({**self._body(), "clients": []}, sort_keys=True)
        before, after = without.split('"clients": []')  # no text holds such quotes
        digest, comma = hashlib.sha256(f'{before}"clients": ['.encode()), ""
        for text in self.clients.texts(sort=True):
            digest.update(f"{comma}{text}".encode())
            comma = ", "
        digest.update(f"]{after}".encode())
        return digest.hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as plain data; infinities become the word "inf"."""
        return {**self.head(), "clients": self.clients.to_dicts()}

    def head(self) -> dict[str, Any]:
        """The statement as plain data, without the rows of its clients."""
        return {"version": VERSION, **self._body(), "clients": [], "digest": self.digest}

    def _body(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def to_markdown(self) -> str:
        """Return the statement as a page to sign off."""
        lines = [f"# Privacy statement of run {self.run}", "", f"**{self.trust}**", ""]
        if not self.private:
            lines += [
                "**This run used a seeded stand-in for noise. Nothing is private, and no ε is "
                "claimed.**",
                "",
            ]
        lines += [
            f"Made {self.made_at}. "
            + (
                "**The run did not complete.** "
                if self.model is None
                else f"Model: {self.model!r}{self._unit}. "
            )
            + ("It was to be aggregated" if self.model is None else "Aggregated")
            + f" in slot {self.aggregate_at}, target {self._target}.",
            "",
            f"Released: {LEARNED[self.learner]}. Mechanism: "
            f"{self.mechanism if self.private else 'a seeded stand-in'}, {self._by}; estimator "
            f"{self.estimator}, calibration {self.calibration}.",
            "",
            f"| client | collected in | age | records | Δ | sensitivity{self._of} | noise "
            f"scale{self._of} "
            "| aged ε (odds) | classical ε (odds) | total aged ε | total classical ε | releases |",
            "|---|---|---|---|---|---|---|---|---|---|---|---|",
        ]
        kinds = [_cells(one) for one in self.clients.kinds]
        for client, kind in zip(self.clients.names, self.clients.kind, strict=True):
            name = html.escape(client, quote=False).replace("|", "\\|")
            lines.append(f"| {name}{kinds[kind]}")
        if self.missing:
            who = ", ".join(html.escape(name, quote=False) for name in self.missing)
            lines += ["", f"Missing: {who}. If one of them released, its own ledger says so."]
        if self.not_due:
            who = ", ".join(html.escape(name, quote=False) for name in self.not_due)
            lines += ["", f"Not yet due when the run ended, and never asked: {who}."]
        lines += ["", "What these numbers rest on:", ""]
        lines += [f"- Δ by `{how}`: {rests_on}" for how, rests_on in self.grounds]
        lines += [f"- {html.escape(note, quote=False)}" for note in self.notes]
        lines += [f"- {limit}" for limit in self.limits]
        lines += ["", f"Plan {self.plan}", f"Statement {self.digest}", ""]
        return "\n".join(lines)

    @property
    def _target(self) -> str:
        kinds = [one.target_epsilon for one in self.clients.kinds]
        both = f" and δ = {self.target_delta:g}" if self.target_delta else ""
        if set(kinds) <= {self.target_epsilon}:
            return f"ε = {self.target_epsilon:g}{both} for every client"
        named = zip(self.clients.names, self.clients.kind, strict=True)
        parts = (f"{html.escape(name, quote=False)} {kinds[kind]:g}" for name, kind in named)
        return f"ε by client: {', '.join(parts)}{both}"

    @property
    def _by(self) -> str:
        if self.noise == "client":
            return "by each client"
        if self.draw_scale is None:
            return "by the server, which has drawn none: nothing was published"
        return f"drawn once by the server, scale {self.draw_scale:.6g}{self._unit}"

    @property
    def _unit(self) -> str:
        return f" {html.escape(self.unit, quote=False)}" if self.unit else ""

    @property
    def _of(self) -> str:
        return f" ({self._unit.strip()})".replace("|", "\\|") if self.unit else ""

    @property
    def grounds(self) -> list[tuple[str, str]]:
        """How Δ was found, and what that assumes."""
        return sorted({(one.mixing, one.assumptions) for one in self.clients.kinds})


def _cells(one: ClientStatement) -> str:
    """What the page says of a client after its name."""
    late = "" if one.aggregated else " (released, not aggregated)"
    return (
        f"{late} | {one.collect_at} | {one.age} | {_records(one)} | {one.delta:.6g} | "
        f"{one.sensitivity:.6g} | {one.noise_scale:.6g} | "
        f"{_spent(one.aged_epsilon, one.aged_odds, one.aged_delta)} | "
        f"{_spent(one.classical_epsilon, one.classical_odds, one.classical_delta)} | "
        f"{_spent(one.total_aged_epsilon, None, one.total_aged_delta)} | "
        f"{_spent(one.total_classical_epsilon, None, one.total_classical_delta)} | "
        f"{one.releases} |"
    )


def _records(one: ClientStatement) -> str:
    return f"{one.samples}" if one.members == 1 else f"{one.samples} of {one.members:,} members"


def state_privacy(
    plan: Plan,
    run: str,
    private: bool,
    received: Received,
    names: Sequence[str],
    late: Received,
    missing: tuple[str, ...],
    not_due: tuple[str, ...],
    model: tuple[float, ...] | None,
    members: Sequence[Client],
    draw_scale: float | None = None,
) -> Statement:
    """Write the statement of a run from what its clients uploaded, in time or too late.

    `names` are those of the clients received, in order.
    `members` are all its clients, those too that it was replanned without.
    """
    problem = plan.problem
    noised = not problem.server_adds_noise
    clients = {client.name: client for client in members}

    def row(upload: Upload, in_time: bool) -> ClientStatement:
        return ClientStatement(
            client=upload.client,
            aggregated=in_time and model is not None,
            target_epsilon=problem.target_of(clients[upload.client]).epsilon,
            samples=upload.samples,
            members=upload.members,
            sensitivity=upload.sensitivity,
            collect_at=upload.collect_at,
            age=upload.aggregate_at - upload.collect_at,
            delta=upload.delta,
            mixing=upload.mixing,
            assumptions=assumption(clients[upload.client].process, upload.mixing),
            noise_scale=upload.noise_scale,
            classical_epsilon=upload.classical_epsilon,
            aged_epsilon=upload.aged_epsilon,
            aged_odds=_odds(upload.aged_epsilon),
            classical_odds=_odds(upload.classical_epsilon),
            aged_delta=upload.aged_delta,
            classical_delta=upload.classical_delta,
            releases=upload.releases,
            total_aged_epsilon=upload.total_aged,
            total_classical_epsilon=upload.total_classical,
            total_aged_delta=upload.total_aged_delta,
            total_classical_delta=upload.total_classical_delta,
            upload_sha256=None,
        )

    rows = Rows([(received, names, True), (late, list(late), False)], row, hashed=noised)
    return Statement(
        noise=problem.noise,
        trust=TRUST[problem.noise],
        run=run,
        plan=plan.digest,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        model=None if model is None else published(problem.learner, model),
        aggregate_at=problem.aggregate_at,
        target_epsilon=problem.epsilon,
        target_delta=problem.delta or 0.0,
        learner=problem.learner.kind,
        estimator=problem.estimator,
        calibration=problem.calibration,
        private=private,
        clients=rows,
        missing=missing,
        not_due=not_due,
        notes=plan.notes,
        mechanism=MECHANISMS[problem.mechanism].words,
        draw_scale=draw_scale,
        limits=limits_of(problem, noised),
        unit=problem.release_unit,
    )


def _odds(epsilon: float | None) -> float | None:
    if epsilon is None:
        return None
    return math.exp(epsilon) if epsilon < 700 else math.inf


def _spent(epsilon: float | None, odds: float | None = None, failure: float | None = None) -> str:
    if epsilon is None:
        return "none claimed"
    both = f", δ {failure:.3g}" if failure else ""
    return f"{epsilon:.6g}{both}" + ("" if odds is None else f" ({odds:.4g})")


def published(learner: Learner, aggregate: tuple[float, ...]) -> float | list[float]:
    """What of an aggregate is written down: a number for a mean, a list for anything else."""
    return aggregate[0] if learner.kind == "mean" else list(aggregate)
