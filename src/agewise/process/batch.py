"""Many processes at once: what is known of records between two slots, groups last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.process.chains import Chains, Laws, Prior
from agewise.process.joint import TINY, JointLaw, Process, rounding, youngest
from agewise.process.markov import arrays_of, chain_of


def in_batches(process: Process) -> int:
    """The day of chains that are asked as arrays; 0: a process that is asked by itself."""
    chain = chain_of(process)
    return 0 if chain is None else chain.day


def batch_of(
    processes: Sequence[Process], stated: Sequence[Array | None], prior: Prior
) -> ProcessBatch:
    """Processes of one size and `in_batches`, with laws stated for them; two or more of them."""
    chains = [chain for process in processes if (chain := chain_of(process)) is not None]
    if chains:
        return Chains(np.stack([chain.transitions for chain in chains]), stated, prior)
    return Others(processes, stated, prior)


def batch_of_one(process: Process, stated: Array | None, prior: Prior) -> ProcessBatch:
    """One process as a batch of two."""
    chain = chain_of(process)
    if chain is not None:
        return arrays_of(chain, stated, prior)
    return Others([process, process], [stated, stated], prior)


class Others:
    """Processes that are asked one by one, each of them once."""

    def __init__(
        self, processes: Sequence[Process], stated: Sequence[Array | None], prior: Prior
    ) -> None:
        self.processes, self.stated, self.prior = processes, stated, prior

    def youngest(self, ages: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each group and age the least age that stands for it, `[G, T]`."""
        return np.stack([youngest(process, ages) for process in self.processes])

    def kernel(self, collect_at: int, aggregate_at: int) -> Array:
        """How records move between the slots, `[x, y, G]`."""
        each = {id(process): process for process in self.processes}
        known = {key: process.kernel(collect_at, aggregate_at) for key, process in each.items()}
        return np.stack([known[id(process)] for process in self.processes], axis=-1)

    def law(self, slot: int) -> Array:
        """The law of records that are collected in a slot, `[x, G]`."""
        both = zip(self.processes, self.stated, strict=True)
        return np.stack([one.law(slot) if law is None else law for one, law in both], axis=-1)

    def between(self, collect_at: int, aggregate_at: int) -> Laws:
        """What is known between the slots: of any prior by kernels, where processes are Markov."""
        age, kernel = aggregate_at - collect_at, self.kernel(collect_at, aggregate_at)
        if self.prior == "any" and all(one.markov for one in self.processes):
            lost = [
                bool((own[one.reachable(collect_at, aggregate_at)] < TINY).any())
                for one, own in zip(self.processes, np.moveaxis(kernel, -1, 0), strict=True)
            ]
            off = np.full(len(lost), rounding(age, len(kernel)))
            none = np.zeros(len(lost))
            return Laws(age, kernel, None, off, np.array(lost), none, none > 0)
        known: dict[Any, JointLaw] = {}
        joints = []
        for process, law in zip(self.processes, self.stated, strict=True):
            stated = law if self.prior == "stated" else None
            key = id(process), None if stated is None else stated.tobytes()
            if key not in known:
                known[key] = process.joint(collect_at, aggregate_at, stated)
            joints.append(known[key])
        return Laws(
            age,
            kernel,
            None if self.prior == "any" else np.stack([one.matrix for one in joints], axis=-1),
            np.array([one.rounding for one in joints]),
            np.array([one.underflowed for one in joints]),
            np.array([one.uncertainty for one in joints]),
            np.zeros(len(joints), dtype=bool),
            tuple(joints),
        )


ProcessBatch = Chains | Others
"""Processes of one number of states, asked together."""
