"""What the releases in a client's ledgers really add up to, against what its upload says."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from agewise.arrays import Array
from agewise.auditing.exact import moved_by_levels
from agewise.auditing.findings import Finding, judged
from agewise.auditing.losses import Loss, Sent, loss_about
from agewise.auditing.paths import Path
from agewise.auditing.replay import Folder, total_claims
from agewise.learning import Trained, release_table
from agewise.privacy.account import Event
from agewise.problem import Client, Problem
from agewise.report.tables import counted


def ledger_totals(folder: Folder) -> Iterator[Finding]:
    """One finding per client: the true loss of all its releases about the slot of aggregation.

    Releases under another process, or with other noise, are left out of what is reached, and leave
    the bound open.
    """
    if isinstance(folder.problem.learner, Trained):
        return
    for client, about, claimed, events in total_claims(folder):
        loss = total_loss(folder.problem, client, events, about)
        verdict = judged(claimed, loss.reached, loss.bound)
        yield Finding(
            "exact",
            f"client {client.name!r}",
            f"total ε about slot {about}, {counted(len(events), 'release')}",
            verdict,
            claimed,
            max(loss.reached, 0.0),
            loss.bound,
            detail=f"its releases together tell {loss.reached:.6g}" if verdict == "refuted" else "",
        )


def total_loss(problem: Problem, client: Client, events: tuple[Event, ...], about: int) -> Loss:
    """What releases tell together, under the process's own law (or a stated one, for one)."""
    own = [
        event
        for event in events
        if event.fingerprint == client.process.fingerprint
        and event.kind == "laplace"
        and event.classical_epsilon > 0
    ]
    law = None
    if len(own) == 1 and own[0].mixing == "own_law" and client.law is not None:
        law = np.asarray(client.law)
    if not own:
        return Loss(0.0, 0.0 if not events else math.inf)
    path = Path(client.process, law, own[0].collect_at)
    sent = [Sent(one.collect_at, _values(problem, client, one), one.scale) for one in own]
    if not client.process.markov and len(sent) > 1:
        alone = max(loss_about(path, [one], about).reached for one in sent if one.slot <= about)
        return Loss(alone, math.fsum(float(one.apart(np.arange(path.size)).max()) for one in sent))
    loss = loss_about(path, sent, about)
    prior_free = any(one.mixing == "any_prior" for one in own)
    everything = len(own) == sum(event.classical_epsilon > 0 for event in events)
    return Loss(loss.reached, loss.bound if everything and not prior_free else math.inf)


def _values(problem: Problem, client: Client, event: Event) -> Array:
    """What each state contributed to a release of this learner, by its recorded sensitivity."""
    table = release_table(
        problem.learner, client.process, event.collect_at, event.aggregate_at, problem.estimator
    )
    if problem.level is not None and event.collect_at < event.aggregate_at:
        table = moved_by_levels(client.process.states)
    widest = float(np.abs(table[..., :, None, :] - table[..., None, :, :]).sum(axis=-1).max())
    return table * (event.sensitivity / widest) if widest > 0 else table * 0.0
