"""What each client would have to add in each slot: one table, computed client by client."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agewise.learning import release_values
from agewise.mixing import delta
from agewise.privacy.calibration import (
    formula_scales,
    sensitivities,
    spent_epsilons,
    tight_scales,
)
from agewise.problem import Client, Problem
from agewise.process.joint import Array, backward_rows


@dataclass(frozen=True)
class SlotTable:
    """For one client, by collection slot 1..A (index 0..A-1): law, movement, release and noise.

    kernels `[A, S, S]`, laws `[A, S]` (the client's law at collection), release `[A, S]` (f of
    each state), and `[A]` each: delta, sensitivity, scale, classical_epsilon.
    """

    kernels: Array
    laws: Array
    release: Array
    delta: Array
    sensitivity: Array
    scale: Array
    classical_epsilon: Array

    @property
    def ages(self) -> NDArray[np.int64]:
        """The age of what is collected in each slot."""
        return np.arange(self.delta.size)[::-1]


def slot_table(client: Client, problem: Problem) -> SlotTable:
    """Return a client's Δ, release function and noise in every slot it could collect in."""
    process, last = client.process, problem.aggregate_at
    slots = range(1, last + 1)
    kernels = np.stack([process.kernel(t, last) for t in slots])
    laws = np.stack([client.law_at(t) for t in slots])
    release = np.stack([release_values(process, t, last, problem.estimator) for t in slots])
    prior = client.law if problem.mixing == "own_law" else None
    method = "exact" if problem.mixing == "own_law" and prior is None else problem.mixing
    ages = np.arange(last)[::-1]
    deltas = np.atleast_1d(delta(process, ages, method, prior, aggregate_at=last))
    reach = sensitivities(release, np.asarray(client.samples))
    scale = formula_scales(reach, np.asarray(problem.epsilon), deltas)
    if problem.calibration == "tight":
        joints = [process.joint(t, last, prior) for t in slots]
        known = np.stack([joint.law for joint in joints])
        rows = backward_rows(np.moveaxis(known[:, :, None] * kernels, 0, -1))
        tight = np.array(
            [age > 0 and not j.underflowed for age, j in zip(ages, joints, strict=True)]
        )
        count = int(tight.sum())
        if count:
            scale[tight] = tight_scales(
                np.moveaxis(rows, -1, 0)[tight],
                release[tight],
                np.full(count, client.samples),
                np.full(count, problem.epsilon),
                scale[tight],
                np.array([joint.rounding for joint in joints])[tight],
            )
    spent = spent_epsilons(reach, scale)
    for array in (kernels, laws, release, deltas, reach, scale, spent):
        array.setflags(write=False)  # shared by all who ask for the same problem
    return SlotTable(kernels, laws, release, deltas, reach, scale, spent)
