"""Every single change of a JSON document, one at a time."""

import copy
import math


def changed(document):
    """Yield (path, document with that one leaf changed), for every leaf and every empty list."""
    for path, value in _leaves(document, ()):
        other = copy.deepcopy(document)
        spot = other
        for key in path[:-1]:
            spot = spot[key]
        spot[path[-1]] = _another(value)
        yield path, other


def _leaves(document, path):
    if isinstance(document, dict) and document:
        for key, value in document.items():
            yield from _leaves(value, (*path, key))
    elif isinstance(document, list) and document:
        for index, value in enumerate(document):
            yield from _leaves(value, (*path, index))
    else:
        yield path, document


def _another(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return math.nextafter(value, 0) if abs(value) > 1e300 else value * 0.98 - 1e-3
    if isinstance(value, str):
        return "exact" if value == "any_prior" else value + " "
    return {"None": 0.5}.get(str(value), ["nobody"])
