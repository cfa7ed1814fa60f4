"""From slot to slot: what is known of a record in one slot given its value in another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from agewise.arrays import Array
from agewise.mixing import MIXINGS, Method, forward_delta, slot_delta
from agewise.privacy.ageing import sharp_forward, worst_each
from agewise.privacy.pairwise import (
    TREES,
    Rows,
    aged_losses,
    all_pairs,
    backward_of,
    forward_of,
    guessed_losses,
    lumped_loss,
    lumped_rows,
)
from agewise.privacy.spanning import Trees
from agewise.process import LiftedChain, Process
from agewise.process.joint import rounding

GAPS = 4096
"""Gaps that a rule is checked for one by one, over all slots of the day."""
Ageing = Callable[[Array, Rows], Array]


def chain_of(process: Process) -> Process:
    """The process that accounts are kept about: of a lifted chain the one on enlarged states."""
    return process.chain if isinstance(process, LiftedChain) else process


class Between:
    """All that accounts ask of a process and an adversary: any two slots, each looked at once.

    To later slots by what `method` knows of the earlier value, to earlier ones by the rows of the
    process forwards in time, whatever is known. `law` (default: the process's own) holds in the
    first of the slots `at`; in the others it follows from there.
    """

    def __init__(
        self,
        process: Process,
        method: Method,
        law: Array | None = None,
        at: Sequence[int] = (),
    ) -> None:
        self.process, self.method = process, method
        self._laws: dict[int, tuple[Array, float]] = {}
        off = 0.0
        for slot, later in zip(at, [*at[1:], None], strict=False):
            if law is None:
                break
            self._laws[slot] = law, off
            if later is not None:
                law = np.asarray(law @ process.kernel(slot, later))
                law = law / law.sum()
                off += rounding(later - slot, law.size)  # Δ is off by as much at most
        self._rows: dict[tuple[int, int, bool], Rows] = {}

    def gap(self, *pairs: tuple[int, int]) -> Gap:
        """From the first slot of each pair to the second."""
        return Gap(self, pairs)

    def total_variation(self, start: int, end: int) -> float:
        """Δ, rounded up; 1 within a slot."""
        if start == end:
            return 1.0
        if end < start:
            return forward_delta(self.process, end, start)
        law, off = self._laws.get(start, (None, 0.0))
        return min(slot_delta(self.process, start, end, self.method, law) + off, 1.0)

    def rows(self, start: int, end: int) -> Rows | None:
        """The laws of the value in `start` given that in `end`; None where they are not known."""
        law, off = self._laws.get(start, (None, 0.0)) if end >= start else (None, 0.0)
        if end >= start and MIXINGS[self.method].sharpness != "rows":
            return None
        key = (start % self.process.day if law is None else start, end - start, law is None)
        if key not in self._rows:
            self._rows[key] = (
                forward_of(self.process, end, start)
                if end < start
                else backward_of(self.process, start, end, law, off)
            )
        return self._rows[key]


@dataclass(frozen=True)
class Gap:
    """From some slots to others, all forwards in time or all backwards: what accounts age by."""

    between: Between
    pairs: tuple[tuple[int, int], ...]

    @cached_property
    def total_variation(self) -> Array:
        """Δ of each."""
        return np.array([self.between.total_variation(*pair) for pair in self.pairs])

    @cached_property
    def rows(self) -> Rows | None:
        """The rows of all; None where only one number is known of each."""
        each = [self.between.rows(*pair) for pair in self.pairs]
        known = [rows for rows in each if rows is not None]
        return Rows.stacked(known) if len(known) == len(each) else None

    def losses(self, losses: Array, ageing: Ageing = aged_losses) -> Array:
        """Pairwise losses `[k, S, S]` about the first slots, as they are about the second."""
        moves = [at for at, (start, end) in enumerate(self.pairs) if start != end]
        if len(moves) < len(self.pairs):
            aged = losses.copy()
            if moves:
                part = Gap(self.between, tuple(self.pairs[at] for at in moves))
                aged[moves] = part.losses(losses[moves], ageing)
            return aged
        if self.rows is not None:
            return ageing(losses, self.rows)
        kind = MIXINGS[self.between.method].sharpness
        each = [
            sharp_forward(kind, most, delta, None, 0.0)
            for most, delta in zip(losses.max(axis=(1, 2)), self.total_variation, strict=True)
        ]
        return all_pairs(np.array(each), losses.shape[-1])


class Way:
    """One way in time, at several gaps, to every slot of the day.

    `lifted` says that the claim is about its states, of which `process` has enlarged ones.
    """

    def __init__(
        self,
        process: Process,
        gaps: Sequence[int],
        method: Method | None,
        lifted: LiftedChain | None = None,
    ) -> None:
        """`method` None: forwards, from a later slot to an earlier one, whatever the prior."""
        self.process = process
        slots, sign = range(1, process.day + 1), 1 if method is None else -1
        self._source = np.array([[(s - 1 + sign * g) % process.day for s in slots] for g in gaps])
        self._gap = Between(process, method or "exact").gap(
            *((s + sign * g, s) for g in gaps for s in slots)
        )
        self.rows = self._gap.rows
        self._lifted = None if self.rows is None else lifted
        self.gaps, self._size = len(gaps), process.states.size
        self.searches = self.rows is not None and process.states.size > TREES
        self.trees = Trees()
        self.start: Array | None = None  # losses for ever that were found before

    def __call__(self, losses: Array) -> Array:
        """Losses `[gaps, day, S, S]` about each slot of the day, from `[day, S, S]`."""
        return self._moved(losses, aged_losses)

    def guess(self, losses: Array) -> Array:
        """The same nearly, and no bound, in a fraction of the time."""
        return self._moved(losses, guessed_losses)

    def worst(self, losses: Array) -> float:
        """The worst that such losses tell about what is asked."""
        if self._lifted is None or self.rows is None:
            return float(self(losses).max())
        worst = 0.0
        for number, source in enumerate(self._source.ravel()):
            one = Rows(self.rows.table[[number]], self.rows.rounding[[number]])
            for rows in lumped_rows(one, self._lifted, self._slot(number)):
                worst = max(worst, float(aged_losses(losses[[source]], rows).max()))
        return worst

    def about(self, losses: Array) -> float:
        """The worst of losses `[..., day, S, S]` about each slot of the day already."""
        if self._lifted is None:
            return float(losses.max(initial=0.0))
        each = losses.reshape(-1, *losses.shape[-2:])
        slots = (self._slot(number) for number in range(len(each)))
        found = (lumped_loss(one, self._lifted, s) for one, s in zip(each, slots, strict=True))
        return max(found, default=0.0)

    def told(self, likelihoods: Array) -> list[Array]:
        """Likelihoods `[O, Y]` of outputs by what is asked about, from `[day, O, S]`."""
        carried = self.carry(likelihoods)
        carried = carried.reshape(-1, *carried.shape[2:])
        if self._lifted is None:
            return list(carried)
        return [
            one @ table.T
            for number, one in enumerate(carried)
            for table in self._lifted.asked(self._slot(number))
        ]

    def carry(self, likelihoods: Array) -> Array:
        """Likelihoods `[gaps, day, O, S]` of outputs by each slot's value, from `[day, O, S]`."""
        if self.rows is None:
            raise NotImplementedError("without rows there are no likelihoods")
        table = self.rows.table.reshape(*self._source.shape, *self.rows.table.shape[1:])
        return np.asarray(likelihoods[self._source] @ table.swapaxes(2, 3))

    def next(self, likelihoods: Array) -> Array:
        """The same over the first gap."""
        return np.asarray(self.carry(likelihoods)[0])

    def left_of(self, loss: float) -> float:
        """What one loss for all pairs of states becomes at most."""
        if self.rows is None:
            return float(self(all_pairs(np.full(self._source.shape[1], loss), self._size)).max())
        each = np.full(len(self.rows.table), loss)
        return float(worst_each(self.rows.table, each, float(self.rows.rounding.max())).max())

    def _slot(self, number: int) -> int:
        return number % self.process.day + 1

    def _moved(self, losses: Array, age: Callable[[Array, Rows, Trees], Array]) -> Array:
        moved = losses[self._source]
        if self.rows is not None and self.searches:  # from the trees of one gap to the next
            table = self.rows.table.reshape(*moved.shape[:2], *self.rows.table.shape[1:])
            off = self.rows.rounding.reshape(moved.shape[:2])
            each = zip(moved, table, off, strict=True)
            return np.stack([age(one, Rows(rows, r), self.trees) for one, rows, r in each])
        return self._gap.losses(moved.reshape(-1, *losses.shape[-2:])).reshape(moved.shape)


class LongerGaps:
    """Losses at a gap of so many slots or more, each pair of states at its worst gap.

    Rows at a long gap are mixtures of the rows at any shorter one that starts in the same slot, so
    that beyond the last gap tried no pair loses more than the worst pair did there.
    """

    def __init__(self, process: Process, least: int, method: Method | None, first: int) -> None:
        more = 1
        while more * process.day < GAPS:
            if Way(process, [least + more], method).left_of(1.0) < 1e-6:
                break
            more *= 2
        self.place = least - first
        self.way = Way(process, range(first, least + more + 1), method)

    def at_least(self, losses: Array) -> Array:
        """Losses `[gap, day, S, S]` at each gap from the first on, or at any longer one."""
        return self._or_longer(self.way(losses))

    def worst(self, losses: Array) -> Array:
        """Losses at the gap of the rule or at any longer one."""
        return np.asarray(self.at_least(losses)[self.place])

    def guess(self, losses: Array) -> Array:
        """The same nearly, and no bound."""
        return np.asarray(self._or_longer(self.way.guess(losses))[self.place])

    def _or_longer(self, aged: Array) -> Array:
        beyond = all_pairs(np.full(1, aged[-1].max()), aged.shape[-1])
        aged[-1] = np.maximum(aged[-1], beyond)
        return np.asarray(np.maximum.accumulate(aged[::-1], axis=0)[::-1])
