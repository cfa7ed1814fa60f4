"""What an audit found: one finding per claim, and a report that people and programs can read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from agewise.report.tables import html_facts, html_table, text_facts, text_table
from agewise.wording import in_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Tier = Literal["exact", "replay", "sampled"]
TIERS: tuple[str, ...] = get_args(Tier)
PLAN_DRAWS = 50_000
"""Runs of each client's code, unless told otherwise."""
Verdict = Literal["refuted", "proven", "not refuted", "undecided", "not examined"]

CERTAIN = 1e-9
"""Relative room beyond which a loss that was reached refutes a claim."""
DIGITS = 1e-5
"""Relative room within which a bound still proves a claim: five digits."""
VERSION = 1


@dataclass(frozen=True)
class Finding:
    """What one tier says about one claim.

    `claimed` is the ε (or another number) claimed, `at_least` what the truth is not below and
    `at_most` what it is not above, as far as the tier can tell. A sampled `at_least` is wrong with
    a probability of `error` at most; `would_find` is the true ε that it would have told from the
    claim nine times in ten, with these `draws` and this event.
    """

    tier: Tier  #: exact, replay or sampled
    subject: str  #: of whom or what
    claim: str  #: in words
    verdict: Verdict  #: refuted, proven, not refuted, undecided or not examined
    claimed: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    draws: int = 0
    error: float = 0.0
    would_find: float | None = None
    detail: str = ""  #: what else there is to say

    @property
    def refuted(self) -> bool:
        """Whether the claim does not hold."""
        return self.verdict == "refuted"


def judged(claimed: float, at_least: float, at_most: float) -> Verdict:
    """The verdict on a claim by what the truth lies between."""
    if at_least > claimed * (1 + CERTAIN) + 1e-11:
        return "refuted"
    if at_most <= claimed * (1 + DIGITS) + 1e-11:
        return "proven"
    return "undecided"


@dataclass(frozen=True)
class Audit:
    """All findings about one subject, and what they rest on."""

    subject: str  #: what was audited
    findings: tuple[Finding, ...]  #: one or more a claim
    assumptions: tuple[str, ...] = ()  #: what they rest on
    error: float = 0.0  #: probability, at most, that chance refutes a true claim

    @property
    def refuted(self) -> bool:
        """Whether some claim does not hold."""
        return any(one.refuted for one in self.findings)

    @property
    def verdict(self) -> str:
        """The outcome in a line."""
        bad = [one for one in self.findings if one.refuted]
        if bad:
            tiers = ", ".join(sorted({one.tier for one in bad}))
            return f"REFUTED: {len(bad)} of {len(self.findings)} claims do not hold ({tiers})"
        counts = {
            word: sum(one.verdict == word for one in self.findings)
            for word in ("proven", "not refuted", "undecided", "not examined")
        }
        told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        return f"no claim refuted ({told or 'there was none'})"

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Headings, and one row per finding, the refuted ones first.

        Findings that hold and say the same of several subjects are one row.
        """
        headings = [
            "tier",
            "subject",
            "claim",
            "claimed",
            "at least",
            "at most",
            "verdict",
            "draws",
        ]
        rows: dict[tuple[str, ...], list[str]] = {}
        for one in sorted(self.findings, key=lambda one: not one.refuted):
            same = (
                one.tier,
                one.claim,
                _number(one.claimed),
                _number(one.at_least),
                _number(one.at_most),
                one.verdict,
                f"{one.draws:,}" if one.draws else "",
                one.subject if one.refuted or one.tier == "sampled" else "",
            )
            rows.setdefault(same, []).append(one.subject)
        listed = []
        for (tier, claim, *numbers, verdict, draws, _), subjects in rows.items():
            shown = list(dict.fromkeys(subjects))
            more = f" and {len(subjects) - 1} more" if len(subjects) > 1 else ""
            listed.append([tier, shown[0] + more, claim, *numbers, verdict, draws])
        return headings, listed

    def facts(self) -> list[tuple[str, str]]:
        """What there is to say besides the table."""
        facts = [("verdict", self.verdict)]
        facts += [
            ("refuted", f"{one.subject}: {one.detail or one.claim}")
            for one in self.findings
            if one.refuted
        ]
        would = [
            f"{one.subject} {one.would_find:.4g}"
            for one in self.findings
            if one.would_find is not None
        ]
        if would:
            facts.append(("power", f"true ε found nine times in ten: {', '.join(would)}"))
        if any(one.tier == "sampled" for one in self.findings):
            facts.append(
                (
                    "error",
                    f"a true claim is refuted by chance with probability {self.error:g} at most",
                )
            )
        facts += [("assumes", one) for one in self.assumptions]
        return facts

    def to_dict(self) -> dict[str, Any]:
        """The audit as plain data; infinities become the word "inf"."""
        return {
            "version": VERSION,
            "subject": self.subject,
            "refuted": self.refuted,
            "verdict": self.verdict,
            "error": self.error,
            "findings": [in_words(vars(one).copy()) for one in self.findings],
            "assumptions": list(self.assumptions),
        }

    def to_json(self) -> str:
        """The audit as a JSON document."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def plot(self, path: Path | str | None = None) -> Figure:
        """Draw what was claimed and what was found; with `path`, also write it there."""
        from agewise.auditing.picture import audit_figure  # noqa: PLC0415  (matplotlib is slow)
        from agewise.report.drawing import save_as  # noqa: PLC0415

        figure = audit_figure(self)
        if path is not None:
            save_as(figure, path)
        return figure

    def __repr__(self) -> str:
        return f"Audit({self.subject!r}, {self.verdict})"

    def __str__(self) -> str:
        return "\n".join([self.subject, text_table(*self.table()), text_facts(self.facts())])

    def _repr_html_(self) -> str:
        return html_table(self.subject, *self.table()) + html_facts(self.facts())


def combined(subject: str, audits: Iterable[Audit], error: float) -> Audit:
    """Several audits of one subject as one."""
    listed = list(audits)
    return Audit(
        subject,
        tuple(one for audit in listed for one in audit.findings),
        tuple(dict.fromkeys(one for audit in listed for one in audit.assumptions)),
        error,
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}"
