"""Checks of single values: each returns the value in its proper type, or refuses it by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.errors import InvalidInput


def finite_array(field: str, value: ArrayLike, allowed: str) -> NDArray[np.float64]:
    """Return `value` as a fresh float array, refusing anything that is not all finite numbers."""
    try:
        if np.asarray(value).dtype.kind in "bSU":  # which NumPy would read as numbers
            raise ValueError
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(field, value, allowed, "Give numbers in rows of one length.") from None
    if array.size == 0:
        raise InvalidInput(field, "empty", allowed)
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        place = f"{field}{list(where)}" if where else field
        raise InvalidInput(place, float(array[where]), allowed, "Remove NaN and infinite entries.")
    return array


def positive(field: str, value: float, remedy: str = "") -> float:
    """Return `value` as a float, refusing anything but a finite number above zero."""
    number = _number(value)
    if number is None or not (math.isfinite(number) and number > 0):
        raise InvalidInput(field, value, "a finite number above 0", remedy)
    return number


def fraction(field: str, value: float, *, with_zero: bool = False, with_one: bool = False) -> float:
    """Return `value` as a float, refusing anything but a number between 0 and 1.

    The ends count only where that is said.
    """
    number = _number(value)
    inside = number is not None and (
        0 < number < 1 or (with_zero and number == 0) or (with_one and number == 1)
    )
    if number is None or not inside:
        low = "from 0" if with_zero else "above 0"
        high = "at most 1" if with_one else "below 1"
        allowed = "from 0 to 1" if with_zero and with_one else f"{low} and {high}"
        raise InvalidInput(field, value, allowed)
    return number


def whole(field: str, value: int, low: int, high: int | None = None, remedy: str = "") -> int:
    """Return `value` as an int, refusing anything but a whole number from `low` to `high`."""
    number = _number(value)
    high = 2**53 if high is None else high
    fits = number is not None and math.isfinite(number) and number == int(number)
    if number is None or not fits or not low <= number <= high:
        upto = f"from {low} to {high}" if high < 2**53 else f"of {low} or more"
        allowed = f"a whole number {upto}"
        raise InvalidInput(field, value, allowed, remedy)
    return int(number)


def one_of(field: str, value: str, choices: Sequence[str]) -> str:
    """Return `value`, refusing anything outside `choices`."""
    if value not in choices:
        raise InvalidInput(field, repr(value), "one of " + ", ".join(choices))
    return value


def random_generator(rng: Any) -> np.random.Generator:
    """Return `rng`, refusing anything but an explicit generator."""
    if not isinstance(rng, np.random.Generator):
        raise InvalidInput(
            "rng", repr(rng), "a numpy.random.Generator", "Use numpy.random.default_rng(seed)."
        )
    return rng


def _number(value: Any) -> float | None:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf
