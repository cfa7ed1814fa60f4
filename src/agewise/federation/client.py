"""The client's side: check the order, collect, train, add noise, record, upload.

A client does not trust the server's numbers. It computes its noise from its own process, its own
target and the age, and refuses an order that asks for less. What it sends is what its ledger holds.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from agewise.arrays import Array
from agewise.calibration import Terms
from agewise.calibration import terms as terms_for
from agewise.errors import AgewiseError, InvalidInput
from agewise.federation.messages import Order, RefusalReason, Upload
from agewise.federation.profile import OrderRefused, Profile
from agewise.federation.seeding import client_generator
from agewise.federation.sources import DataSource, member_means
from agewise.learning import average, learner_of, unexplained
from agewise.mechanism import MECHANISMS, Noised
from agewise.mechanism.laplace import LARGEST_SCALE
from agewise.privacy.account import (
    BudgetExceeded,
    Event,
    enforce,
    now,
    promised_total,
    total_of,
)
from agewise.privacy.composition import Total
from agewise.privacy.ledger import Ledger, LedgerDamaged
from agewise.privacy.pairwise import release_losses
from agewise.privacy.standing import Standing
from agewise.privacy.witness import LedgerDisputed, LedgerForked, LedgerRolledBack, replay_remedy
from agewise.problem import Target, nameless
from agewise.process import Process

__all__ = [
    "ClientAgent",
    "Draw",
    "OrderRefused",
    "Profile",
    "announced_noise",
    "asked_noise",
    "private_noise",
    "refusal_reason",
    "refuse_shift",
    "release_event",
    "stand_in_noise",
]

ROOM = 1e-9
"""By how much an ordered noise scale may fall short in another machine's arithmetic; the client
uses its own, larger one then."""


LARGEST_MAPPED = 1e150
"""Noise scales beyond which OpenDP's maps overflow; more noise spends no more than this one."""

Draw = Callable[[Array, Terms, float], Noised]
"""(vector, terms, noise scale) → noised vector."""


def private_noise(value: Array, terms: Terms, scale: float) -> Noised:
    """Noise from OpenDP, of at least this scale; its ε is what OpenDP's own map says."""
    return MECHANISMS[terms.target.mechanism].draw(
        value,
        sensitivity=terms.sensitivity,
        scale=scale,
        failure=terms.classical_delta,
        step=terms.step,
    )


def stand_in_noise(seed: int, name: str) -> Draw:
    """Reproducible noise for simulation: the same for the same seed and client. Not private."""

    def noise(value: Array, terms: Terms, scale: float) -> Noised:
        rng = client_generator(seed, name, "noise")
        mechanism = MECHANISMS[terms.target.mechanism]
        return mechanism.imitate(value, scale=scale, rng=rng, step=terms.step)

    return noise


def announced_noise(value: Array, terms: Terms, scale: float, *, private: bool) -> Noised:
    """No noise: what holds once the server has drawn noise of at least this scale on this value."""
    if not private:
        return Noised(value, scale, None, private=False)
    failure = terms.classical_delta if terms.sensitivity > 0 else 0.0
    scale = min(scale * (1 + 4 * float(np.finfo(float).eps)), LARGEST_SCALE[float])  # maps round up
    return Noised(
        value, scale, announced_epsilon(terms, scale, failure), private=True, failure=failure
    )


def announced_epsilon(terms: Terms, scale: float, failure: float) -> float:
    """The ε of noise that a server has yet to draw: OpenDP's map or our own, the larger."""
    mapped = min(scale, LARGEST_MAPPED)
    spent = MECHANISMS[terms.target.mechanism].certified(terms.sensitivity, mapped, failure)
    return max(spent, _spent(terms, mapped), 5e-324 if failure else 0.0)  # not lost by underflow


class ClientAgent:
    """One client, ready to answer orders. The steps can be called one by one, or all by `answer`.

    Without a ledger (None) nothing is recorded: for rehearsals with the stand-in only.
    """

    def __init__(
        self, profile: Profile, source: DataSource, ledger: Ledger | None, noise: Draw
    ) -> None:
        self.profile, self.source, self.ledger, self.noise = profile, source, ledger, noise
        self.clipped = 0
        """Records that are not as modelled. Not noised, so the number stays with the client."""

    def check(self, order: Order) -> Terms:
        """Compute this client's own terms and refuse an order that falls short of them."""
        profile, client = self.profile, self.profile.client
        if order.client != client.name:
            raise OrderRefused(f"an order for {order.client!r} reached client {client.name!r}")
        planned = (order.fingerprint, order.samples, order.members)
        if planned != (client.process.fingerprint, client.samples, client.members):
            raise OrderRefused(
                f"client {client.name!r} follows process {client.process.fingerprint} with "
                f"{client.samples} records{_each(client.members)}, the order was made for "
                f"{planned[0]} with {planned[1]}{_each(planned[2])}. Plan with the client's own "
                "scenario."
            )
        profile.refuse_other(order)
        if order.noise_scale > LARGEST_SCALE[float]:
            raise OrderRefused(f"noise_scale is {order.noise_scale:g}; allowed: up to 1e300")
        try:
            refuse_shift(client.process, profile.starts_at)
            terms = terms_for(
                nameless(client),
                profile.target(order.calibration),
                learner_of(order.learner),
                order.estimator,
                order.collect_at,
                order.aggregate_at,
            )
        except InvalidInput as error:
            raise OrderRefused(f"client {client.name!r} cannot follow the order: {error}") from None
        if order.noise_scale < terms.scale * (1 - ROOM):
            raise OrderRefused(
                f"the order asks client {client.name!r} for a noise scale of "
                f"{order.noise_scale:.6g}; its own target ε = {profile.target_epsilon:g} (mixing "
                f"{profile.mixing}) needs {terms.scale:.6g} at age "
                f"{order.aggregate_at - order.collect_at}. Plan with the client's own target."
            )
        return terms

    def rehearse(self, order: Order) -> None:
        """Raise what `answer` would raise for this order now; release nothing."""
        terms, profile = self.check(order), self.profile
        known = [] if self.ledger is None else self.ledger.known()
        if self.ledger is not None and self.ledger.find(order.run) is not None:
            return
        refuse_forgotten(order, self.ledger)
        self.source.check(order.collect_at, order.samples * order.members)
        asked = asked_noise(order, terms)
        if self.noise is not private_noise:  # which spends nothing
            asked = replace(asked, epsilon=None, private=False)
        draft = release_event(self.profile, order, terms, asked)
        if self.ledger is not None:
            self.ledger.refuse_stranger(draft)
        process = profile.client.process
        enforce(profile.policy, known, draft, process, profile.method, profile.law)

    def answer(self, order: Order) -> bytes:
        """Carry an order out and return the bytes to upload.

        Guarantees
            What is returned is in the ledger already. A second answer in the same run returns
            the same bytes, whatever has crashed in between, and even if the second order names
            another slot. The noise is never less than this client's own terms ask for.
        """
        terms = self.check(order)
        stored = None if self.ledger is None else self.ledger.find(order.run)
        if stored is not None:
            return stored.payload
        refuse_forgotten(order, self.ledger)
        value = self.collect(order, terms)

        def make(known: Sequence[Event]) -> Event:
            return self._release(order, terms, value, known)

        if self.ledger is None:
            return make([]).payload
        process = self.profile.client.process
        event = self.ledger.release(
            order.run, make, self.profile.policy, process, self.profile.method, self.profile.law
        )
        return event.payload

    def collect(self, order: Order, terms: Terms) -> Array:
        """Collect and train: `[d]`, or one row for each member of a gateway."""
        client = self.profile.client
        if client.members == 1:
            return self.train(terms, self.source.collect(order.collect_at, order.samples))
        self.clipped, means = 0, []
        for mean, moved in member_means(self.source, terms, self.profile.spread):
            self.clipped += moved
            means.append(mean)
        return np.concatenate(means)

    def train(self, terms: Terms, records: Array) -> Array:
        """Empirical risk minimisation: the mean of the released values, each record clipped."""
        client, states = self.profile.client, self.profile.client.process.states
        value = average(records, states, terms.release, client.samples, as_read=terms.as_read)
        self.clipped = unexplained(records, states, self.profile.spread)
        return value

    def _release(self, order: Order, terms: Terms, value: Array, known: Sequence[Event]) -> Event:
        scale = asked_noise(order, terms).scale
        if order.noise == "server":  # as this client's own profile says, or it had refused
            noised = announced_noise(value, terms, scale, private=self.noise is private_noise)
        else:
            # One record is in one member's part only, so the terms hold for all of them at once.
            noised = self.noise(value.ravel(), terms, scale)
            if value.ndim > 1:
                noised = replace(noised, value=_mean(np.asarray(noised.value), value.shape))
        return self.write(order, terms, noised, known)

    def write(self, order: Order, terms: Terms, noised: Noised, known: Sequence[Event]) -> Event:
        """The event of a release, with the upload that it sends, after the events so far."""
        spent = noised.private
        draft = release_event(self.profile, order, terms, noised)
        total = self._total(terms.target, known, draft)
        upload = Upload(
            run=order.run,
            client=order.client,
            plan=order.plan,
            collect_at=order.collect_at,
            aggregate_at=order.aggregate_at,
            value=np.atleast_1d(noised.value).tolist(),
            samples=order.samples,
            members=order.members,
            noise=order.noise,
            noise_scale=draft.scale,
            sensitivity=draft.sensitivity,
            delta=terms.delta,
            mixing=self.profile.mixing,
            mechanism=terms.target.mechanism,
            private=noised.private,
            classical_epsilon=draft.classical_epsilon if spent else None,
            aged_epsilon=draft.aged_epsilon if spent else None,
            classical_delta=draft.delta if spent else None,
            aged_delta=draft.aged_delta if spent else None,
            releases=_released(known) + int(spent),
            total_classical=total.classical if spent else None,
            total_aged=total.aged if spent else None,
            total_classical_delta=total.classical_delta if spent else None,
            total_aged_delta=total.aged_delta if spent else None,
            fingerprint=draft.fingerprint,
        )
        return replace(draft, payload=upload.encode())

    def _total(self, target: Target, known: Sequence[Event], draft: Event) -> Total:
        """What all releases add up to: about the promise, or the slot of aggregation."""
        method, law, process = self.profile.method, self.profile.law, self.profile.client.process
        if not target.lasting:
            return total_of([*known, draft], process, draft.aggregate_at, method, law)
        total = promised_total(known, draft, process, target.promise, method, law)
        return replace(total, aged=max(total.aged, draft.aged_epsilon))


def refuse_forgotten(order: Order, ledger: Ledger | None) -> None:
    """Raise if the server holds a release of this client that its ledger does not know."""
    if ledger is None or not order.head:
        return
    digest, _, run = order.head.partition(" ")
    event = ledger.find(run)
    if event is None:
        raise LedgerRolledBack(
            f"ledger {ledger.path} is an old copy: the server holds a release of client "
            f"{order.client!r} in run {run!r}, and it does not. Nothing is released from it. "
            f"{replay_remedy(ledger.path)}"
        )
    if hashlib.sha256(event.payload).hexdigest() != digest:
        raise LedgerForked(
            f"ledger {ledger.path} and a copy of it are both in use: the server holds another "
            f"release of client {order.client!r} in run {run!r} than it does. Nothing is released "
            "from it. Count what both hold as spent."
        )


def _mean(values: Array, shape: tuple[int, ...]) -> Array:
    """The mean over members of a vector that holds all of them."""
    columns = np.reshape(values, shape).T
    return np.array([math.fsum(column.tolist()) / shape[0] for column in columns])


def _each(members: int) -> str:
    return "" if members == 1 else f" of each of {members} members"


def _released(known: Sequence[Event]) -> int:
    """How many of the events are private releases."""
    standing = Standing.read(known[-1].account) if len(known) else None
    return sum(event.private for event in known) if standing is None else standing.releases


def release_event(profile: Profile, order: Order, terms: Terms, noised: Noised) -> Event:
    """The event of a release, before it has a payload."""
    spent, failure = noised.epsilon, noised.failure
    if spent is None:  # the stand-in: what the noise would give, if it were private
        spent, failure = _spent(terms, noised.scale), terms.classical_delta
    return Event(
        key=order.run,
        client=order.client,
        collect_at=order.collect_at + profile.starts_at,
        aggregate_at=order.aggregate_at + profile.starts_at,
        classical_epsilon=spent,
        aged_epsilon=terms.aged_epsilon(noised.scale, spent),
        sensitivity=terms.sensitivity,
        scale=noised.scale,
        private=noised.private,
        mixing=profile.method,
        fingerprint=terms.client.process.fingerprint,
        made_at=now(),
        members=order.members,
        payload=b"",
        kind=terms.target.mechanism,
        delta=failure,
        aged_delta=terms.aged_delta(failure),
        noise=order.noise,
        metric=_metric(terms),
    )


def _metric(terms: Terms) -> tuple[tuple[float, ...], ...] | None:
    """The share of ε that tells each two states apart; None where only ε is known."""
    if MECHANISMS[terms.target.mechanism].approximate or terms.guard.size == 0:
        return None
    shares = release_losses(1.0, terms.client.process.states, terms.guard)
    return tuple(tuple(row) for row in shares.tolist())


def refuse_shift(process: Process, starts_at: int) -> None:
    """Slots of a run must mean what the client's own do, by which its ledger counts."""
    if starts_at % process.day:
        raise InvalidInput(
            "starts_at", starts_at, f"a multiple of {process.day} slots: whole days of the process"
        )


def asked_noise(order: Order, terms: Terms) -> Noised:
    """The noise to be used, before it is drawn: the server's or the client's, whichever is more."""
    scale = max(order.noise_scale, terms.scale)
    return Noised(0.0, scale, _spent(terms, scale), private=True, failure=terms.classical_delta)


def _spent(terms: Terms, scale: float) -> float:
    mechanism = MECHANISMS[terms.target.mechanism]
    reach, failure = np.asarray(terms.sensitivity), np.asarray(terms.classical_delta)
    return float(mechanism.spent(reach, np.asarray(scale), failure))


def refusal_reason(error: AgewiseError) -> RefusalReason:
    """One word for why a client does not answer: all that the server is told."""
    if isinstance(error, BudgetExceeded):
        return "budget"
    if isinstance(error, OrderRefused):
        return "order"
    if isinstance(error, LedgerDamaged | LedgerDisputed) or getattr(error, "field", "") == "ledger":
        return "ledger"
    return "records"
