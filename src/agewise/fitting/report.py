"""What a fit found: the scenario, and everything that someone who defends it should know."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from agewise.fitting.assumptions import TOGETHER, Assumptions
from agewise.fitting.coverage import coverage_sentence
from agewise.fitting.laws import CountNoise
from agewise.fitting.left_out import Forgone
from agewise.fitting.measure import ClientFit
from agewise.fitting.states import States
from agewise.problem import Problem
from agewise.readings import Quality
from agewise.readings.plausibility import Outliers
from agewise.report.tables import counted, shorten
from agewise.wording import listed, printable

SHOWN = 100
"""Names of entities that are spelt out in statements."""
SHOWN_NAMES = 8
"""Names of entities that are spelt out where people only look."""
SHOWN_OUTLIERS = 8
"""Entities whose largest outlier is spelt out."""
NO_LIMIT = (
    "Δ is that of the fitted matrices, with no allowance for their error, and is true only as far "
    "as the readings are such a chain: for comparison, not for a privacy claim."
)


@dataclass(frozen=True)
class Fit:
    """A scenario from readings, and everything that someone who defends it should know."""

    problem: Problem  #: the scenario
    kind: str  #: measured laws, or a chain
    adversary: str  #: what they are granted: see `aw.fit`
    sampled: str  #: what the readings are independent draws of: see `aw.fit`
    limits: str  #: how the limits on Δ were computed: proven or asymptotic
    ages: tuple[int, ...]
    """Those that have limits, in slots."""
    given: str | None
    """What is known of the day, beside the law."""
    confidence: float  #: with which all limits hold together
    quality: Quality  #: what was found in the file
    states: States  #: the values that records count as
    assumptions: Assumptions  #: how far the readings are from a chain
    clients: tuple[ClientFit, ...]  #: what was fitted for each client
    left_out: tuple[tuple[str, str], ...]
    """Entities that take no part, each with the reason."""
    noise: CountNoise | None = None
    """The noise of the counts, private about 24 hours of one entity; None: they have none."""
    outliers: tuple[Outliers, ...] = ()  #: readings far beyond the others
    forgone: tuple[Forgone, ...] = ()
    """What those left out would be worth, where the plan would be better with them."""

    def __repr__(self) -> str:
        many = counted(len(self.clients), "client")
        return f"Fit({shorten(self.problem.name, 40)!r}, {many}, {self.kind}, {self.states!r})"

    @property
    def warnings(self) -> tuple[str, ...]:
        """What whoever uses the scenario must know, beside the verdict on its assumptions."""
        said = [one.sentence(self.problem.unit) for one in self.forgone]
        if self.outliers:
            said.append(self.outlier_sentence)
        if self.kind != "measured":
            return (NO_LIMIT, *said)
        for one in self.clients:
            least = min(one.limits)
            if least > 0.95:
                worse = ", a lower worst_limit" if self.adversary == "household" else ""
                said.append(
                    f"The least limit of client {one.name!r} is {least:.3g}: there is next to no "
                    f"credit for ageing at this confidence. Fewer states, more days{worse} or "
                    "sampling that assumes more would help."
                )
        if self.sampled in ("pairs", "entities") and self.assumptions.together > TOGETHER:
            said.append(
                f"Entities move together ({self.assumptions.together:.1f} times the variance of "
                f"independent ones), which sampled {self.sampled} takes them not to."
            )
        return tuple(said)

    @property
    def outlier_sentence(self) -> str:
        """Which readings are beyond all others, and what was done about them."""
        most = SHOWN_OUTLIERS
        largest = ", ".join(
            f"{one.entity} {one.largest:.6g} at {one.at}"
            + (f" and {one.readings - 1} more" if one.readings > 1 else "")
            for one in self.outliers[:most]
        )
        more = f", and of {len(self.outliers) - most} more entities" if self.outliers[most:] else ""
        return (
            f"Readings far above all others ({sum(one.readings for one in self.outliers)}) had no "
            f"say in choosing states and count as the highest one: {largest}{more}."
        )

    @property
    def count_epsilon(self) -> float | None:
        """The classical ε of the counts; None: they have no noise."""
        return None if self.noise is None else self.noise.epsilon

    @property
    def knowledge(self) -> dict[str, int] | None:
        """From how many days it is known how clients vary, with how many common factors."""
        known = self.problem.knowledge
        return None if known is None else {"days": known.days, "factors": known.factors.shape[-1]}

    @property
    def coverage(self) -> str | None:
        """What simulations say of asymptotic limits from as many weeks; None for proven ones."""
        weeks = [client.process.weeks for client in self.problem.clients]
        return coverage_sentence(min(weeks)) if self.limits == "asymptotic" else None

    def facts(self) -> list[tuple[str, str]]:
        """What was read, what was done about it, the states, and the verdict on assumptions."""
        quality, unit = self.quality, f" {self.problem.unit}" if self.problem.unit else ""
        facts = [
            (
                "readings",
                f"{quality.rows} rows, {quality.entities} entities, every "
                f"{quality.resolution_minutes:.4g} min from {quality.first} to {quality.last}",
            ),
            (
                "left out",
                f"{quality.not_numbers} no numbers, {quality.negative} negative, "
                f"{quality.off_grid} off the grid, {quality.clock_change} in hours that clocks "
                f"skip, {quality.duplicates_same} repeated",
            ),
            (
                "kept",
                f"{quality.used} readings, {quality.duplicates_averaged} of them averaged with "
                f"others; {quality.missing} slots without one",
            ),
        ]
        left_out = [*quality.left_out, *self.left_out]
        for why in dict.fromkeys(why for _, why in left_out):
            names = [name for name, reason in left_out if reason == why]
            facts.append(("left out", f"{listed(names, SHOWN_NAMES)}: {why}"))
        levels = ", ".join(f"{level:.4g}" for level in self.states.values)
        facts.append(
            (
                "states",
                f"{levels}{unit} ({self.states.how}); off by {self.states.error:.3g}{unit} "
                "(root mean square)",
            )
        )
        if self.knowledge is not None:
            facts.append(
                (
                    "known",
                    f"means and covariances over {self.knowledge['days']} days, "
                    f"{self.knowledge['factors']} common factor(s)",
                )
            )
        return facts + [("verdict", line) for line in self.assumptions.verdict]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, without the scenario."""
        return {
            "kind": self.kind,
            "adversary": self.adversary,
            "sampled": self.sampled,
            "limits": self.limits,
            "ages": list(self.ages),
            "given": self.given,
            "coverage": self.coverage,
            "confidence": self.confidence,
            "quality": self.quality.to_dict(),
            "states": self.states.values.tolist(),
            "quantisation_error": self.states.error,
            "states_by": self.states.how,
            "assumptions": self.assumptions.to_dict(),
            "clients": [{"entities": one.entities, **asdict(one)} for one in self.clients],
            "left_out": [list(one) for one in self.left_out],
            "outliers": [one.to_dict() for one in self.outliers],
            "forgone": [asdict(one) for one in self.forgone],
            "count_epsilon": self.count_epsilon,
            "knowledge": self.knowledge,
            "warnings": list(self.warnings),
        }


def origin(fitted: Fit) -> str:
    """Where the laws come from, for statements."""
    quality, states = fitted.quality, fitted.states
    entities = sum(one.entities for one in fitted.clients)
    levels = ", ".join(f"{value:.6g}" for value in states.values)
    said = [
        f"Laws ({fitted.kind}) from readings of {entities} entities, {quality.first[:10]} to "
        f"{quality.last[:10]}, states {levels} ({states.how})."
    ]
    if states.how != "given" and fitted.kind == "measured":
        said.append("The states were chosen from the same readings, not allowed for in limits.")
    by_reason: dict[str, list[str]] = {}
    for name, reason in (*quality.left_out, *fitted.left_out):
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        said.append(
            f"Not covered, and not to be among the records: {listed(names, SHOWN)} ({reason})."
        )
    said += [one.sentence(fitted.problem.unit) for one in fitted.forgone]
    if fitted.noise is None and fitted.outliers:
        said.append(fitted.outlier_sentence)
    if fitted.noise is None and fitted.kind == "measured":
        said += fitted.assumptions.halves.verdict
    if fitted.kind != "measured":
        said += [NO_LIMIT, *fitted.assumptions.verdict]
    elif fitted.noise is not None:
        said.append(
            f"The counts have noise, classical ε {fitted.noise.epsilon:g} about any 24 hours of an "
            "entity; how far entities move together is therefore not told, and nothing is said of "
            "how clients vary together: losses are those of independent records."
        )
    elif fitted.assumptions.together > TOGETHER:
        denied = f", and the limits, sampled by {fitted.sampled}, take it not to"
        said.append(
            f"The entities' mean varies {fitted.assumptions.together:.1f} times as much from day "
            "to day as that of independent ones: who knows the others learns what sort of day it is"
            + (denied if fitted.sampled in ("pairs", "entities") else "")
            + "."
        )
    return printable(" ".join(said))
