"""The sharp edges that apply to a plan: what somebody who defends its ε must not overlook."""

from __future__ import annotations

import math
from collections.abc import Sequence

from agewise.mechanism import MECHANISMS
from agewise.mixing import MIXINGS
from agewise.planning.plan import Assignment
from agewise.problem import Problem


def sharp_edges(problem: Problem, assignments: Sequence[Assignment]) -> list[tuple[str, str]]:
    """(heading in docs/sharp_edges.md, what it means here), those that apply only."""
    edges = []
    measured = any(client.process.confidence < 1 for client in problem.clients)
    if problem.promise != "every_moment":
        edges.append(
            (
                "Age-dependent privacy is about the record *now*",
                "The aged ε does not protect the value that was collected; the classical ε does. "
                "If yesterday's value is as sensitive as today's, use the classical number.",
            )
        )
    if MIXINGS[problem.mixing].takes_process_law and not measured:
        edges.append(
            (
                "Stationary law or own law",
                "The adversary is taken to know the long-run law of a record and nothing else of "
                "it beforehand. If you cannot say what they know, plan with any_prior.",
            )
        )
    elif MIXINGS[problem.mixing].takes_stated_law:
        edges.append(
            (
                "Stationary law or own law",
                "The adversary is taken to know exactly the law that a client states. Another law "
                "can mean a larger ε; any_prior holds for all of them.",
            )
        )
    edges.append(
        (
            "What a known process means",
            "Δ is an upper limit at a stated confidence, if the days to come are like those "
            "measured."
            if measured
            else "The process is taken to be public and true. Records that remember more than it "
            "says are told more about than this ε.",
        )
    )
    if problem.uses_knowledge or problem.known.shared:
        edges.append(
            (
                "A promised loss is as true as what it rests on",
                "Expected losses come from the laws, levels and covariances that the scenario "
                "states. If these are wrong the loss is another; the ε is not.",
            )
        )
    edges.append(
        (
            "Several releases",
            "What is collected later also tells about earlier values: a total grows with later "
            "releases, and each client's own policy limits by how much."
            if problem.rounds == 1
            else "A promise over many rounds says what it is about, and no more: it rests on "
            "records that are Markov with the process given, and on clients that keep the pace.",
        )
    )
    if MECHANISMS[problem.mechanism].approximate:
        edges.append(
            (
                "Gaussian noise has a δ",
                f"The bound on the odds may fail with probability {problem.delta:g}; keep that far "
                "below one over the number of records.",
            )
        )
    if any(math.isinf(one.classical_epsilon) for one in assignments):
        edges.append(
            ("No noise", "Some clients add no noise: what they collected is told outright.")
        )
    edges.append(
        (
            "Who sees an upload, and when",
            "Whoever sees an upload before the aggregation slot has data that have aged less: at "
            "worst the classical ε is all that protects them."
            if not problem.server_adds_noise
            else "The server sees the clients' means without noise. If that trust is misplaced, "
            "nothing protects them.",
        )
    )
    edges.append(
        (
            "Timing",
            "The time that a release takes can depend on the data. Where somebody can time a "
            "client, release on a fixed clock.",
        )
    )
    return edges
