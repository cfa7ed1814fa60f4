"""One audit of whatever is given: which tiers apply, and how they share the error."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path as File
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from agewise.auditing.black_box import BlackBox, Records, slots_of
from agewise.auditing.books import read_books
from agewise.auditing.client_app import Request, app_mechanism, is_client_app
from agewise.auditing.exact import examine
from agewise.auditing.findings import PLAN_DRAWS, TIERS, Audit, Finding
from agewise.auditing.plans import Claims, client_box, heard, read_claims
from agewise.auditing.replay import Folder, read_folder, replay_run, run_folders
from agewise.auditing.sampled import sample
from agewise.auditing.subjects import resolve
from agewise.auditing.totals import ledger_totals
from agewise.checks import as_names, fraction, one_of, positive, random_generator, whole
from agewise.errors import InvalidInput, quoted
from agewise.federation.journal import PLAN
from agewise.federation.ledgers import own_ledgers
from agewise.federation.result import RunResult
from agewise.federation.round_results import RoundsResult
from agewise.federation.rounds import load_rounds
from agewise.mixing import assumption
from agewise.planning import Plan, plan
from agewise.problem import Problem
from agewise.process import Process

MOST_SAMPLED = 10
"""Clients of a plan whose code is run."""
Advance = Callable[[int, int], None]


def audit(
    subject: Any,
    *,
    claim: float | None = None,
    delta: float = 0.0,
    process: Process | Records | None = None,
    age: int | None = None,
    collect_at: int | Sequence[int] = 1,
    about: int | None = None,
    law: ArrayLike | None = None,
    samples: int = 1,
    others: float | None = None,
    present: Sequence[float] | None = None,
    batched: bool = False,
    noiseless: bool = False,
    score: Callable[..., Any] | None = None,
    request: Request | None = None,
    draws: int = PLAN_DRAWS,
    error: float = 0.01,
    rng: np.random.Generator | None = None,
    time_limit: float | None = None,
    ledgers: File | str | None = None,
    tiers: Sequence[str] = TIERS,
    progress: Advance | None = None,
) -> Audit:
    """Try to refute what is claimed of a plan, a problem, a run or any mechanism.

    `subject` is a `Plan` (its numbers are taken as written), a `Problem` (planned first), the
    folder of a run or its result (the plan it carried out), the name of any of these, a `BlackBox`,
    a function of records or a Flower ClientApp. A function needs its `process` and its `claim` (ε,
    with `delta`); `age` says how many slots lie between collection and the present. See `BlackBox`
    for the rest. `request` makes the (Message, Context) of a ClientApp from records. `error` is the
    probability of refuting a true claim by chance, over all sampled findings together. `ledgers` is
    the folder of a run's ledgers.

    Guarantees
        The exact and replay tiers refute only what is false, but for the test of recorded noise,
        which shares the `error` with the sampled tier.

    >>> import agewise as aw
    >>> aw.audit(aw.scenarios.london(), draws=0).refuted
    False
    """
    whole("draws", draws, 0)
    if time_limit is not None:
        positive("time_limit", time_limit)
    for tier in as_names("tier", tiers):
        one_of("tier", tier, TIERS)
    fraction("error", error)
    generator = None if rng is None else random_generator(rng)
    advance = progress or (lambda _done, _total: None)
    subject = _known(subject, request)
    if isinstance(subject, Claims | File):
        alone = {"claim": claim, "process": process, "age": age, "about": about, "law": law}
        _refuse_unused("a plan or a run", **alone, others=others, present=present, score=score)
    if not isinstance(subject, File):
        _refuse_unused("what is no run", ledgers=ledgers)
    if isinstance(subject, Claims):
        return _audit_claims(subject, draws, error, generator, time_limit, tiers, advance)
    if isinstance(subject, File):
        where = None if ledgers is None else File(ledgers)
        return _audit_run(subject, where, draws, error, generator, time_limit, tiers, advance)
    if isinstance(subject, BlackBox):
        box = subject if claim is None else replace(subject, epsilon=claim)
    elif callable(subject):
        if claim is None or process is None:
            name = "claim" if claim is None else "process"
            raise InvalidInput(name, None, "given with a function", "What is claimed, and of what?")
        first = slots_of(collect_at)
        if age is not None:
            about = first[-1] + whole("age", age, 0)
        box = BlackBox(
            subject,
            process,
            claim,
            delta,
            first,
            about,
            law,
            samples,
            others,
            present,
            batched,
            noiseless,
            score,
            getattr(subject, "__name__", "mechanism"),
        )
    else:
        raise InvalidInput(
            "subject", quoted(subject), "a plan, a problem, a run's folder or a function of records"
        )
    if "sampled" not in tiers:
        raise InvalidInput(
            "tier", ", ".join(tiers), "sampled, of a function", "Nothing else is known of it."
        )
    found = sample(box, draws, error, generator, time_limit, advance=advance)
    return Audit(box.name, (found,), tuple(_box_assumptions(box)), error)


def _refuse_unused(of: str, **given: Any) -> None:
    """Refuse what would be ignored, rather than ignore it."""
    for name, value in given.items():
        if value is not None:
            raise InvalidInput(name, f"given with {of}", "nothing: it does not matter there")


def _known(subject: Any, request: Request | None) -> Any:
    """A subject as claims of a plan, the folder of a run, a black box or a function."""
    if isinstance(subject, str | File):
        subject = resolve(str(subject))
    if is_client_app(subject):
        return app_mechanism(subject, request)
    if isinstance(subject, Problem):
        subject = plan(subject)
    if isinstance(subject, RunResult | RoundsResult):
        subject = subject.plan
    if isinstance(subject, Plan):
        return heard(subject.problem, subject.assignments, subject.unheard)
    return subject


def _box_assumptions(box: BlackBox) -> Iterator[str]:
    yield "runs of the mechanism are independent of each other"
    if not isinstance(box.process, Process):
        yield "records are drawn as the function given draws them"
    elif box.law is None:
        yield "the adversary's prior is the process's own law"
    else:
        yield "the adversary's prior is the law given"
    if box.samples > 1:
        yield "the adversary knows all records but one"


def _assumptions(problem: Problem) -> tuple[str, ...]:
    found = sorted({assumption(c.process, problem.mixing) for c in problem.clients})
    if any(client.process.confidence < 1 for client in problem.clients):
        found.append(
            "measured laws are taken as they are; what their limits allow beyond is not examined"
        )
    return tuple(found)


def _audit_claims(
    claims: Claims,
    draws: int,
    error: float,
    rng: np.random.Generator | None,
    time_limit: float | None,
    tiers: Sequence[str],
    advance: Advance,
) -> Audit:
    problem = claims.problem
    findings = [claims.document] if claims.document is not None and "replay" in tiers else []
    findings += list(examine(problem, claims.assignments, advance)) if "exact" in tiers else []
    if "sampled" in tiers and draws:
        findings += _sample_clients(claims, draws, error, rng, time_limit, advance)
    return Audit(problem.name, tuple(findings), _assumptions(problem), error)


def _sample_clients(
    claims: Claims,
    draws: int,
    error: float,
    rng: np.random.Generator | None,
    time_limit: float | None,
    advance: Advance,
) -> Iterator[Finding]:
    """The sampled tier for a plan's clients, each kind once, the error shared among them."""
    kinds: dict[Any, tuple[Any, Any]] = {}
    for client, one in zip(claims.problem.clients, claims.assignments, strict=True):
        target = claims.problem.target_of(client)
        own = (client.process.fingerprint, client.law, client.samples, target)
        key = (*own, one.collect_at, one.noise_scale, one.aged_epsilon)
        kinds.setdefault(key, (client, one))
    chosen = list(kinds.values())[:MOST_SAMPLED]
    for done, (client, one) in enumerate(chosen):
        if not 0 < one.aged_epsilon < math.inf:
            continue

        def step(now: int, total: int, before: int = done) -> None:
            advance(before * total + now, len(chosen) * total)

        box = client_box(claims.problem, client, one)
        yield sample(box, draws, error / len(chosen), rng, time_limit, advance=step)


def _audit_run(
    path: File,
    ledgers: File | None,
    draws: int,
    error: float,
    rng: np.random.Generator | None,
    time_limit: float | None,
    tiers: Sequence[str],
    advance: Advance,
) -> Audit:
    """All tiers about a run: its plan, its steps, and what its releases add up to."""
    where = run_folders(path)
    if not where:
        raise InvalidInput(
            "run folder", f"{path} without a round that is done", "a run that has ended"
        )
    books = None
    if where != [path]:  # of many rounds, which share their ledgers
        plan, settings, _ = load_rounds(path)
        clients = len(plan.problem.clients)
        ledgers = ledgers or File(settings.ledgers or own_ledgers(path, clients))
        books = read_books(ledgers)
    folders: list[Folder] = [read_folder(one, ledgers, books) for one in where]
    findings: list[Finding] = []
    problem = folders[0].problem
    if "replay" in tiers:
        findings += replay_run(path, folders, ledgers, error / 2)
    if "exact" in tiers:
        for done, folder in enumerate(folders):
            advance(done, len(folders))
            findings += ledger_totals(folder)
    if "sampled" in tiers and draws:
        claims = read_claims(where[0] / PLAN)
        findings += _sample_clients(claims, draws, error / 2, rng, time_limit, advance)
    return Audit(path.name, tuple(findings), _assumptions(problem), error)
