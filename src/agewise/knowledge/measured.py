"""What earlier days say: means and covariances of the clients' shares in each state."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from agewise.arrays import Array, frozen
from agewise.checks import finite_array, numbers
from agewise.errors import InvalidInput, quoted
from agewise.knowledge.knowledge import Asked
from agewise.knowledge.moments import Moments
from agewise.records import WHOLE, OneLine, Read, list_of, plain, record
from agewise.report.tables import counted

ROOM = 1e-8
"""How far below zero an eigenvalue may be by rounding, relative to the largest."""


def _names(given: Any) -> tuple[str, ...]:
    named = isinstance(given, Sequence) and not isinstance(given, str)
    if not named or not all(isinstance(name, str) for name in given):
        raise InvalidInput("", quoted(given), "a list of names")
    return tuple(given)


def _array(shape: str, depth: int) -> Read:
    """How an array is read whose entries are all finite; of none there is nothing to check."""

    def read(given: Any) -> Array:
        if not np.size(numbers("", given, shape)):
            return np.zeros(0)
        return frozen(finite_array("", given, shape))

    return Read(read, lambda: list_of(depth))


Names = Annotated[Sequence[str], Read(_names, lambda: list_of(1, {"type": "string"}))]
Means = Annotated[Array, _array("numbers [clients, slots, states]", 3)]
Factors = Annotated[Array, _array("numbers [clients, slots, states, F]", 4)]
Covariances = Annotated[Array, _array("numbers", 4)]
Days = Annotated[int, Field(ge=2, le=2**53), WHOLE]


@record
class Measured:
    """Means and covariances of the share of a client's records in each state, by slot.

    Whatever a client releases is linear in those shares, and so is the target. For each client,
    `mean` `[A, S]` is the mean share over days, `factors` `[A, S, F]` how the shares move with
    each of F common factors of variance 1, `own` `[A, S, S]` the covariance of what is left, and
    `lagged` `[A, S, S]` that between slot t (rows) and the aggregation slot (columns). `days` is
    how many days they come from, and `assumes` says in words what that takes for granted.
    """

    clients: Names
    """Their names, in the order of the problem."""
    mean: Means
    """The mean share of each state, by client and slot."""
    factors: Factors
    """How shares move with each common factor, by client and slot."""
    own: Covariances
    """Covariances of what is left."""
    lagged: Covariances
    """The same between each slot and the aggregation slot."""
    days: Days
    """How many days they come from."""
    assumes: OneLine = ""
    """What that takes for granted."""
    kind: ClassVar[str] = "measured"
    shared: ClassVar[bool] = True
    drawable: ClassVar[bool] = False

    @staticmethod
    def called(name: str, given: Mapping[str, Any]) -> str:  # noqa: ARG004
        """What messages call a field."""
        return f"knowledge.{name}"

    def __post_init__(self) -> None:
        if self.mean.ndim != 3 or len(self.mean) != len(self.clients):
            raise InvalidInput(
                "knowledge.mean",
                f"of shape {self.mean.shape}",
                f"[clients, slots, states], for {len(self.clients)} clients",
            )
        shape, states = self.mean.shape, self.mean.shape[2]
        if not self.factors.size:
            object.__setattr__(self, "factors", frozen(np.zeros((*shape, 0))))
        _refuse_other_shape("factors", self.factors, (*shape, self.factors.shape[-1]))
        for name in ("own", "lagged"):
            _refuse_other_shape(name, getattr(self, name), (*shape, states))
        if self.factors.shape[-1] >= self.days:
            raise InvalidInput(
                "knowledge.factors",
                f"{self.factors.shape[-1]} factors from {self.days} days",
                f"at most {self.days - 1}",
                "Use fewer factors, or more days.",
            )
        self._check_covariances()

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the exact values, and of what they rest on."""
        text = hashlib.sha256(repr((self.clients, self.days, self.assumes)).encode())
        for array in (self.mean, self.factors, self.own, self.lagged):
            text.update(array.tobytes())
        return text.hexdigest()

    def _check_covariances(self) -> None:
        present = np.broadcast_to(self.own[:, -1:], self.own.shape)
        whole_law = np.concatenate(
            [
                np.concatenate([self.own, self.lagged], axis=3),
                np.concatenate([np.swapaxes(self.lagged, 2, 3), present], axis=3),
            ],
            axis=2,
        )
        uneven = np.abs(whole_law - np.swapaxes(whole_law, 2, 3)).max(axis=(2, 3))
        values = np.linalg.eigvalsh(whole_law)
        wrong = (values[..., 0] < -ROOM * np.maximum(values[..., -1], 1e-300)) | (
            uneven > ROOM * np.maximum(values[..., -1], 1e-300)
        )
        if wrong.any():
            client, slot = (int(i) for i in np.argwhere(wrong)[0])
            raise InvalidInput(
                "knowledge.own, knowledge.lagged",
                f"client {self.clients[client]!r}, slot {slot + 1}: least eigenvalue "
                f"{values[client, slot, 0]:.3g}",
                "covariances (symmetric, positive semi-definite)",
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Measured) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        count, slots, states, factors = self.factors.shape
        return (
            f"Measured({counted(count, 'client')}, {slots} slots, {states} states, "
            f"{counted(factors, 'factor')}, {self.days} days)"
        )

    def check(self, clients: Sequence[str], aggregate_at: int, states: Array, width: int) -> None:  # noqa: ARG002
        """Refuse knowledge of other clients, slots or states than the problem's."""
        known, wanted = set(self.clients), set(clients)
        for what, names in (
            ("clients that are not in the problem", known - wanted),
            ("no word of", wanted - known),
        ):
            if names:
                raise InvalidInput(
                    "knowledge.clients", f"{what}: {min(names)!r}", "exactly the problem's clients"
                )
        if self.clients != tuple(clients):
            raise InvalidInput("knowledge.clients", "in another order", "the problem's order")
        if self.mean.shape[1:] != (aggregate_at, states.size):
            slots, size = self.mean.shape[1:]
            raise InvalidInput(
                "knowledge.mean",
                f"{slots} slots and {size} states",
                f"{aggregate_at} slots and {states.size} states, as in the problem",
            )

    def moments(self, client: int, own: Moments, asked: Asked) -> Moments:  # noqa: ARG002
        places, release, table = asked.slots - 1, asked.release, asked.table
        covariance, lagged = self.own[client, places], self.lagged[client, places]
        shape = (len(places), table.shape[1])
        present = np.einsum("sc,su,uc->c", table, self.own[client, -1], table)
        return Moments(
            target_mean=np.broadcast_to(self.mean[client, -1] @ table, shape),
            mean=np.einsum("as,asc->ac", self.mean[client, places], release),
            target_variance=np.broadcast_to(present, shape),
            covariance=np.einsum("asc,asu,uc->ac", release, lagged, table),
            variance=np.einsum("asc,asu,auc->ac", release, covariance, release),
            target_factors=np.einsum("sc,sf->cf", table, self.factors[client, -1]),
            factors=np.einsum("asc,asf->acf", release, self.factors[client, places]),
        )

    def subset(self, kept: Sequence[int]) -> Measured:
        places = list(kept)
        names = [self.clients[i] for i in places]
        parts = [array[places] for array in (self.mean, self.factors, self.own, self.lagged)]
        return Measured(names, parts[0], parts[1], parts[2], parts[3], self.days, self.assumes)

    def words(self) -> str:
        return (
            f"days to come are like the {self.days} days that means and covariances were measured "
            "on" + (f" ({self.assumes})" if self.assumes else "")
        )

    def to_dict(self) -> dict[str, Any]:
        """The knowledge as plain data."""
        return {"kind": self.kind, **plain(self)}


def _refuse_other_shape(name: str, array: Array, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise InvalidInput(f"knowledge.{name}", f"of shape {array.shape}", f"shape {shape}")
