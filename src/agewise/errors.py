"""One family of exceptions: what is wrong, the value, what is allowed, what to do."""

from __future__ import annotations

import copyreg
import reprlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np


class AgewiseError(Exception):
    """Base of everything that Agewise raises on purpose."""

    exit_code = 1

    def __reduce__(self) -> tuple[Any, ...]:
        """Whatever the arguments were: a pool waits for ever for an error that cannot be read."""
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


class InvalidInput(AgewiseError, ValueError):
    """A value that cannot be used. The message names field, value, allowed range and remedy."""

    exit_code = 2

    def __init__(self, field: str, value: Any, allowed: str, remedy: str = "") -> None:
        self.field, self.value, self.allowed, self.remedy = field, value, allowed, remedy
        message = f"{field} is {_shown(value)}; allowed: {allowed}."
        super().__init__(f"{message} {remedy}".rstrip())


MOST_LINES = 100
"""Faults beyond which they are counted only."""


class InvalidInputs(InvalidInput):
    """Everything that is wrong with some input: one line for each fault, in `problems`."""

    def __init__(self, problems: Sequence[InvalidInput], source: str = "") -> None:
        first = problems[0]
        super().__init__(first.field, first.value, first.allowed, first.remedy)
        self.problems = tuple(problems)
        prefix = f"{source}: " if source else ""
        lines = [f"{prefix}{one}" for one in problems[:MOST_LINES]]
        if len(problems) > MOST_LINES:
            lines.append(f"{prefix}{len(problems) - MOST_LINES} more problems like these.")
        self.args = ("\n".join(lines),)


class Faults:
    """Faults that are collected, each once, so that all of them can be told together.

    >>> faults = Faults()
    >>> with faults.noted():
    ...     raise InvalidInput("epsilon", -1, "above 0")
    >>> faults.refuse()
    Traceback (most recent call last):
    agewise.errors.InvalidInputs: epsilon is -1; allowed: above 0.
    """

    def __init__(self) -> None:
        self.found: dict[str, InvalidInput] = {}

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note what is refused inside, and go on."""
        try:
            yield
        except InvalidInput as bad:
            self.found.setdefault(str(bad), bad)

    def refuse(self) -> None:
        """Raise all that was found, if anything was."""
        if self.found:
            raise InvalidInputs(tuple(self.found.values()))


@contextmanager
def named(**fields: str) -> Iterator[None]:
    """Refuse inside by the names that a caller's user wrote: `named(method="mixing")`.

    >>> with named(method="mixing"):
    ...     raise InvalidInput("method", "guess", "exact")
    Traceback (most recent call last):
    agewise.errors.InvalidInput: mixing is guess; allowed: exact.
    """
    try:
        yield
    except InvalidInput as bad:
        if bad.field not in fields:
            raise
        raise InvalidInput(fields[bad.field], bad.value, bad.allowed, bad.remedy) from None


def quoted(value: Any) -> str:
    """A value as it is written in code, in short, whatever it is: very large or deeply nested.

    >>> quoted("name"), quoted([[[[[[[1]]]]]]])
    ("'name'", '[[[[[[...]]]]]]')
    """
    try:
        return _SHORT.repr(value.item() if isinstance(value, np.generic) else value)
    except ValueError:  # more digits than Python writes
        return f"a number of {value.bit_length()} bits"


def _short() -> reprlib.Repr:
    short = reprlib.Repr()
    for kind in ("list", "tuple", "dict", "set", "frozenset", "deque", "array"):
        setattr(short, f"max{kind}", 60)
    short.maxstring = short.maxother = short.maxlong = 200
    return short


_SHORT = _short()


def _shown(value: Any) -> str:
    """In short, with its end: behind a path stands the version.

    >>> _shown("/deep" * 40 + " of schema 5")[-20:]
    'eep/deep of schema 5'
    """
    text = str(value) if isinstance(value, str) else quoted(value)
    return text if len(text) <= 120 else f"{text[:96]}...{text[-21:]}"
