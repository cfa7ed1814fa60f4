"""Where a client's records come from: a simulated process, or recorded readings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array, draw_states, nearest_states
from agewise.calibration import Terms
from agewise.checks import finite_array
from agewise.errors import InvalidInput
from agewise.federation.common_levels import CommonLevels, Shift
from agewise.federation.seeding import Seeds, client_generator
from agewise.learning import average, averages, reports, unexplained
from agewise.problem import Client, Problem, likeness

BLOCK = 2**14
"""Members of a gateway whose records are drawn at a time."""

HELD = 2**17
"""Numbers that decide about records of clients alike, held at once: as many as caches do."""

NOT_REHEARSED = (
    "Of measured knowledge only means and covariances are known, so there are no records to draw; "
    "a back-test on readings shows what a promise is worth."
)


class DataSource(Protocol):
    """Gives a client its records. A retry in the same slot must give the same ones."""

    def check(self, slot: int, samples: int) -> None:
        """Raise `InvalidInput` if `collect` would; release nothing."""
        ...

    def collect(self, slot: int, samples: int) -> Array:
        """Return `samples` records as they are in `slot`, or raise `InvalidInput`."""
        ...


def round_seed(seed: int, number: int) -> int:
    """The seed of the stand-ins of one round among many."""
    return int(np.random.default_rng([seed, number]).integers(2**63))


def member_means(
    source: DataSource, terms: Terms, spread: float = 0.0
) -> Iterator[tuple[Array, int]]:
    """What a gateway's members release `[m, d]`, without noise, and how many records surprise.

    A level of this `spread` does not explain those: see `unexplained`.
    """
    client, slot = terms.client, terms.collect_at
    samples, members, states = client.samples, client.members, client.process.states
    if type(source) is SimulatedRecords:
        readings = source.readings(slot)
        for counts in source.counts(slot, samples, members):
            yield means_of(counts, readings, terms), 0
        return
    records = finite_array(
        "records", source.collect(slot, samples * members), "one or more finite numbers"
    )
    if records.size != samples * members:
        raise InvalidInput(
            "records", f"{records.size} records", f"{samples} of each of {members} members"
        )
    records = records.reshape(members, samples)
    odd = unexplained(records, states, spread)
    if terms.as_read:
        own = [average(row, states, terms.release, samples, as_read=True) for row in records]
        yield np.stack(own), odd
        return
    place = nearest_states(records.ravel(), states)
    counts = _counted(place.reshape(members, samples), states.size)
    yield averages(counts, terms.release), odd


def means_of(counts: NDArray[np.int64], readings: Array, terms: Terms) -> Array:
    """Means `[m, d]` of what readings `[S]` count for, `counts` `[m, S]` of each."""
    states, as_read = terms.client.process.states, terms.as_read
    return averages(counts, reports(readings, states, terms.release, as_read=as_read))


def _counted(places: NDArray[Any], size: int) -> NDArray[np.int64]:
    """How often each state occurs in each row, `[m, S]`."""
    counted = [np.count_nonzero(places == state, axis=1) for state in range(size)]
    return np.stack(counted, axis=1).astype(np.int64)


class SimulatedRecords:
    """Records drawn from the client's own law and process, and followed until aggregation.

    `shift` is what clients share: it is added to the state of each of them.
    """

    def __init__(self, client: Client, seed: int, shift: Shift | None = None) -> None:
        self.client, self.seed, self.shift = client, seed, shift

    def check(self, slot: int, samples: int) -> None:
        """Records can be drawn in any slot."""

    def collect(self, slot: int, samples: int) -> Array:
        drawn, _ = self._draw(slot, samples)
        return np.asarray(self.readings(slot)[drawn])

    def readings(self, slot: int) -> Array:
        """What a record of each state reads in a slot."""
        return self.client.process.states + self.moved_by(slot)

    def moved_by(self, slot: int) -> float:
        """What clients share in a slot."""
        return 0.0 if self.shift is None else self.shift(slot)

    def present(self, collect_at: int, aggregate_at: int, samples: int, table: Array) -> Array:
        """The mean of `table` `[S, d]` in slot `aggregate_at`, over what `collect` gave.

        What clients share is added to it.
        """
        process = self.client.process
        drawn, rng = self._draw(collect_at, samples)
        moved = np.cumsum(process.kernel(collect_at, aggregate_at), axis=1)
        later = draw_states(moved[drawn], rng)
        counts = np.bincount(later, minlength=len(table))[None]
        return np.asarray(averages(counts, table)[0] + self.moved_by(aggregate_at))

    def counts(
        self, slot: int, samples: int, members: int, block: int = BLOCK
    ) -> Iterator[NDArray[np.int64]]:
        """The records of many members, `samples` each, as counts by state `[m, S]`, in blocks."""
        law = np.cumsum(self.client.law_at(slot))
        for chance in self._chances(samples, members, block):
            yield _by_state(chance, law)

    def present_of_all(
        self, collect_at: int, aggregate_at: int, samples: int, members: int, table: Array
    ) -> Array:
        """The mean of `table` `[S, d]` in slot `aggregate_at`, over what `counts` gave."""
        process = self.client.process
        moved = np.cumsum(process.kernel(collect_at, aggregate_at), axis=1)
        later = client_generator(self.seed, self.client.name, "records")
        later.bit_generator.advance(samples * members)  # type: ignore[attr-defined]
        law, total = np.cumsum(self.client.law_at(collect_at)), np.zeros(len(table), dtype=np.int64)
        for chance in self._chances(samples, members, BLOCK):
            drawn = chance.ravel() * law[-1]
            moves = later.random(drawn.size)
            for state, row in enumerate(moved):  # whoever was in this state, at collection
                here = drawn < law[state]
                if state:
                    here &= drawn >= law[state - 1]
                own = moves[here] * row[-1]
                above = [int(np.count_nonzero(own >= one)) for one in row]
                total -= np.diff([own.size, *above])
        return np.asarray(total @ table / total.sum() + self.moved_by(aggregate_at))

    def _chances(self, samples: int, members: int, block: int) -> Iterator[Array]:
        """What decides about each record's state, `[m, samples]` from 0 to 1, in blocks."""
        rng = client_generator(self.seed, self.client.name, "records")
        for start in range(0, members, block):
            yield rng.random((min(block, members - start), samples))

    def _draw(self, slot: int, samples: int) -> tuple[Any, np.random.Generator]:
        rng = client_generator(self.seed, self.client.name, "records")
        law = np.cumsum(self.client.law_at(slot))
        return draw_states(np.broadcast_to(law, (samples, law.size)), rng), rng


def _by_state(chance: Array, law: Array) -> NDArray[np.int64]:
    """How many of each row of chances `[m, n]` give each state of a law, summed up: `[m, S]`."""
    scaled = chance * law[-1]
    return _counted_off([scaled >= one for one in law])


def drawn_of_each(
    client: Client, names: Sequence[str], seeds: Seeds, collect_at: int, aggregate_at: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The records of each of many clients alike, as counts by state `[m, S]`.

    As they are collected, what `SimulatedRecords.collect` gives each; and as they are when they are
    aggregated, what `SimulatedRecords.present` is the mean of.
    """
    law, each = np.cumsum(client.law_at(collect_at)), client.samples
    moved = np.cumsum(client.process.kernel(collect_at, aggregate_at), axis=1)
    fresh = collect_at == aggregate_at  # nothing moves
    chances = each if fresh else 2 * each
    part, parts = max(1, HELD // chances), []
    for start in range(0, len(names), part):
        drawn = _chances_of_each(names[start : start + part], seeds, chances)
        scaled = drawn[:, :each] * law[-1]
        beyond = [scaled >= one for one in law]
        counts = _counted_off(beyond)
        parts.append((counts, counts if fresh else _moved(beyond, drawn[:, each:], moved)))
    collected, present = zip(*parts, strict=True)
    return np.concatenate(collected), np.concatenate(present)


def _moved(beyond: Sequence[NDArray[np.bool_]], chances: Array, moved: Array) -> NDArray[np.int64]:
    """Counts by state `[m, S]` after a move by the summed-up rows of a kernel."""
    place = beyond[0].astype(np.intp)
    for one in beyond[1:]:
        place += one
    scaled = chances * moved[:, -1].take(place)
    return _counted_off([scaled >= column.take(place) for column in moved.T])


def _counted_off(beyond: Sequence[NDArray[np.bool_]]) -> NDArray[np.int64]:
    """Counts by state `[m, S]`, from which records `[m, n]` are beyond each of the states."""
    members, records = beyond[0].shape
    each = np.ones(records)
    above = [one.astype(float) @ each for one in beyond]  # exact, and much faster than counting
    return -np.diff(np.stack([np.full(members, records), *above]), axis=0).T.astype(np.int64)


def _chances_of_each(names: Sequence[str], seeds: Seeds, number: int) -> Array:
    chances = np.empty((len(names), number))
    for row, rng in zip(chances, seeds.of(names), strict=True):
        rng.random(out=row)
    return chances


def present_mean(
    records: SimulatedRecords, client: Client, collect_at: int, aggregate_at: int, table: Array
) -> Array:
    """The mean of `table` `[S, d]` in slot `aggregate_at`, over a client's simulated records."""
    if client.members == 1 or isinstance(records, LaterRecords):
        return records.present(collect_at, aggregate_at, client.samples, table)
    return records.present_of_all(collect_at, aggregate_at, client.samples, client.members, table)


def present_sum(
    problem: Problem,
    source: Callable[[str], SimulatedRecords],
    weights: Mapping[str, float],
    collected: Mapping[str, int],
) -> Array:
    """Σ weight × what clients' simulated records mean in the aggregation slot, `[d]`.

    `collected` has the slot of collection of each client.

    Guarantees
        Summed exactly and rounded once: the same whatever the order, and whether clients alike
        were drawn together.
    """
    last, clients = problem.aggregate_at, {client.name: client for client in problem.clients}
    slots = dict(collected)
    terms = [np.empty((0, problem.width))]
    if isinstance(source, Simulated):
        for names, counts in source.later(slots):
            table = problem.learner.table(clients[names[0]].process.states)
            shares = np.array([weights[name] for name in names])
            means = averages(counts, table)
            if problem.level is not None:
                means = means + np.array([[source(name).moved_by(last)] for name in names])
            terms.append(shares[:, None] * means)
    for name, slot in slots.items():  # those that are left
        table = problem.learner.table(clients[name].process.states)
        mean = present_mean(source(name), clients[name], slot, last, table)
        terms.append(weights[name] * mean[None])
    return np.array([math.fsum(column.tolist()) for column in np.concatenate(terms).T])


class Simulated:
    """The simulated records of all clients of a problem, by name.

    Those of clients alike are drawn together; what they are when they are aggregated is
    drawn along with them and kept, so that nothing has to be drawn twice.
    """

    def __init__(self, problem: Problem, seed: int) -> None:
        self.clients, self.seed = {client.name: client for client in problem.clients}, seed
        self._last, self._levels = problem.aggregate_at, CommonLevels(problem, seed)
        self._later: list[tuple[int, Sequence[str], NDArray[Any]]] = []
        """Slot of collection, names, and counts by state when they are aggregated."""

    def __call__(self, name: str) -> SimulatedRecords:
        return SimulatedRecords(self.clients[name], self.seed, self._levels.of(name))

    @cached_property
    def seeds(self) -> Seeds:
        """What they are drawn with, of all clients at once."""
        return Seeds(self.seed, list(self.clients), "records")

    def means(self, names: Sequence[str], terms: Terms) -> Array:
        """What each of many clients alike releases `[m, d]`, without noise.

        Those that levels move by as much are worked out together.
        """
        counts = self.collect(names, terms.collect_at)
        if not self._levels:
            return averages(counts, terms.release)
        groups: dict[float, list[int]] = {}
        for place, name in enumerate(names):
            groups.setdefault(self(name).moved_by(terms.collect_at), []).append(place)
        means = np.empty((len(names), terms.release.shape[1]))
        for shift, places in groups.items():
            means[places] = means_of(counts[places], terms.client.process.states + shift, terms)
        return means

    def collect(self, names: Sequence[str], slot: int) -> NDArray[np.int64]:
        """The own states of what each of many clients alike collects, as counts `[m, S]`."""
        client = self.clients[names[0]]
        counts, later = drawn_of_each(client, names, self.seeds, slot, self._last)
        self._later.append((slot, names, later.astype(np.min_scalar_type(client.samples))))
        return counts

    def later(self, slots: dict[str, int]) -> Iterator[tuple[Sequence[str], NDArray[Any]]]:
        """What records are when they are aggregated, of clients alike and as counts `[m, S]`.

        `slots` has the slot of collection of each client, and is left with those of gateways, whose
        records are too many to be kept.
        """
        for slot, names, counts in self._later:
            here = [place for place, name in enumerate(names) if slots.get(name) == slot]
            if here:
                those = [names[place] for place in here]
                for name in those:
                    del slots[name]
                yield those, counts[here]
        groups: dict[Any, list[str]] = {}
        for name, slot in slots.items():
            if self.clients[name].members == 1:
                groups.setdefault((likeness(self.clients[name]), slot), []).append(name)
        for (_, slot), alike in groups.items():
            client = self.clients[alike[0]]
            yield alike, drawn_of_each(client, alike, self.seeds, slot, self._last)[1]
            for name in alike:
                del slots[name]


class RoundRecords:
    """One client's simulated records, slot after slot through all rounds."""

    def __init__(self, client: Client, seed: int, shift: Shift | None = None) -> None:
        self.client, self.shift = client, shift
        self._rng = client_generator(seed, client.name, "records")
        self._path: list[Any] = []

    def at(self, slot: int) -> Any:
        """The state of each record in a slot, counted from the first round's first."""
        process, samples = self.client.process, self.client.records
        while len(self._path) < slot:
            now = len(self._path)
            if now:
                rows = np.cumsum(process.kernel(now, now + 1), axis=1)[self._path[-1]]
            else:
                law = np.cumsum(process.law(1))
                rows = np.broadcast_to(law, (samples, law.size))
            self._path.append(draw_states(rows, self._rng))
        return self._path[slot - 1]

    def later(self, before: int) -> LaterRecords:
        """The records of a round that so many slots lie before."""
        return LaterRecords(self, before)


class LaterRecords(SimulatedRecords):
    """Simulated records of one round among many."""

    def __init__(self, path: RoundRecords, before: int) -> None:
        self.path, self.before, self.client = path, before, path.client

    def moved_by(self, slot: int) -> float:
        """What clients share in a slot of the round."""
        return 0.0 if self.path.shift is None else self.path.shift(self.before + slot)

    def collect(self, slot: int, samples: int) -> Array:  # noqa: ARG002  (as many as it has)
        return np.asarray(self.readings(slot)[self.path.at(self.before + slot)])

    def present(
        self,
        collect_at: int,  # noqa: ARG002  (records follow one path)
        aggregate_at: int,
        samples: int,  # noqa: ARG002
        table: Array,
    ) -> Array:
        """The mean of `table` `[S, d]` in slot `aggregate_at`."""
        mean = table[self.path.at(self.before + aggregate_at)].mean(axis=0)
        return np.asarray(mean + self.moved_by(aggregate_at))


class Shifted:
    """A source whose slots are counted from later on."""

    def __init__(self, source: DataSource, before: int) -> None:
        self.source, self.before = source, before

    def check(self, slot: int, samples: int) -> None:
        """Ask the source about the later slot."""
        self.source.check(self.before + slot, samples)

    def collect(self, slot: int, samples: int) -> Array:
        return self.source.collect(self.before + slot, samples)


class RecordedReadings:
    """A client's records by slot, as read from a file."""

    def __init__(self, name: str, path: Path | None, by_slot: Mapping[int, Array]) -> None:
        self.name, self.path, self.by_slot = name, path, by_slot

    def check(self, slot: int, samples: int) -> None:
        """Refuse a slot with too few records, or too many."""
        self.collect(slot, samples)

    def collect(self, slot: int, samples: int) -> Array:
        records = self.by_slot.get(slot, np.empty(0))
        if records.size != samples:
            raise InvalidInput(
                f"readings of client {self.name!r} in slot {slot}",
                f"{records.size} records in {self.path}",
                f"{samples}, as its noise was set for",
                f"Plan for {records.size} samples, or correct the file: whose records do not "
                "follow the client's law must not be in it."
                if records.size
                else "Complete the file.",
            )
        return records


def load_readings(path: Path | str, slots: int) -> dict[str, RecordedReadings]:
    """Read each client's records in slots 1 to `slots` (see `agewise.readings.read_slots`)."""
    from agewise.readings.slots import read_slots  # noqa: PLC0415  (polars: slow to import)

    file = Path(path)
    by_client = read_slots(file, slots)
    return {name: RecordedReadings(name, file, by_slot) for name, by_slot in by_client.items()}
