"""What clients must do in each slot: sensitivity, noise and ε, as arrays over clients and slots.

One function for one client and one slot, and for very many: the same operations in the same order,
so that a client by itself gets what a table of all says of it, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array, frozen
from agewise.calibration.rules import Cell, Noise, rule_of
from agewise.errors import InvalidInput, named
from agewise.learning import (
    Estimator,
    Learner,
    Trained,
    guarded_sensitivities,
    moves_records,
    sensitivities,
    under_levels,
)
from agewise.mechanism import MECHANISMS, Mechanism
from agewise.mixing import MIXINGS, ageing
from agewise.problem import Client, Target
from agewise.process.batch import ProcessBatch, batch_of, batch_of_one, in_batches
from agewise.process.chains import identity, product

CELLS = 2**17
"""Entries of kernels handled at once: few enough for the cache, enough for two threads to pay."""

NUMBERS = ("delta", "sensitivity", "scale", "classical_epsilon", "classical_delta")


@dataclass(frozen=True, eq=False)
class Calibration:
    """What each of some clients `[G]` must do in each of some slots `[T]`.

    `delta` is Δ, `sensitivity` how far one record moves the release (in the mechanism's norm),
    `scale` the least noise for it, and `classical_epsilon` and `classical_delta` what that spends,
    `[G, T]` each. `young` is the age of which these are: the least that stands for the slot's.
    `told` `[..., G, T]` is what was asked of every cell on the way.
    """

    clients: Sequence[Client]
    targets: Sequence[Target]
    learner: Learner
    estimator: Estimator
    ages: NDArray[np.int64]
    aggregate_at: int
    young: NDArray[np.int64]
    delta: Array
    sensitivity: Array
    scale: Array
    classical_epsilon: Array
    classical_delta: Array
    told: Array

    @cached_property
    def tables(self) -> tuple[SlotTable, ...]:
        """Each client's part."""
        numbers = zip(*(getattr(self, name) for name in ("young", *NUMBERS)), strict=True)
        known = self.learner, self.estimator, self.aggregate_at, self.ages
        each = zip(self.clients, self.targets, numbers, strict=True)
        return tuple([SlotTable(client, target, *known, *own) for client, target, own in each])

    def spent(self, places: Any, columns: Any, scale: Array) -> Array:
        """The classical ε of noise of these scales, which may be more than cells need."""
        cells = places, columns
        mechanism: Mechanism = MECHANISMS[self.targets[0].mechanism]
        spent = mechanism.spent(self.sensitivity[cells], scale, self.classical_delta[cells])
        return np.where(scale == self.scale[cells], self.classical_epsilon[cells], spent)

    def aged_epsilon(self, places: ArrayLike, columns: ArrayLike, scale: Array) -> Array:
        """The aged ε of releases with noise of these scales, each by the rule of its target."""
        cells = np.asarray(places, dtype=np.intp), np.asarray(columns, dtype=np.intp)
        needs = [getattr(self, name)[cells] for name in NUMBERS[2:]]
        told = np.stack([scale, self.spent(*cells, scale), *needs])
        chosen = [self.clients[place] for place in cells[0].tolist()]
        targets = [self.targets[place] for place in cells[0].tolist()]
        young, found = self.young[cells], np.empty(len(chosen))
        for members in _together(chosen, targets, young.tolist()):
            part = Part(members, chosen, targets, self.learner, self.estimator, self.aggregate_at)
            noise = Noise(*told[:, part.members])
            cell = part.cell(int(young[members[0]]))
            found[part.members] = rule_of(part.target).achieved(cell, noise)
        return found


@dataclass(frozen=True, eq=False)
class SlotTable:
    """For one client, by collection slot (1..A unless asked for others): law, release and noise.

    It is that of a `client` with its `target`, of a `learner` and an `estimator`, for aggregation
    in slot `aggregate_at`.

    By slot, `[A]` each: `delta`, `sensitivity`, `scale`, `classical_epsilon`, `classical_delta`,
    `ages`, and the least ages that stand for those, `young`. Slots in which records are so old that
    nothing changes any more share a row, oldest first, of `kernel_rows` `[R, S, S]`, `law_rows`
    `[R, S]` (the client's law at collection) and `release_rows` `[R, S, d]` (f of each state);
    `row` `[A]` says which. `kernels`, `laws` and `release` are the same by slot.
    """

    client: Client
    target: Target
    learner: Learner
    estimator: Estimator
    aggregate_at: int
    ages: NDArray[np.int64]
    young: NDArray[np.int64]
    delta: Array
    sensitivity: Array
    scale: Array
    classical_epsilon: Array
    classical_delta: Array

    @cached_property
    def _distinct(self) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        ages, row = np.unique(-self.young, return_inverse=True)
        row.setflags(write=False)
        return self.aggregate_at + ages, row  # oldest first, as the slots are

    @property
    def row(self) -> NDArray[np.intp]:
        """The row of each slot."""
        return self._distinct[1]

    @cached_property
    def kernel_rows(self) -> Array:
        """The kernels of the distinct ages."""
        batch = batch_of_one(self.client.process, None, "any")
        starts = reversed(self._distinct[0].tolist())  # each from the one before it
        found = [batch.kernel(slot, self.aggregate_at)[..., 0] for slot in starts]
        return frozen(np.stack(found[::-1]))

    @cached_property
    def law_rows(self) -> Array:
        """The client's laws at collection, of the distinct ages."""
        return frozen(np.stack([self.client.law_at(slot) for slot in self._distinct[0].tolist()]))

    @cached_property
    def release_rows(self) -> Array:
        """What each state of a record contributes, of the distinct ages."""
        values = self.learner.table(self.client.process.states)
        if not moves_records(self.estimator):
            return frozen(np.repeat(values[None], len(self._distinct[0]), axis=0))
        each = np.repeat(values[..., None], len(self.kernel_rows), axis=2)
        moved = product(np.ascontiguousarray(np.moveaxis(self.kernel_rows, 0, -1)), each)
        return frozen(np.moveaxis(moved, -1, 0))

    @cached_property
    def kernels(self) -> Array:
        """The kernel of each slot, `[A, S, S]`."""
        return frozen(self.kernel_rows[self.row])

    @cached_property
    def laws(self) -> Array:
        """The client's law at collection in each slot, `[A, S]`."""
        return frozen(self.law_rows[self.row])

    @cached_property
    def release(self) -> Array:
        """What each state of a record contributes in each slot: `[A, S]`, or `[A, S, d]`."""
        rows = self.release_rows[self.row]
        return frozen(rows[..., 0] if rows.shape[-1] == 1 else rows)


class Part:
    """Clients of a calibration that are worked out together; never one of them alone."""

    def __init__(
        self,
        members: Sequence[int],
        clients: Sequence[Client],
        targets: Sequence[Target],
        learner: Learner,
        estimator: Estimator,
        aggregate_at: int,
    ) -> None:
        self.members = np.array(members if len(members) > 1 else [*members, *members])
        self.clients = [clients[place] for place in self.members.tolist()]
        self.target, self.learner, self.last = targets[members[0]], learner, aggregate_at
        self.epsilons = np.array([targets[place].epsilon for place in self.members.tolist()])
        self.samples = np.array([client.samples for client in self.clients])
        self.records = np.array([client.records for client in self.clients])
        self.moved = moves_records(estimator)
        self.trained = learner if isinstance(learner, Trained) else None
        self.processes = [client.process for client in self.clients]
        stated = [None if one.law is None else np.asarray(one.law) for one in self.clients]
        prior = MIXINGS[self.target.mixing].prior
        if len(members) == 1:
            self.batch: ProcessBatch = batch_of_one(self.processes[0], stated[0], prior)
        else:
            self.batch = batch_of(self.processes, stated, prior)
        tables = [learner.table(process.states) for process in self.processes]
        self.values = np.ascontiguousarray(np.moveaxis(np.stack(tables), 0, -1))  # [S, d, G]

    def cell(self, age: int, asked: NDArray[np.bool_] | None = None) -> Cell:
        """What rules see of one age; `asked`: for whom it stands (default: everybody)."""
        laws = self.batch.between(self.last - age, self.last)
        release = product(laws.kernel, self.values) if self.moved else self.values
        cell = Cell(
            self.clients,
            self.target,
            self.epsilons,
            self.samples,
            self.records,
            laws,
            ageing(laws, self.target.mixing, self.processes),
            release,
            np.ones(len(self.clients), dtype=bool) if asked is None else asked,
        )
        if not self.target.lasting:
            return cell
        both = zip(self.clients, self.guard(cell), strict=True)
        return replace(cell, told_apart=[told_apart(self.target, *one, age) for one in both])

    def guard(self, cell: Cell) -> Array:
        """Vectors `[G, S, d]` as far apart as a release can tell two states apart by.

        Those released, as a rule. Of a learner in training only `reach` is known, whatever the
        model: any two states may be that far apart in ℓ1, and mixtures of them as far as those
        differ.
        """
        if self.trained is None:
            return np.moveaxis(cell.release, -1, 0)
        half = self.trained.reach(MECHANISMS[self.target.mechanism].norm) / 2
        mixed = cell.laws.kernel if self.moved else identity(cell.laws.kernel)
        return np.moveaxis(half * mixed, -1, 0)

    def numbers(self, cell: Cell) -> Array:
        """Δ, sensitivity, scale, ε_c and δ_c `[5, G]` at an age."""
        mechanism: Mechanism = MECHANISMS[self.target.mechanism]
        rule, guard, norm = rule_of(self.target), self.guard(cell), mechanism.norm
        if self.trained is None:
            reach = sensitivities(guard, self.samples, norm)
        else:
            states = self.processes[0].states
            reach = guarded_sensitivities(guard, self.samples, self.trained, states, norm)
        allowed, failure = rule.allowed(cell)
        scale = np.where(reach == 0, 0.0, mechanism.calibrate(reach, allowed, failure))
        scale = rule.lowered(cell, scale)
        spent = mechanism.spent(reach, scale, failure)
        return np.stack([cell.delta, reach, scale, spent, failure])


def told_apart(target: Target, client: Client, guard: Array, age: int) -> Array:
    """What a release can tell states apart by: vectors `[S, d]`, or several tables of them.

    Where clients share a level, nearest states move with it; fresh readings are reported as they
    are, and differ by no more than the records do.
    """
    return under_levels(client.process.states, guard) if target.level and age > 0 else guard


def calibrate(
    clients: Sequence[Client],
    targets: Sequence[Target],
    learner: Learner,
    estimator: Estimator,
    slots: Sequence[int] | NDArray[np.int64],
    aggregate_at: int,
    ask: Callable[[Cell, Array, Array], Array] | None = None,
) -> Calibration:
    """Return what each client must do in each of the slots, for aggregation in one slot.

    `ask` is asked of every cell, with clients' laws at collection `[S, G]` and the learner's
    vectors `[S, d, G]`; it answers with arrays `[..., G]`. Time and memory grow with the ages at
    which records still move on, not with all slots.

    Guarantees
        Numbers of a client and a slot are the same to the last bit whichever others are asked for.
    """
    ages = aggregate_at - np.asarray(slots, dtype=np.int64)
    young = np.empty((len(clients), len(ages)), dtype=np.int64)
    numbers = np.empty((len(NUMBERS), *young.shape))

    def work(members: Sequence[int]) -> Array:
        part = Part(members, clients, targets, learner, estimator, aggregate_at)
        own = part.batch.youngest(ages)
        distinct, place = np.unique(own, return_inverse=True)
        cells = place.reshape(own.shape)[: len(members)].T, np.arange(len(members))  # [T, G]
        found, answers = [], []
        for age in distinct.tolist():
            asked = (own == age).any(axis=1) if part.target.lasting else None
            cell = part.cell(age, asked)
            found.append(part.numbers(cell))
            if ask is not None:
                answers.append(ask(cell, part.batch.law(aggregate_at - age), part.values))
        young[members] = own[: len(members)]
        for number, each in enumerate(zip(*found, strict=True)):
            numbers[number, members] = np.stack(each)[cells].T
        if ask is None:
            return np.empty((0, len(ages), len(members)))
        return np.stack(answers, axis=-2)[..., *cells]

    parts = list(_together(clients, targets))
    with ThreadPoolExecutor(max_workers=2) as threads:
        run = threads.map if len(parts) > 1 else map
        answers = list(run(lambda members: _by_name(work, members, clients), parts))
    told = np.empty((*answers[0].shape[:-2], *young.shape))
    for members, one in zip(parts, answers, strict=True):
        told[..., members, :] = one.swapaxes(-1, -2)
    return Calibration(
        clients,
        targets,
        learner,
        estimator,
        ages,
        aggregate_at,
        young,
        *map(frozen, [*numbers, told]),
    )


def _together(
    clients: Sequence[Client], targets: Sequence[Target], ages: Sequence[int] | None = None
) -> Iterator[list[int]]:
    """Yield places of clients whose processes are of one size and kind, and targets but for ε."""
    groups: dict[Any, list[int]] = {}
    for place, (client, target) in enumerate(zip(clients, targets, strict=True)):
        others = [value for name, value in vars(target).items() if name != "epsilon"]
        process, age = client.process, None if ages is None else ages[place]
        key = process.states.size, in_batches(process), process.markov, age, *others
        groups.setdefault(key, []).append(place)
    for (size, *_), members in groups.items():
        blocks = -(-len(members) * size**2 // CELLS)
        step = max(2, -(-len(members) // blocks))
        yield from (members[start : start + step] for start in range(0, len(members), step))


def _by_name(
    work: Callable[[Sequence[int]], Array], members: list[int], clients: Sequence[Client]
) -> Array:
    """Work members out; what is refused is refused by the name of the client."""
    try:
        with named(method="mixing", law=f"law of client {clients[members[0]].name!r}"):
            return work(members)
    except InvalidInput:
        for one in members if len(members) > 1 else ():
            _by_name(work, [one], clients)
        raise
