"""The federation that carries a run out: laid out for it, or one that is there; what is refused."""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agewise.errors import InvalidInput
from agewise.federation.client import OrderRefused
from agewise.federation.flower.certificates import refuse_plain_text
from agewise.federation.flower.commands import answers, healthy
from agewise.federation.flower.deployment import (
    Deployment,
    busy_ports,
    change_layout,
    checked_address,
    elsewhere,
    init_deployment,
)
from agewise.federation.flower.node import Node
from agewise.federation.flower.supervisor import bring_down, bring_up, read_state
from agewise.federation.server import Server
from agewise.federation.settings import Settings
from agewise.planning import Plan
from agewise.privacy.account import Policy
from agewise.privacy.ledger import Ledger, LedgerDamaged


class Federation:
    """Who carries a run out: a federation of its own, up while needed, or one that is there."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.own = settings.deployment is None
        self.deployment = Deployment.load(settings.deployment or folder / "deployment")
        self._is_up = False

    def up(self) -> Deployment:
        """The federation, brought up if it is our own and is not."""
        if not self.own:
            _refuse_down(self.deployment)
        elif not self._is_up:
            bring_down(self.deployment)  # what is left of it, if the run was killed
            if busy_ports(self.deployment):  # others have taken them since the run began
                self.deployment = change_layout(self.deployment, port=0)
            self._is_up = True
            bring_up(self.deployment, stays=False)
        return self.deployment

    def close(self) -> None:
        """Take it down if we have brought it up."""
        if self._is_up:
            bring_down(self.deployment)
            self._is_up = False

    def seeds(self) -> dict[str, int]:
        """The seeds of nodes on this machine that simulate their records."""
        return {
            name: document["records"]["seed"]
            for name, document in _node_documents(self.deployment).items()
            if document.get("records", {}).get("kind") == "simulated"
        }


def find_nodes(
    place: Path,
    plan: Plan,
    settings: Settings,
    *,
    superlink: str | None,
    root_certificates: Path | str | None,
    policy: Policy | None,
    sources: Path | str | None,
    starts_at: int = 0,
    befores: Sequence[int | None] = (None,),
) -> Settings:
    """Lay a federation out in a run's folder, or check the one that is there; return the settings.

    `befores`: how many slots lie before the first and the last of many rounds.
    """
    given = {"policy": policy, "sources": sources, "rng": settings.stand_in or None}
    if superlink is not None:
        if settings.deployment is not None:
            raise InvalidInput("superlink", "given with a deployment", "one or the other")
        _refuse_choices(given)
        checked_address(superlink, root_certificates)
        refuse_plain_text(plan.problem, root_certificates is not None)
        if not answers(superlink, root_certificates):
            raise _nobody_at(superlink)
        connection = elsewhere(place / "deployment", superlink, root_certificates)
        settings = replace(settings, deployment=str(connection.folder))
    elif settings.deployment is None:
        if sources is not None and not settings.stand_in:
            raise InvalidInput(
                "deployment",
                "None",
                "a deployment whose nodes have the readings and keep ledgers",
                "Lay one out with: agewise deploy init",
            )
        init_deployment(
            place / "deployment",
            plan.problem,
            policy=policy,
            readings=sources,
            seed=settings.seed,
            stand_in=settings.stand_in,
            starts_at=starts_at,
        )
    else:
        _refuse_choices(given)
        there = Deployment.load(settings.deployment)
        refuse_plain_text(plan.problem, there.tls)
        seed = _stand_in_seed(there, plan)
        if seed is not None:
            settings = replace(settings, stand_in=True, seed=seed)
        if settings.on_missing == "fail":
            for before in befores:
                _refuse_other(there, plan, before)
        _refuse_down(there)
    return settings


def _refuse_choices(choices: dict[str, Any]) -> None:
    for name, value in choices.items():
        if value is not None:
            raise not_ours(name)


def not_ours(name: str) -> InvalidInput:
    """A choice that is the nodes', where there is a deployment."""
    return InvalidInput(
        name,
        "given with a deployment",
        "one or the other",
        "With a deployment, each node's own configuration decides about that.",
    )


def _refuse_down(deployment: Deployment) -> None:
    if healthy(deployment):
        return
    if not deployment.nodes:
        raise _nobody_at(deployment.address)
    word = "is down" if read_state(deployment) is None else "is starting"
    raise InvalidInput(
        "deployment",
        f"{deployment.folder}, which {word} (no SuperLink at {deployment.address})",
        "one that is up",
        f"agewise deploy up {deployment.folder}",
    )


def _nobody_at(address: str) -> InvalidInput:
    return InvalidInput(
        "superlink",
        f"{address}, where none answers",
        "the address of a SuperLink",
        "Check address, firewall, and whether it wants TLS (--root-certificates).",
    )


def _node_documents(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """What the nodes' files say, where they are on this machine."""
    configured = {}
    for node in deployment.nodes:
        with contextlib.suppress(OSError, ValueError):
            text = (deployment.folder / node.folder / "node.toml").read_text(encoding="utf-8")
            configured[node.name] = tomllib.loads(text)
    return configured


def _stand_in_seed(deployment: Deployment, plan: Plan) -> int | None:
    """The seed of the nodes' stand-in, of the first if they differ; refuse a mixture."""
    names = {c.name for c in plan.problem.clients}
    known = {node.name for node in deployment.nodes}
    if names - known:
        raise InvalidInput(
            "deployment",
            f"{deployment.folder} without a node for {min(names - known)!r}",
            "a node for every client of the plan",
        )
    here = _node_documents(deployment)
    seeds = [one.get("stand_in_seed") for name, one in here.items() if name in names]
    if len({seed is None for seed in seeds}) > 1:
        raise InvalidInput(
            "deployment",
            f"{deployment.folder}, where some nodes use a stand-in for noise",
            "all of them, or none",
        )
    return int(seeds[0]) if seeds and seeds[0] is not None else None


def _refuse_other(deployment: Deployment, plan: Plan, before: int | None) -> None:
    """Refuse a plan that nodes on this machine would refuse, before anything is submitted."""
    server, here = Server(plan, "run"), _node_documents(deployment)
    folders = {node.name: deployment.folder / node.folder for node in deployment.nodes}
    for slot in range(1, plan.problem.aggregate_at + 1):
        for order in server.orders(slot):
            if order.client not in here:
                continue
            node = Node(folders[order.client] / "node.toml", before)
            try:
                node.check(order)
                with (
                    contextlib.suppress(InvalidInput, LedgerDamaged),  # for the node to say
                    Ledger.read(node.ledger) as ledger,
                ):
                    node.refuse_round(order, ledger)
            except OrderRefused as refusal:
                raise InvalidInput(
                    "plan",
                    f"not what the nodes of {deployment.folder} follow",
                    "the choices that each node's node.toml states",
                    f"{refusal}. Run what the deployment was laid out for, or lay out another one.",
                ) from None
