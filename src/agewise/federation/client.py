"""The client's side: check the order, collect, train, add noise, record, upload.

A client does not trust the server's numbers. It computes its noise from its own process, its own
target and the age, and refuses an order that asks for less. What it sends is what its ledger holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from agewise.arrays import Array
from agewise.checks import positive
from agewise.errors import AgewiseError, InvalidInput
from agewise.federation.messages import Order, RefusalReason, Upload
from agewise.federation.sources import DataSource, client_generator
from agewise.learning import Estimator, Learner, average, learner_of
from agewise.mechanism import MECHANISMS, Kind, Noised
from agewise.mechanism.laplace import LARGEST_SCALE
from agewise.mixing import Method
from agewise.privacy.account import BudgetExceeded, Event, Policy, enforce, now, total_of
from agewise.privacy.calibration import Rule
from agewise.privacy.ledger import Ledger, LedgerDamaged
from agewise.problem import Client, Problem, Target, Trust
from agewise.process import Process
from agewise.terms import Terms
from agewise.terms import terms as terms_for

ROOM = 1e-9
"""By how much an ordered noise scale may fall short in another machine's arithmetic; the client
uses its own, larger one then."""


LARGEST_MAPPED = 1e150
"""Noise scales beyond which OpenDP's maps overflow; more noise spends no more than this one."""


class OrderRefused(AgewiseError):
    """An order that this client will not follow. Nothing was released."""

    exit_code = 4


@dataclass(frozen=True)
class Profile:
    """What a client knows about itself and demands: its records, its target, its limits.

    `target_epsilon` is the aged ε that one release may reach, `mixing` the knowledge it grants an
    adversary, `policy` what all its releases together may reach. `starts_at` is the number of
    slots of its own time that lie before slot 1 of the run. `aggregate_at`, `estimator`,
    `calibration` and `learner` are the only ones that it accepts (None: whatever is ordered). A
    server that may choose the aggregation slot chooses the age, and with it how little noise is
    enough. `mechanism` is the only noise that it accepts, and `delta` the δ of its target with it;
    `noise` the only one it lets add that: itself, or the server, which then sees its mean as it is.
    """

    client: Client
    target_epsilon: float
    mixing: Method
    policy: Policy
    starts_at: int = 0
    aggregate_at: int | None = None
    estimator: Estimator | None = None
    calibration: Rule | None = None
    mechanism: Kind = "laplace"
    delta: float = 0.0
    learner: Learner | None = None
    noise: Trust = "client"

    @classmethod
    def of(
        cls, client: Client, problem: Problem, policy: Policy | None, starts_at: int = 0
    ) -> Profile:
        """The profile of a client whose own scenario is `problem`; no policy: its target in all."""
        target = problem.target_of(client)
        return cls(
            client,
            target.epsilon,
            problem.mixing,
            Policy(target.epsilon, max_delta=target.delta) if policy is None else policy,
            starts_at,
            problem.aggregate_at,
            problem.estimator,
            problem.calibration,
            problem.mechanism,
            problem.delta or 0.0,
            problem.learner,
            problem.noise,
        )

    def __post_init__(self) -> None:
        positive("target_epsilon", self.target_epsilon)

    def target(self, calibration: Rule) -> Target:
        """What its release must guarantee, under the calibration that was ordered."""
        return Target(self.target_epsilon, self.mixing, calibration, self.mechanism, self.delta)

    @property
    def law(self) -> Array | None:
        """The law that an adversary is taken to know, where that is the client's own."""
        stated = self.mixing == "own_law" and self.client.law is not None
        return np.asarray(self.client.law) if stated else None

    @property
    def method(self) -> Method:
        """The mixing that totals are reckoned with."""
        return "exact" if self.mixing == "own_law" and self.client.law is None else self.mixing

    def refuse_other(self, order: Order) -> None:
        """Raise if an order is for another aggregation or another way of averaging than its own."""
        if not order.collect_at <= order.aggregate_at:
            raise OrderRefused(
                f"collect_at is {order.collect_at}; allowed: 1 to {order.aggregate_at}"
            )
        learner = None if self.learner is None else self.learner.to_dict()
        accepted = {**vars(self), "learner": learner}
        for name in ("aggregate_at", "estimator", "calibration", "mechanism", "learner", "noise"):
            own, ordered = accepted[name], getattr(order, name)
            if own is not None and ordered != own:
                raise OrderRefused(
                    f"{name} is {ordered} in the order; client {self.client.name!r} allows {own} "
                    "only"
                )
        if order.noise == "server" and not self.policy.allow_server_noise:
            raise OrderRefused(
                f"noise is server in the order; the policy of client {self.client.name!r} does not "
                "allow that (allow_server_noise): the server would see its mean as it is"
            )


Draw = Callable[[Array, Terms, float], Noised]
"""(vector, terms, noise scale) → noised vector."""


def private_noise(value: Array, terms: Terms, scale: float) -> Noised:
    """Noise from OpenDP, of at least this scale; its ε is what OpenDP's own map says."""
    return MECHANISMS[terms.target.mechanism].draw(
        value, sensitivity=terms.sensitivity, scale=scale, failure=terms.classical_delta
    )


def stand_in_noise(seed: int, name: str) -> Draw:
    """Reproducible noise for simulation: the same for the same seed and client. Not private."""

    def noise(value: Array, terms: Terms, scale: float) -> Noised:
        rng = client_generator(seed, name, "noise")
        return MECHANISMS[terms.target.mechanism].imitate(value, scale=scale, rng=rng)

    return noise


def announced_noise(value: Array, terms: Terms, scale: float, *, private: bool) -> Noised:
    """No noise: what holds once the server has drawn noise of at least this scale on this value."""
    if not private:
        return Noised(value, scale, None, private=False)
    failure = terms.classical_delta if terms.sensitivity > 0 else 0.0
    scale = min(scale * (1 + 4 * float(np.finfo(float).eps)), LARGEST_SCALE[float])  # maps round up
    mapped = min(scale, LARGEST_MAPPED)
    spent = MECHANISMS[terms.target.mechanism].certified(terms.sensitivity, mapped, failure)
    spent = max(spent, _spent(terms, mapped), 5e-324 if failure else 0.0)  # not lost by underflow
    return Noised(value, scale, spent, private=True, failure=failure)


class ClientAgent:
    """One client, ready to answer orders. The steps can be called one by one, or all by `answer`.

    Without a ledger (None) nothing is recorded: for rehearsals with the stand-in only.
    """

    def __init__(
        self, profile: Profile, source: DataSource, ledger: Ledger | None, noise: Draw
    ) -> None:
        self.profile, self.source, self.ledger, self.noise = profile, source, ledger, noise
        self.clipped = 0
        """Records moved to a state. Not noised, so it stays with the client."""

    def check(self, order: Order) -> Terms:
        """Compute this client's own terms and refuse an order that falls short of them."""
        profile, client = self.profile, self.profile.client
        if order.client != client.name:
            raise OrderRefused(f"an order for {order.client!r} reached client {client.name!r}")
        planned = (order.fingerprint, order.samples)
        if planned != (client.process.fingerprint, client.samples):
            raise OrderRefused(
                f"client {client.name!r} follows process {client.process.fingerprint} with "
                f"{client.samples} records, the order was made for {planned[0]} with {planned[1]}. "
                "Plan with the client's own scenario."
            )
        profile.refuse_other(order)
        if order.noise_scale > LARGEST_SCALE[float]:
            raise OrderRefused(f"noise_scale is {order.noise_scale:g}; allowed: up to 1e300")
        try:
            refuse_shift(client.process, profile.starts_at)
            terms = terms_for(
                replace(client, weight=None),
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
        known = [] if self.ledger is None else self.ledger.events()
        if any(event.key == order.run for event in known):
            return
        self.source.check(order.collect_at, order.samples)
        draft = release_event(self.profile, order, terms, _asked(order, terms))
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
        records = self.source.collect(order.collect_at, order.samples)
        value = self.train(terms, records)

        def make(known: list[Event]) -> Event:
            return self._release(order, terms, value, known)

        if self.ledger is None:
            return make([]).payload
        process = self.profile.client.process
        event = self.ledger.release(
            order.run, make, self.profile.policy, process, self.profile.method, self.profile.law
        )
        return event.payload

    def train(self, terms: Terms, records: Array) -> Array:
        """Empirical risk minimisation: the mean of the released values, each record clipped."""
        client = self.profile.client
        value, self.clipped = average(records, client.process.states, terms.release, client.samples)
        return value

    def _release(self, order: Order, terms: Terms, value: Array, known: list[Event]) -> Event:
        scale = _asked(order, terms).scale
        if order.noise == "server":  # as this client's own profile says, or it had refused
            noised = announced_noise(value, terms, scale, private=self.noise is private_noise)
        else:
            noised = self.noise(value, terms, scale)
        return self.write(order, terms, noised, known)

    def write(self, order: Order, terms: Terms, noised: Noised, known: list[Event]) -> Event:
        """The event of a release, with the upload that it sends, after the events so far."""
        profile, spent = self.profile, noised.private
        draft = release_event(self.profile, order, terms, noised)
        total = total_of(
            [*known, draft], profile.client.process, draft.aggregate_at, profile.method, profile.law
        )
        upload = Upload(
            run=order.run,
            client=order.client,
            plan=order.plan,
            collect_at=order.collect_at,
            aggregate_at=order.aggregate_at,
            value=np.atleast_1d(noised.value).tolist(),
            samples=order.samples,
            noise=order.noise,
            noise_scale=draft.scale,
            sensitivity=draft.sensitivity,
            delta=terms.delta,
            mixing=profile.mixing,
            mechanism=terms.target.mechanism,
            private=noised.private,
            classical_epsilon=draft.classical_epsilon if spent else None,
            aged_epsilon=draft.aged_epsilon if spent else None,
            classical_delta=draft.delta if spent else None,
            aged_delta=draft.aged_delta if spent else None,
            releases=sum(event.private for event in known) + int(spent),
            total_classical=total.classical if spent else None,
            total_aged=total.aged if spent else None,
            total_classical_delta=total.classical_delta if spent else None,
            total_aged_delta=total.aged_delta if spent else None,
            fingerprint=draft.fingerprint,
        )
        return replace(draft, payload=upload.encode())


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
        payload=b"",
        kind=terms.target.mechanism,
        delta=failure,
        aged_delta=terms.aged_delta(failure),
        noise=order.noise,
    )


def refuse_shift(process: Process, starts_at: int) -> None:
    """Slots of a run must mean what the client's own do, by which its ledger counts."""
    if starts_at % process.day:
        raise InvalidInput(
            "starts_at", starts_at, f"a multiple of {process.day} slots: whole days of the process"
        )


def _asked(order: Order, terms: Terms) -> Noised:
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
    if isinstance(error, LedgerDamaged) or getattr(error, "field", "") == "ledger":
        return "ledger"
    return "records"
