"""Cost tables of very many clients at once, from arrays of homogeneous chains."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import ArrayLike

from agewise.arrays import Array
from agewise.checks import finite_array, one_of, positive, whole
from agewise.errors import InvalidInput
from agewise.learning import Estimator
from agewise.mechanism import Laplace
from agewise.mixing import MIXINGS, Method, checked_batch, kernel_deltas
from agewise.privacy.ageing import classical_epsilon
from agewise.privacy.calibration import Rule, sensitivities
from agewise.privacy.sharp import ROWS_OFF, hockey_sticks, sharp_inverse
from agewise.process import stationary_laws
from agewise.process.joint import backward_rows, rounding

BLOCK = 4096


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
    to shares of `samples`. Time O(m·A·S³), memory 16 bytes per cell of the tables.
    """
    one_of("mixing", mixing, ("exact", "own_law", "any_prior"))
    one_of("calibration", calibration, ("formula", "sharp"))
    one_of("estimator", estimator, ("plain", "propagated"))  # gains are no table of costs
    chains, given = checked_batch(transitions, laws)
    clients, size = chains.shape[:2]
    values = finite_array("states", states, f"{size} numbers")
    if values.shape != (size,):
        raise InvalidInput("states", f"of shape {values.shape}", f"shape ({size},)")
    counts = finite_array("samples", samples, "one number a client")
    if counts.shape != (clients,) or (counts < 1).any():
        raise InvalidInput("samples", f"of shape {counts.shape}", f"{clients} numbers, 1 or more")
    last, target = whole("aggregate_at", aggregate_at, 1), positive("epsilon", epsilon)
    share = counts / counts.sum() if weights is None else finite_array("weights", weights, "shares")
    if mixing == "own_law" and given is None:
        raise InvalidInput("laws", None, "one law a chain, with mixing own_law")
    u, b = np.empty((clients, last)), np.empty((clients, last))

    def work(start: int) -> None:
        block = slice(start, start + BLOCK)
        chain = chains[block]
        stationary = stationary_laws(chain) if mixing == "exact" or given is None else None
        law = stationary if given is None else given[block]
        prior = {"exact": stationary, "own_law": law, "any_prior": None}[mixing]
        kernel = np.broadcast_to(np.eye(size), chain.shape)
        start_law = np.ascontiguousarray(law.T)  # type: ignore[union-attr]
        for age in range(last):
            if age:
                kernel = kernel @ chain
            delta = kernel_deltas(chain, kernel, age, prior)
            moved = kernel @ values  # E[value at aggregation | collected], [m, S]
            square = kernel @ values**2
            release = moved if estimator == "propagated" else np.broadcast_to(values, moved.shape)
            targets = np.full(len(delta), target)
            if calibration == "formula":
                allowed = np.asarray(classical_epsilon(targets, delta))
            else:
                sticks = None if prior is None else _sticks(prior, kernel, age, delta, targets)
                allowed = sharp_inverse(MIXINGS[mixing].sharpness, targets, delta, sticks)
            scale = Laplace().calibrate(sensitivities(release, counts[block]), allowed)
            f, first, second = (np.ascontiguousarray(x.T) for x in (release, moved, square))
            mean = (start_law * (f - first)).sum(axis=0)
            # E[(f − z)²] = Σ μ (f² − 2f·E[z] + E[z²]), centred first to keep its digits
            spread = (start_law * ((f - first - mean) ** 2 + second - first**2)).sum(axis=0)
            column = last - 1 - age
            u[block, column] = share[block] ** 2 * (2 * scale**2 + spread / counts[block])
            b[block, column] = share[block] * mean

    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(work, range(0, clients, BLOCK)))
    return u, b


def _sticks(prior: Array, kernel: Array, age: int, delta: Array, targets: Array) -> Array:
    """E `[m]` of `hockey_sticks`; Δ where that is 1, as it is where a law underflowed."""
    known = delta < 1
    joint = np.moveaxis(prior[known, :, None] * kernel[known], 0, -1)
    rows = np.moveaxis(backward_rows(joint), -1, 0)
    off = np.full(len(rows), ROWS_OFF * rounding(age, kernel.shape[1]))
    sticks = delta.copy()
    sticks[known] = hockey_sticks(rows, targets[known], off)
    return sticks
