"""What each client would have to add in each slot: one table, computed client by client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array, frozen
from agewise.errors import InvalidInput
from agewise.learning import release_values
from agewise.mixing import delta
from agewise.privacy.ageing import aged_epsilon
from agewise.privacy.calibration import (
    aged_loss,
    formula_scales,
    mean_rounding,
    sensitivities,
    spent_epsilons,
    tight_scales,
)
from agewise.problem import Client, Problem
from agewise.process.joint import backward_rows, youngest


@dataclass(frozen=True)
class SlotTable:
    """For one client, by collection slot (1..A unless asked for others): law, release and noise.

    By slot, `[A]` each: delta, sensitivity, scale, classical_epsilon. Slots in which records are
    so old that nothing changes any more share a row of kernel_rows `[R, S, S]`, law_rows `[R, S]`
    (the client's law at collection) and release_rows `[R, S]` (f of each state); `row` `[A]` says
    which. `kernels`, `laws` and `release` are the same by slot.
    """

    row: NDArray[np.intp]
    kernel_rows: Array
    law_rows: Array
    release_rows: Array
    delta: Array
    sensitivity: Array
    scale: Array
    classical_epsilon: Array
    ages: NDArray[np.int64]

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
        """What each state of a record contributes in each slot, `[A, S]`."""
        return frozen(self.release_rows[self.row])


def slot_table(client: Client, problem: Problem, slots: Sequence[int] | None = None) -> SlotTable:
    """Return a client's Δ, release function and noise in every slot it could collect in.

    `slots` names the slots wanted; None: all of them. Time and memory grow with the ages at which
    records still move on, not with all slots.
    """
    process, last = client.process, problem.aggregate_at
    asked = last - np.asarray(range(1, last + 1) if slots is None else slots, dtype=np.int64)
    ages, row = np.unique(-youngest(process, asked), return_inverse=True)
    ages = -ages  # oldest first, as the slots are
    slots = (last - ages).tolist()
    kernels = np.stack([process.kernel(t, last) for t in slots])
    laws = np.stack([client.law_at(t) for t in slots])
    release = np.stack([release_values(process, t, last, problem.estimator) for t in slots])
    prior = client.law if problem.mixing == "own_law" else None
    method = "exact" if problem.mixing == "own_law" and prior is None else problem.mixing
    deltas = np.atleast_1d(delta(process, ages, method, prior, aggregate_at=last))
    reach = sensitivities(release, np.asarray(client.samples))
    scale = formula_scales(reach, np.asarray(problem.epsilon), deltas)
    if problem.calibration == "tight":
        joints = [process.joint(t, last, prior) for t in slots]
        if any(joint.uncertainty > 0 for joint in joints):
            raise InvalidInput(
                "calibration", "'tight' for a measured law", "formula",
                "Only Δ has a confidence limit, not the whole law.",
            )  # fmt: skip
        known = np.stack([joint.law for joint in joints])
        backward = backward_rows(np.moveaxis(known[:, :, None] * kernels, 0, -1))
        tight = np.array(
            [age > 0 and not j.underflowed for age, j in zip(ages, joints, strict=True)]
        )
        count = int(tight.sum())
        if count:
            scale[tight] = tight_scales(
                np.moveaxis(backward, -1, 0)[tight],
                release[tight],
                np.full(count, client.samples),
                np.full(count, problem.epsilon),
                scale[tight],
                np.array([joint.rounding for joint in joints])[tight],
            )
    spent = spent_epsilons(reach, scale)
    for array in (kernels, laws, release, row):
        array.setflags(write=False)  # shared by all who ask for the same problem
    return SlotTable(
        row=row,
        kernel_rows=kernels,
        law_rows=laws,
        release_rows=release,
        delta=frozen(deltas[row]),
        sensitivity=frozen(reach[row]),
        scale=frozen(scale[row]),
        classical_epsilon=frozen(spent[row]),
        ages=asked,
    )


def achieved_epsilon(
    client: Client,
    problem: Problem,
    table: SlotTable,
    column: int,
    noise: tuple[float, float] | None = None,
) -> float:
    """Return the aged ε of a cell of the table, by Proposition 1 or for tight by the mechanism.

    `noise` is the (scale, classical ε) that was really used; None: what the table says.
    """
    scale, spent = noise or (float(table.scale[column]), float(table.classical_epsilon[column]))
    if spent == 0:
        return 0.0
    age = int(table.ages[column])
    if problem.calibration == "formula" or age == 0:
        return aged_epsilon(spent, float(table.delta[column]))
    law = client.law if problem.mixing == "own_law" else None
    joint = client.process.joint(problem.aggregate_at - age, problem.aggregate_at, law)
    release = table.release_rows[table.row[column]]
    loss = aged_loss(joint, release, client.samples, scale)
    if scale > 0:  # what rounding of the mean and of the law can add
        loss += 2 * float(mean_rounding(release)) / scale + 4 * joint.rounding
    return min(loss, aged_epsilon(spent, float(table.delta[column])))
