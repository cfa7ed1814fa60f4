"""What every store of a ledger must do: a class of tests that the tests of each one inherit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agewise.errors import InvalidInput
from agewise.privacy import BudgetExceeded, Event, Ledger, Policy, Release, composed_epsilon
from agewise.process import birth_death
from agewise.testing.expecting import expect, expect_refused, expect_same
from agewise.testing.killing import Killed, killed_at

CHAIN = birth_death(0.2, 0.3, [1, 2, 3])
NO_LIMIT = Policy()


@dataclass(frozen=True)
class LedgerMode:
    """A way to keep the account of a client."""

    name: str  #: of the test
    open: Callable[[Path], Ledger]  #: opens the client's account in a folder, or begins it there
    durable: bool = True  #: whether it outlives the process
    commits: str = "release committed"  #: the step at which a release is for good


def release_of(key: str, epsilon: float = 0.3, slot: int = 3, payload: bytes = b"bytes") -> Event:
    """Return a private release of the client "north", as its ledger is given it."""
    alone = composed_epsilon([Release(slot, epsilon)], CHAIN, slot + 4)
    return Event(
        key=key,
        client="north",
        collect_at=slot,
        aggregate_at=slot + 4,
        classical_epsilon=epsilon,
        aged_epsilon=alone.aged,
        sensitivity=0.1,
        scale=1.0,
        private=True,
        mixing="exact",
        fingerprint=CHAIN.fingerprint,
        made_at="2026-01-01T00:00:00+00:00",
        payload=payload,
    )


class LedgerStoreContract:
    """An account records a release and its bytes once, within its policy, and for good.

    A subclass lists its `modes`: stores, or ways to use one. Each method whose name begins with
    test is a test, which pytest finds in the subclass and calls with each mode.
    """

    modes: Sequence[LedgerMode] = ()

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Have pytest call each test with each mode."""
        if "mode" in metafunc.fixturenames:
            metafunc.parametrize("mode", self.modes, ids=[mode.name for mode in self.modes])

    def put(self, ledger: Ledger, made: Event, policy: Policy = NO_LIMIT) -> Event:
        """Release under an event's own key."""
        return ledger.release(made.key, lambda _: made, policy, CHAIN)

    def test_what_was_recorded_is_there(self, mode: LedgerMode, tmp_path: Path) -> None:
        with mode.open(tmp_path) as ledger:
            expect_same(ledger.events(), [], "a new account")
            expect_same(ledger.find("run 1"), None, "what was never released")
            made = [
                self.put(ledger, release_of(f"run {i}", slot=i, payload=bytes([i, 0, 255])))
                for i in range(1, 6)
            ]
            expect_same(ledger.events(), made, "what is recorded")
            expect_same([one.number for one in made], [1, 2, 3, 4, 5], "their numbers")
            expect_same(len({one.hash for one in made}), 5, "hashes that differ")
            expect_same(ledger.find("run 3"), made[2], "what is found by its key")
            expect_same(ledger.verify(), 5, "how many releases are whole")
            payloads = [bytes([i, 0, 255]) for i in range(1, 6)]
            expect_same([one.payload for one in ledger.events()], payloads, "the bytes")

    def test_it_outlives_its_process(self, mode: LedgerMode, tmp_path: Path) -> None:
        with mode.open(tmp_path) as ledger:
            made = [self.put(ledger, release_of(f"run {i}", slot=i)) for i in range(1, 4)]
        with mode.open(tmp_path) as again:
            expect_same(again.events(), made if mode.durable else [], "after opening it again")
            self.put(again, release_of("run 9", slot=9))
            count = 4 if mode.durable else 1
            expect_same(again.verify(), count, "how many releases are whole")

    def test_a_retry_gets_the_stored_bytes_and_draws_no_noise(
        self, mode: LedgerMode, tmp_path: Path
    ) -> None:
        drawn = []

        def draw(known: Sequence[Event]) -> Event:
            drawn.append(len(known))
            return release_of("once", payload=b"drawn %d" % len(drawn))

        with mode.open(tmp_path) as ledger:
            first, again = (ledger.release("once", draw, NO_LIMIT, CHAIN) for _ in range(2))
            expect_same(again, first, "what a retry gets")
            expect_same(drawn, [0], "how often noise is drawn, and what was known then")

    def test_the_total_is_the_composition_of_private_releases(
        self, mode: LedgerMode, tmp_path: Path
    ) -> None:
        with mode.open(tmp_path) as ledger:
            self.put(ledger, release_of("a", 0.5, slot=2))
            self.put(ledger, release_of("b", 0.7, slot=5))
            wanted = composed_epsilon([Release(2, 0.5), Release(5, 0.7)], CHAIN, 8)
            expect_same(ledger.total(CHAIN, 8), wanted, "the total about slot 8")
            expect_same(ledger.total(CHAIN, 8, window=4).classical, 0.7, "the last four slots")

    def test_a_release_over_the_policy_leaves_nothing(
        self, mode: LedgerMode, tmp_path: Path
    ) -> None:
        policy = Policy(max_classical_epsilon=1.0)
        with mode.open(tmp_path) as ledger:
            self.put(ledger, release_of("a", 0.7), policy)
            over = release_of("b", 0.7)
            expect_refused(BudgetExceeded, lambda: self.put(ledger, over, policy), "0.7 + 0.7")
            expect_same([one.key for one in ledger.events()], ["a"], "what is recorded")
            self.put(ledger, release_of("c", 0.3), policy)
            expect_same(ledger.total(CHAIN, 7).classical, 1.0, "all that is allowed")

    def test_what_fails_while_it_is_made_leaves_nothing(
        self, mode: LedgerMode, tmp_path: Path
    ) -> None:
        def fail(_: Sequence[Event]) -> Event:
            raise ArithmeticError

        with mode.open(tmp_path) as ledger:
            attempt = lambda: ledger.release("a", fail, NO_LIMIT, CHAIN)  # noqa: E731
            expect_refused(ArithmeticError, attempt, "a draw that fails")
            expect_same(ledger.events(), [], "what is recorded")
            self.put(ledger, release_of("a"))
            expect_same(ledger.verify(), 1, "how many releases are whole")

    def test_a_release_under_another_key_is_refused(self, mode: LedgerMode, tmp_path: Path) -> None:
        with mode.open(tmp_path) as ledger:
            other = release_of("other")
            attempt = lambda: ledger.release("key", lambda _: other, NO_LIMIT, CHAIN)  # noqa: E731
            expect_refused(InvalidInput, attempt, "a release under another key")
            expect_same(ledger.events(), [], "what is recorded")

    def test_a_kill_leaves_all_of_a_release_or_nothing(
        self, mode: LedgerMode, tmp_path: Path
    ) -> None:
        places = (("event inserted", "before", 0), ("event inserted", "after", 0))
        for step, moment, kept in (*places, (mode.commits, "after", 1)):
            folder = tmp_path / f"{moment} {step}"
            folder.mkdir()
            ledger = mode.open(folder)
            first = self.put(ledger, release_of("first", slot=1))
            with killed_at(step, moment) as kill:  # type: ignore[arg-type]
                expect_refused(Killed, lambda: self.put(ledger, release_of("second")), step)  # noqa: B023
            expect(kill.done, f"{step}: nothing was cut off")
            found = [one.key for one in ledger.events()]
            expect_same(found, ["first", "second"][: 1 + kept], f"after a kill {moment} {step}")
            ledger.close()
            if mode.durable:
                with mode.open(folder) as again:
                    expect_same(again.verify(), 1 + kept, f"after a kill {moment} {step}")
                    expect_same(again.events()[0], first, "what was there before")

    def test_two_that_have_it_open_see_each_other(self, mode: LedgerMode, tmp_path: Path) -> None:
        if not mode.durable:
            return
        policy = Policy(max_classical_epsilon=1.0)
        with mode.open(tmp_path) as one, mode.open(tmp_path) as other:
            self.put(one, release_of("a", 0.6), policy)
            over = release_of("b", 0.6)
            expect_refused(BudgetExceeded, lambda: self.put(other, over, policy), "0.6 + 0.6")
            self.put(other, release_of("c", 0.4), policy)
            expect_same([event.key for event in one.events()], ["a", "c"], "what both have done")
            expect_same(one.verify(), 2, "how many releases are whole")
