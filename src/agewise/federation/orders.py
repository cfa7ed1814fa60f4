"""The orders of a plan: clients alike get the same one but for the name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, overload

from agewise.federation.messages import Order
from agewise.planning import Assignment, Plan
from agewise.problem import Client, Problem


@dataclass(frozen=True)
class OrdersAlike:
    """One order for many clients that are alike but for their names; `first` is for the first.

    `heads` are the newest releases that the server holds of clients, of these and of others.
    """

    first: Order
    names: list[str]
    heads: Mapping[str, str] = field(default_factory=dict)

    def of(self, name: str) -> Order:
        """The order of one of them."""
        if name == self.first.client:
            return self.first
        return self.first.model_copy(update={"client": name, "head": self.heads.get(name, "")})

    def only(self, names: list[str]) -> OrdersAlike:
        """The same order for some of them."""
        return replace(self, first=self.of(names[0]), names=names)


class Due(Sequence[Order]):
    """The orders that are due, one by one or, by `groups`, those alike together."""

    def __init__(self, groups: Sequence[OrdersAlike]) -> None:
        self.groups = list(groups)

    @classmethod
    def of(cls, orders: Sequence[Order]) -> Due:
        """Orders from anywhere, each by itself."""
        if isinstance(orders, Due):
            return orders
        return cls([OrdersAlike(order, [order.client]) for order in orders])

    def without(self, names: Collection[str]) -> Due:
        """All but those of some clients."""
        if not names:
            return self
        left = [(one, [n for n in one.names if n not in names]) for one in self.groups]
        return Due([one.only(rest) for one, rest in left if rest])

    def __len__(self) -> int:
        return sum(len(one.names) for one in self.groups)

    def __iter__(self) -> Iterator[Order]:
        for one in self.groups:
            yield from map(one.of, one.names)

    @overload
    def __getitem__(self, place: int) -> Order: ...
    @overload
    def __getitem__(self, place: slice) -> list[Order]: ...
    def __getitem__(self, place: int | slice) -> Order | list[Order]:
        return list(self)[place]


class Issued(NamedTuple):
    """What a plan asks of whom: by client, and the names of those due in each slot.

    `kinds` has a number for all that a client's order and its claims rest on.
    """

    assignments: dict[str, Assignment]
    kinds: dict[str, int]
    due: dict[int, list[str]]

    @classmethod
    def of(cls, plan: Plan) -> Issued:
        """Everything that a plan asks for, of those who can be heard."""
        unheard, due = set(plan.unheard), dict[int, list[str]]()
        names = [one.client for one in plan.assignments]
        for name, one in zip(names, plan.assignments, strict=True):
            if name not in unheard:
                due.setdefault(one.collect_at, []).append(name)
        assignments = dict(zip(names, plan.assignments, strict=True))
        kinds = dict(zip(names, plan.kinds, strict=True))
        for name in unheard:
            del assignments[name], kinds[name]
        return cls(assignments, kinds, due)


class Orders:
    """Makes the orders of a run, each kind once."""

    def __init__(self, run: str, problem: Problem) -> None:
        self.run, self.problem = run, problem
        self._made: dict[tuple[str, int], Order] = {}

    def order(self, plan: str, kind: int, one: Assignment, client: Client) -> Order:
        """What a client is asked to do by a plan of this digest; those of a `kind` alike."""
        if (plan, kind) not in self._made:
            self._made[plan, kind] = self._make(plan, one, client)
        made = self._made[plan, kind]
        return OrdersAlike(made, [made.client]).of(one.client)

    def _make(self, plan: str, one: Assignment, client: Client) -> Order:
        problem, target = self.problem, self.problem.target_of(client)
        return Order(
            run=self.run,
            client=one.client,
            plan=plan,
            collect_at=one.collect_at,
            aggregate_at=problem.aggregate_at,
            samples=client.samples,
            members=client.members,
            epsilon=target.epsilon,
            mixing=problem.mixing,
            estimator=problem.estimator,
            calibration=problem.calibration,
            learner=problem.learner.to_dict(),
            mechanism=problem.mechanism,
            delta=problem.delta or 0.0,
            noise=problem.noise,
            noise_scale=one.noise_scale,
            rounds=target.rounds,
            every=target.every,
            promise=problem.promise,
            level=target.level,
            fingerprint=one.fingerprint,
        )
