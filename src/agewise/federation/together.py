"""Clients alike answer together: one set of terms, one draw of noise, one transaction.

What each sends, and what its account holds, is what it would be with a `ClientAgent` of its own: to
the last bit with the stand-in for noise, by the same mechanism with private noise. One record is in
one client's part only, so noise that is drawn for all of them at once keeps the terms of each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from agewise.arrays import Array
from agewise.calibration import Terms
from agewise.errors import AgewiseError
from agewise.federation.client import (
    ClientAgent,
    Profile,
    announced_noise,
    asked_noise,
    private_noise,
)
from agewise.federation.messages import Order, Upload
from agewise.federation.orders import OrdersAlike
from agewise.federation.seeding import Seeds
from agewise.federation.sources import DataSource, Simulated, SimulatedRecords, drawn_of_each
from agewise.federation.uploads import Uploads
from agewise.learning import average, averages, unexplained
from agewise.mechanism import MECHANISMS, Noised
from agewise.privacy.account import BudgetExceeded
from agewise.privacy.accounts import Accounts
from agewise.privacy.histories import Histories, NeedsHistory
from agewise.privacy.ledger import account_after, carries
from agewise.problem import likeness

BLOCK = 5000
"""Clients whose records and noise are held at once."""

Answer = bytes | AgewiseError
"""What a client sends, or why it does not."""


def answer_or_error(answer: Callable[[Order], bytes], order: Order) -> Answer:
    """What one client sends, or why it does not."""
    try:
        return answer(order)
    except AgewiseError as error:
        return error


def accounts_alike(
    accounts: Accounts, names: Sequence[str], key: str, profile: Profile
) -> tuple[list[Histories], list[str]]:
    """Clients with accounts by what these hold, and who is to answer by itself."""
    if profile.policy.slot_seconds is not None:  # the time of each one's last release counts
        return [], list(names)
    return accounts.alike(names, key)


class Together:
    """Clients alike, with the `profile` of the first.

    `noise` is what the stand-in draws with, None for private noise; `accounts` None: nothing is
    recorded. `source` gives each client's records.
    `spread` is the standard deviation of what levels add to a client's readings.
    `alone` has one client answer by itself: whoever has an account already, and all where the
    first one refuses, so that each says its own reason.
    """

    def __init__(
        self,
        profile: Profile,
        noise: Seeds | None,
        accounts: Accounts | None,
        source: Callable[[str], DataSource],
        alone: Callable[[Order], bytes],
        spread: Callable[[str], float],
    ) -> None:
        self._spread = spread
        self.noise, self.accounts, self.source, self._alone = noise, accounts, source, alone
        self._first = ClientAgent(
            profile, SimulatedRecords(profile.client, 0), None, private_noise
        )  # to check orders and write events: what it collects and draws is not its own
        self.clipped: dict[str, int] = {}
        """Records that are not as modelled, by client. Not noised, so it stays there."""

    def answer(self, orders: OrdersAlike) -> Iterator[Uploads | tuple[str, Answer]]:
        """Carry the same order out for each client, and yield what they send or say.

        Within `Accounts.together`, after which it may be sent.

        Guarantees
            What is returned is recorded in that transaction. Whoever has answered in this run
            sends the same bytes again. The noise is never less than the client's own terms ask for.
        """
        try:
            if orders.first.members > 1:  # a gateway has arrays of its own
                yield from self._one_by_one(orders, orders.names)
                return
            terms = self._first.check(orders.first)
        except AgewiseError:
            yield from self._one_by_one(orders, orders.names)
            return
        lost = self._forgotten(orders)
        yield from self._one_by_one(orders, lost)  # each refuses in its own words
        names = [name for name in orders.names if name not in lost] if lost else orders.names
        begun = set() if self.accounts is None else self.accounts.begun(names)
        fresh = [name for name in names if name not in begun] if begun else names
        yield from self._in_blocks(orders, terms, fresh, None)
        if self.accounts is not None and begun:
            held = [name for name in names if name in begun]
            groups, rest = accounts_alike(
                self.accounts, held, orders.first.run, self._first.profile
            )
            for one in groups:
                yield from self._in_blocks(orders, terms, list(one.last), one)
            yield from self._one_by_one(orders, rest)

    def _forgotten(self, orders: OrdersAlike) -> dict[str, str]:
        """Clients whose accounts lack what the server holds of them."""
        if self.accounts is None:
            return {}
        named = {name: orders.heads[name] for name in orders.names if name in orders.heads}
        for run in {head.partition(" ")[2] for head in named.values()}:
            sent = self.accounts.sent(run, named)
            for name, payload in sent.items():
                if named.get(name) == f"{hashlib.sha256(payload).hexdigest()} {run}":
                    del named[name]
        return named

    def _in_blocks(
        self, orders: OrdersAlike, terms: Terms, names: list[str], before: Histories | None
    ) -> Iterator[Uploads | tuple[str, Answer]]:
        """Have clients answer that have released nothing, or all the same, `before`."""
        for start in range(0, len(names), BLOCK):
            there, values, refused = self._collected(names[start : start + BLOCK], terms)
            yield from refused
            if there:
                yield from self._sent(orders, terms, there, values, before)

    def _one_by_one(
        self, orders: OrdersAlike, names: Iterable[str]
    ) -> Iterator[tuple[str, Answer]]:
        for name in names:
            yield name, answer_or_error(self._alone, orders.of(name))

    def _collected(
        self, names: list[str], terms: Terms
    ) -> tuple[list[str], Array, list[tuple[str, Answer]]]:
        """Who has records, the mean of each `[m, d]`, and who has none."""
        client, slot = terms.client, terms.collect_at
        if isinstance(self.source, Simulated):
            return names, self.source.means(names, terms), []
        values: dict[str, Array] = {}
        refused: list[tuple[str, Answer]] = []
        seeds: dict[int, list[str]] = {}
        for name in names:
            try:
                source = self.source(name)
                if self._simulates(source, name):
                    seeds.setdefault(source.seed, []).append(name)  # type: ignore[attr-defined]
                    continue
                records = source.collect(slot, client.samples)
                states, as_read = client.process.states, terms.as_read
                mean = average(records, states, terms.release, client.samples, as_read=as_read)
                odd = unexplained(records, states, self._spread(name))
            except AgewiseError as error:
                refused.append((name, error))
                continue
            values[name] = mean
            if odd:
                self.clipped[name] = odd
        for seed, simulated in seeds.items():
            own = Seeds(seed, simulated, "records")
            counts, _ = drawn_of_each(client, simulated, own, slot, slot)  # as they are collected
            values |= dict(zip(simulated, averages(counts, terms.release), strict=True))
        there = [name for name in names if name in values]
        return there, np.array([values[name] for name in there]), refused

    def _simulates(self, source: DataSource, name: str) -> bool:
        """Whether a source is the client's own simulated records."""
        return (
            type(source) is SimulatedRecords
            and source.shift is None
            and source.client.name == name
            and likeness(source.client) == likeness(self._first.profile.client)
        )

    def _sent(
        self,
        orders: OrdersAlike,
        terms: Terms,
        names: list[str],
        values: Array,
        before: Histories | None,
    ) -> Iterator[Uploads | tuple[str, Answer]]:
        """Noise, events and bytes of clients whose accounts are alike."""
        agent, order = self._first, orders.of(names[0])
        noised = self._noised(order, terms, names, values)
        rows = np.reshape(np.asarray(noised.value, dtype=np.float64), (len(names), -1))
        if not np.isfinite(rows).all():
            yield from self._one_by_one(orders, names)
            return
        profile, known = agent.profile, [] if before is None else before.known
        try:
            if self.accounts is not None and carries(
                profile.policy, profile.client.process, profile.method, profile.law
            ):
                self.accounts.keep(profile.client.process)
            event = agent.write(order, terms, replace(noised, value=rows[0]), known)
            account = account_after(
                profile.policy, known, event, profile.client.process, profile.method, profile.law
            )
        except (BudgetExceeded, NeedsHistory):
            yield from self._one_by_one(orders, names)
            return
        uploads, event = (
            Uploads(Upload.decode(event.payload), names, rows),
            replace(event, account=account),
        )
        if before is not None and self.accounts is not None:
            self.accounts.go_on_with(event, uploads, before.last)
        elif self.accounts is not None:
            self.accounts.begin_with(event, uploads)
        yield uploads

    def _noised(self, order: Order, terms: Terms, names: list[str], values: Array) -> Noised:
        scale = asked_noise(order, terms).scale
        if order.noise == "server":
            return announced_noise(values.ravel(), terms, scale, private=self.noise is None)
        if self.noise is None:
            return private_noise(values.ravel(), terms, scale)
        mechanism = MECHANISMS[terms.target.mechanism]
        rngs, firsts = self.noise.of(names), self.noise.firsts(names)
        drawn = mechanism.imitate_each(
            values, scale=scale, rngs=rngs, step=terms.step, firsts=firsts
        )
        return replace(drawn, value=np.ravel(drawn.value))
