"""Cost tables of very many clients at once, from arrays of homogeneous chains."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array
from agewise.checks import finite_array, one_of, positive, whole
from agewise.errors import InvalidInput
from agewise.learning import Estimator, moves_records
from agewise.mechanism import Laplace
from agewise.mixing import MIXINGS, Method, ageing, checked_batch
from agewise.privacy.ageing import ROWS_OFF, hockey_sticks, sharp_inverse
from agewise.privacy.calibration import Rule, sensitivities
from agewise.process.chains import Chains, product
from agewise.process.joint import backward_rows

CELLS = 200_000
"""Entries of kernels handled at once: few enough for the cache, enough for two threads to pay.

With a power of two all states of a client would compete for the same places of the cache.
"""

WORTH = 0.5
"""The part of some clients for which E is not 0 yet, below which the others are left out."""


def chain_tables(
    transitions: ArrayLike,
    states: ArrayLike,
    samples: ArrayLike,
    aggregate_at: int,
    epsilon: float,
    *,
    laws: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    mixing: Method = "exact",
    estimator: Estimator = "propagated",
    calibration: Rule = "sharp",
) -> tuple[Array, Array]:
    """Return u and b `[m, A]` for `m` clients with chains `[m, S, S]` over common states `[S]`.

    The same numbers as `cost_tables` of a `Problem` with those clients and choices, for means with
    Laplace noise, without an object per client: mixing exact, own_law or any_prior, calibration
    formula or sharp. `laws` `[m, S]` hold at collection (default: stationary), `weights` default
    to shares of `samples`. Clients alike in chain, law and samples are worked out once.
    Time O(m·A·S³) for m different ones, memory 16 bytes per cell of the tables.
    """
    one_of("mixing", mixing, ("exact", "own_law", "any_prior"))
    one_of("calibration", calibration, ("formula", "sharp"))
    one_of("estimator", estimator, ("plain", "propagated"))  # gains are no table of costs
    chains, given = checked_batch(transitions, laws)
    clients, size = chains.shape[:2]
    values = finite_array("states", states, f"{size} numbers")
    if values.shape != (size,):
        raise InvalidInput("states", f"of shape {values.shape}", f"shape ({size},)")
    counts = finite_array("samples", samples, "one number per client")
    if counts.shape != (clients,) or (counts < 1).any():
        raise InvalidInput("samples", f"of shape {counts.shape}", f"{clients} numbers, 1 or more")
    last, target = whole("aggregate_at", aggregate_at, 1), positive("epsilon", epsilon)
    share = counts / counts.sum() if weights is None else finite_array("weights", weights, "shares")
    if MIXINGS[mixing].takes_stated_law and given is None:
        raise InvalidInput("laws", None, "one law per chain, with mixing own_law")
    if share.shape != (clients,):
        raise InvalidInput("weights", f"of shape {share.shape}", f"{clients} numbers")
    kind, first = _kinds(chains, given, counts)
    u, b = np.empty((len(first), last)), np.empty((len(first), last))
    rows = max(1, CELLS // size**2)
    sharp = calibration == "sharp" and mixing != "any_prior"

    def work(start: int) -> None:
        """The tables of some kinds, not weighted yet."""
        block = first[start : start + rows]
        batch = Chains(
            chains[block, None], None if given is None else given[block], MIXINGS[mixing].prior
        )
        begun = np.ascontiguousarray(batch.law(0))
        delta = _sticks(batch, last, target) if sharp else _deltas(batch, last, mixing)
        # Where rows are known, Δ is E by now, and the formula with E is sharp.
        rule = "delta" if calibration == "formula" or sharp else MIXINGS[mixing].sharpness
        cost, mean = np.empty((2, last, len(block)))
        later = np.repeat(np.stack([values, values**2], axis=1)[..., None], len(block), axis=2)
        step = batch.kernel(0, 1)
        for age in range(last):
            later = product(step, later) if age else later
            release, mean[-1 - age], spread = _moments(later, begun, values, estimator)
            needed = sharp_inverse(rule, np.array(target), delta[age], None)
            scale = Laplace().calibrate(sensitivities(release.T, counts[block]), needed)
            cost[-1 - age] = 2 * scale**2 + spread / counts[block]
        u[start : start + rows], b[start : start + rows] = cost.T, mean.T

    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(work, range(0, len(first), rows)))
    if len(first) < clients:
        u, b = u[kind], b[kind]
    u *= (share**2)[:, None]
    b *= share[:, None]
    return u, b


def _kinds(
    chains: Array, laws: Array | None, samples: Array
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Of each client its kind, and of each kind a client: alike in chain, law and samples.

    By a number drawn for each cell; kinds that differ and still have the same sum are not merged.
    """
    told = [chains.reshape(len(chains), -1), samples[:, None], *([] if laws is None else [laws])]
    rng = np.random.default_rng(0)
    sums = sum(one @ rng.random(one.shape[1]) for one in told)
    _, first, kind = np.unique(sums, return_index=True, return_inverse=True)
    same = len(first) <= len(chains) // 2 and all((one == one[first[kind]]).all() for one in told)
    everyone = np.arange(len(chains))
    return (kind, first) if same else (everyone, everyone)


def _moments(
    later: Array, law: Array, values: Array, estimator: Estimator
) -> tuple[Array, Array, Array]:
    """The release of each state `[S, m]`, and mean and variance `[m]` of what it is off by.

    `later` `[S, 2, m]` are E[z] and E[z²] at aggregation, given each state.
    """
    moved, square = later.swapaxes(0, 1)
    if moves_records(estimator):  # off by nothing on average, whatever was collected
        return moved, np.zeros(moved.shape[1]), (law * (square - moved**2)).sum(axis=0)
    off = values[:, None] - moved
    mean = (law * off).sum(axis=0)
    # E[(f − z)²] = Σ μ (f² − 2f·E[z] + E[z²]), centred first to keep its digits
    spread = (law * ((off - mean) ** 2 + square - moved**2)).sum(axis=0)
    return values[:, None], mean, spread


def _deltas(batch: Chains, last: int, mixing: Method) -> Array:
    """Δ `[ages, m]`."""
    return np.stack([ageing(batch.between(-age, 0), mixing).total_variation for age in range(last)])


def _sticks(batch: Chains, last: int, target: float) -> Array:
    """E `[ages, m]` of `hockey_sticks`, which is never above Δ; 1 where a law underflowed.

    Rows of older data are mixtures of those of younger ones, so E never grows with age: where it
    is 0, it stays 0, and clients for whom it is are left out of later ages.
    """
    found, who = np.zeros((last, len(batch.transitions))), np.arange(len(batch.transitions))
    found[0] = 1
    for age in range(1, last):
        laws = batch.between(-age, 0)
        rows = backward_rows(laws.joint)  # type: ignore[arg-type]
        targets = np.full(len(who), target)
        sticks = hockey_sticks(np.moveaxis(rows, -1, 0), targets, ROWS_OFF * laws.off)
        sticks[laws.redrawn] = 0
        sticks[laws.lost] = 1
        found[age, who] = sticks
        some = sticks > 0
        if not some.any():
            break
        if some.mean() < WORTH:
            batch, who = batch.only(some), who[some]
    return found
