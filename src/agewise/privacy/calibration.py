"""How much Laplace noise an aged target asks for: by the formula, or by the mechanism itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array
from agewise.checks import finite_array, fraction, instance, one_of, positive, whole
from agewise.errors import InvalidInput
from agewise.learning import mean_rounding
from agewise.learning import sensitivities as vector_sensitivities
from agewise.mechanism import Laplace
from agewise.mixing import joint_delta
from agewise.privacy.ageing import ROWS_OFF, classical_epsilon, hockey_sticks
from agewise.process import JointLaw

Rule = Literal["formula", "sharp", "tight"]
RULES: tuple[str, ...] = get_args(Rule)

_ULP = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Noise:
    """What a client adds: Laplace noise of `scale`, for a release of the given ℓ1 sensitivity.

    `classical_epsilon` = sensitivity / scale is the privacy of the release itself, ageing not
    counted: infinite where no noise is needed, 0 where the release depends on no record.
    """

    sensitivity: float  #: how far one record can move the release (ℓ1)
    scale: float
    classical_epsilon: float


def sensitivity(release: ArrayLike, samples: int) -> float:
    """Return how far the mean of `release` over `samples` records can move if one record changes.

    `release` holds the released value of each state, and *every* state counts, whatever its
    probability: (max − min)/n, plus what rounding can add to a mean that is summed exactly and
    rounded once (`math.fsum`).
    """
    values = finite_array("release", release, "one finite number a state")
    if values.ndim != 1:
        raise InvalidInput("release", f"of shape {values.shape}", "one finite number a state")
    count = whole("samples", samples, 1)
    return float(sensitivities(values, np.asarray(count)))


def noise_scale(
    joint: JointLaw,
    release: ArrayLike,
    samples: int,
    epsilon: float,
    calibration: Rule = "formula",
    delta: float | None = None,
) -> Noise:
    """Return the noise with which the mean of `release` over `samples` records meets `epsilon`.

    `formula` inverts the paper's Proposition 1 with `delta` (default: the Δ of `joint`). `sharp`
    does so exactly, for the worst of all mechanisms (`agewise.privacy.ageing`). `tight` takes the
    smallest scale at which the privacy loss of the Laplace mechanism itself, given the record at
    aggregation, stays within `epsilon`; it is for the law in `joint` (`exact` or `own_law`), so no
    other Δ can be given with it.

    Guarantees
        The aged privacy loss about the record at aggregation is at most `epsilon`, for records
        that evolve independently with this joint law. `tight` never adds more noise than
        `formula`, and its loss is within 1e-9 of `epsilon` unless no noise is needed.

    >>> from agewise import birth_death
    >>> pair = birth_death(up=0.1, down=0.2, states=[20, 50, 100, 200]).joint(6, 10)
    >>> for rule in "formula", "tight":
    ...     noise = noise_scale(pair, pair.states, 100, epsilon=0.1, calibration=rule)
    ...     print(round(noise.scale, 2))
    12.58
    7.97
    """
    one_of("calibration", calibration, RULES)
    values = _release(joint, release)
    count = whole("samples", samples, 1)
    target = positive("epsilon", epsilon)
    if calibration == "tight" and delta is not None:
        raise InvalidInput(
            "delta", delta, "none with tight calibration, which works from the joint law itself"
        )
    given = None if delta is None else fraction("delta", delta, with_zero=True, with_one=True)
    deltas = np.asarray(joint_delta(joint) if given is None else given)
    if calibration == "sharp" and delta is None and not joint.underflowed and not joint.uncertainty:
        off = np.array([ROWS_OFF * joint.rounding])
        sticks = hockey_sticks(joint.backward[None], np.array([target]), off)[0]
        deltas = np.minimum(deltas, sticks)
    if calibration == "sharp" and delta is None and joint.uncertainty:
        deltas = np.minimum(deltas, joint.stick_limit(target))
    reach = sensitivities(values, np.asarray(count))
    scale = Laplace().calibrate(reach, np.asarray(classical_epsilon(target, deltas)))
    if calibration == "tight" and not joint.underflowed:
        scale = tight_scales(
            joint.backward[None],
            values[None],
            np.array([count]),
            np.array([target]),
            scale[None],
            np.array([joint.rounding]),
        )[0]
    return Noise(float(reach), float(scale), float(Laplace().spent(reach, scale)))


def aged_loss(joint: JointLaw, release: ArrayLike, samples: int, scale: float) -> float:
    """Return the aged privacy loss of the Laplace mechanism of this scale, by exact evaluation.

    max over y, y′ and outputs o of ln[Σ_x K[y,x]e^{−|o−f(x)/n|/η} / Σ_x K[y′,x]e^{−|o−f(x)/n|/η}].
    """
    values = _release(joint, release)
    count = whole("samples", samples, 1)
    scale = positive("scale", scale, with_zero=True)
    if joint.underflowed:  # nothing is known of the ageing: the classical loss
        return float(sensitivities(values, np.asarray(count)) / scale) if scale else np.inf
    told = values[None], np.array([count]), np.array([scale])
    return float(aged_losses(joint.backward[None], *told)[0])


def aged_losses(backward: Array, values: Array, samples: Array, scale: Array) -> Array:
    """`aged_loss` `[c]` of cells, with the arguments of `tight_scales`."""
    return _losses(*_sorted_rows(backward, values, samples), scale)


def _release(joint: JointLaw, release: ArrayLike) -> Array:
    """The released value of each state of a joint law."""
    instance("joint", joint, JointLaw, "a JointLaw", "process.joint(collect_at, aggregate_at)")
    values = finite_array("release", release, "one finite number a state")
    if values.shape != joint.states.shape:
        raise InvalidInput("release", f"of shape {values.shape}", f"shape {joint.states.shape}")
    return values


def sensitivities(values: Array, samples: Array) -> Array:
    """`sensitivity` for checked arrays, over the last axis."""
    return vector_sensitivities(values[..., None], samples)


def tight_scales(
    backward: Array,
    values: Array,
    samples: Array,
    targets: Array,
    ceilings: Array,
    rounding: Array,
) -> Array:
    """Return the smallest safe scale of each of `c` cells, by bisection, all cells at once.

    `backward` `[c, Y, S]`, `values` `[c, S]` (the release of one record), and `[c]` each:
    `samples`, `targets`, `ceilings` (scales known to be safe) and `rounding`. O(c · Y · S) a step.

    A Laplace variable of larger scale is one of smaller scale plus independent noise, so the
    loss never grows with the scale and bisection is sound. A released mean that is off by δ
    through rounding changes a log density by at most δ/η, and the loss by twice that.
    """
    rows, gaps = _sorted_rows(backward, values, samples)
    off = 2 * mean_rounding(values)
    allowed = targets * (1 - 8 * _ULP) - 4 * rounding
    safe = np.array(ceilings, dtype=np.float64)
    noiseless = _losses(rows, gaps, np.zeros_like(safe)) <= allowed
    safe[noiseless] = 0

    def holds(cells: NDArray[np.intp], scale: Array) -> NDArray[np.bool_]:
        with np.errstate(divide="ignore", over="ignore"):
            return _losses(rows[cells], gaps[cells], scale) <= allowed[cells] - off[cells] / scale

    active = np.flatnonzero(~noiseless & (safe > 1e-290))
    active = active[holds(active, safe[active])]
    high = safe[active]
    low = high / 2
    while (still := holds(active, low)).any():  # a scale of 0 does not hold: it ends
        high, low = np.where(still, low, high), np.where(still, low / 2, low)
    for _ in range(60):
        middle = low + (high - low) / 2
        still = holds(active, middle)
        high, low = np.where(still, middle, high), np.where(still, low, middle)
    safe[active] = high
    return safe


def _sorted_rows(backward: Array, values: Array, samples: Array) -> tuple[Array, Array]:
    order = np.argsort(values, axis=1)
    rows = np.take_along_axis(backward, order[:, None, :], axis=2)
    gaps = np.diff(np.take_along_axis(values, order, axis=1), axis=1)
    return rows, gaps / samples[:, None]


def _losses(rows: Array, gaps: Array, scale: Array) -> Array:
    """The aged loss `[c]` of cells with sorted values `gaps` apart.

    Between two neighbouring values the ratio of the two densities is monotone in the output, and
    beyond the outermost ones it is constant: only outputs at the values that occur count.
    """
    with np.errstate(divide="ignore", invalid="ignore", under="ignore"):
        decay = np.where(gaps == 0, 1.0, np.exp(-gaps / scale[:, None]))[:, None, :]
    density = rows.copy()
    for x in range(1, rows.shape[2]):
        density[..., x] += density[..., x - 1] * decay[..., x - 1]
    from_above = np.zeros(rows.shape[:2])
    for x in range(rows.shape[2] - 2, -1, -1):
        from_above = (from_above + rows[..., x + 1]) * decay[..., x]
        density[..., x] += from_above
    with np.errstate(divide="ignore", invalid="ignore"):
        width = np.ptp(np.log(density), axis=1)
    occurs = rows.max(axis=1) > 0
    return np.asarray(np.where(occurs, width, -np.inf).max(axis=1))
