"""Choices side by side: one plan for every combination."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from agewise.checks import one_of, positive
from agewise.errors import AgewiseError, InvalidInput
from agewise.loss.gap import classical_fresh, nothing_collected
from agewise.planning.given import problem_of
from agewise.planning.plan import RIVALS, Plan
from agewise.planning.promise import coverage_in_words
from agewise.planning.search import SEARCH_METHODS, SearchMethod, plan
from agewise.problem import Problem
from agewise.progress import Progress
from agewise.report.tables import counted, html_facts, html_table, shorten, text_facts, text_table
from agewise.wording import in_words

if TYPE_CHECKING:
    import polars

MOST = 10_000
"""Combinations beyond which a comparison is refused."""

PLANNED = "planned"
"""What a row of an ordinary plan is called; its rivals have names of their own."""

NOTHING = "nothing collected"
FRESH = RIVALS["client"]
"""The rivals: who collects nothing, and who does without ageing, nobody being trusted."""

OURS = ("mixing", "estimator", "calibration", "objective", "capacity")
"""Choices that do not matter to the rivals."""

NOT_CHOICES = ("clients", "name", "unit", "origin")


@dataclass(frozen=True)
class ComparisonRow:
    """One combination: what was chosen, and what the plan for it costs.

    `name` tells plans from whatever they are compared with. `mean_noise_scale` is over clients,
    `largest_classical_epsilon` that of the client whose release itself tells most. Where the
    combination is impossible, `reason` says why and the rest is None.
    """

    name: str
    choices: dict[str, Any]  #: by the problem's field names
    ages: list[int] | None = None  #: of each client's data, in slots
    gap: float | None = None  #: expected loss
    mean_noise_scale: float | None = None
    largest_classical_epsilon: float | None = None
    reason: str | None = None
    #: the whole plan, if there is one
    plan: Plan | None = dataclasses.field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        chosen = ", ".join(f"{name}={_shown(value)}" for name, value in self.choices.items())
        outcome = "not possible" if self.gap is None else f"gap = {self.gap:.6g}"
        return f"ComparisonRow({self.name!r}, {shorten(chosen, 120)}: {outcome})"

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data, without the plan."""
        numbers = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("name", "choices", "plan")
        }
        return {"name": self.name, **self.choices, **numbers}


@dataclass(frozen=True)
class Comparison(Sequence[ComparisonRow]):
    """The rows of a comparison, in the order of the choices; reads as a sequence of them."""

    problem: Problem  #: what was compared for
    rows: tuple[ComparisonRow, ...]  #: plans first, then their rivals

    def __getitem__(self, place: Any) -> Any:
        return self.rows[place]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[ComparisonRow]:
        return iter(self.rows)

    def to_list(self) -> list[dict[str, Any]]:
        """Return the rows as plain data; infinities become the word "inf"."""
        return [
            in_words({name: _plain(value) for name, value in row.to_dict().items()})
            for row in self.rows
        ]

    def to_frame(self) -> polars.DataFrame:
        """Return the rows as a Polars data frame, one column for each choice and each number."""
        try:
            import polars  # noqa: PLC0415  (slow to import, and only wanted here)
        except ImportError:
            raise AgewiseError(
                "to_frame needs the package polars; install it, or use to_list()."
            ) from None
        return polars.DataFrame(
            [row.to_dict() for row in self.rows], infer_schema_length=None, strict=False
        )

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Headings with units, and the cells of each row as text."""
        unit = self.problem.release_unit
        square, plain = (f" ({unit}²)", f" ({unit})") if unit else ("", "")
        rivals = any(row.name != PLANNED for row in self.rows)
        chosen = list(self.rows[0].choices)
        headings = [
            *(["name"] if rivals else []),
            *chosen,
            "ages",
            f"gap{square}",
            f"mean noise scale{plain}",
            "largest classical ε",
        ]
        rows = []
        for row in self.rows:
            ages = "" if row.ages is None else shown_ages(row.ages)
            ages = "not possible" if row.reason is not None else ages
            numbers = (row.gap, row.mean_noise_scale, row.largest_classical_epsilon)
            rows.append(
                [
                    *([row.name] if rivals else []),
                    *(_shown(row.choices[name], row.name == PLANNED) for name in chosen),
                    ages,
                    *("" if x is None else f"{x:.6g}" for x in numbers),
                ]
            )
        return headings, rows

    def reasons(self) -> list[tuple[str, str]]:
        """What an ε covers and what not, and why some combinations are not possible.

        Each reason once, with how many combinations it is about.
        """
        counted = Counter(row.reason for row in self.rows if row.reason is not None)
        return [
            *coverage_in_words(self.problem),
            *((f"not possible ({count})", why) for why, count in counted.items()),
        ]

    def __repr__(self) -> str:
        chosen = shorten(" × ".join(self.rows[0].choices), 80)
        of = f": {chosen}" if chosen else ""
        return f"Comparison({shorten(self.problem.name, 40)!r}, {counted(len(self), 'row')}{of})"

    def __str__(self) -> str:
        facts = [text_facts(self.reasons())]
        return "\n".join([self.problem.name, text_table(*self.table()), *facts])

    def _repr_html_(self) -> str:
        facts = html_facts(self.reasons())
        return html_table(self.problem.name, *self.table()) + facts


def compare(
    problem: Problem | str | Path,
    *,
    method: SearchMethod = "certified",
    progress: Progress | None = None,
    **choices: Iterable[Any] | str | float | None,
) -> Comparison:
    """Plan a problem for every combination of the choices given, and return them side by side.

    Each of `choices` is a field of the problem (`estimator`, `calibration`, `epsilon`, `mixing`,
    `capacity`, ...) with the values to try. A combination that is impossible is listed with the
    reason. `progress` is told (done, in all) after each plan. The rivals come last, for each
    combination of the choices that matter to them: nothing collected, and
    fresh data with classical noise (of each client, or drawn once, as they are trusted), of which
    the server makes the best linear estimate.

    >>> from agewise import scenarios
    >>> rows = compare(scenarios.london(), estimator=["plain", "propagated"], mixing=["exact"])
    >>> [(row.choices["estimator"] or row.name, round(row.gap, 3)) for row in rows[:3]]
    [('plain', 86.515), ('propagated', 10.026), ('nothing collected', 4.709)]
    """
    problem = problem_of(problem)
    one_of("method", method, SEARCH_METHODS)
    values = {name: _checked_values(name, given) for name, given in choices.items()}
    total = math.prod(map(len, values.values()))
    if total > MOST:
        raise InvalidInput("choices", f"{total:,} combinations", f"at most {MOST:,}")
    rows = []
    for number, combination in enumerate(itertools.product(*values.values()), start=1):
        chosen = dict(zip(values, combination, strict=True))
        try:
            best = plan(problem.replace(**chosen), method)
        except InvalidInput as error:
            rows.append(ComparisonRow(PLANNED, chosen, reason=str(error)))
        else:
            rows.append(_row(chosen, best))
        if progress is not None:
            progress(number, total)
    return Comparison(problem, (*rows, *_rivals(problem, values)))


def shown_ages(ages: Sequence[int]) -> str:
    """Ages in a cell: all of them for a few clients, else their range."""
    if len(ages) <= 8:
        return ", ".join(map(str, ages))
    return f"{min(ages)} to {max(ages)} ({len(ages):,} clients)"


def _rivals(problem: Problem, values: dict[str, list[Any]]) -> Iterator[ComparisonRow]:
    """What a sensible person would get without us, with the same knowledge."""
    told = set()
    matter = {name: given for name, given in values.items() if name not in OURS}
    for combination in itertools.product(*matter.values()):
        chosen = dict(zip(matter, combination, strict=True))
        shown = {name: chosen.get(name) for name in values}
        loose = {"estimator": "best", "objective": "exact", "capacity": None}
        try:
            one = problem.replace(**{**loose, **chosen})
            fresh = [0] * len(one.clients)
            nothing, classical = nothing_collected(one), classical_fresh(one)
        except InvalidInput as error:
            yield ComparisonRow(RIVALS[problem.noise], shown, reason=str(error))
            continue
        unasked = {**shown, "epsilon": 0.0} if "epsilon" in shown else shown
        unasked = {**unasked, "noise": None} if "noise" in unasked else unasked
        if str(unasked) not in told:  # it is the same for every target
            told.add(str(unasked))
            yield ComparisonRow(NOTHING, unasked, gap=nothing, largest_classical_epsilon=0.0)
        yield ComparisonRow(
            RIVALS[one.noise],
            shown,
            ages=fresh,
            gap=classical,
            largest_classical_epsilon=max(c.epsilon or one.epsilon for c in one.clients),
        )


def _row(chosen: dict[str, Any], best: Plan) -> ComparisonRow:
    return ComparisonRow(
        PLANNED,
        chosen,
        ages=best.ages,
        gap=best.gap,
        mean_noise_scale=math.fsum(best.noise_scales) / len(best.noise_scales),
        largest_classical_epsilon=max(best.classical_epsilons),
        plan=best,
    )


def _checked_values(name: str, given: Iterable[Any] | str | float | None) -> list[Any]:
    """The values to try of a field; a word that no problem knows is refused at once."""
    types = get_type_hints(Problem)
    known = [field.name for field in dataclasses.fields(Problem) if field.name not in NOT_CHOICES]
    one_of("choice", name, known)
    values: list[Any] = [given]
    if isinstance(given, Iterable) and not isinstance(given, str):
        values = list(given)
    if not values:
        raise InvalidInput(name, "empty", "one or more values to try")
    if get_origin(types[name]) is Literal:
        for value in values:
            one_of(name, value, get_args(types[name]))
    if name == "epsilon":
        values = [positive(name, value) for value in values]
    return values


def _plain(value: Any) -> Any:
    """A choice as plain data: levels, knowledge and learners are objects."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value.to_dict() if hasattr(value, "to_dict") else value


def _shown(value: Any, planned: bool = True) -> str:
    if value is None:
        return "none" if planned else "any"
    return f"{value:g}" if isinstance(value, float) else str(value)
