"""How much old losses can still tell: linear programs, whose bounds are proven by their duals.

The likelihood v of everything released is a function of a record's value that satisfies
v(x) ≤ e^{L[x,x′]} v(x′). A later value y is told from y′ by at most the maximum of
K[y]·v / K[y′]·v, a linear program. Its solver may be off; whatever multipliers λ ≥ 0 and t it
returns, weak duality holds:

    K[y]·v ≤ t + Σ_x r(x) v(x),   r = (K[y] − t K[y′] − Σ λ (e_x − e^{L[x,x′]} e_x′))₊,

for all v with K[y′]·v = 1, and these have v(x) ≤ e^{max L}. The right side is what is returned,
with what rounding may have taken from it (Neumaier and Shcherbina 2004).
"""

from __future__ import annotations

import itertools

import numpy as np
from scipy.optimize import linprog

from agewise.arrays import Array
from agewise.auditing.outward import Between, log_above

_ULP = float(np.finfo(float).eps)


def aged_bounds(losses: Array, rows: Between) -> Array:
    """Upper bounds on what tells each two later values apart, `[Y, Y]`.

    `losses` `[S, S]` are upper bounds for the earlier values, `rows` `[Y, S]` their law given each
    later one.
    """
    count = rows.low.shape[0]
    bounds = np.zeros((count, count))
    largest = float(losses.max(initial=0.0))
    finite = np.isfinite(largest) and largest < 600
    cone = _cone(losses) if finite else None
    for y, other in itertools.permutations(range(count), 2):
        above, below = rows.high[y], rows.low[other]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(above > 0, above / below, 0.0).max()
        best = min(float(log_above(np.nextafter(ratio, np.inf))), largest)
        if cone is not None and best > 0:
            best = min(best, _by_program(above, below, cone, largest))
        bounds[y, other] = max(best, 0.0)
    return bounds


def _cone(losses: Array) -> Array:
    """Its constraints: one row for each two states, A v ≤ 0."""
    size = len(losses)
    lines = []
    with np.errstate(over="ignore"):
        factors = np.exp(losses) * (1 + 8 * _ULP)
    for x, other in itertools.permutations(range(size), 2):
        line = np.zeros(size)
        line[x], line[other] = 1.0, -factors[x, other]
        lines.append(line)
    return np.array(lines)


def _by_program(above: Array, below: Array, cone: Array, largest: float) -> float:
    """A proven upper bound on ln(above·v / below·v) over the cone."""
    found = linprog(
        -above, A_ub=cone, b_ub=np.zeros(len(cone)), A_eq=below[None], b_eq=[1.0], method="highs"
    )
    if found.status != 0:
        return np.inf
    multipliers = np.maximum(-found.ineqlin.marginals, 0.0)
    level = max(float(-found.eqlin.marginals[0]), 0.0)
    terms = np.vstack([above, -level * below, -multipliers[:, None] * cone])
    rest = terms.sum(axis=0) + (len(terms) + 4) * _ULP * np.abs(terms).sum(axis=0)
    reach = np.exp(largest) * (1 + 8 * _ULP) / (below.sum() * (1 - len(below) * _ULP))
    value = level + float(np.maximum(rest, 0.0).sum()) * reach
    return float(log_above(np.asarray(value * (1 + 16 * _ULP))))
