"""Δ: how much the record that was collected still says about the record at aggregation.

Δ(a) is the largest total variation distance between the laws of the collected record given two
values of the record at aggregation, `a` slots later (the paper's Proposition 1). Δ = 1: ageing
hides nothing; Δ = 0: what was collected says nothing about the record now.

The four methods differ in what they assume about an adversary's prior knowledge:

==========  ==================================================================================
own_law     their prior at collection is the client's stated law
exact       their prior is the stationary (for a day profile: the periodic) law
any_prior   nothing: holds for any distribution at collection
spectral    as `exact`; an upper bound for reversible ergodic chains, the one the paper uses
==========  ==================================================================================

All four assume that the records of a client evolve independently of each other and that the
process is the one given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array
from agewise.checks import finite_array, instance, one_of, truth, whole
from agewise.errors import InvalidInput, quoted
from agewise.process import JointLaw, MarkovChain, Process
from agewise.process.batch import batch_of_one
from agewise.process.chains import Chains, Laws, Prior
from agewise.process.distance import any_prior_distance, rounded_up, widest
from agewise.process.joint import (
    as_law,
    as_process,
    as_transition,
    backward_rows,
    rounding,
    youngest,
)

Method = Literal["exact", "own_law", "any_prior", "spectral"]
METHODS: tuple[str, ...] = get_args(Method)

Sharpness = Literal["rows", "cross_ratio", "delta"]
"""What a method knows beyond Δ: the laws of the collected record, their cross ratio, or nothing."""


@dataclass(frozen=True)
class Mixing:
    """One way to say what an adversary knows, and what that allows.

    `assumption` is what an aged ε rests on, for every statement that shows one. With `rows` the
    noise may also be calibrated to the mechanism itself (`tight`). `prior` is what the adversary
    takes for the law at collection.
    """

    name: Method
    assumption: str
    sharpness: Sharpness
    prior: Prior = "own"

    @property
    def takes_stated_law(self) -> bool:
        """Whether the adversary's prior at collection is the law that a client states."""
        return self.prior == "stated"

    @property
    def takes_process_law(self) -> bool:
        """Whether it is the law of the process itself."""
        return self.prior == "own"

    @property
    def allows_tight(self) -> bool:
        """Whether the laws that `tight` calibration works with are those of the adversary."""
        return self.sharpness == "rows"


_KNOWN = "records that evolve independently of each other with the process given"
MIXINGS: dict[str, Mixing] = {
    one.name: one
    for one in (
        Mixing(
            "own_law",
            f"{_KNOWN}, and an adversary whose prior at collection is the client's stated law.",
            "rows",
            "stated",
        ),
        Mixing(
            "exact",
            f"{_KNOWN}, and an adversary whose prior is its stationary (periodic) law.",
            "rows",
        ),
        Mixing(
            "any_prior",
            f"{_KNOWN}; it holds for any law of a record at collection.",
            "cross_ratio",
            "any",
        ),
        Mixing(
            "spectral", f"{_KNOWN}, and an adversary whose prior is its stationary law.", "delta"
        ),
    )
}
"""By the name that scenarios and statements give."""
MEASURED = (
    "records that evolve independently of each other, and a Δ that was measured: the notes say for "
    "which adversary, and on what its confidence rests."
)
"""The same for measured laws."""


def assumption(process: Process, method: str) -> str:
    """What an aged ε of records that follow this process rests on."""
    return MEASURED if process.confidence < 1 else MIXINGS[method].assumption


BLOCK = 4096
"""Chains handled at once: large enough for long inner loops, small enough for the cache."""

LARGEST_AGE = 1_000_000
"""Ages beyond this are refused: rounding would have eaten the kernel long before."""


@overload
def total_variation(
    process: Process,
    age: int,
    method: Method = ...,
    law: ArrayLike | None = ...,
    *,
    aggregate_at: int | None = ...,
) -> float: ...
@overload
def total_variation(
    process: Process,
    age: ArrayLike,
    method: Method = ...,
    law: ArrayLike | None = ...,
    *,
    aggregate_at: int | None = ...,
) -> float | Array: ...
def total_variation(
    process: Process,
    age: ArrayLike,
    method: Method = "exact",
    law: ArrayLike | None = None,
    *,
    aggregate_at: int | None = None,
) -> float | Array:
    """Return Δ at one age or at an array of ages.

    `law` is the law of a record at collection; giving one with `exact` is the same as `own_law`.
    A process that depends on the slot needs `aggregate_at`, the slot at which age is reckoned.

    Guarantees
        The value is never below the true Δ of the given process under the assumption of the
        method: it is rounded up by a bound on the floating-point error (some 1e-14 for a small
        chain). Δ(0) = 1 always. Exactly 0 only where it is structurally so (a transition matrix
        whose rows are all the same), never by cancellation.

    >>> from agewise import birth_death
    >>> chain = birth_death(up=0.1, down=0.2, states=[20, 50, 100, 200])
    >>> total_variation(chain, [0, 2, 4, 9]).round(3)
    array([1.   , 0.91 , 0.684, 0.295])
    >>> round(total_variation(chain, 4, "any_prior"), 6)
    0.913747
    """
    one_of("method", method, METHODS)
    as_process(process)
    if aggregate_at is not None:
        aggregate_at = whole("aggregate_at", aggregate_at, -(2**53))
    ages = youngest(process, _checked_ages(age))
    if method == "spectral":
        _reversible(process, law)
    elif aggregate_at is None and process.homogeneous is None:
        raise InvalidInput(
            "aggregate_at", None, "a slot, since this process depends on the slot of the day"
        )
    found = _deltas(process, ages, method, law, aggregate_at or 0)
    return float(found) if found.ndim == 0 else found


def _deltas(
    process: Process,
    ages: NDArray[np.int64],
    method: Method,
    law: ArrayLike | None,
    aggregate_at: int,
) -> Array:
    """Δ at each age, of ages that were checked."""
    if method == "own_law" and law is None:
        raise InvalidInput(
            "law", None, "a law, with method own_law", "Give the law of a record at collection."
        )
    stated, prior = None, MIXINGS[method].prior
    if law is not None and prior != "any":
        stated, prior = as_law("law", law, process.states.size), "stated"
    batch = batch_of_one(process, stated, prior)
    distinct, place = np.unique(ages, return_inverse=True)
    values = np.ones(len(distinct))
    for number, collect_at in enumerate((aggregate_at - distinct).tolist()):
        # Of a lag that was not measured nothing is known.
        if collect_at < aggregate_at and process.knows(collect_at, aggregate_at):
            laws = batch.between(collect_at, aggregate_at)
            values[number] = ageing(laws, method, [process] * 2).total_variation[0]
    return values[place].reshape(ages.shape)


@dataclass(frozen=True)
class Aged:
    """What ageing does to groups of records, groups last.

    Δ `[G]`, rounded up, the rows `[y, x, G]` that it was computed from (None: there are none), and
    for which groups other things than Δ may be computed from them.
    """

    total_variation: Array
    rows: Array | None
    trusted: NDArray[np.bool_]


def ageing(laws: Laws, method: Method, processes: Sequence[Process] = ()) -> Aged:
    """Return what the method proves of records between two slots.

    The prior of `laws` is that of the method. `processes` are those of the groups.
    """
    bounds = [_spectral(one, laws.age) for one in processes] if method == "spectral" else 0.0
    if laws.age == 0:
        return Aged(np.ones(len(laws.off)), None, np.zeros(len(laws.off), dtype=bool))
    if laws.joint is None and laws.joints:
        value = np.array([joint_delta(one, any_prior=True) for one in laws.joints])
        return Aged(value, None, np.zeros(len(value), dtype=bool))
    rows = None if laws.joint is None else backward_rows(laws.joint)
    value = any_prior_distance(laws.kernel) if rows is None else widest(rows)
    value = rounded_up(value, laws.off + laws.uncertain)
    value[laws.redrawn] = 0
    value[laws.lost] = 1
    value = np.maximum(value, bounds)  # a chain passes as reversible up to a tolerance
    return Aged(value, rows, ~laws.lost & (laws.uncertain == 0))


def delta_table(
    transitions: ArrayLike,
    ages: ArrayLike,
    method: Literal["exact", "own_law", "any_prior"] = "exact",
    laws: ArrayLike | None = None,
) -> Array:
    """Return Δ for a batch of homogeneous chains `[m, S, S]` at each age, as `[m, ages]`.

    The same values as `delta` chain by chain, in blocks that fit the cache: time O(m · A · S³)
    for ages up to A, memory O(m · A) beyond one block.
    """
    one_of("method", method, ("exact", "own_law", "any_prior"))
    chains, prior = checked_batch(transitions, laws)
    if MIXINGS[method].takes_stated_law and prior is None:
        raise InvalidInput("laws", None, "one law a chain, with method own_law")
    asked = _checked_ages(ages).ravel()
    distinct, place = np.unique(asked, return_inverse=True)
    result = np.empty((len(chains), asked.size))
    known: Prior = "stated" if method == "exact" and prior is not None else MIXINGS[method].prior
    for start in range(0, len(chains), BLOCK):
        block = chains[start : start + BLOCK, None]
        law = None if prior is None else prior[start : start + BLOCK]
        if len(block) == 1:  # over one chain alone NumPy would sum in another order
            block, law = np.repeat(block, 2, axis=0), None if law is None else np.repeat(law, 2, 0)
        batch, values = Chains(block, law, known), np.empty((len(distinct), len(block)))
        for number, one in enumerate(distinct.tolist()):
            values[number] = ageing(batch.between(-one, 0), method).total_variation
        result[start : start + BLOCK] = values.T[: len(chains) - start, place]
    return result


def checked_batch(transitions: ArrayLike, laws: ArrayLike | None) -> tuple[Array, Array | None]:
    """Check chains `[m, S, S]` and laws `[m, S]`, naming the first bad one."""
    chains = finite_array("transitions", transitions, "row-stochastic matrices, shape [m, S, S]")
    if chains.ndim != 3 or chains.shape[1] != chains.shape[2] or chains.shape[1] < 2:
        raise InvalidInput("transitions", f"of shape {chains.shape}", "shape [m, S, S], S >= 2")
    sums = chains.sum(axis=2, keepdims=True)
    suspicious = (chains.min(axis=(1, 2)) < 0) | (np.abs(sums - 1).max(axis=(1, 2)) > 1e-9)
    for index in np.flatnonzero(suspicious)[:1]:
        as_transition(chains[index], f"transitions[{index}]")
    prior = None
    if laws is not None:
        prior = finite_array("laws", laws, "one law a chain")
        if prior.shape != chains.shape[:2]:
            raise InvalidInput("laws", f"of shape {prior.shape}", f"shape {chains.shape[:2]}")
        bad = (prior < 0).any(axis=1) | (np.abs(prior.sum(axis=1) - 1) > 1e-9)
        for index in np.flatnonzero(bad)[:1]:
            as_law(f"laws[{index}]", prior[index], chains.shape[1])
    return chains / sums, prior


def joint_delta(joint: JointLaw, *, any_prior: bool = False) -> float:
    """Return Δ of one joint law, wherever it comes from.

    With `any_prior`, for every law at collection: needs a joint law that gives every collected
    value some probability, since only then it tells how each of them moves on.
    """
    instance("joint", joint, JointLaw, "a JointLaw", "process.joint(collect_at, aggregate_at)")
    if joint.underflowed:
        return 1.0
    if truth("any_prior", any_prior):
        joint = joint.enlarged or joint  # whatever the law of enlarged states
        if joint.uncertainty > 0:
            raise InvalidInput(
                "method",
                "'any_prior' for a measured law",
                "exact",
                "How each value moves on is not measured well enough for every prior.",
            )
        if not (joint.law > 0).all():
            unseen = joint.states[joint.law == 0].tolist()
            raise InvalidInput(
                "joint",
                f"a law that gives the collected values {unseen} no probability",
                "a positive probability for each collected value, with any_prior",
            )
        kernel = joint.matrix / joint.law[:, None]
        return rounded_up(any_prior_distance(kernel[..., None]), joint.rounding).item()
    slack = joint.rounding + joint.uncertainty
    return rounded_up(widest(joint.backward[..., None]), slack).item()


def _checked_ages(age: ArrayLike) -> NDArray[np.int64]:
    try:
        ages = np.asarray(age)
    except ValueError:
        raise InvalidInput(
            "age", quoted(age), "whole numbers, 0 or more", "Give them in rows of one length."
        ) from None
    if ages.size == 0:
        raise InvalidInput("age", "empty", "whole numbers, 0 or more")
    if ages.dtype.kind in "iu" and ages.min() >= 0 and ages.max() <= LARGEST_AGE:
        return ages.astype(np.int64)
    checked = [whole("age", a, 0, LARGEST_AGE) for a in ages.ravel().tolist()]
    return np.array(checked).reshape(ages.shape)


def slot_delta(
    process: Process,
    collect_at: int,
    aggregate_at: int,
    method: Method,
    law: ArrayLike | None = None,
) -> float:
    """Return Δ between two slots of any process; see `delta` for what the methods assume."""
    age = youngest(process, np.asarray(aggregate_at - collect_at))
    if method == "spectral":
        _reversible(process, law)
    if process.homogeneous is not None:
        age = np.minimum(age, LARGEST_AGE)  # Δ never grows with age
    return float(_deltas(process, age, method, law, aggregate_at))


def forward_delta(process: Process, slot: int, later: int) -> float:
    """Return Δ forwards in time: how much the record in `slot` decides about the later one.

    The largest total variation distance between the laws of the later record given two values in
    `slot` (Dobrushin's coefficient). It depends on nobody's prior; rounded up, as `delta` is. 1
    where the process is known only lag by lag.
    """
    if not process.markov:
        return 1.0
    age = int(youngest(process, np.asarray(later - slot)))
    kernel = process.kernel(later - age, later)
    value = rounded_up(widest(kernel[..., None]), rounding(age, process.states.size)).item()
    step = process.kernel(later - 1, later)
    return 0.0 if (step == step[0]).all() else float(value)


def _reversible(process: Process, law: ArrayLike | None = None) -> MarkovChain:
    """The chain that the method `spectral` is about; refuses a process of which it says nothing."""
    chain, remedy = process.homogeneous, "Use exact, own_law or any_prior."
    if chain is None:
        raise InvalidInput(
            "method", "'spectral'", "exact, own_law or any_prior for this process", remedy
        )
    if law is not None:
        raise InvalidInput(
            "law", law, "no law with method spectral, which assumes the stationary one", remedy
        )
    if not chain.is_ergodic:
        kind = f"of period {chain.period}" if chain.is_irreducible else "reducible"
        raise InvalidInput(
            "method", f"'spectral' for a chain that is {kind}", "an ergodic chain", remedy
        )
    if not chain.is_reversible:
        raise InvalidInput(
            "method", "'spectral' for a chain that is not reversible", "a reversible chain", remedy
        )
    return chain


def _spectral(process: Process, age: int) -> float:
    """min{1, max_x √((1−π_x)/π_x) · γ*^a} (the paper, section IV-A)."""
    rarest, modulus = _spectrum(_reversible(process))
    bound = np.sqrt((1 - rarest) / rarest) * modulus ** float(age)
    return float(rounded_up(bound, rounding(age, process.states.size)))


@lru_cache(maxsize=1024)
def _spectrum(chain: MarkovChain) -> tuple[float, float]:
    """The rarest state's probability, and the largest modulus but one of the eigenvalues."""
    # The symmetric form √π P /√π has the same spectrum, and eigvalsh finds it to an ulp or so.
    root = np.sqrt(chain.stationary)
    symmetric = root[:, None] * chain.transition / root
    moduli = np.sort(np.abs(np.linalg.eigvalsh((symmetric + symmetric.T) / 2)))
    return float(chain.stationary.min()), float(moduli[-2])
