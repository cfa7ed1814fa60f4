"""Where the server adds the noise: one draw on the sum of what it has heard.

The server keeps a ledger of its own. It notes there that a run begins, before it sends any order;
and at the end it draws the noise and records what it is about to publish, in one transaction. A
retry finds the record and publishes the same numbers; a second draw would let both be averaged.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from agewise.errors import AgewiseError, InvalidInput
from agewise.federation.messages import Upload
from agewise.federation.seeding import client_generator
from agewise.mechanism import MECHANISMS, Noised
from agewise.planning import Plan
from agewise.privacy.account import Event, now
from agewise.privacy.ledger import Ledger, LedgerDamaged

DRAWS = "server.draws"
"""The server's ledger in a run's folder. Clients' ledgers end otherwise, and are looked for."""

HEARD = 1_000.0
"""A client whose record moves the sum by less than so many roundings of it is not heard."""

_ULP = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Sum:
    """What a server is about to publish, before its draw.

    `plan` is the digest of the plan as carried out; `gains` and `promised`, the noise scales on
    their own means, are by client. `sensitivity` is how far one record can move `value`, and
    `scale` the noise that keeps every promise.
    """

    run: str
    plan: str
    aggregate_at: int
    mechanism: str
    mixing: str
    private: bool
    gains: dict[str, float]
    promised: dict[str, float]
    value: tuple[float, ...]
    sensitivity: float
    scale: float
    classical_epsilon: float
    aged_epsilon: float
    failure: float

    def facts(self) -> dict[str, Any]:
        """What the record of a draw says of it; the rest is in the event."""
        apart = ("classical_epsilon", "aged_epsilon", "failure")
        return {name: value for name, value in asdict(self).items() if name not in apart}


def sum_up(plan: Plan, run: str, uploads: Sequence[Upload], largest: Mapping[str, float]) -> Sum:
    """The plan's offset + Σ gain × mean, and the noise that keeps what every client was promised.

    `largest` is the largest number that a client's mean can have, whatever its records.

    Guarantees
        A record of client i moves `value` by at most r_i, rounding included, and r_i/`scale` is
        at most its sensitivity over the noise scale that it was promised. What is computed here
        depends on the clients' records through `value` only.
    """
    named = [one.client for one in plan.assignments]
    planned = dict(zip(named, np.reshape(plan.gains, (len(named), -1))[:, 0].tolist(), strict=True))
    size = max(map(abs, plan.offset)) + math.fsum(
        abs(planned[one.client]) * largest[one.client] for one in uploads
    )
    rounding = 4 * len(plan.offset) * float(np.spacing(size))
    gains, reaches = {}, {}
    for one in uploads:
        gain, reach = planned[one.client], abs(planned[one.client]) * one.sensitivity
        heard = one.sensitivity == 0 or reach >= HEARD * rounding
        gains[one.client] = gain if heard else 0.0
        if heard and reach > 0:
            reaches[one.client] = reach + rounding
    needs = [
        one.noise_scale * reaches[one.client] / one.sensitivity
        for one in uploads
        if one.client in reaches
    ]
    scale = max([plan.draw_scale or 0.0, *needs]) * (1 + 8 * _ULP)
    _refuse_less(uploads, reaches, scale)
    return Sum(
        run=run,
        plan=plan.digest,
        aggregate_at=plan.problem.aggregate_at,
        mechanism=plan.problem.mechanism,
        mixing=plan.problem.mixing,
        private=all(one.private for one in uploads),
        gains=gains,
        promised={one.client: one.noise_scale for one in uploads},
        value=tuple(
            math.fsum([offset, *(gains[one.client] * one.value[k] for one in uploads)])
            for k, offset in enumerate(plan.offset)
        ),
        sensitivity=max(reaches.values(), default=0.0),
        scale=scale,
        classical_epsilon=max(one.classical_epsilon or 0.0 for one in uploads),
        aged_epsilon=max(one.aged_epsilon or 0.0 for one in uploads),
        failure=max(one.classical_delta or 0.0 for one in uploads),
    )


def _refuse_less(uploads: Sequence[Upload], reaches: Mapping[str, float], scale: float) -> None:
    """Raise if a draw of this scale would be less noise on some client's mean than promised."""
    for one in uploads:
        if one.client in reaches and one.noise_scale > 0:
            moved = Fraction(reaches[one.client]) * Fraction(one.noise_scale)
            if moved > Fraction(scale) * Fraction(one.sensitivity):
                raise AgewiseError(f"a draw of scale {scale} breaks the promise to {one.client!r}")


class ServerLedger(Ledger):
    """The server's own ledger: which runs it has opened, and the one draw of each."""

    _kept = False
    advice = (
        "nothing is published from it: whether noise was drawn for the run cannot be known, and a "
        "second draw would tell more than the clients were promised. Set it aside and start a new "
        "run."
    )


class OneDraw:
    """The server's noise of one run.

    It is in the ledger at `path` before it is known to anybody (None: not recorded, for runs that
    leave nothing behind). With a `seed` it is a stand-in. `published` is the record of a draw that
    was made elsewhere, by a ServerApp: it is taken over, and nothing is drawn here.
    """

    def __init__(
        self, run: str, path: Path | None, seed: int | None = None, published: str | None = None
    ) -> None:
        self.run, self.path, self.seed, self.published = run, path, seed, published

    @property
    def _opening(self) -> str:
        return f"{self.run} opened"

    def open(self, plan: Plan) -> None:
        """Note in the ledger, which is made if need be, that the run begins."""
        if self.path is None:
            return
        facts = {"run": self.run, "plan": plan.digest}
        slot, how = plan.problem.aggregate_at, plan.problem.mixing
        event = _event(self._opening, slot, how, plan.digest, facts, self.seed is None)
        with ServerLedger(self.path) as ledger:
            ledger.record(self._opening, lambda _: event)

    def refuse_unopened(self) -> None:
        """Raise if the ledger is not there, is damaged, or does not know of the run."""
        if self.path is not None:
            with self._reopened() as ledger:
                self._refuse_unknown(ledger.events())

    def __call__(self, due: Sum) -> tuple[float, ...]:
        """Return what is to be published of a sum.

        Guarantees
            What is returned is in the ledger already. The same run gives the same numbers for
            ever, whatever has crashed in between; for another sum than the recorded one it is
            refused. Raises before anything is drawn if the ledger does not hold the opening.
        """
        if self.path is None:
            return tuple(self._drawn(due)["aggregate"])

        def make(known: Sequence[Event]) -> Event:
            self._refuse_unknown(known)
            facts = self._drawn(due)
            return _event(
                self.run,
                due.aggregate_at,
                due.mixing,
                due.plan,
                facts,
                due.private,
                classical_epsilon=due.classical_epsilon,
                aged_epsilon=due.aged_epsilon,
                sensitivity=due.sensitivity,
                scale=facts["drawn_scale"],
                kind=due.mechanism,
            )

        with self._reopened() as ledger:
            stored = json.loads(ledger.record(self.run, make).payload)
        self._refuse_other(stored, due)
        return tuple(stored["aggregate"])

    def record(self) -> str | None:
        """The record of the draw, as it stands in the ledger; None if there is none."""
        if self.path is None:
            return None
        with self._reopened() as ledger:
            event = ledger.find(self.run)
        return None if event is None else event.payload.decode()

    def _drawn(self, due: Sum) -> dict[str, Any]:
        """The record of a draw: made now, or taken over."""
        if self.published is not None:
            facts: dict[str, Any] = json.loads(self.published)
            self._refuse_other(facts, due)
            return facts
        noised = self._noised(due)
        aggregate = np.atleast_1d(noised.value).tolist()
        return {**due.facts(), "drawn_scale": noised.scale, "aggregate": aggregate}

    def _refuse_other(self, stored: dict[str, Any], due: Sum) -> None:
        """Raise if a recorded draw is not one for this sum."""
        asked = json.loads(json.dumps(due.facts()))
        off = [name for name, value in asked.items() if stored.get(name) != value]
        if not off and not stored["drawn_scale"] >= due.scale:
            off = ["drawn_scale"]
        if off or len(stored["aggregate"]) != len(due.value):
            raise LedgerDamaged(
                f"the draw of run {self.run} in the server's ledger is for another sum than the "
                f"run's journal gives ({', '.join(off) or 'aggregate'}). Nothing is published: a "
                "second draw would tell more than the clients were promised. Start a new run."
            )

    def _noised(self, due: Sum) -> Noised:
        mechanism, value = MECHANISMS[due.mechanism], np.asarray(due.value)
        if due.private != (self.seed is None):
            raise InvalidInput("seed", self.seed, "one for the stand-in, none for private noise")
        if self.seed is not None:
            rng = client_generator(self.seed, "server", "noise")
            return mechanism.imitate(value, scale=due.scale, rng=rng)
        return mechanism.draw(
            value, sensitivity=due.sensitivity, scale=due.scale, failure=due.failure
        )

    def _reopened(self) -> ServerLedger:
        path = Path(str(self.path))
        if not path.exists():
            raise LedgerDamaged(
                f"the server's ledger {path} is missing: {ServerLedger.advice} If it was moved, "
                "put it back instead."
            )
        return ServerLedger(path)

    def _refuse_unknown(self, known: Sequence[Event]) -> None:
        if all(event.key != self._opening for event in known):
            raise LedgerDamaged(
                f"the server's ledger {self.path} does not hold the opening of run {self.run}: "
                f"{ServerLedger.advice}"
            )


def _event(
    key: str,
    slot: int,
    mixing: str,
    plan: str,
    facts: dict[str, Any],
    private: bool,
    **numbers: Any,
) -> Event:
    """An event of the server's ledger; `fingerprint` is the plan's."""
    none = {"classical_epsilon": 0.0, "aged_epsilon": 0.0, "sensitivity": 0.0, "scale": 0.0}
    return Event(
        key=key,
        client="server",
        collect_at=slot,
        aggregate_at=slot,
        private=private,
        mixing=mixing,
        fingerprint=plan,
        made_at=now(),
        payload=json.dumps(facts, allow_nan=False).encode(),
        noise="server",
        **{**none, **numbers},
    )
