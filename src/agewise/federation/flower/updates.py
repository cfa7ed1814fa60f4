"""What an app has trained, as one vector of bounded norm, and back into the arrays of a model."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Literal

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, Message

from agewise.arrays import Array
from agewise.checks import finite_array
from agewise.errors import AgewiseError, InvalidInput

Bounds = Mapping[str, tuple[float, float]]
"""The metrics that may leave, and between which numbers each lies."""

PER_RECORD = "per-record"
"""The array record of a reply that holds one update for each record."""
COUNT = "num-examples"
"""The metric by which Flower weighs clients."""
COLLECTED = "collected-at"
"""The metric of a reply that says in which slot the data it was trained on were collected."""
METRIC_SHARE = 0.1
"""How far a metric may go from its middle, as a share of the clip: so much more noise it costs."""
NORM_SLACK = 1 + 1e-9
"""What rounding may add to a clipped norm."""


class UpdateRefused(AgewiseError):
    """What an app returned cannot be released. `reason` is the one word that the server is told."""

    def __init__(self, reason: Literal["arrays", "records", "slot"], detail: str) -> None:
        self.reason: Literal["arrays", "records", "slot"] = reason
        super().__init__(detail)


def model_in(message: Message, arrays: str) -> ArrayRecord:
    """The arrays that the server sent; raise before training if nothing in them can be noised."""
    model = message.content.array_records.get(arrays)
    if not model:
        raise UpdateRefused("arrays", f"a train message without the arrays {arrays!r}")
    olds = {key: one.numpy() for key, one in model.items()}
    odd = {key: old.dtype for key, old in olds.items() if old.dtype.kind not in "fiub"}
    if odd:
        raise UpdateRefused(
            "arrays", f"arrays of {odd}; allowed: floats, whole numbers and truth values"
        )
    if not sum(old.size for old in olds.values() if old.dtype.kind == "f"):
        raise UpdateRefused("arrays", f"arrays {list(olds)} without one float: nothing to noise")
    return model


def refuse_other_slot(reply: Message, slot: int) -> None:
    """Raise unless the app says that its data were collected in the slot that was ordered."""
    told = [one[COLLECTED] for one in reply.content.metric_records.values() if COLLECTED in one]
    if told != [slot]:
        raise UpdateRefused(
            "slot",
            f"the app says {COLLECTED} {told or 'nowhere'}; ordered: slot {slot}. Train on what "
            f'was collected in slot message.content["agewise"]["collect-at"], and return that '
            f"slot as the metric {COLLECTED!r}.",
        )


def whole_update(reply: Message, model: ArrayRecord, arrays: str) -> Array:
    """By how much the app has moved the arrays, `[1, d]`: names, shapes, types as they came."""
    after = reply.content.array_records.get(arrays)
    if after is None or list(after) != list(model):
        found = None if after is None else list(after)
        raise UpdateRefused("arrays", f"arrays {found} in the reply; allowed: {list(model)}")
    parts = []
    for key, base in model.items():
        old, new = base.numpy(), after[key].numpy()
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise UpdateRefused(
                "arrays",
                f"array {key!r} of the reply is {new.dtype}{new.shape}; allowed: as it came, "
                f"{old.dtype}{old.shape}",
            )
        if old.dtype.kind == "f":
            with np.errstate(invalid="ignore"):  # infinity less infinity
                parts.append((new.astype(np.float64) - old.astype(np.float64)).ravel())
    return np.concatenate(parts)[None]


def record_updates(reply: Message, model: ArrayRecord, samples: int) -> Array:
    """One update for each of the client's records, `[n, d]`, from the record "per-record"."""
    rows = reply.content.array_records.get(PER_RECORD)
    floats = {key: one.numpy() for key, one in model.items() if one.numpy().dtype.kind == "f"}
    if rows is None or list(rows) != list(floats):
        found = None if rows is None else list(rows)
        raise UpdateRefused("arrays", f"{PER_RECORD} arrays {found}; allowed: {list(floats)}")
    parts = []
    for key, old in floats.items():
        new = rows[key].numpy()
        if new.dtype.kind != "f" or new.ndim == 0 or new.shape[1:] != old.shape:
            raise UpdateRefused(
                "arrays",
                f"{PER_RECORD} array {key!r} is {new.dtype}{new.shape}; allowed: floats of shape "
                f"{(samples, *old.shape)}",
            )
        if len(new) != samples:
            raise UpdateRefused(
                "records",
                f"{PER_RECORD} array {key!r} has {len(new)} rows; allowed: {samples}, the samples "
                "of this node's own scenario",
            )
        parts.append(new.reshape(samples, -1).astype(np.float64))
    return np.concatenate(parts, axis=1)


def clipped_mean(rows: Array, bound: float, norm: int) -> Array:
    """The mean of rows `[n, d]`, each scaled down to the bound in a norm.

    A row with anything in it that is not finite counts as zeros.
    """
    finite = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
    largest = np.abs(finite).max(axis=1, keepdims=True)
    direction = finite / np.where(largest > 0, largest, 1.0)  # whose norm cannot overflow
    length = np.linalg.norm(direction, ord=norm, axis=1, keepdims=True)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        kept = np.where(largest * length > bound, direction * (bound / length), finite)
    return np.asarray(kept.sum(axis=0) / len(rows))


def checked_bounds(metrics: Bounds | None) -> dict[str, tuple[float, float]]:
    """The metrics that leave with noise, each with its bounds."""
    known = {}
    for name, given in (metrics or {}).items():
        field = f"metrics[{name!r}]"
        ends = finite_array(field, given, "two finite numbers, the lower one first").tolist()
        if len(ends) != 2 or not ends[0] < ends[1]:
            raise InvalidInput(field, given, "two finite numbers, the lower one first")
        if name in (COLLECTED, COUNT):
            raise InvalidInput("metrics", name, "names that mean nothing else yet")
        known[name] = (ends[0], ends[1])
    return known


def metric_rows(reply: Message, metrics: Bounds, count: int) -> Array:
    """Metrics of `count` rows as −1..1 between their bounds, `[n, k]`: beyond those cut off.

    One number per row; what is not finite counts as the middle.
    """
    told = {name: v for one in reply.content.metric_records.values() for name, v in one.items()}
    columns = []
    for name, (low, high) in metrics.items():
        values = np.atleast_1d(np.asarray(told.get(name, []), dtype=np.float64))
        if values.size != count:
            raise UpdateRefused(
                "records",
                f"the metric {name!r} of the reply has {values.size} numbers; allowed: {count}, "
                + ("one for each record" if count > 1 else "one"),
            )
        middle, half = low / 2 + high / 2, high / 2 - low / 2
        with np.errstate(invalid="ignore", over="ignore"):
            scaled = np.clip((values - middle) / half, -1.0, 1.0)
        columns.append(np.where(np.isfinite(values), scaled, 0.0))
    return np.stack(columns, axis=1) if columns else np.zeros((count, 0))


def metrics_of(vector: Array, bound: float, metrics: Bounds) -> dict[str, float]:
    """Noised means of `metric_rows`, times their share of the clip, back between their bounds."""
    share = METRIC_SHARE * bound
    return {
        name: float(low / 2 + high / 2 + (high / 2 - low / 2) * one / share)
        for (name, (low, high)), one in zip(metrics.items(), vector.tolist(), strict=True)
    }


def mean_sensitivity(bound: float, count: int) -> float:
    """How far one of `count` rows can move their `clipped_mean`, with what rounding may add."""
    rounding = count * float(np.finfo(float).eps)
    return 2 * bound * (NORM_SLACK / count + rounding)


def moved(model: ArrayRecord, vector: Array) -> ArrayRecord | None:
    """The server's arrays with a vector added to their floats; None if it is of another size."""
    olds = {key: base.numpy() for key, base in model.items()}
    if vector.size != sum(old.size for old in olds.values() if old.dtype.kind == "f"):
        return None
    folded: OrderedDict[str, FlowerArray] = OrderedDict()
    at = 0
    for key, old in olds.items():
        if old.dtype.kind != "f":
            folded[key] = model[key]
            continue
        part = vector[at : at + old.size].reshape(old.shape) + old.astype(np.float64)
        limits = np.finfo(old.dtype)  # noise may be more than a short float can hold
        part = np.clip(part, limits.min, limits.max)
        folded[key], at = FlowerArray(np.asarray(part, dtype=old.dtype)), at + old.size
    return ArrayRecord(folded)
