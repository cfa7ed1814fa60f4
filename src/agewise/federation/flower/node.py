"""A node's own configuration: its client, its records, its limits, its ledger.

Written on the node's side and read there only; nothing in it comes from the server.
"""

from __future__ import annotations

import contextlib
import math
import os
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import Field

from agewise.documents import Entry, read_document
from agewise.errors import InvalidInput
from agewise.federation.client import (
    ClientAgent,
    Draw,
    OrderRefused,
    Profile,
    private_noise,
    stand_in_noise,
)
from agewise.federation.common_levels import CommonLevels
from agewise.federation.files import probe_folder
from agewise.federation.messages import Order
from agewise.federation.sources import (
    DataSource,
    RoundRecords,
    Shifted,
    SimulatedRecords,
    load_readings,
    round_seed,
)
from agewise.privacy.account import Policy
from agewise.privacy.ledger import Ledger
from agewise.privacy.witness import Witness, refuse_gone
from agewise.problem import Problem
from agewise.scenario import InvalidScenario, problem_from_dict, problem_to_dict


class _Simulated(Entry):
    kind: Literal["simulated"]
    seed: Annotated[int, Field(ge=0)]


class _Readings(Entry):
    kind: Literal["readings"]
    path: str


class NodeConfig(Entry):
    """What a node's TOML file says."""

    version: Literal[1] = 1
    ledger: str
    starts_at: Annotated[int, Field(ge=0)] = 0
    stand_in_seed: Annotated[int, Field(ge=0)] | None = None
    policy: Policy
    records: Annotated[_Simulated | _Readings, Field(discriminator="kind")]
    scenario: dict[str, Any]


class Node:
    """A node that has read its configuration.

    `before` is how many slots lie before slot 1 of the round that is ordered, counted from the
    node's own `starts_at`; None: no round of many. The server says so, and the node's own scenario
    which rounds there are.
    """

    def __init__(self, path: Path | str, before: int | None = None) -> None:
        self.path, self.before = Path(path), before
        try:
            document = tomllib.loads(self.path.read_text(encoding="utf-8"))
            self.config = read_document(NodeConfig, document, str(path))
            self.problem = problem_from_dict(document["scenario"])
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            raise InvalidInput("node configuration", f"{path} ({reason})", "a TOML file") from None
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise InvalidInput("node configuration", f"{path} ({error})", "valid TOML") from None
        except InvalidScenario as error:
            raise InvalidScenario(error.problems, f"{path}: scenario") from None
        if len(self.problem.clients) != 1:
            raise InvalidInput(
                f"{path}: scenario", f"{len(self.problem.clients)} clients", "this node's client"
            )
        if self.config.stand_in_seed is not None and self.config.records.kind != "simulated":
            raise InvalidInput(
                f"{path}: stand_in_seed",
                self.config.stand_in_seed,
                "simulated records only",
                "Who has the seed can take such noise away again.",
            )
        self.client = self.problem.clients[0]

    @property
    def profile(self) -> Profile:
        """What this node's client knows and demands."""
        starts_at = self.config.starts_at + (self.before or 0)
        return Profile.of(self.client, self.problem, self.config.policy, starts_at)

    def answer(self, order: Order) -> tuple[bytes, int]:
        """Carry an order out; return the bytes to send and how many readings were not as modelled.

        What was released in this run before is sent again, whatever has become of the records.
        """
        with Ledger(self.ledger) as ledger:
            stored = ledger.find(order.run)
            if stored is not None:
                return stored.payload, 0
            self.refuse_round(order, ledger)
            agent = ClientAgent(
                self.profile, self._source(order.aggregate_at), ledger, self._noise()
            )
            return agent.answer(order), agent.clipped

    def check(self, order: Order) -> None:
        """Raise if this node's configuration alone forbids an order; touch no records or ledger."""
        self.refuse_round(order, None)
        unread = SimulatedRecords(self.client, 0)
        ClientAgent(self.profile, unread, None, self._noise()).check(order)

    def rehearse(self, order: Order) -> None:
        """Raise what `answer` would raise for this order now; release nothing, make no ledger."""
        with contextlib.ExitStack() as stack:
            ledger = None
            if os.path.lexists(self.ledger):
                ledger = stack.enter_context(Ledger(self.ledger))
                if ledger.find(order.run) is not None:
                    return
            else:
                refuse_gone(self.ledger, Witness())
                probe_folder("ledger", self.ledger.parent)
            self.refuse_round(order, ledger)
            source = self._source(order.aggregate_at)
            ClientAgent(self.profile, source, ledger, self._noise()).rehearse(order)

    def refuse_round(self, order: Order, ledger: Ledger | None) -> None:
        """Raise if a round is none of this node's scenario, or lies before one it has answered.

        Guarantees
            Rounds that are answered begin a multiple of `every` slots (times the client's `turn`)
            after `starts_at`, are none but the scenario's `rounds`, and come in order, whatever the
            server says.
        """
        target = self.problem.target_of(self.client)
        name, every, rounds = self.client.name, target.every, target.rounds
        if every is None:
            if self.before is None:
                return
            raise OrderRefused(f"a round among many; client {name!r} allows one round only")
        before, last = self.before or 0, math.inf if rounds is None else (rounds - 1) * every
        if before % every or not 0 <= before <= last:
            up_to = "" if rounds is None else f" up to {last}"
            raise OrderRefused(
                f"{before} slots lie before the round in the order; client {name!r} allows "
                f"multiples of {every}{up_to}"
            )
        answered = (
            0 if ledger is None else max((e.aggregate_at for e in ledger.events()), default=0)
        )
        published_at = order.aggregate_at + self.profile.starts_at
        if published_at < answered:
            raise OrderRefused(
                f"the round is published in slot {published_at}; client {name!r} has answered one "
                f"for slot {answered}. Begin later (--starts-at)"
            )

    def _noise(self) -> Draw:
        seed = self.config.stand_in_seed
        if seed is None:
            return private_noise
        if self.before is not None:
            seed = round_seed(seed, self.before // (self.problem.every or 1) + 1)
        return stand_in_noise(seed, self.client.name)

    @property
    def ledger(self) -> Path:
        """Where this node's ledger is, its folder made."""
        place = self.path.parent / self.config.ledger
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def _source(self, aggregate_at: int) -> DataSource:
        records, before = self.config.records, self.before
        if isinstance(records, _Simulated):
            shift = CommonLevels(self.problem, records.seed).of(self.client.name)
            if before is None:
                return SimulatedRecords(self.client, records.seed, shift)
            return RoundRecords(self.client, records.seed, shift).later(before)
        sources = load_readings(self.path.parent / records.path, (before or 0) + aggregate_at)
        if self.client.name not in sources:
            raise InvalidInput(
                f"readings of client {self.client.name!r}",
                f"none in {records.path}",
                "the client's own records",
            )
        return Shifted(sources[self.client.name], before or 0)


def write_node(
    path: Path,
    problem: Problem,
    name: str,
    *,
    records: dict[str, Any],
    policy: Policy,
    stand_in_seed: int | None = None,
    starts_at: int = 0,
) -> None:
    """Write the configuration of one client's node, to be looked at and changed there."""
    only = [replace(c, weight=None) for c in problem.clients if c.name == name]
    alone = problem.keep(only, capacity=None)
    limits = {k: v for k, v in vars(policy).items() if v is not None}
    document: dict[str, Any] = {"version": 1, "ledger": LEDGER, "starts_at": starts_at}
    if stand_in_seed is not None:
        document["stand_in_seed"] = stand_in_seed
    document |= {"policy": limits, "records": records, "scenario": problem_to_dict(alone)}
    path.parent.mkdir(parents=True, exist_ok=True)
    Witness().forget((path.parent / LEDGER).resolve())  # laid out anew, it begins a new one
    path.write_text(HEADER + tomli_w.dumps(document), encoding="utf-8")


LEDGER = "releases.ledger"
"""The ledger of a node, beside its configuration, unless that names another."""

HEADER = """\
# What this node knows and demands. Read on this node only; the server never sees it.
# scenario: its process, records, target and rounds, of which it takes part in no others.
# policy: what all its releases together may reach.
# policy.allow_server_noise = false: never send a mean to which the server is to add the noise.
# records: { kind = "simulated", seed = 1 } or { kind = "readings", path = "meters.parquet" }.
# stand_in_seed, if present, makes the noise reproducible and therefore NOT private.
"""
