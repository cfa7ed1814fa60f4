"""What a client's release must guarantee, as a record."""

from __future__ import annotations

from typing import Annotated, Any

from agewise.mechanism import Kind
from agewise.mixing import Method
from agewise.privacy.calibration import Rule
from agewise.privacy.continual import Promise, check_promise
from agewise.problem.exclusions import excluded_from_target
from agewise.records import Count, Failure, Positive, Read, record


def _promise(given: Any) -> str | int:
    check_promise(given)
    return given if isinstance(given, str) else int(given)


def _promises() -> dict[str, Any]:
    words = {"enum": ["present", "every_moment"], "type": "string"}
    return {"anyOf": [words, {"type": "integer", "minimum": 0}]}


Promised = Annotated[Promise, Read(_promise, _promises)]


@record
class Target:
    """What a client's release must guarantee, and by which noise.

    What `epsilon` is about over many rounds, `promise` says: see `agewise.privacy.continual`.
    """

    epsilon: Positive
    """The aged ε."""
    mixing: Method
    """Whose prior knowledge Δ holds for."""
    calibration: Rule
    """How the noise is set."""
    mechanism: Kind = "laplace"
    """The kind of noise."""
    delta: Failure = 0.0
    """δ of (ε, δ), with Gaussian noise; 0 with Laplace noise."""
    rounds: Count | None = 1
    """Releases; None: for ever."""
    every: Count | None = None
    """Slots from one release to the next."""
    promise: Promised = "present"
    """About the present, every moment, or the last so many slots."""
    level: bool = False
    """Records carry a level that clients share; ε is about a record's own part, the level known."""

    @property
    def lasting(self) -> bool:
        """Whether more is promised than about the present after one release."""
        return self.rounds != 1 or self.promise != "present"

    @property
    def counted_rounds(self) -> int | None:
        """Rounds that the noise is set for; the rule about every moment knows no end."""
        return None if self.promise == "every_moment" and self.rounds != 1 else self.rounds

    excluded = staticmethod(excluded_from_target)
