"""What the numbers mean, in plain words, each with what it assumes."""

from __future__ import annotations

import math

from agewise.mixing import assumption
from agewise.planning import Plan

LARGE = 1000.0
"""A factor beyond which nobody is helped by more digits."""

WHO = {
    "exact": "who knew how such records behave in the long run, and nothing else of this one",
    "spectral": "who knew how such records behave in the long run, and nothing else of this one",
    "own_law": "who knew the client's stated law, and nothing else of this record",
}
"""Who learns something, by what Δ grants them beforehand; `any_prior` grants them anything."""
MEASURED = "who knew what the fit grants them (it stands below), and nothing else of this record"


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
    """By how much what is published can change anybody's odds about one record, at most."""
    problem = plan.problem
    worst = max(one.aged_epsilon for one in plan.assignments)
    measured = any(client.process.confidence < 1 for client in problem.clients)
    values = {"present": "value now", "every_moment": "value at any time"}
    value = values.get(str(problem.promise), f"values in the last {problem.promise} slots")
    what = "this release" if problem.rounds == 1 else "all releases together"
    but = f", but for a failure of probability {problem.delta:g}" if problem.delta else ""
    most = f"by at most a factor {factor_in_words(worst)}{but}."
    if problem.mixing == "any_prior" and not measured:
        believed = f"Whatever somebody believed about one record's {value}"
        return f"{believed}, {what} can change the odds {most}"
    who = MEASURED if measured else WHO[problem.mixing]
    return f"For somebody {who}, {what} can change the odds about its {value} {most}"


def collected_sentence(plan: Plan) -> str:
    """What protects the value that was collected, which ageing does not."""
    worst = max(one.classical_epsilon for one in plan.assignments)
    if math.isinf(worst):
        return (
            "The value that was collected is not protected at all: at this age no noise is needed "
            "for the value now."
        )
    many = "" if plan.problem.rounds == 1 else "of each release by itself, "
    return (
        f"About the value that was collected, {many}the factor is {factor_in_words(worst)} "
        f"(classical ε {worst:.4g})."
    )


def assumptions_of(plan: Plan) -> list[str]:
    """What every ε on the page rests on."""
    rests = sorted({assumption(c.process, plan.problem.mixing) for c in plan.problem.clients})
    return [f"ε assumes {one}" for one in rests] + list(plan.notes)
