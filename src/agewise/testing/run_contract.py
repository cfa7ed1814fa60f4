"""What every run must do: a class of tests that the tests of each engine inherit."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from agewise.errors import AgewiseError, InvalidInput
from agewise.federation import (
    RunIncomplete,
    check_rounds,
    check_run,
    resume,
    resume_rounds,
    run,
    run_rounds,
)
from agewise.learning import Logistic
from agewise.planning import Plan, plan
from agewise.privacy import BudgetExceeded, Event, Policy
from agewise.privacy.account import total_of
from agewise.problem import Client, Problem
from agewise.process import birth_death
from agewise.testing.accounts import releases
from agewise.testing.damage import damaged
from agewise.testing.expecting import expect, expect_refused, expect_same
from agewise.testing.killing import STEPS, Killed, Moment, killed_at

CHAINS = [birth_death(*rates, [1, 2, 5]) for rates in ((0.3, 0.4), (0.3, 0.3), (0.4, 0.3))]
SEED = 11
LEAST = 1e-6
"""A classical ε that no release keeps to."""


def _clients(**changes: Any) -> list[Client]:
    names = ("north", "south", "west")
    pairs = zip(names, CHAINS, strict=True)
    return [Client(name, chain, samples=40, **changes) for name, chain in pairs]


def one_round(**changes: Any) -> Problem:
    """Return three clients, four slots, and one release of each."""
    return Problem(_clients(), 4, 0.5, estimator="propagated", **changes)


def many_rounds(**changes: Any) -> Problem:
    """Return the same, every four slots without end."""
    return one_round(rounds=None, every=4, **changes)


def taking_turns() -> Problem:
    """Return the same, in which one client is asked every second time only."""
    problem = many_rounds().replace(estimator="best")
    turns = zip(problem.clients, (1, 2, 1), strict=True)
    return problem.replace(clients=[replace(client, turn=turn) for client, turn in turns])


def trained() -> Problem:
    """Return a model that two rounds train."""
    learner = Logistic([[1.0], [-1.5], [0.5]], ["no", "yes", "yes"], clip=0.5)
    return one_round(learner=learner, rounds=2, every=4)


def with_gateway() -> Problem:
    """Return three clients of which one speaks for twenty."""
    problem = one_round()
    first, *others = problem.clients
    return problem.replace(clients=[replace(first, members=20), *others])


def alike() -> Problem:
    """Return six clients alike, whom one process answers for together."""
    clients = [Client(f"home {i}", CHAINS[0], samples=40) for i in range(6)]
    return Problem(clients, 4, 0.5, estimator="plain")


@dataclass(frozen=True)
class RunMode:
    """A kind of run."""

    name: str  #: of the test
    problem: Callable[[], Problem]  #: makes what is planned
    rounds: int | None = None  #: how many of many rounds are carried out; None: there is one
    one_file: bool = False  #: whether one ledger holds all accounts

    @cached_property
    def plan(self) -> Plan:
        """The plan that is carried out."""
        return plan(self.problem())

    def due(self, client: Client) -> int:
        """How many releases a client makes."""
        return math.ceil((self.rounds or 1) / client.turn)


MODES = (
    RunMode("one round", one_round),
    RunMode("server noise", lambda: one_round(noise="server")),
    RunMode("gateway", with_gateway),
    RunMode("alike", alike, one_file=True),
    RunMode("many rounds", many_rounds, 2),
    RunMode("many rounds with server noise", lambda: many_rounds(noise="server"), 2),
    RunMode("turns", taking_turns, 3),
    RunMode("trained", trained, 2),
)
"""Every kind of run."""


class RunContract:
    """A run keeps the accounts, misses nobody unseen, keeps to budgets, goes on after any kill.

    A subclass lists its `modes` and the `steps` at which it is cut off, and says how a run is begun
    (`begin`), and begun again after a kill that it does not remember. As it stands, that is the
    local engine, whose steps are all but the last. Each method whose name begins with test is a
    test, which pytest finds in the subclass and calls with each mode.
    """

    modes: Sequence[RunMode] = MODES
    steps: Iterable[str] = tuple(STEPS)[:-1]

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Have pytest call each test with each mode."""
        if "mode" in metafunc.fixturenames:
            metafunc.parametrize("mode", self.modes, ids=[mode.name for mode in self.modes])
        if "seed" in metafunc.fixturenames:
            metafunc.parametrize("seed", [SEED, None], ids=["seeded", "private"])

    def begin(
        self, mode: RunMode, folder: Path, seed: int | None, silent: Sequence[str], **choices: Any
    ) -> Any:
        """Carry a plan out in a folder; whoever is `silent` never answers.

        With a `seed` it is reproducible; without, it is private.
        """
        if mode.one_file:
            choices["ledgers"] = self.ledgers(mode, folder)
        return self.carry_out(mode, folder, seed, drop=silent, **choices)

    def carry_out(self, mode: RunMode, folder: Path, seed: int | None, **choices: Any) -> Any:
        """Call `run` or `run_rounds`."""
        rng = None if seed is None else np.random.default_rng(seed)
        if mode.rounds is None:
            return run(mode.plan, rng=rng, folder=folder, **choices)
        return run_rounds(mode.plan, rng, rounds=mode.rounds, folder=folder, **choices)

    def begin_again(self, mode: RunMode, folder: Path, seed: int | None) -> Any:
        """Carry a plan out in the folder of a run that was killed before it knew of itself."""
        return self.begin(mode, folder, seed, ())

    def ledgers(self, mode: RunMode, folder: Path) -> Path | None:
        """Where a run's ledgers are to be looked for; None: where it says itself."""
        return folder / "all.ledger" if mode.one_file else None

    def resume(self, mode: RunMode, folder: Path) -> Any:
        """Go on with a run."""
        return resume(folder) if mode.rounds is None else resume_rounds(folder)

    def differences(self, mode: RunMode, folder: Path) -> Sequence[object]:
        """Check a run's documents against its ledgers; return what differs."""
        check = check_run if mode.rounds is None else check_rounds
        return check(folder, self.ledgers(mode, folder)).differences

    def result(self, mode: RunMode, folder: Path) -> Any:
        """What a run published, but for its own name and the time; None if it has not ended."""
        path = folder / "record.json"
        record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if mode.rounds is None:
            return record["model"] if record.get("complete") else None
        rounds = [{**one, "run": ""} for one in record.get("rounds", [])]
        return (rounds, record.get("model")) if len(rounds) == mode.rounds else None

    def check_accounts(self, mode: RunMode, folder: Path, silent: Sequence[str] = ()) -> None:
        """Expect each client's releases to be in its account, and all documents to follow."""
        released, problem = releases(folder), mode.problem()
        for client in problem.clients:
            events = released.get(client.name, [])
            due = 0 if client.name in silent else mode.due(client)
            expect_same(len(events), due, f"{mode.name}: releases of {client.name}")
            expect_same(len({one.key for one in events}), due, "rounds that they are of")
            slots = [(one.collect_at, one.aggregate_at) for one in events]
            expect_same(slots, sorted(set(slots)), "slots, each later than the one before")
        expect_same(self.differences(mode, folder), (), f"{mode.name}: what does not follow")

    def test_every_release_is_in_its_account(self, mode: RunMode, tmp_path: Path) -> None:
        result = self.begin(mode, tmp_path / "run", None, ())
        expect(result.private, "a run without a seed is private")
        self.check_accounts(mode, tmp_path / "run")
        for events in releases(tmp_path / "run").values():
            for event in events:
                expect(event.private, "a release without a seed is private")
                expect(event.scale > 0, "noise was added")
                expect(event.payload, "the bytes are kept")

    def test_nobody_spends_more_than_its_target(self, mode: RunMode, tmp_path: Path) -> None:
        result = self.begin(mode, tmp_path / "run", None, ())
        if mode.rounds is None:
            clients = {client.name: client for client in mode.problem().clients}
            accounts = releases(tmp_path / "run").items()
            totals = [self.total(events, clients[name]) for name, events in accounts]
        else:
            totals = [one.epsilon for one in result.rounds]
        for total in totals:
            expect(0 < total <= 0.5 * (1 + 1e-9), f"the target is 0.5, stated was {total}")

    def total(self, events: Sequence[Event], client: Client) -> float:
        """What a client's releases tell about the slot in which the last one is published."""
        return total_of(events, client.process, events[-1].aggregate_at, "exact").aged

    def test_a_seed_makes_it_the_same_and_not_private(self, mode: RunMode, tmp_path: Path) -> None:
        result = self.begin(mode, tmp_path / "one", SEED, ())
        expect(not result.private, "what a seed made is not private")
        for name, seed in (("again", SEED), ("other", SEED + 1)):
            self.begin(mode, tmp_path / name, seed, ())
        one, again, other = (
            self.result(mode, tmp_path / name) for name in ("one", "again", "other")
        )
        expect(one is not None, "the run has ended")
        expect_same(again, one, "what the same seed gives")
        expect(other != one, "another seed gives the same")
        for events in releases(tmp_path / "one").values():
            expect(not any(event.private for event in events), "what a seed made is not private")

    def test_whoever_is_silent_is_left_out(self, mode: RunMode, tmp_path: Path) -> None:
        gone = [mode.problem().clients[1].name]
        self.begin(mode, tmp_path / "run", None, gone, on_missing="renormalise")
        expect(self.result(mode, tmp_path / "run") is not None, "the others go on")
        self.check_accounts(mode, tmp_path / "run", silent=gone)

    def test_without_leave_to_go_on_it_fails_where_somebody_is_silent(
        self, mode: RunMode, tmp_path: Path
    ) -> None:
        gone = mode.problem().clients[1].name
        attempt = lambda: self.begin(mode, tmp_path / "run", None, [gone])  # noqa: E731
        error = expect_refused(RunIncomplete, attempt, "a client is silent")
        expect(gone in str(error), f"the message does not name who is missing: {error}")
        expect_same(self.result(mode, tmp_path / "run"), None, "what is published")

    def test_a_policy_that_allows_less_releases_nothing(
        self, mode: RunMode, tmp_path: Path
    ) -> None:
        policy = Policy(max_classical_epsilon=LEAST)
        attempt = lambda: self.begin(mode, tmp_path / "run", None, (), policy=policy)  # noqa: E731
        expect_refused(BudgetExceeded, attempt, "a policy that allows next to nothing")
        expect_same(any(releases(tmp_path / "run").values()), False, "whether any is released")

    def test_a_change_of_what_is_published_is_found(self, mode: RunMode, tmp_path: Path) -> None:
        self.begin(mode, tmp_path / "run", None, ())
        path = tmp_path / "run" / "record.json"
        whole = path.read_text(encoding="utf-8")
        changes = list(damaged(json.loads(whole)))
        for where, other in changes[:: max(1, len(changes) // 12)]:
            path.write_text(json.dumps(other), encoding="utf-8")
            try:
                found = bool(self.differences(mode, tmp_path / "run"))
            except AgewiseError:
                found = True
            expect(found, f"a change of {where} is not found")

    def test_cut_off_anywhere_it_goes_on_as_if_nothing_had_been(
        self, mode: RunMode, seed: int | None, tmp_path: Path
    ) -> None:
        self.begin(mode, tmp_path / "whole", seed, ())
        wanted, begun = self.result(mode, tmp_path / "whole"), set()
        for number, step in enumerate(self.steps):
            moment: Moment = "before" if (number % 2 == 0) == (seed is None) else "after"
            folder = tmp_path / f"{moment} {step}".replace("'", "")
            released = self.cut_off(mode, folder, seed, step, moment)
            if released is None:
                continue
            begun.add(any(released.values()))
            self.go_on(mode, folder, seed)
            after = releases(folder)
            for name, events in released.items():
                kept = after[name][: len(events)]
                expect_same(kept, events, f"{folder.name}: what {name} had released")
            if seed is None:
                self.check_accounts(mode, folder)
            else:
                expect_same(self.result(mode, folder), wanted, f"{folder.name}: what came of it")
        expect_same(begun, {False, True}, "kills before, and after, something was released")

    def cut_off(
        self, mode: RunMode, folder: Path, seed: int | None, step: str, moment: Moment
    ) -> dict[str, list[Event]] | None:
        """Cut a run off; return what was released by then, or None if it never came there."""
        times = 1 if moment == "before" else mode.rounds or 1
        with killed_at(step, moment, times) as kill:
            try:
                self.begin(mode, folder, seed, ())
            except Killed:
                return releases(folder)
        expect(not kill.done, f"{folder.name}: a kill was caught")
        return None

    def go_on(self, mode: RunMode, folder: Path, seed: int | None) -> None:
        """Resume a run that was cut off; begin it if it never began, leave it if it has ended."""
        if self.result(mode, folder) is not None and mode.rounds is None:
            expect_refused(InvalidInput, lambda: self.resume(mode, folder), "a run that has ended")
            return
        if not (folder / ("run.json" if mode.rounds is None else "rounds.json")).exists():
            expect(not any(releases(folder).values()), "no run knows of what is released")
            self.begin_again(mode, folder, seed)
            return
        self.resume(mode, folder)
