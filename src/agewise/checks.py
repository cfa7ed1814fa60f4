"""Checks of single values: each returns the value in its proper type, or refuses it by name."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.errors import InvalidInput, quoted

Given = TypeVar("Given")

MOST_BYTES = 4 * 2**30
"""Memory that tables of one call may take by its own estimate: 4 GiB. More is refused at once."""


def numbers(field: str, value: ArrayLike | None, allowed: str) -> NDArray[np.float64]:
    """Return `value` as a fresh float array, refusing anything but numbers in rows of one length.

    Infinities and NaN are numbers here.
    """
    try:
        if np.asarray(value).dtype.kind in "bSUcMm":  # which NumPy would read as numbers
            raise ValueError
        return np.array(value, dtype=np.float64)
    except (TypeError, ValueError, RecursionError, OverflowError):
        raise InvalidInput(
            field, quoted(value), allowed, "Give numbers in rows of one length."
        ) from None


def finite_array(field: str, value: ArrayLike, allowed: str) -> NDArray[np.float64]:
    """Return `value` as a fresh float array, refusing anything that is not all finite numbers."""
    array = numbers(field, value, allowed)
    if array.size == 0:
        raise InvalidInput(field, "empty", allowed)
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        place = f"{field}{list(where)}" if where else field
        raise InvalidInput(place, float(array[where]), allowed, "Remove NaN and infinite entries.")
    return array


def positive(field: str, value: float, remedy: str = "", *, with_zero: bool = False) -> float:
    """Return `value` as a float, refusing anything but a finite number above zero.

    Zero counts only where that is said.
    """
    number = _number(value)
    above = number is not None and (number > 0 or (with_zero and number == 0))
    if number is None or not (above and math.isfinite(number)):
        allowed = "a finite number, 0 or more" if with_zero else "a finite number above 0"
        raise InvalidInput(field, quoted(value), allowed, remedy)
    return number


def finite_number(field: str, value: float) -> float:
    """Return `value` as a float, refusing anything but a finite number."""
    number = _number(value)
    if number is None or not math.isfinite(number):
        raise InvalidInput(field, quoted(value), "a finite number")
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
        raise InvalidInput(field, quoted(value), allowed)
    return number


def whole(field: str, value: int, low: int, high: int | None = None, remedy: str = "") -> int:
    """Return `value` as an int, refusing anything but a whole number from `low` to `high`."""
    number = _number(value)
    high = 2**53 if high is None else high
    fits = number is not None and math.isfinite(number) and number == int(number)
    if number is None or not fits or not low <= number <= high:
        upto = f"from {low} to {high}" if high < 2**53 else f"of {low} or more"
        allowed = f"a whole number {upto}"
        raise InvalidInput(field, quoted(value), allowed, remedy)
    return int(number)


def one_of(field: str, value: str, choices: Sequence[str]) -> str:
    """Return `value`, refusing anything outside `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidInput(field, quoted(value), "one of " + ", ".join(choices))
    return value


def instance(field: str, value: Given, kind: type, allowed: str, remedy: str = "") -> Given:
    """Return `value`, refusing anything that is not of this class."""
    if not isinstance(value, kind):
        raise InvalidInput(field, quoted(value), allowed, remedy)
    return value


def truth(field: str, value: bool) -> bool:
    """Return `value`, refusing anything but True and False."""
    return instance(field, value, bool, "True or False")


def several(field: str, value: Iterable[Any], allowed: str) -> tuple[Any, ...]:
    """Return what there is in `value`, refusing one text, or what holds nothing at all."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidInput(field, quoted(value), allowed)
    try:
        return tuple(value)
    except TypeError:  # an array of no dimension
        raise InvalidInput(field, quoted(value), allowed) from None


def as_names(field: str, value: Iterable[str]) -> tuple[str, ...]:
    """Return the names in `value`, refusing anything but a list of texts."""
    given = several(field, value, "a list of names")
    for one in given:
        instance(field, one, str, "a list of names")
    return given


def as_path(field: str, value: str | os.PathLike[str]) -> Path:
    """Return `value` as a path, refusing anything that names no file."""
    if not isinstance(value, str | Path) or "\0" in str(value):
        raise InvalidInput(field, quoted(value), "the path of a file or folder, as text or a Path")
    return Path(value)


def refuse_unwritable(field: str, path: Path) -> None:
    """Refuse a folder, there or not, that nothing can be written to."""
    place = path.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise InvalidInput(field, str(path), "a folder that can be written to")


def parse_json(text: str | bytes) -> Any:
    """Return what a JSON text says; `ValueError` where it says nothing, or is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def refuse_size(field: str, value: object, needed: float, remedy: str) -> None:
    """Refuse what would take more than `MOST_BYTES` of memory, by an estimate in bytes."""
    if needed > MOST_BYTES:
        raise InvalidInput(
            field,
            f"{value}, for which tables of {needed / 2**30:,.1f} GiB are needed",
            f"what takes {MOST_BYTES / 2**30:g} GiB at most",
            remedy,
        )


def random_generator(rng: Any) -> np.random.Generator:
    """Return `rng`, refusing anything but an explicit generator."""
    if not isinstance(rng, np.random.Generator):
        raise InvalidInput(
            "rng", quoted(rng), "a numpy.random.Generator", "Use numpy.random.default_rng(seed)."
        )
    return rng


def generator_or_fresh(rng: Any) -> np.random.Generator:
    """Return the generator given, or a fresh one; refuse anything else."""
    return np.random.default_rng() if rng is None else random_generator(rng)


def _number(value: Any) -> float | None:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def renamed(**names: str) -> Callable[[Any], Any]:
    """Let a function take arguments by their earlier names too, for one release, with a warning."""

    def make(function: Any) -> Any:
        @wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            for old in names.keys() & named.keys():
                told = f"{old} of {function.__name__} is now {names[old]}"
                warnings.warn(told, DeprecationWarning, stacklevel=2)
                named[names[old]] = named.pop(old)
            return function(*given, **named)

        return call

    return make
