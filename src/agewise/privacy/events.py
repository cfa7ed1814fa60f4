"""What a release is, and what a client allows itself to spend."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from agewise.checks import fraction, one_of, parse_json, positive, truth, whole
from agewise.errors import AgewiseError, InvalidInput, quoted
from agewise.mechanism import MECHANISMS
from agewise.privacy.continual import LONGEST_GAP, Promise, check_promise

ROOM = 1e-9
"""Limits hold to nine digits: what is long past never vanishes entirely from a float."""


NUMBERS = (
    "classical_epsilon",
    "aged_epsilon",
    "sensitivity",
    "scale",
    "delta",
    "aged_delta",
)
"""The fields of an event that are floats."""


class BudgetExceeded(AgewiseError):
    """A release that the client's own policy does not allow. Nothing was released."""

    exit_code = 3


@dataclass(frozen=True)
class Policy:
    """What a client allows itself to spend, at most; None is no limit.

    `max_delta` limits the aged δ of all releases together (default: 0, so that only noise which
    needs no δ may be used). `window` limits what is collected in any so many
    slots in a row (None: all there ever was). Without `allow_server_noise` the client never sends a
    result to which the server is to add the noise.

    `promise` says what `max_aged_epsilon` is about. None: the value in every slot that a release
    was reckoned for, later releases counted too. "present": the value at each publication, by what
    was released until then; a number of slots H: the values of the last H slots as well.
    "every_moment": the value at any time, whatever follows, which needs a rule that the future is
    held to: at most one release in any `every` slots in a row, none of a classical ε above
    `max_release_epsilon`. Both may be set with any promise, and are kept whatever a server orders.
    With `slot_seconds`, how long a slot takes, more slots than have passed by this machine's clock
    since the last release are not believed, but for the one under way.
    """

    max_aged_epsilon: float | None = None
    max_classical_epsilon: float | None = None  #: the plain sum, ageing not counted
    window: int | None = None
    max_delta: float = 0.0
    allow_server_noise: bool = True
    promise: Promise | None = None
    every: int | None = None
    max_release_epsilon: float | None = None
    slot_seconds: float | None = None

    def __post_init__(self) -> None:
        for name in (
            "max_aged_epsilon",
            "max_classical_epsilon",
            "max_release_epsilon",
            "slot_seconds",
        ):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))
        fraction("max_delta", self.max_delta, with_zero=True)
        truth("allow_server_noise", self.allow_server_noise)
        if self.window is not None:
            whole("window", self.window, 1)
        if self.every is not None:
            whole("every", self.every, 1, LONGEST_GAP)
        if self.promise is not None:
            self._check_promise(self.promise)

    def _check_promise(self, promise: Promise) -> None:
        check_promise(promise)
        if self.window is not None:
            raise InvalidInput(
                "window", self.window, "none with a promise", "A promise counts every release."
            )
        needed = ["max_aged_epsilon"]
        if promise == "every_moment":
            needed += ["every", "max_release_epsilon"]
        for name in needed:
            if getattr(self, name) is None:
                raise InvalidInput(
                    name,
                    None,
                    f"a number with the promise {promise}",
                    "A promise needs a limit, and every_moment a rule for what follows: every and "
                    "max_release_epsilon.",
                )


@dataclass(frozen=True)
class Event:
    """One release, as it stands in the ledger. Slots are counted over all runs of the client.

    `aged_epsilon` is what this release alone guarantees about the records in slot `aggregate_at`;
    `delta` and `aged_delta` are the δ's that go with both ε's, 0 for Laplace noise. All are only
    what the noise would give where `private` is false. `kind` names the mechanism, `noise` who adds
    it: where that is the server, all rests on its one draw of the scale that it has announced.
    `metric` `[S, S]` says which share of `classical_epsilon` tells each two states apart, rounded
    up; None: nothing but ε is known. `members` clients alike have made it, each with its own noise,
    and each has this account. `account` is what all releases add up to with this one, as
    the ledger carries it on (`agewise.privacy.standing`; empty: not carried on).
    """

    key: str  #: the run, by which a retry finds it again
    client: str  #: whose release
    collect_at: int  #: slot of collection
    aggregate_at: int
    classical_epsilon: float
    aged_epsilon: float
    sensitivity: float  #: how far one record can move it
    scale: float  #: of its noise
    private: bool
    mixing: str  #: whose prior knowledge Δ holds for
    fingerprint: str  #: of the process
    made_at: str  #: date and time, UTC
    payload: bytes  #: the bytes that were sent
    kind: str = "laplace"
    delta: float = 0.0
    aged_delta: float = 0.0
    noise: str = "client"
    metric: tuple[tuple[float, ...], ...] | None = None
    members: int = 1
    account: str = ""
    number: int = 0  #: its place in the ledger, from 1
    hash: str = ""  #: over this event and the one before

    def __post_init__(self) -> None:
        if not self.collect_at <= self.aggregate_at:
            raise InvalidInput("collect_at", self.collect_at, f"up to {self.aggregate_at}")
        for name in NUMBERS:
            if not getattr(self, name) >= 0:
                raise InvalidInput(name, getattr(self, name), "0 or more")
        one_of("kind", self.kind, tuple(MECHANISMS))
        one_of("noise", self.noise, ("client", "server"))
        if not max(self.delta, self.aged_delta) < 1:
            raise InvalidInput("delta", max(self.delta, self.aged_delta), "below 1")
        if not isinstance(self.payload, bytes) or not isinstance(self.private, bool):
            raise InvalidInput("payload, private", quoted(self.payload), "bytes, and true or false")
        if not self.key.isprintable() or not self.key:
            raise InvalidInput("key", quoted(self.key), "printable letters")
        if self.metric is not None and not _is_metric(self.metric):
            raise InvalidInput("metric", self.metric, "shares from 0 to 1, for each two states")

    def facts(self) -> dict[str, Any]:
        """Everything but the payload, for people and programs."""
        account = parse_json(self.account) if self.account else None
        return {k: v for k, v in vars(self).items() if k != "payload"} | {"account": account}


def _is_metric(metric: tuple[tuple[float, ...], ...]) -> bool:
    return all(len(row) == len(metric) and all(0 <= one <= 1 for one in row) for row in metric)


def now() -> str:
    """The time of an event, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
