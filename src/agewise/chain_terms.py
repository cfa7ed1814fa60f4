"""The terms of many clients whose records follow homogeneous chains, age by age as arrays.

The same numbers as `agewise.terms` gives client by client, but for rounding: Δ, sensitivity and
noise in every slot, and the moments of what is released. O(m·A·S³) for m clients and A ages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array, frozen
from agewise.clients import Client
from agewise.learning import Estimator, Learner, Trained, sensitivities
from agewise.mechanism import MECHANISMS
from agewise.mixing import MIXINGS
from agewise.privacy.ageing import aged_epsilon, classical_epsilon
from agewise.privacy.sharp import ROWS_OFF, hockey_sticks, sharp_forward, sharp_inverse, worst_each
from agewise.process import stationary_laws
from agewise.process.batch import ChainBatch
from agewise.process.chain import settled_powers
from agewise.process.joint import rounding
from agewise.slot_tables import SlotRows, SlotTable
from agewise.target import Target
from agewise.terms import classical_failures

CELLS = 2**18
"""Entries of kernels handled at once: few enough for the cache."""

MOST_SLOTS = 1024
"""Slots beyond which a table by age of every client takes too much memory."""


@dataclass(frozen=True)
class Wanted:
    """Which terms: for collection in some slots, `ages` before aggregation in another."""

    learner: Learner
    estimator: Estimator
    ages: NDArray[np.int64]
    aggregate_at: int

    @cached_property
    def trained(self) -> bool:
        """Whether the release depends on a model."""
        return isinstance(self.learner, Trained)


def tabulates(client: Client, target: Target, wanted: Wanted) -> bool:
    """Whether `tabulate_alike` can do a client."""
    return (
        client.process.kind == "chain"
        and not target.lasting
        and target.calibration != "tight"
        and target.mixing != "spectral"
        and not wanted.trained
        and wanted.aggregate_at <= MOST_SLOTS
    )


def size_and_target(client: Client, target: Target) -> Any:
    """What clients must have in common for `tabulate_alike`."""
    others = [value for name, value in vars(target).items() if name != "epsilon"]
    return client.process.states.size, *others


def tabulate_alike(
    clients: Sequence[Client], targets: Sequence[Target], wanted: Wanted
) -> Iterator[tuple[list[SlotTable], Array]]:
    """Yield the terms of clients, and moments of what they release, block by block.

    All of them have as many states, and the same target but for its ε. Moments are `[6, m, T, C]`:
    `target_mean`, `mean`, `target_variance`, `covariance` and `variance` of `independent_moments`,
    and the variance of how far the release is from the fresh mean.
    """
    rows = max(1, CELLS // clients[0].process.states.size ** 2)
    for start in range(0, len(clients), rows):
        part = slice(start, start + rows)
        yield _block(clients[part], targets[part], wanted)


def _block(
    clients: Sequence[Client], targets: Sequence[Target], wanted: Wanted
) -> tuple[list[SlotTable], Array]:
    target, mechanism = targets[0], MECHANISMS[targets[0].mechanism]
    chains, law, prior = _chains(clients, target.mixing)
    tables = [wanted.learner.table(client.process.states) for client in clients]
    values = np.ascontiguousarray(np.moveaxis(np.stack(tables), 0, -1))  # [S, C, m]
    samples = np.array([client.samples for client in clients])
    epsilons = np.array([one.epsilon for one in targets])
    young = np.minimum(wanted.ages[:, None], settled_powers(chains))  # [T, m]
    distinct, place = np.unique(young, return_inverse=True)
    cells = place.reshape(young.shape), np.arange(len(clients))
    batch, sharp = ChainBatch(chains, prior), _sharpness(target)
    delta, sticks, reach = np.empty((3, len(distinct), len(clients)))
    moments = np.empty((6, len(distinct), values.shape[1], len(clients)))
    for k, (kernel, age) in enumerate(batch.kernels(distinct.tolist())):
        delta[k], back = batch.ageing(kernel, age)
        sticks[k] = delta[k]
        if sharp == "rows" and back is not None and age > 0:
            room = np.full(len(clients), ROWS_OFF * rounding(age, len(kernel)))
            own = hockey_sticks(np.moveaxis(back, -1, 0), epsilons, room)
            sticks[k] = np.where(delta[k] < 1, own, delta[k])  # 1: it may have underflowed
        moved = np.einsum("xym,ycm->xcm", kernel, values)
        release = moved if wanted.estimator == "propagated" else values
        for c in range(values.shape[1]):  # one at a time keeps memory small
            own_values = release[:, c], values[:, c], moved[:, c]
            moments[:, k, c] = _moments(law, kernel, *own_values)
        if k == 0 or wanted.estimator == "propagated":
            reach[k] = sensitivities(np.moveaxis(release, -1, 0), samples, mechanism.norm)
        else:
            reach[k] = reach[0]
    delta, sticks, reach = (one[cells].T for one in (delta, sticks, reach))
    failure = classical_failures(target.delta, delta)
    goals = np.broadcast_to(epsilons[:, None], delta.shape)
    if sharp == "none":
        allowed = np.asarray(classical_epsilon(goals, delta))
    else:
        allowed = sharp_inverse(sharp, goals, delta, sticks)  # type: ignore[arg-type]
    scale = np.where(reach == 0, 0.0, mechanism.calibrate(reach, allowed, failure))
    spent = mechanism.spent(reach, scale, failure)
    for array in (delta, reach, scale, spent, failure):
        frozen(array)
    norm, last = mechanism.norm, wanted.aggregate_at
    found = [
        SlotTable(
            SlotRows(client, wanted.learner, wanted.estimator, young[:, i], last, norm),
            delta=delta[i],
            sensitivity=reach[i],
            scale=scale[i],
            classical_epsilon=spent[i],
            classical_delta=failure[i],
            ages=wanted.ages,
        )
        for i, client in enumerate(clients)
    ]
    told = np.moveaxis(moments, 2, -1)[:, *cells].swapaxes(1, 2)
    told[2:] /= np.array([client.records for client in clients])[:, None, None]
    return found, told


def _chains(clients: Sequence[Client], mixing: str) -> tuple[Array, Array, Array | None]:
    """Chains `[m, S, S]`, laws at collection `[S, m]`, and what adversaries take for those."""
    chains = np.stack([client.process.homogeneous.transition for client in clients])  # type: ignore[union-attr]
    stationary = stationary_laws(chains)
    law = stationary.copy()
    for place, client in enumerate(clients):
        if client.law is not None:
            law[place] = client.law
    prior = {"exact": stationary, "own_law": law, "any_prior": None}[mixing]
    return chains, np.ascontiguousarray(law.T), prior


def _sharpness(target: Target) -> str:
    """What noise is set by, beyond Δ."""
    if target.calibration == "formula" or target.mechanism != "laplace":
        return "none"
    return MIXINGS[target.mixing].sharpness


def _moments(law: Array, kernel: Array, release: Array, values: Array, moved: Array) -> Array:
    """Moments of one coordinate of a record at one age, `[6, m]`.

    Those of `independent_moments`, and the variance of how far release and fresh value are apart.
    """
    present = np.einsum("xm,xym->ym", law, kernel)
    target_mean, mean = (present * values).sum(axis=0), (law * release).sum(axis=0)
    off = release - mean
    target_variance = (present * (values - target_mean) ** 2).sum(axis=0)
    covariance = (law * off * (moved - target_mean)).sum(axis=0)
    variance = (law * off**2).sum(axis=0)
    error = release - moved
    within = np.einsum("xym,xym->xm", kernel, (values - moved[:, None]) ** 2)
    apart = (law * ((error - (mean - target_mean)) ** 2 + within)).sum(axis=0)
    return np.stack([target_mean, mean, target_variance, covariance, variance, apart])


@dataclass(frozen=True)
class Cell:
    """A client's release in one slot, of which the aged ε is asked."""

    client: Client
    target: Target
    age: int  #: the least that stands for it
    delta: float
    classical_epsilon: float  #: of the noise that its target needs
    spent: float  #: of the noise that it gets


def aged_epsilons(cells: Sequence[Cell]) -> list[float]:
    """`Terms.aged_epsilon` of many releases, of clients that `tabulate_alike` can do together."""
    spent, delta = (np.array([getattr(one, name) for one in cells]) for name in ("spent", "delta"))
    target, aged = cells[0].target, np.zeros(len(cells))
    some = spent > 0
    aged[some] = aged_epsilon(spent[some], delta[some])
    sharp = _sharpness(target)
    if sharp == "none":
        return aged.tolist()
    ages = np.array([one.age for one in cells])
    old = some & (ages > 0)
    if sharp == "cross_ratio":
        for place in np.flatnonzero(old):
            own = sharp_forward("cross_ratio", spent[place], delta[place], None, 0.0)
            aged[place] = min(float(own), aged[place])
    else:
        usable = old & (delta > 0) & (delta < 1)
        for age in np.unique(ages[usable]).tolist():
            here = np.flatnonzero(usable & (ages == age))
            chains, _, prior = _chains([cells[i].client for i in here.tolist()], target.mixing)
            batch = ChainBatch(chains, prior)
            kernel, _ = next(batch.kernels([age]))
            _, back = batch.ageing(kernel, age, measured=False)
            room = ROWS_OFF * rounding(age, len(kernel))
            own = worst_each(np.moveaxis(back, -1, 0), spent[here], room)  # type: ignore[arg-type]
            aged[here] = np.minimum(own, aged[here])
    # With the noise that was calibrated the target is proven; the rest is rounding.
    goals = np.array([one.target.epsilon for one in cells])
    enough = old & (spent <= np.array([one.classical_epsilon for one in cells]))
    return np.where(enough, np.minimum(aged, goals), aged).tolist()  # type: ignore[no-any-return]
