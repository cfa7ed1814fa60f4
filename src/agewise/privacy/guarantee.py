"""What is proven about a record: the ε, the δ, and which of its values they are about."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Guarantee:
    """(ε, δ)-privacy about a record's value in one slot; δ is 0 where ε alone bounds the loss."""

    epsilon: float  #: what bounds the logarithm of the ratio of chances
    delta: float = 0.0  #: the chance that it does not
    about: int | None = None  #: slot of the value; None: whichever the account is about
