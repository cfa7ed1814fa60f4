"""How contracts say that something does not hold: by an exception, whatever runs them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

E = TypeVar("E", bound=BaseException)


def expect(holds: object, what: str) -> None:
    """Raise `AssertionError` with these words unless something holds."""
    if not holds:
        raise AssertionError(what)


def expect_same(found: Any, wanted: Any, what: str) -> None:
    """Raise `AssertionError` unless two things are equal; say both."""
    expect(found == wanted, f"{what}: {found!r}, expected {wanted!r}")


def expect_close(found: float, wanted: float, what: str) -> None:
    """Raise `AssertionError` unless two moments are within a millisecond of each other."""
    expect(math.isclose(found, wanted, rel_tol=0, abs_tol=1e-3), f"{what}: {found} is not {wanted}")


def expect_refused(kind: type[E], call: Callable[[], object], what: str) -> E:
    """Return the error of a kind that a call raises; raise `AssertionError` if it does not."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{what}: no {kind.__name__}")
