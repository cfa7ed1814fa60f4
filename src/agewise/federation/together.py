"""Clients alike answer together: one set of terms, one draw of noise, one transaction.

What each sends, and what its account holds, is what it would be with a `ClientAgent` of its own: to
the last bit with the stand-in for noise, by the same mechanism with private noise. One record is in
one client's part only, so noise that is drawn for all of them at once keeps the terms of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from agewise.arrays import Array
from agewise.errors import AgewiseError
from agewise.federation.client import (
    ClientAgent,
    Profile,
    announced_noise,
    asked_noise,
    private_noise,
)
from agewise.federation.messages import Order, Upload
from agewise.federation.seeding import client_generators
from agewise.federation.sources import DataSource, SimulatedRecords, counts_of_each
from agewise.learning import average, averages
from agewise.mechanism import MECHANISMS, Noised
from agewise.privacy.account import BudgetExceeded
from agewise.privacy.accounts import Accounts
from agewise.privacy.ledger import account_after
from agewise.problem import Client, likeness
from agewise.terms import Terms

BLOCK = 5000
"""Clients whose records and noise are held at once."""

Answer = bytes | AgewiseError
"""What a client sends, or why it does not."""


def groups_alike(orders: Sequence[Order], clients: Mapping[str, Client]) -> Iterator[list[Order]]:
    """Orders that are the same but for the client, to clients that are alike but for the name."""
    groups: dict[Any, list[Order]] = {}
    for order in orders:
        kind = likeness(clients[order.client]), order.plan, order.collect_at, order.noise_scale
        group = groups.setdefault(kind, [])
        if group and {**vars(order), "client": ""} != {**vars(group[0]), "client": ""}:
            group = groups.setdefault((*kind, order.client), [])
        group.append(order)
    yield from groups.values()


def answer_or_error(answer: Callable[[Order], bytes], order: Order) -> Answer:
    """What one client sends, or why it does not."""
    try:
        return answer(order)
    except AgewiseError as error:
        return error


class Together:
    """Clients alike, with the `profile` of the first.

    `seed` is that of the stand-in, None for private noise; `accounts` None: nothing is recorded.
    `alone` has one client answer by itself: whoever has an account already, and all where the
    first one refuses, so that each says its own reason.
    """

    def __init__(
        self,
        profile: Profile,
        seed: int | None,
        accounts: Accounts | None,
        source: Callable[[str], DataSource],
        alone: Callable[[Order], bytes],
    ) -> None:
        self.seed, self.accounts, self.source, self._alone = seed, accounts, source, alone
        self._first = ClientAgent(
            profile, SimulatedRecords(profile.client, 0), None, private_noise
        )  # to check orders and write events: what it collects and draws is not its own
        self.clipped: dict[str, int] = {}
        """Records moved to a state, by client. Not noised, so it stays with the client."""

    def answer(self, orders: Sequence[Order]) -> dict[str, Answer]:
        """Carry the same order out for each client, and return what each sends or says.

        Within `Accounts.together`, after which it may be sent.

        Guarantees
            What is returned is recorded in that transaction. Whoever has answered in this run
            sends the same bytes again. The noise is never less than the client's own terms ask for.
        """
        if orders[0].members > 1:  # a gateway has arrays of its own
            return {order.client: answer_or_error(self._alone, order) for order in orders}
        try:
            terms = self._first.check(orders[0])
        except AgewiseError:
            return {order.client: answer_or_error(self._alone, order) for order in orders}
        begun = set() if self.accounts is None else self.accounts.begun(o.client for o in orders)
        answers = {o.client: answer_or_error(self._alone, o) for o in orders if o.client in begun}
        fresh = [order for order in orders if order.client not in begun]
        for start in range(0, len(fresh), BLOCK):
            block = {order.client: order for order in fresh[start : start + BLOCK]}
            values, refused = self._collected(block, terms)
            answers |= refused | self._sent(block, terms, values)
        return answers

    def _collected(
        self, names: Iterable[str], terms: Terms
    ) -> tuple[dict[str, Array], dict[str, Answer]]:
        """The mean `[d]` of each client's records, and who has none."""
        client, slot = terms.client, terms.collect_at
        values: dict[str, Array] = {}
        answers: dict[str, Answer] = {}
        sources: dict[str, DataSource] = {}
        for name in names:
            try:
                sources[name] = self.source(name)
            except AgewiseError as error:
                answers[name] = error
        seeds: dict[int, list[str]] = {}
        for name, one in sources.items():
            own = type(one) is SimulatedRecords and one.client.name == name
            if own and likeness(one.client) == likeness(client):  # type: ignore[attr-defined]
                seeds.setdefault(one.seed, []).append(name)  # type: ignore[attr-defined]
        for seed, simulated in seeds.items():
            counts = counts_of_each(client, simulated, seed, slot)
            values |= dict(zip(simulated, averages(counts, terms.release), strict=True))
        for name in [name for name in sources if name not in values]:
            try:
                records = sources[name].collect(slot, client.samples)
                values[name], moved = average(
                    records, client.process.states, terms.release, client.samples
                )
            except AgewiseError as error:
                answers[name] = error
                continue
            if moved:
                self.clipped[name] = moved
        return values, answers

    def _sent(
        self, orders: dict[str, Order], terms: Terms, values: dict[str, Array]
    ) -> dict[str, Answer]:
        """Noise, events and bytes of clients that have released nothing so far."""
        if not values:
            return {}
        agent, names = self._first, list(values)
        order = orders[names[0]]
        noised = self._noised(order, terms, names, np.stack(list(values.values())))
        rows = np.reshape(np.asarray(noised.value), (len(names), -1))
        if not np.isfinite(rows).all():
            return {name: answer_or_error(self._alone, orders[name]) for name in names}
        event = agent.write(order, terms, replace(noised, value=rows[0]), [])
        profile = agent.profile
        try:
            account = account_after(
                profile.policy, [], event, profile.client.process, profile.method, profile.law
            )
        except BudgetExceeded:
            return {name: answer_or_error(self._alone, orders[name]) for name in names}
        upload = Upload.decode(event.payload)
        payloads = {
            name: upload.model_copy(update={"client": name, "value": row}).encode()
            for name, row in zip(names, rows.tolist(), strict=True)
        }
        if self.accounts is not None:
            self.accounts.begin_with(replace(event, account=account), payloads)
        return dict(payloads)

    def _noised(self, order: Order, terms: Terms, names: list[str], values: Array) -> Noised:
        scale = asked_noise(order, terms).scale
        if order.noise == "server":
            return announced_noise(values.ravel(), terms, scale, private=self.seed is None)
        if self.seed is None:
            return private_noise(values.ravel(), terms, scale)
        mechanism = MECHANISMS[terms.target.mechanism]
        drawn = [
            mechanism.imitate(value, scale=scale, rng=rng, step=terms.step)
            for value, rng in zip(values, client_generators(self.seed, names, "noise"), strict=True)
        ]
        rows = np.stack([np.asarray(one.value) for one in drawn])
        return replace(drawn[0], value=rows.ravel())
