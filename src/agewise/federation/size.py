"""How much memory simulated records take, estimated before any is drawn."""

from __future__ import annotations

from agewise.checks import refuse_size
from agewise.federation.sources import BLOCK
from agewise.problem import Problem

DRAWN = 56
"""Bytes by record while records are drawn and moved on, besides two for each state."""


def refuse_many_records(problem: Problem, rounds: int = 1) -> None:
    """Refuse clients whose simulated records would not fit; see `agewise.checks.MOST_BYTES`.

    Those of one client are drawn at once, of a gateway in blocks of members; over several rounds
    the states of all records in all slots are kept.
    """
    for client in problem.clients:
        at_once = client.samples * min(client.members, BLOCK)
        refuse_size(
            f"samples of client {client.name!r}",
            f"{client.samples:,}" + (f" of each of {client.members:,}" * (client.members > 1)),
            at_once * (DRAWN + 2.0 * client.process.states.size),
            "Simulate fewer, or name a source of records: aw.simulate_gap needs none.",
        )
    if rounds > 1:
        kept = 8.0 * rounds * (problem.every or 1) * sum(one.records for one in problem.clients)
        remedy = "Carry out fewer rounds, simulate fewer records, or name a source of records."
        refuse_size("rounds", rounds, kept, remedy)
