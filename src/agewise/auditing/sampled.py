"""The sampled tier: a black box run many times on two present values, and a bound on its ε."""

from __future__ import annotations

import numpy as np

from agewise.arrays import Array
from agewise.auditing.black_box import Advance, BlackBox, Runs
from agewise.auditing.bounding import Counts, detectable, lower_bound
from agewise.auditing.findings import Finding, Verdict
from agewise.auditing.tails import Score, choose
from agewise.checks import fraction, positive, random_generator, whole

CHOOSING = 0.2
"""Which part of the runs chooses the event, unless told otherwise."""
MOST_CHOOSING = 25_000
"""Runs at each value beyond which choosing gains nothing."""
FEWEST = 100
"""Runs below which nothing can be said."""


def sample(
    box: BlackBox,
    draws: int = 100_000,
    error: float = 0.01,
    rng: np.random.Generator | None = None,
    time_limit: float | None = None,
    choosing: float = CHOOSING,
    advance: Advance = lambda _done, _total: None,
) -> Finding:
    """Run a black box `draws` times and bound its ε from below, at a stated error.

    The first part of the runs (`choosing`, at most 25,000 at each value) picks two present values
    and an event; the others are runs on these two values, and count how often it happens.

    Guarantees
        If the claim holds, it is refuted with a probability of at most `error`; `at_least` exceeds
        the true ε (at the claim's δ) with at most that probability too. Both for any number of
        draws, any mechanism and any choice made in the first part.
    """
    whole("draws", draws, FEWEST)
    fraction("error", error)
    fraction("choosing", choosing)
    if time_limit is not None:
        positive("time_limit", time_limit)
    generator = np.random.default_rng() if rng is None else random_generator(rng)
    runs = Runs(box, generator, time_limit, advance, draws)
    runs.refuse_without_noise()
    values = runs.draws.values
    pilot = min(max(int(draws * choosing) // len(values), 1), MOST_CHOOSING)
    rest = max((draws - pilot * len(values)) // 2, 1)
    outputs = [runs.outputs(place, pilot) for place in range(len(values))]
    choice = choose(outputs, rest, error, box.delta, box.score)
    hits = choice.event.hits(runs.outputs(choice.likely, rest))
    other = choice.event.hits(runs.outputs(choice.rare, rest))
    counts = Counts(hits, rest, other, rest)
    bound = lower_bound(counts, error, box.delta, choice.sure)
    verdict: Verdict = "refuted" if bound > box.epsilon else "not refuted"
    told = (
        f"{choice.event}: {hits / rest:.4g} of the runs where the value is "
        f"{values[choice.likely]:g}, {other / rest:.4g} where it is {values[choice.rare]:g}"
    )
    return Finding(
        "sampled",
        box.name,
        f"ε about slot {box.about}" + (f" at δ = {box.delta:g}" if box.delta else ""),
        verdict,
        box.epsilon,
        bound,
        None,
        draws=pilot * len(values) + 2 * rest,
        error=error,
        would_find=detectable(box.epsilon, choice.q, rest, error, box.delta),
        detail=told,
    )


def bound_from_scores(
    likely: Array,
    rare: Array,
    error: float = 0.01,
    delta: float = 0.0,
    choosing: float = CHOOSING,
) -> float:
    """A lower bound on ε from scores of runs on two values: high where the first is likelier.

    For auditors that have their own runs, canaries say. The first part of either array chooses a
    threshold, in the order given, and the rest is counted.

    Guarantees
        As `sample`, for independent scores.
    """
    fraction("error", error)
    fraction("choosing", choosing)
    first = min(int(min(len(likely), len(rare)) * choosing), MOST_CHOOSING)
    parts = [np.split(np.asarray(one, float), [first]) for one in (likely, rare)]
    rest = min(len(after) for _, after in parts)
    score: Score = lambda one: one[:, 0]  # noqa: E731
    pilot = [before[:, None] for before, _ in parts]
    choice = choose(pilot, rest, error, delta, score, only=True)
    after = [parts[choice.likely][1][:, None], parts[choice.rare][1][:, None]]
    counts = Counts(
        choice.event.hits(after[0]), len(after[0]), choice.event.hits(after[1]), len(after[1])
    )
    return lower_bound(counts, error, delta, choice.sure)
