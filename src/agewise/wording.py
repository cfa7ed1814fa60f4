"""How names are said to people, and infinities to JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any


def listed(names: Sequence[str], most: int) -> str:
    """Return the names in a row, at most so many of them and how many more there are.

    >>> listed(["north", "south", "east"], 2)
    'north, south and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question that names the known word next to a misspelt one, if one is near.

    >>> did_you_mean("capasity", ["capacity", "clients"])
    'Did you mean capacity?'
    """
    near = get_close_matches(word, list(known), 1)
    return f"Did you mean {near[0]}?" if near else ""


def printable(text: str) -> str:
    r"""Return the text in one line, with what cannot be printed spelt out.

    >>> printable("two\nlines")
    'two\\nlines'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def in_words(value: Any) -> Any:
    """Return plain data with the word "inf" for infinity, for which JSON has none.

    >>> in_words({"epsilon": [1.5, math.inf]})
    {'epsilon': [1.5, 'inf']}
    """
    if isinstance(value, dict):
        plain = (str, int, bool, type(None))  # most there is, of very many clients
        return {k: v if type(v) in plain else in_words(v) for k, v in value.items()}
    if isinstance(value, list):
        return [in_words(item) for item in value]
    return "inf" if isinstance(value, float) and value == math.inf else value


def out_of_words(value: Any) -> Any:
    """Return infinity for the word that `in_words` writes, and any other single value as it is.

    >>> out_of_words("inf"), out_of_words(1.5)
    (inf, 1.5)
    """
    return math.inf if value == "inf" else value
