"""Every leaf of a JSON document, and the document with one of them changed."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

Path = tuple[str | int, ...]


def leaves(document: Any) -> Iterator[tuple[Path, Any]]:
    """Yield (path, value) for every leaf; an empty list or table is one too.

    >>> list(leaves({"a": [1, {"b": None}], "c": []}))
    [(('a', 0), 1), (('a', 1, 'b'), None), (('c',), [])]
    """
    if isinstance(document, dict | list) and document:
        keys = document if isinstance(document, dict) else range(len(document))
        for key in keys:
            for path, value in leaves(document[key]):
                yield (key, *path), value
    else:
        yield (), document


def damaged(document: Any) -> Iterator[tuple[Path, Any]]:
    """Yield (path, document with that one leaf changed to another of its kind), for every leaf.

    >>> [other for _, other in damaged({"a": 1, "b": [True]})]
    [{'a': 2, 'b': [True]}, {'a': 1, 'b': [False]}]
    """
    for path, value in leaves(document):
        other = copy.deepcopy(document)
        spot = other
        for key in path[:-1]:
            spot = spot[key]
        spot[path[-1]] = _another(value)
        yield path, other


def _another(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return math.nextafter(value, 0) if abs(value) > 1e300 else value * 0.98 - 1e-3
    if isinstance(value, str):
        return "exact" if value == "any_prior" else value + " "
    return 0.5 if value is None else ["nobody"]
