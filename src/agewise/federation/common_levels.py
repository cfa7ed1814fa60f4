"""What simulated records of all clients share: levels that move from slot to slot."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from agewise.errors import InvalidInput
from agewise.federation.seeding import client_generator
from agewise.knowledge import Levels
from agewise.problem import Problem

Shift = Callable[[int], float]
"""By how much a client's records are moved in a slot by what clients share."""


class CommonLevels:
    """What simulated records of all clients of a problem share: a path of each level."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self._levels: tuple[Any, ...] = tuple(problem.level or ())  # type: ignore[arg-type]
        self._rngs = [
            client_generator(seed, str(number), "levels") for number in range(len(self._levels))
        ]
        self._paths: list[list[float]] = [[] for _ in self._levels]
        self._loadings: dict[str, list[float]] = {}
        if isinstance(problem.known, Levels):
            loadings = problem.known.loadings(len(problem.clients)).tolist()
            self._loadings = dict(zip([c.name for c in problem.clients], loadings, strict=True))

    def __bool__(self) -> bool:
        return bool(self._loadings)

    def of(self, name: str) -> Shift | None:
        """By how much the levels move a client's records, slot by slot; None: there are none."""
        if not self._loadings:
            return None
        loadings = self._loadings[name]
        return lambda slot: math.fsum(map(operator.mul, loadings, self._at(slot)))

    def _at(self, slot: int) -> list[float]:
        """Each level in a slot, of standard deviation 1."""
        for level, rng, path in zip(self._levels, self._rngs, self._paths, strict=True):
            if isinstance(level.correlation, tuple) and not path:
                path.extend(level.root() @ rng.standard_normal(level.root().shape[1]))
            if isinstance(level.correlation, tuple) and slot > len(path):
                raise InvalidInput(
                    "level.correlation",
                    f"{len(path)} lags",
                    f"one number, or {slot}: one per slot of all rounds",
                )
            while len(path) < slot:
                kept = float(level.correlation)
                before = path[-1] if path else rng.standard_normal()
                new = math.sqrt(1 - kept**2) * rng.standard_normal()
                path.append(kept * before + new)
        return [path[slot - 1] for path in self._paths]
