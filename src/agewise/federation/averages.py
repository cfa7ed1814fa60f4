"""What a server makes of noised uploads, by coordinate. Sums are exact, and rounded once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from agewise.federation.messages import Upload
from agewise.planning import Plan


def weighted_mean(shares: Sequence[float], uploads: Sequence[Upload]) -> tuple[float, ...]:
    """Σ share × release."""
    return tuple(
        math.fsum(share * one.value[k] for share, one in zip(shares, uploads, strict=True))
        for k in range(len(uploads[0].value))
    )


def best_estimate(plan: Plan, uploads: Sequence[Upload]) -> tuple[float, ...]:
    """The plan's offset + Σ gain × release."""
    names = [a.client for a in plan.assignments]
    gains = dict(zip(names, np.reshape(plan.gains, (len(names), -1)).tolist(), strict=True))
    return tuple(
        math.fsum([offset, *(gains[one.client][k] * one.value[k] for one in uploads)])
        for k, offset in enumerate(plan.offset)
    )
