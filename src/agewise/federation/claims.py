"""What a server does not believe: uploads that claim less than their plan implies."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from agewise.arrays import Array
from agewise.federation.messages import BadMessage, Upload
from agewise.mechanism import MECHANISMS
from agewise.planning import Assignment
from agewise.problem import Client, Problem

ROOM = 1e-9
"""Relative room for another machine's arithmetic when a client's claim is compared."""

SEARCHED = 1e-6
"""The same for Gaussian noise, where both sides search for a minimum."""


def refuse_claims(
    upload: Upload, issued: Assignment, problem: Problem, client: Client, target: float
) -> None:
    """Refuse an upload that claims less than the plan implies, or has too little noise."""
    if upload.noise_scale < issued.noise_scale * (1 - ROOM):
        raise BadMessage("too little noise", f"{upload.noise_scale}")
    if (upload.samples, upload.members) != (client.samples, client.members):
        raise BadMessage(
            "false claim", f"{upload.samples} records of each of {upload.members} members"
        )
    if not upload.private:
        return
    claims = (
        upload.aged_epsilon,
        upload.classical_epsilon,
        upload.total_aged,
        upload.total_classical,
    )
    aged, classical, total_aged, total_classical = (
        math.nan if claim is None else claim for claim in claims
    )
    if None in claims:
        raise BadMessage("malformed", "an ε is missing")
    if aged > target * (1 + ROOM):
        raise BadMessage("too little noise", f"aged ε {aged}")
    if upload.mechanism != problem.mechanism:
        raise BadMessage("false claim", f"{upload.mechanism} noise")
    _refuse_failures(upload, problem.delta or 0.0)
    least = 1 - (SEARCHED if MECHANISMS[problem.mechanism].approximate else ROOM)
    same = upload.noise_scale <= issued.noise_scale * (1 + ROOM)
    reach = math.inf
    if upload.noise_scale:
        failure = upload.classical_delta or 0.0
        reach = _spent(upload.mechanism, upload.sensitivity, upload.noise_scale, failure)
    if (
        upload.sensitivity < issued.sensitivity * least
        or (upload.sensitivity > 0 and classical < reach * least)
        or (same and aged < issued.aged_epsilon * least)
        or (upload.mixing == problem.mixing and upload.delta < issued.delta * least)
        or upload.mixing not in (problem.mixing, "any_prior")
        or total_aged < aged * least
        or total_classical < classical * least
        or upload.releases < 1
    ):
        raise BadMessage("false claim", "less than the plan implies")


@lru_cache(maxsize=1024)  # clients alike claim alike
def _spent(kind: str, sensitivity: float, scale: float, failure: float) -> float:
    return float(MECHANISMS[kind].spent(*map(np.asarray, (sensitivity, scale, failure))))


def refuse_outside(upload: Upload, issued: Assignment, release: Array) -> None:
    """Refuse a mean without noise that no records have, and a claim to more noise than was ordered.

    `release` `[S, d]` is what each state contributes: a mean lies between the least and the most.
    """
    low, high = release.min(axis=0), release.max(axis=0)
    room = ROOM * np.maximum(np.abs(low), np.abs(high))
    value = np.asarray(upload.value)
    if (value < low - room).any() or (value > high + room).any():
        raise BadMessage("out of range", "a mean that no records have")
    if upload.noise_scale > issued.noise_scale * (1 + 2 * ROOM):
        raise BadMessage("false claim", "more noise than was ordered")


def _refuse_failures(upload: Upload, allowed: float) -> None:
    """Refuse δ's that are missing, above the target, or less than they must be."""
    names = ("classical_delta", "aged_delta", "total_classical_delta", "total_aged_delta")
    stated = [getattr(upload, name) for name in names]
    if None in stated:
        raise BadMessage("malformed", "a δ is missing")
    classical, aged, total_classical, total_aged = stated
    if aged > allowed * (1 + ROOM):
        raise BadMessage("too little noise", f"aged δ {aged}")
    least = 1 - ROOM
    if (
        aged < upload.delta * classical * least
        or total_classical < classical * least
        or total_aged < aged * least
    ):
        raise BadMessage("false claim", "less δ than the plan implies")
