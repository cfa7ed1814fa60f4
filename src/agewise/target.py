"""What a client's release must guarantee, as frozen, checked data."""

from __future__ import annotations

from dataclasses import dataclass

from agewise.checks import one_of, positive
from agewise.errors import InvalidInput
from agewise.mechanism import MECHANISMS, Kind
from agewise.mixing import METHODS, MIXINGS, Method
from agewise.privacy.calibration import RULES, Rule
from agewise.privacy.steady import Promise, check_promise


@dataclass(frozen=True)
class Target:
    """What a client's release must guarantee, and by which noise.

    What `epsilon` is about over many rounds, `promise` says: see `agewise.privacy.steady`.
    """

    epsilon: float  #: the aged ε
    mixing: Method  #: whose prior knowledge Δ holds for
    calibration: Rule  #: how the noise is set
    mechanism: Kind = "laplace"  #: the kind of noise
    delta: float = 0.0  #: δ of (ε, δ), with Gaussian noise; 0 with Laplace noise
    rounds: int | None = 1  #: releases; None: for ever
    every: int | None = None  #: slots from one release to the next
    promise: Promise = "present"  #: about the present, every moment, or the last so many slots

    @property
    def lasting(self) -> bool:
        """Whether more is promised than about the present after one release."""
        return self.rounds != 1 or self.promise != "present"

    @property
    def counted_rounds(self) -> int | None:
        """Rounds that the noise is set for; the rule about every moment knows no end."""
        return None if self.promise == "every_moment" and self.rounds != 1 else self.rounds

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        one_of("mixing", self.mixing, METHODS)
        check_promise(self.promise)
        one_of("calibration", self.calibration, RULES)
        one_of("mechanism", self.mechanism, tuple(MECHANISMS))
        if self.calibration == "tight" and not MIXINGS[self.mixing].allows_tight:
            raise InvalidInput(
                "calibration",
                f"'tight' with mixing {self.mixing!r}",
                "tight with mixing exact or own_law",
                "Use calibration sharp or formula, or another mixing.",
            )
        if self.mechanism == "gaussian":
            if self.calibration == "tight":
                raise InvalidInput("calibration", "'tight' with Gaussian noise", "formula or sharp")
            if not 0 < self.delta < 1:
                raise InvalidInput(
                    "delta",
                    self.delta or None,
                    "above 0 and below 1, with Gaussian noise",
                    "Far below one over the number of records, 1e-6 say.",
                )
        elif self.delta:
            raise InvalidInput("delta", self.delta, "none with Laplace noise, which needs no δ")
        if self.lasting:
            self._check_lasting()

    def _check_lasting(self) -> None:
        said = "many rounds" if self.rounds != 1 else f"the promise {self.promise}"
        if self.calibration != "sharp":
            raise InvalidInput("calibration", f"{self.calibration!r} with {said}", "sharp")
        if self.mechanism == "laplace":
            return
        if self.promise != "present":
            raise InvalidInput(
                "promise",
                f"{self.promise!r} with {self.mechanism} noise",
                "present",
                "What several (ε, δ) releases tell about earlier values is not worked out.",
            )
        if self.rounds is None:
            raise InvalidInput(
                "rounds", "for ever", f"a number of them, with {self.mechanism} noise"
            )
