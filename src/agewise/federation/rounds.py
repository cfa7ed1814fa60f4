"""Many rounds: one run after the other while time moves on, each client's account carried on.

The folder of a run of many rounds holds its settings, its plan, the clients' ledgers, and a folder
for each round, which is the folder of an ordinary run. After every round the record of all of them
is written anew. What was interrupted goes on in the round it was in.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from agewise.checks import as_path, parse_json, positive, whole
from agewise.documents import read_document
from agewise.errors import InvalidInput
from agewise.federation.files import write_whole
from agewise.federation.happened import OnMissing
from agewise.federation.hearing import Hearing, heard_in, later, releases_of, silent_round
from agewise.federation.journal import (
    PLAN,
    RECORD,
    ROUNDS,
    STATEMENT,
    checked_folder,
    refuse_version,
)
from agewise.federation.local import refuse_stand_in
from agewise.federation.local_rounds import Carrier, LocalRounds
from agewise.federation.result import Watcher
from agewise.federation.round_results import (
    ROUND,
    VERSION,
    Heard,
    Round,
    RoundsResult,
    aggregate_of,
    complete_record,
    finished_round,
    latest,
    rounds_statement,
    spent_of,
)
from agewise.federation.settings import (
    Clock,
    Engine,
    Settings,
    check_choices,
    make_settings,
)
from agewise.federation.size import refuse_many_records
from agewise.federation.sources import (
    DataSource,
    SimulatedRecords,
    load_readings,
    present_mean,
    round_seed,
)
from agewise.federation.training import training_of
from agewise.planning import Plan
from agewise.planning.heard import can_listen
from agewise.planning.plan import as_plan
from agewise.planning.turns import plan_of_round
from agewise.privacy.account import Policy
from agewise.wording import in_words

MOST = 100_000
"""Rounds of one run, at most."""


def run_rounds(
    plan: Plan,
    rng: np.random.Generator | None = None,
    *,
    engine: Engine = "local",
    rounds: int | None = None,
    folder: Path | str | None = None,
    sources: Mapping[str, DataSource] | Path | str | None = None,
    ledgers: Path | str | None = None,
    policy: Policy | None = None,
    on_missing: OnMissing = "fail",
    clock: Clock = "virtual",
    slot_seconds: float = 60.0,
    starts_at: int = 0,
    drop: Iterable[str] = (),
    deployment: Path | str | None = None,
    superlink: str | None = None,
    root_certificates: Path | str | None = None,
    wait: float = 120.0,
    slot_timeout: float = 180.0,
    at_once: int = 100,
    watch: Watcher | None = None,
    heard: Heard | None = None,
) -> RoundsResult:
    """Carry a plan out again and again, in this process or on Flower. See `agewise.run`.

    On a `deployment` or `superlink`, `starts_at` counts from the nodes' own `starts_at`, and the
    server moves it on from round to round; nodes accept no other pace than that of their scenario.
    """
    as_plan(plan)
    gone = check_choices(
        [client.name for client in plan.problem.clients],
        engine,
        private=rng is None,
        drop=drop,
        sources=sources,
        policy=policy,
        superlink=superlink,
        on_missing=on_missing,
        clock=clock,
        slot_seconds=slot_seconds,
        starts_at=starts_at,
        folder=folder,
        ledgers=ledgers,
        deployment=deployment,
        root_certificates=root_certificates,
    )
    count = _checked_count(plan, rounds)
    settings = make_settings(plan, rng, on_missing, clock, slot_seconds)
    if engine == "flower":
        from agewise.federation.flower.rounds import prepare_rounds  # noqa: PLC0415

        place = checked_folder(folder)
        settings = replace(
            settings,
            wait=positive("wait", wait),
            slot_timeout=positive("slot_timeout", slot_timeout),
            at_once=whole("at_once", at_once, 1),
            deployment=None if deployment is None else str(Path(deployment).resolve()),
        )
        settings = prepare_rounds(
            place,
            plan,
            settings,
            count,
            superlink=superlink,
            root_certificates=root_certificates,
            policy=policy,
            sources=sources,
            starts_at=whole("starts_at", starts_at, 0),
        )
        return _begin(plan, settings, count, place, None).carry_out(watch, heard)
    refuse_stand_in(rng is not None, sources)
    if sources is None:
        refuse_many_records(plan.problem, count)
    settings = replace(
        settings,
        starts_at=whole("starts_at", starts_at, 0),
        policy=policy,
        readings=str(Path(sources).absolute()) if isinstance(sources, str | Path) else None,
        own_sources=isinstance(sources, Mapping),
        ledgers=None if ledgers is None else str(Path(ledgers).absolute()),
        drop=gone,
        started=time.time(),
    )
    given = sources if isinstance(sources, Mapping) else None
    if folder is not None:
        place = checked_folder(folder)
        return _begin(plan, settings, count, place, given).carry_out(watch, heard)
    with tempfile.TemporaryDirectory() as temporary:
        return _Fold(plan, settings, count, Path(temporary), given).carry_out(watch, heard)


def resume_rounds(
    folder: Path | str,
    *,
    rounds: int | None = None,
    sources: Mapping[str, DataSource] | None = None,
    watch: Watcher | None = None,
    heard: Heard | None = None,
) -> RoundsResult:
    """Go on with a run of many rounds, in the round it was in. See `agewise.resume`.

    `rounds`, if given, is the number of rounds in all, from now on.
    """
    place = as_path("folder", folder)
    plan, settings, count = load_rounds(place)
    if settings.own_sources != (sources is not None):
        raise InvalidInput(
            "sources",
            "missing" if settings.own_sources else "given",
            "the sources that the run was begun with, and only then",
        )
    complete_record(place / "00001")  # that of an earlier version is refused by its number
    if rounds is not None:
        count = _checked_count(plan, rounds)
        done = len(list(place.glob("[0-9]" * 5)))
        if count < done:
            raise InvalidInput("rounds", count, f"{done} or more, those begun already")
        _write_settings(place, settings, count)
    return _Fold(plan, settings, count, place, sources).carry_out(watch, heard)


def load_rounds(folder: Path) -> tuple[Plan, Settings, int]:
    """Read plan, settings and number of rounds of a run; change nothing."""
    try:
        document = parse_json((folder / ROUNDS).read_text(encoding="utf-8"))
        refuse_version(folder, document, [VERSION])
        plan = Plan.from_json((folder / PLAN).read_text(encoding="utf-8"))
        settings = read_document(Settings, document["settings"], str(folder / ROUNDS))
        count = whole("rounds", document["rounds"], 1, MOST)
    except InvalidInput:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(
            "run folder", f"{folder} ({error})", "the folder of a run of many rounds"
        ) from None
    return plan, settings, count


def _checked_count(plan: Plan, rounds: int | None) -> int:
    planned = plan.problem.rounds
    if planned == 1:
        raise InvalidInput("rounds", 1, "a plan for several", "Use run() for one round.")
    if rounds is None:
        if planned is None:
            raise InvalidInput(
                "rounds",
                None,
                "how many of them to carry out now",
                "The plan has no end; a run can be resumed with more of them.",
            )
        return planned
    most = MOST if planned is None else planned
    return whole("rounds", rounds, 1, most, "The plan's noise is for no more than that.")


def _write_settings(place: Path, settings: Settings, count: int) -> None:
    document = {"version": VERSION, "rounds": count, "settings": asdict(settings)}
    write_whole(place / ROUNDS, json.dumps(document, indent=2, allow_nan=False))


def _begin(
    plan: Plan,
    settings: Settings,
    count: int,
    place: Path,
    sources: Mapping[str, DataSource] | None,
) -> _Fold:
    """Write down what a run needs to be resumed, before its first round, if it can be."""
    fold = _Fold(plan, settings, count, place, sources)
    place.mkdir(parents=True, exist_ok=True)
    write_whole(place / PLAN, plan.to_json())
    _write_settings(place, settings, count)
    return fold


class _Fold:
    """A run of many rounds: what each of them is told, and what came of them."""

    def __init__(
        self,
        plan: Plan,
        settings: Settings,
        count: int,
        place: Path,
        sources: Mapping[str, DataSource] | None,
    ) -> None:
        self.plan, self.settings, self.count, self.place = plan, settings, count, place
        self.every = plan.problem.every or plan.problem.aggregate_at
        if settings.readings is not None:
            last = (count - 1) * self.every + plan.problem.aggregate_at
            sources = load_readings(settings.readings, last)
        self.sources = sources
        self.hearing = Hearing(plan.problem) if can_listen(plan.problem) else None
        self.training = training_of(plan)
        self.told: dict[str, Any] | None = None
        """The statement of the last round, with a row for everybody who was ever in one."""
        self.heads: dict[str, str] = {}
        """The newest release of each client, of which it must still know."""
        self.slots: dict[str, int] = {}
        """Where clients collect that have come later than planned: there they stay."""

    def carry_out(self, watch: Watcher | None, heard: Heard | None) -> RoundsResult:
        """Go through the rounds that are not done yet."""
        done: list[Round] = []
        with closing(self._carrier()) as carrier:
            for number in range(1, self.count + 1):
                done.append(self._round(carrier, number, done[-1] if done else None, watch))
                if heard is not None:
                    heard(done[-1], self.count)
                result = self._result(done)
                write_whole(self.place / RECORD, result.to_json())
                write_whole(self.place / STATEMENT, rounds_statement(result, self.told))
        return self._result(done)

    def _carrier(self) -> Carrier:
        if self.settings.engine == "local":
            return LocalRounds(self.plan, self.settings, self.place, self.sources)
        from agewise.federation.flower.rounds import FlowerRounds  # noqa: PLC0415

        return FlowerRounds(self.plan, self.settings, self.place)

    def _result(self, done: list[Round]) -> RoundsResult:
        private = not self.settings.stand_in
        return RoundsResult(self.settings.run, self.plan, tuple(done), private)

    def _round(
        self, carrier: Carrier, number: int, last: Round | None, watch: Watcher | None
    ) -> Round:
        """Carry one round out, or go on with it; one that is done is read from its folder."""
        folder, before = self.place / f"{number:05d}", (number - 1) * self.every
        settings = self._settings(number)
        current = self.plan if self.training is None else self.training.plan
        plan = plan_of_round(current, number, self.slots)
        record = None
        if plan is not None:
            record = complete_record(folder)
            if record is None:
                carrier.carry_out(folder, plan, settings, before, watch, self.heads)
                record = complete_record(folder)
            if record is None:
                raise InvalidInput(
                    "run folder", f"{folder} without a record", "a round that is done"
                )
            self.told = latest(self.told, record["statement"])
            server = heard_in(folder, plan, settings)
            self.heads, released = server.newest(), releases_of(server, before)
            self.slots = later(self.plan, self.slots, released, before)
            if self.hearing is not None:
                self.hearing.add(released)
            if self.training is not None:
                self.training.add(aggregate_of(record), record["missing"])
        done = finished_round(folder)
        if done is None:
            folder.mkdir(exist_ok=True)
            truth = self._truth(carrier.records(before))
            if record is not None:
                done = self._done(number, record, truth)
            elif last is not None and self.hearing is not None:
                done = silent_round(last, settings.run, self.hearing, self.every, truth)
            else:
                raise InvalidInput("run folder", f"{folder} of a round without clients", "one")
            write_whole(folder / ROUND, json.dumps(in_words(asdict(done)), allow_nan=False))
        return done

    def _settings(self, number: int) -> Settings:
        """What one round is told: its own name and seed, and slots that are later."""
        before, base = (number - 1) * self.every, self.settings
        return replace(
            base,
            run=f"{base.run}-{number:05d}",
            seed=round_seed(base.seed, number),
            starts_at=base.starts_at + before,
            started=base.started + before * base.slot_seconds,
        )

    def _truth(self, records: Mapping[str, DataSource]) -> tuple[float, ...] | None:
        """The mean of all clients' records at aggregation, where they are simulated."""
        problem, total = self.plan.problem, np.zeros(self.plan.problem.width)
        if self.training is not None:
            return None  # nobody knows the model that training aims at
        last = problem.aggregate_at
        for weight, client in zip(problem.weights, problem.clients, strict=True):
            source = records.get(client.name)
            if not isinstance(source, SimulatedRecords):
                return None
            table = problem.learner.table(client.process.states)
            total = total + weight * present_mean(source, client, last, last, table)
        return tuple(total.tolist())

    def _done(self, number: int, record: dict[str, Any], truth: tuple[float, ...] | None) -> Round:
        """What came of a round, from its record and all that was heard."""
        slot = (number - 1) * self.every + self.plan.problem.aggregate_at
        aggregate = aggregate_of(record)
        estimate, gap = aggregate, float(record["expected_gap"])
        if self.hearing is not None:
            estimate, gap = self.hearing.estimate(slot)
        if self.training is not None:
            estimate, gap = self.training.estimate()
        epsilon, classical = spent_of(record["statement"], self.told or record["statement"])
        loss = record["realised_loss"]
        return Round(
            number=number,
            run=record["run"],
            published_at=slot,
            aggregate=aggregate,
            expected_gap=float(record["expected_gap"]),
            estimate=estimate,
            estimate_gap=gap,
            realised_loss=loss,
            truth=None if loss is None else truth,
            epsilon=epsilon,
            classical=classical,
            participants=len(record["participants"]),
            missing=tuple(record["missing"]),
        )
