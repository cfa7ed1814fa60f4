"""A mechanism that is known by what it returns only: its inputs, its claim, and runs of it."""

from __future__ import annotations

import inspect
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array
from agewise.checks import (
    MOST_BYTES,
    finite_number,
    fraction,
    positive,
    refuse_size,
    several,
    truth,
    whole,
)
from agewise.errors import InvalidInput, quoted
from agewise.mechanism import Noised
from agewise.process import Process
from agewise.process.joint import as_law

Advance = Callable[[int, int], None]
Records = Callable[[float, int, np.random.Generator], ArrayLike]
"""(present value, runs, generator) → the record asked about, `[runs]` or `[runs, slots]`."""
SAME_INPUTS = 1000
"""Runs on the same records after which a mechanism counts as not random."""
BLOCK = 100_000
"""Runs whose records are drawn at a time, at most."""
LONGEST = 1e8
"""Seconds that an alarm can wait: three years."""


@dataclass(frozen=True)
class BlackBox:
    """A mechanism, the process of the records it is given, and what is claimed of it.

    `mechanism(records)` or `mechanism(records, rng)` returns a number or a vector of finite
    numbers; `records` are `samples` values, one row per slot of `collect_at` where those are
    several. The first record is that of the person asked about, and the others have the value
    `others` (default: the first state). `batched`: it is given many runs at once, along the first
    axis, and returns as many outputs.

    The claim: from what it returns, whoever knows all other records tells no two values that the
    record can have in slot `about` apart by more than (`epsilon`, `delta`). `law` is the law of the
    record in the first slot of `collect_at` (default: the process's own). Instead of a process, a
    function of type `Records` may draw the record, given each of the `present` values.
    """

    mechanism: Callable[..., Any]  #: what is audited
    process: Process | Records  #: of the records it is given
    epsilon: float
    delta: float = 0.0
    collect_at: int | Sequence[int] = 1
    about: int | None = None
    law: ArrayLike | None = None
    samples: int = 1
    others: float | None = None
    present: Sequence[float] | None = None
    batched: bool = False
    noiseless: bool = False  #: whether no noise is meant
    score: Callable[[Array], Array] | None = None
    name: str = "mechanism"  #: what the report calls it
    slots: tuple[int, ...] = field(init=False, default=())  #: of collection, in their order

    def __post_init__(self) -> None:
        if not callable(self.mechanism):
            raise InvalidInput("mechanism", quoted(self.mechanism), "a function of records")
        positive("claim", self.epsilon, "A claim of ε = 0 or less says that nothing can be learnt.")
        fraction("delta", self.delta, with_zero=True)
        whole("samples", self.samples, 1)
        truth("batched", self.batched)
        truth("noiseless", self.noiseless)
        if self.others is not None:
            finite_number("others", self.others)
        slots = slots_of(self.collect_at)
        object.__setattr__(self, "slots", slots)
        if self.about is None:
            object.__setattr__(self, "about", slots[-1])
        whole("about", self.about, 1)  # type: ignore[arg-type]
        if isinstance(self.process, Process):
            self._check_process(self.process)
        elif not callable(self.process):
            allowed = "a process, or a function of records"
            raise InvalidInput("process", quoted(self.process), allowed)
        elif self.present is None or len(set(self.present)) < 2:
            raise InvalidInput(
                "present", self.present, "two or more values", "Which are to be told apart?"
            )

    def _check_process(self, process: Process) -> None:
        if process.states.size < 2:
            raise InvalidInput(
                "process",
                "one state",
                "two states or more",
                "A record with one value has nothing to hide.",
            )
        if not process.markov and len({*self.slots, self.about}) > 2:
            raise InvalidInput(
                "collect_at",
                f"{len(self.slots)} slots of a process that is not Markov",
                "one",
                "Give a function that draws the records of all slots instead.",
            )
        if self.law is not None:
            as_law("law", self.law, process.states.size)

    @property
    def filler(self) -> float:
        """The value of all records but the first."""
        if self.others is not None:
            return float(self.others)
        if isinstance(self.process, Process):
            return float(self.process.states[0])
        return 0.0 if self.present is None else float(self.present[0])


def slots_of(collect_at: int | Sequence[int]) -> tuple[int, ...]:
    """The slots of collection, of which there may be one."""
    given = (collect_at,) if isinstance(collect_at, int | float | np.number) else collect_at
    found = several("collect_at", given, "slots, the earliest first")
    slots = tuple(whole("collect_at", slot, 1) for slot in found)
    if not slots or list(slots) != sorted(set(slots)):
        raise InvalidInput("collect_at", quoted(collect_at), "slots, the earliest first")
    return slots


class Draws:
    """Records of the person asked about, given the present value; by place of that value."""

    def __init__(self, box: BlackBox) -> None:
        self.box = box
        if isinstance(box.process, Process):
            self.values, self._steps = _backward_steps(box, box.process)
        else:
            self.values = np.asarray(box.present, float)

    def __call__(self, place: int, runs: int, rng: np.random.Generator) -> Array:
        """Values `[runs, slots]`."""
        box = self.box
        if isinstance(box.process, Process):
            states = box.process.states
            return np.asarray(states[self._paths(place, runs, rng)])
        try:
            drawn = np.asarray(box.process(float(self.values[place]), runs, rng), float)
        except Exception as error:
            raise InvalidInput(
                "process",
                f"raised {type(error).__name__}: {error}",
                "a function that draws records",
            ) from error
        drawn = drawn[:, None] if drawn.ndim == 1 else drawn
        if drawn.shape != (runs, len(box.slots)) or not np.isfinite(drawn).all():
            raise InvalidInput(
                "process",
                f"records of shape {drawn.shape}",
                f"finite numbers of shape ({runs}, {len(box.slots)})",
            )
        return drawn

    def _paths(self, place: int, runs: int, rng: np.random.Generator) -> NDArray[np.intp]:
        """From the present value back through the slots before it, and on through those after."""
        box = self.box
        paths = np.zeros((runs, len(box.slots)), np.intp)
        for column, (given, table) in self._steps.items():
            known = np.full(runs, place) if given is None else paths[:, given]
            chance = rng.random(runs)[:, None]
            paths[:, column] = (chance >= np.cumsum(table, axis=1)[known, :-1]).sum(axis=1)
        return paths


Steps = dict[int, tuple[int | None, Array]]


def _backward_steps(box: BlackBox, process: Process) -> tuple[Array, Steps]:
    """Which column of records follows from which, and by which rows; the present values first."""
    about = int(box.about or 0)
    law = None if box.law is None else np.asarray(box.law, float)
    first = box.slots[0]

    def law_in(slot: int) -> Array:
        if law is None:
            return process.law(slot)
        if slot < first:
            raise InvalidInput("about", about, f"{first} or later, where the law is stated")
        return np.asarray(law @ process.kernel(first, slot))

    present = law_in(about)
    possible = np.flatnonzero(present > 0)
    if len(possible) < 2:
        raise InvalidInput(
            "process", f"one value that can occur in slot {about}", "two or more to tell apart"
        )
    steps: Steps = {}
    after, last = about, None
    for column in range(len(box.slots) - 1, -1, -1):
        slot = box.slots[column]
        if slot > about:
            continue
        joint = law_in(slot)[:, None] * process.kernel(slot, after)
        if not process.markov and law is None and slot < after:
            joint = np.asarray(process.joint(slot, after).matrix)
        total = joint.sum(axis=0)
        rows = (joint / np.where(total > 0, total, 1)).T
        steps[column] = (last, rows[possible] if last is None else rows)
        after, last = slot, column
    after, last = about, None
    for column, slot in enumerate(box.slots):
        if slot > about:
            rows = process.kernel(after, slot)
            steps[column] = (last, rows[possible] if last is None else rows)
            after, last = slot, column
    return process.states[possible], steps


class Runs:
    """Runs of a black box, checked: what it returns, whether it is random, how long it takes."""

    def __init__(
        self,
        box: BlackBox,
        rng: np.random.Generator,
        time_limit: float | None,
        advance: Advance,
        total: int,
    ) -> None:
        self.box, self.rng, self.advance, self.total = box, rng, advance, total
        self.draws = Draws(box)
        one = 8.0 * len(box.slots) * box.samples  # bytes of the records of one run
        at_once = SAME_INPUTS if box.batched else len(self.draws.values)
        refuse_size("samples", box.samples, one * at_once, "Fewer records tell as much of one.")
        self.block = min(BLOCK, max(1, int(MOST_BYTES / 4 / one)))
        self.deadline = None if time_limit is None else time.monotonic() + time_limit
        self.limit = time_limit
        self.done, self.width = 0, 0
        self._with_rng = _takes_rng(box.mechanism)

    def outputs(self, place: int, count: int) -> Array:
        """Outputs `[count, d]` given the present value in this place."""
        found = []
        while count > 0:
            size = min(count, self.block)
            found.append(self._run(self._records(self.draws(place, size, self.rng))))
            count -= size
        return np.concatenate(found)

    def _records(self, drawn: Array) -> Array:
        """All records `[runs, (slots,) samples]`, the first of them as drawn."""
        shape = (*drawn.shape, self.box.samples)
        records = np.full(shape, self.box.filler)
        records[..., 0] = drawn
        return records[:, 0] if drawn.shape[1] == 1 else records

    def _run(self, records: Array) -> Array:
        with _until(self.deadline, self.limit):
            if self.box.batched:
                outputs = self._checked(self._call(records), len(records))
                self._count(len(records))
                return outputs
            rows = []
            for number, one in enumerate(records):
                rows.append(self._checked(self._call(one), None))
                if number % 256 == 255:
                    self._count(256)
            self._count(len(records) % 256)
            return np.array(rows)

    def _call(self, records: Array) -> Any:
        try:
            given = (records, self.rng) if self._with_rng else (records,)
            return self.box.mechanism(*given)
        except (InvalidInput, KeyboardInterrupt, _OutOfTime):
            raise
        except (Exception, SystemExit) as error:  # to end the program is no way to pass
            raise InvalidInput(
                "mechanism",
                f"one that raised {type(error).__name__}: {error}",
                "a function that returns numbers for every record of its process",
                f"It was given records of shape {records.shape}.",
            ) from error

    def _checked(self, output: Any, runs: int | None) -> Array:
        if isinstance(output, Noised):
            output = output.value
        try:
            if output is None:
                raise TypeError
            array = np.asarray(output, float)
        except (TypeError, ValueError):
            raise InvalidInput(
                "output of the mechanism", quoted(output), "a number, or a vector of numbers"
            ) from None
        if runs is not None and array.shape[:1] != (runs,):
            raise InvalidInput(
                "output of the mechanism",
                f"of shape {array.shape} for {runs} runs",
                f"{runs} rows, one per run, of a batched mechanism",
            )
        row = array.reshape(runs, -1) if runs is not None else array.ravel()
        if array.ndim > (1 if runs is None else 2) or row.shape[-1] == 0:
            raise InvalidInput(
                "output of the mechanism", f"of shape {array.shape}", "a number, or a vector"
            )
        self.width = self.width or row.shape[-1]
        if row.shape[-1] != self.width:
            raise InvalidInput(
                "output of the mechanism",
                f"of {row.shape[-1]} numbers, after one of {self.width}",
                "as many numbers every time",
            )
        if not np.isfinite(row).all():
            raise InvalidInput(
                "output of the mechanism",
                "not finite (NaN or infinity)",
                "finite numbers",
                "Say by a number of its own what stands for a missing output.",
            )
        return row

    def _count(self, more: int) -> None:
        self.done += more
        self.advance(self.done, self.total)
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise _too_long(self.limit)

    def refuse_without_noise(self) -> None:
        """Raise if the same records always lead to the same output."""
        if self.box.noiseless:
            return
        seen: dict[int, Array] = {}
        records = [
            self._records(self.draws(place, 1, self.rng)) for place in range(len(self.draws.values))
        ]
        size = 1 if not self.box.batched else SAME_INPUTS
        for number in range(SAME_INPUTS // size):
            place = number % len(records)
            found = self._run(np.repeat(records[place], size, axis=0))
            first = seen.setdefault(place, found[0])
            if (found != first).any():
                return
        raise InvalidInput(
            "mechanism",
            "not random: the same records gave the same output every time",
            "one that draws noise",
            "If none is meant, since old records alone tell little: noiseless=True, --noiseless.",
        )


def _takes_rng(mechanism: Callable[..., Any]) -> bool:
    """Whether a function has a second parameter that has to be given, or is called rng."""
    try:
        parameters = list(inspect.signature(mechanism).parameters.values())
    except (TypeError, ValueError):
        return False
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(places) > 1 and (places[1].default is places[1].empty or places[1].name == "rng")


class _OutOfTime(BaseException):
    """The alarm went off inside of somebody else's function, which must not catch it."""


def _too_long(limit: float | None) -> InvalidInput:
    return InvalidInput(
        "mechanism",
        f"not done after {limit:g} s",
        "runs within the time limit",
        "Give it more time (time_limit), or fewer draws.",
    )


@contextmanager
def _until(deadline: float | None, limit: float | None) -> Iterator[None]:
    """Stop a call that does not return by the deadline, where the system has an alarm."""
    main = threading.current_thread() is threading.main_thread()
    if deadline is None or not main or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(_number: int, _frame: Any) -> None:
        raise _OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    left = deadline - time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, min(max(left, 1e-3), LONGEST))
        yield
    except _OutOfTime:
        raise _too_long(limit) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
