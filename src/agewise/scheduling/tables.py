"""Cost tables as a scheduler reads them: checked, in blocks, from memory or from a stream."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array
from agewise.checks import numbers
from agewise.errors import InvalidInput

BLOCK_CELLS = 2**17
"""Cells of a block in memory: its temporaries stay in the cache, and two threads share the work."""

Stream = Callable[[], Iterable[tuple[ArrayLike, ArrayLike]]]
Result = TypeVar("Result")


class Tables:
    """Blocks of rows of u `[m, T]` and b `[m, T, d]` (always with d), and counts `[m]`.

    A block is (first row, u, b). Every pass checks what it reads.
    """

    def __init__(
        self, u: ArrayLike | None, b: ArrayLike | None, stream: Stream | None = None
    ) -> None:
        self._stream = stream
        self.scalar = True
        if stream is None:
            self.u, self.b = _checked_shapes(u, b)
            self.scalar = np.asarray(b).ndim == 2
            self.slots, self.dimensions = self.b.shape[1:]
            self.clients = self.u.shape[0]
        else:
            self.clients = 0
            for block_u, block_b in stream():
                first_u, first_b = _checked_shapes(block_u, block_b)
                if self.clients == 0:
                    self.slots, self.dimensions = first_b.shape[1:]
                    self.scalar = np.ndim(block_b) == 2
                self.clients += first_u.shape[0]
            if self.clients == 0:
                raise InvalidInput("blocks", "none", "one or more blocks of tables")

    @property
    def in_memory(self) -> bool:
        """Whether all rows are at hand at once."""
        return self._stream is None

    def blocks(self) -> Iterator[tuple[int, Array, Array]]:
        """Yield every block once, in order."""
        if self._stream is None:
            rows = max(1, BLOCK_CELLS // (self.slots * self.dimensions))
            for start in range(0, self.clients, rows):
                yield start, self.u[start : start + rows], self.b[start : start + rows]
            return
        start = 0
        for block_u, block_b in self._stream():
            u, b = _checked_shapes(block_u, block_b)
            if b.shape[1:] != (self.slots, self.dimensions):
                raise InvalidInput(
                    "block", f"of shape {b.shape}", f"{self.slots} slots, {self.dimensions} biases"
                )
            yield start, u, b
            start += u.shape[0]
        if start != self.clients:
            raise InvalidInput(
                "blocks",
                f"{start} rows",
                f"{self.clients} rows, as in the first pass",
                "A stream must give the same blocks each time.",
            )

    def map(self, work: Callable[[int, Array, Array], Result]) -> list[Result]:
        """Apply `work` to every block, two at a time where they are in memory."""
        if self._stream is not None:
            return [work(*block) for block in self.blocks()]
        blocks = list(self.blocks())
        results: list[Result | None] = [None] * len(blocks)
        places = iter(range(len(blocks)))  # each thread takes the next
        failed: dict[int, Exception] = {}

        def some() -> None:
            for place in places:
                try:
                    results[place] = work(*blocks[place])
                except Exception as error:
                    failed[place] = error
                    return

        with ThreadPoolExecutor(max_workers=2) as pool:
            list(pool.map(lambda _: some(), range(2)))
        if failed:
            raise failed[min(failed)]  # the first bad block, whichever thread met it
        return cast(list[Result], results)


def check_block(start: int, u: Array, b: Array) -> None:
    """Refuse NaN, minus infinity, an infinite bias, and a client with no allowed slot."""
    lowest = u.min(axis=1)
    if np.isnan(lowest).any() or np.isneginf(lowest).any():
        row, column = np.argwhere(np.isnan(u) | np.isneginf(u))[0]
        raise InvalidInput(
            f"u[{start + row}, {column}]",
            float(u[row, column]),
            "a finite cost, or infinity to forbid the slot",
        )
    if np.isposinf(lowest).any():
        row = int(np.argmax(np.isposinf(lowest)))
        raise InvalidInput(
            f"u[{start + row}]",
            "infinite in every slot",
            f"at least one allowed slot for client {start + row}",
        )
    if not np.isfinite(b).all():
        row, column, k = np.argwhere(~np.isfinite(b))[0]
        raise InvalidInput(f"b[{start + row}, {column}]", float(b[row, column, k]), "finite biases")


def _checked_shapes(u: ArrayLike | None, b: ArrayLike | None) -> tuple[Array, Array]:
    costs, biases = (
        x if isinstance(x, np.ndarray) and x.dtype == np.float64 else numbers(name, x, allowed)
        for name, x, allowed in (("u", u, "costs [clients, slots]"), ("b", b, "biases"))
    )
    if costs.ndim != 2 or 0 in costs.shape:
        raise InvalidInput("u", f"of shape {costs.shape}", "shape [clients, slots], not empty")
    if biases.ndim == 2:
        biases = biases[:, :, None]
    if biases.ndim != 3 or biases.shape[:2] != costs.shape or biases.shape[2] == 0:
        raise InvalidInput(
            "b",
            f"of shape {biases.shape}",
            f"shape {costs.shape} or {(*costs.shape, 'd')} to go with u",
        )
    return costs, biases


def checked_counts(counts: ArrayLike | None, clients: int) -> NDArray[np.int64] | None:
    """Check how many clients each row stands for."""
    if counts is None:
        return None
    values = numbers("counts", counts, "whole numbers, one per row")
    if values.shape != (clients,):
        raise InvalidInput("counts", f"of shape {values.shape}", f"shape ({clients},)")
    if values.dtype.kind in "fiu" and not float(values.sum(dtype=np.float64)) <= 2**53:
        raise InvalidInput("counts", "too large", f"a total of {2**53} at most")
    whole = values.dtype.kind in "iu" or (
        values.dtype.kind == "f" and bool((values == np.rint(values)).all())
    )
    if not whole or (values < 1).any():
        bad = (
            values[~(values >= 1) | (values != np.rint(values))]
            if values.dtype.kind in "fiu"
            else (values)
        )
        raise InvalidInput("counts", bad[:1].tolist()[0], "whole numbers, 1 or more")
    return values.astype(np.int64)


def no_schedule() -> InvalidInput:
    """What to say where forbidden slots leave no schedule within the capacity."""
    return InvalidInput(
        "u",
        "infinite in too many slots",
        "a schedule in the capacity",
        "No schedule exists: allow more slots or raise the capacity.",
    )


def choose_all(
    tables: Tables, many: Array, multipliers: Array, *, check: bool
) -> tuple[NDArray[np.intp], float, Array, float]:
    """All clients' choices at λ: columns, Σ u, Σ b and L(λ)."""
    columns = np.empty(tables.clients, dtype=np.intp)
    used: list[Array] = []  # fresh memory for every block would cost more than its sums

    def work(first: int, u: Array, b: Array) -> tuple[float, Array]:
        held = used.pop() if used else np.empty(u.shape)
        if len(held) < len(u):
            held = np.empty(u.shape)
        # One product at a time: the temporaries of a block stay in the cache.
        value = np.multiply(b[:, :, 0], 2 * multipliers[0], out=held[: len(u)])
        for k in range(1, b.shape[2]):
            value += b[:, :, k] * (2 * multipliers[k])
        value += u
        picked = value.argmin(axis=1)
        rows = np.arange(len(u))
        least = value[rows, picked]
        if check and not (np.isfinite(least).all() and np.isfinite(b.sum())):
            check_block(first, u, b)
        used.append(held)
        own = many[first : first + len(u)]
        columns[first : first + len(u)] = picked
        return float((u[rows, picked] * own).sum()), own @ b[rows, picked]

    parts = tables.map(work)
    cost = math.fsum(p[0] for p in parts)
    bias = np.sum([p[1] for p in parts], axis=0)
    value = cost + 2 * float(multipliers @ bias) - float(multipliers @ multipliers)
    return columns, cost, bias, value


def members_of(tables: Tables, counts: NDArray[np.int64] | None) -> Array:
    """How many clients each row stands for, as floats."""
    return np.ones(tables.clients) if counts is None else counts.astype(np.float64)
