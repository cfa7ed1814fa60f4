"""What the numbers mean, in plain words, each with what it assumes."""

from __future__ import annotations

import math

from agewise.mixing import assumption
from agewise.planning import Plan

LARGE = 1000.0
"""A factor beyond which nobody is helped by more digits."""

WHO = {
    "exact": "how such records behave in the long run",
    "spectral": "how such records behave in the long run",
    "own_law": "the client's stated law",
}
"""What Δ grants an adversary beforehand; `any_prior` grants any distribution at collection."""
MEASURED = "what the fit grants them (it stands below)"


def factor_in_words(epsilon: float) -> str:
    """e^ε, rounded up, since it stands where a bound stands.

    >>> factor_in_words(0.1), factor_in_words(3), factor_in_words(12)
    ('1.11', '20.1', 'more than 1,000')
    """
    if epsilon > math.log(LARGE):
        return f"more than {LARGE:,.0f}"
    factor = math.exp(epsilon)
    digits = 2 if factor < 10 else 1 if factor < 100 else 0
    return f"{math.ceil(factor * 10**digits) / 10**digits:.{digits}f}"


def odds_sentence(plan: Plan) -> str:
    """By how much what is published can change the odds about one record, at most, and for whom.

    With a common level that is about the record's own part, for somebody who knows the level.
    """
    problem = plan.problem
    worst = max(one.aged_epsilon for one in plan.assignments)
    measured = any(client.process.confidence < 1 for client in problem.clients)
    own = "own part" if problem.level else "value"
    times = {"present": f"{own} now", "every_moment": f"{own} at any time"}
    part = times.get(str(problem.promise), f"{own}s in the last {problem.promise} slots")
    what = "this release" if problem.rounds == 1 else "all releases together"
    but = f", but for a failure of probability {problem.delta:g}" if problem.delta else ""
    most = f"by at most a factor {factor_in_words(worst)}{but}."
    if problem.level:
        most += (
            " This compares the day with the same day had that part been another; "
            "what is learnt of the common level is not covered."
        )
    if problem.mixing == "any_prior" and not measured:
        who = "an adversary who knew the common level" if problem.level else "an adversary"
        return (
            f"Whatever {who} believed of a record's {own} when it was collected, {what} can "
            f"change the odds about its {part} {most}"
        )
    granted = MEASURED if measured else WHO[problem.mixing]
    known = f"the common level and {granted}" if problem.level else granted
    return (
        f"For an adversary who knew {known}, and nothing else of this record, {what} can change "
        f"the odds about its {part} {most}"
    )


def collected_sentence(plan: Plan) -> str:
    """What protects the value that was collected, which ageing does not."""
    worst = max(one.classical_epsilon for one in plan.assignments)
    collected = (
        "a record's own part when it was collected"
        if plan.problem.level
        else "the value that was collected"
    )
    if math.isinf(worst):
        return (
            f"{collected.capitalize()} is not protected at all: at this age no noise is needed "
            "for the present one."
        )
    many = "" if plan.problem.rounds == 1 else "of each release by itself, "
    return (
        f"About {collected}, {many}the factor is {factor_in_words(worst)} "
        f"(classical ε {worst:.4g})."
    )


def assumptions_of(plan: Plan) -> list[str]:
    """What every ε on the page rests on."""
    rests = sorted({assumption(c.process, plan.problem.mixing) for c in plan.problem.clients})
    return [f"ε assumes {one}" for one in rests] + list(plan.notes)
