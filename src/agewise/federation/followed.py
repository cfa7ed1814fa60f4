"""The plan as it was really followed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from agewise.federation.uploads import Received
from agewise.planning import Plan, evaluate
from agewise.problem import Client, Problem


def carried_out(
    plan: Plan, problem: Problem, clients: list[Client], shares: list[float], received: Received
) -> Plan:
    """Who took part of a problem's clients, with these shares, and when each one collected."""
    collected = received.collected()
    slots = [collected[c.name] for c in clients]
    planned = {a.client: a.collect_at for a in plan.assignments}
    followed = dict(zip([c.name for c in clients], slots, strict=True))
    if planned == followed and not plan.unheard:
        return plan
    promised = None
    if problem.server_adds_noise:
        promised = {c.name: received[c.name][0].noise_scale for c in clients}
    if problem.uses_knowledge:  # it still estimates the mean of all
        slots = [followed.get(name, slot) for name, slot in planned.items()]
        silent = [name for name in planned if name not in followed]
        if problem.capacity is not None and max(Counter(slots).values()) > problem.capacity:
            problem = problem.replace(capacity=None)
        made = evaluate(problem, slots, "carried out", silent, promised)
        return made.as_written_with(plan)
    if len(clients) < len(problem.clients):
        kept = [replace(c, weight=share) for c, share in zip(clients, shares, strict=True)]
        problem = problem.keep(kept, capacity=None)
    elif problem.capacity is not None and max(Counter(slots).values()) > problem.capacity:
        problem = problem.replace(capacity=None)  # what was done is done
    return evaluate(problem, slots, "carried out", promised=promised).as_written_with(plan)
