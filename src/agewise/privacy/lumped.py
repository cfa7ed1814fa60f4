"""Old names: what releases tell of a lifted chain's state, one slot after the last of them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array
from agewise.checks import finite_array
from agewise.errors import InvalidInput
from agewise.privacy.continual import continual_epsilon, reached_epsilon
from agewise.process import LiftedChain
from agewise.progress import Progress


def lumped_epsilon(
    process: Any,
    groups: Sequence[int] | NDArray[np.intp],
    values: ArrayLike,
    classical_epsilon: float,
    progress: Progress | None = None,
) -> float:
    """`continual_epsilon` of a `LiftedChain`, a release in every slot, at age 1.

    `values` is what a release is the noised mean of: one number or vector per enlarged state, the
    same within a group.
    """
    lifted, release = _lifted("lumped_epsilon", process, groups, values)
    return continual_epsilon(lifted, 1, classical_epsilon, 1, release=release, progress=progress)


def lumped_reached(
    process: Any,
    groups: Sequence[int] | NDArray[np.intp],
    values: ArrayLike,
    classical_epsilon: float,
) -> float:
    """`reached_epsilon` of a `LiftedChain`, a release in every slot, at age 1."""
    lifted, release = _lifted("lumped_reached", process, groups, values)
    return reached_epsilon(lifted, 1, classical_epsilon, 1, release=release)


def _lifted(
    name: str, process: Any, groups: Sequence[int] | NDArray[np.intp], values: ArrayLike
) -> tuple[LiftedChain, Array]:
    """The lifted chain, and one row of what is released per group."""
    now = name.replace("lumped", "continual").replace("continual_reached", "reached_epsilon")
    told = f"{name} is now {now} of a LiftedChain with age=1"
    warnings.warn(told, DeprecationWarning, stacklevel=3)
    size = np.max(groups) + 1
    lifted = LiftedChain(process, groups, np.arange(float(size)))
    table = finite_array("values", values, "one number or vector per enlarged state")
    table = table[:, None] if table.ndim == 1 else table
    if len(table) != lifted.groups.size:
        raise InvalidInput("values", f"{len(table)} numbers", f"{lifted.groups.size}")
    members = [table[lifted.groups == one] for one in range(size)]
    for number, within in enumerate(members):
        if (within != within[0]).any():
            raise InvalidInput("values", f"several within group {number}", "one per group")
    return lifted, np.array([within[0] for within in members])
