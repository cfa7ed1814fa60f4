"""What several releases of one client add up to, with and without credit for ageing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from agewise.errors import InvalidInput, one_of, positive, whole
from agewise.mixing import METHODS, Method, slot_delta
from agewise.privacy.ageing import aged_epsilon
from agewise.process import Process
from agewise.process.joint import Array, as_law, rounding


@dataclass(frozen=True)
class Release:
    """One release of a client: the slot its data were collected in, and its classical ε."""

    collect_at: int
    epsilon: float

    def __post_init__(self) -> None:
        whole("collect_at", self.collect_at, -(2**53))
        if self.epsilon != math.inf:  # a release without noise
            positive("epsilon", self.epsilon)


@dataclass(frozen=True)
class Total:
    """The privacy of several releases together: credited for ageing, and as if nothing aged."""

    aged: float
    classical: float


def composed_epsilon(
    releases: Iterable[Release],
    process: Process,
    aggregate_at: int,
    method: Method = "exact",
    law: ArrayLike | None = None,
) -> Total:
    """Return the total privacy, as seen in slot `aggregate_at`, of releases of the same records.

    Works forward from the oldest release (the order of the list does not matter): the loss L
    about the record in one slot becomes ln(1 + Δ(gap)(e^L − 1)) about the record in the next
    one, where that slot's own ε is added. Releases of one slot add up first.

    `law` is the law of a record in the *earliest* of these slots; the later ones follow from the
    process. With `any_prior` no law matters.

    Guarantees
        An upper bound on the aged privacy loss of all releases together, under the assumptions
        of `method` (see `agewise.mixing`) and for a Markov process. A process that is only known
        lag by lag (`process.markov` false) gets no credit for ageing beyond a single slot: the
        total is then the classical one. Adding up aged ε's instead is *not* safe.

    >>> from agewise import birth_death
    >>> chain = birth_death(up=0.4, down=0.4, states=[20, 50, 100, 200])
    >>> total = composed_epsilon([Release(2, 0.5), Release(6, 0.5)], chain, aggregate_at=10)
    >>> round(total.aged, 4), total.classical
    (0.0972, 1.0)
    """
    one_of("method", method, METHODS)
    seen_at = whole("aggregate_at", aggregate_at, -(2**53))
    by_slot: dict[int, list[float]] = {}
    for release in releases:
        by_slot.setdefault(release.collect_at, []).append(release.epsilon)
    if not by_slot:
        return Total(0.0, 0.0)
    slots = sorted(by_slot)
    if slots[-1] > seen_at:
        raise InvalidInput(
            "collect_at", slots[-1], f"a slot up to {seen_at}, where the total is reckoned"
        )
    classical = math.fsum(epsilon for spent in by_slot.values() for epsilon in spent)
    if not process.markov and len(slots) > 1:
        return Total(classical, classical)
    prior: Array | None = None if law is None else as_law("law", law, process.states.size)
    loss, carried = 0.0, 0.0
    for slot, following in pairwise([*slots, seen_at]):
        loss += math.fsum(by_slot[slot])
        if following > slot:
            share = min(slot_delta(process, slot, following, method, prior) + carried, 1.0)
            loss = aged_epsilon(loss, share)
            if prior is not None:
                prior = np.asarray(prior @ process.kernel(slot, following))
                prior = prior / prior.sum()
                carried += rounding(following - slot, prior.size)  # Δ is off by as much at most
    return Total(loss, classical)
