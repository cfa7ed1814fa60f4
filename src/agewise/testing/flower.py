"""Flower in this process: its messages, without its network and its processes."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from agewise.federation import RunIncomplete
from agewise.federation.flower import client_app, engine, federation
from agewise.federation.flower.deployment import Deployment
from agewise.federation.flower.node import write_node
from agewise.federation.flower.server_app import make_server_app
from agewise.federation.flower.submission import Submission
from agewise.privacy import LedgerDamaged, Policy
from agewise.problem import Problem
from agewise.testing.clock import Clock

Fault = Callable[[Message], Message | bool | None]


class FlowerNode:
    """A node of a grid: a ClientApp, and what it was started with."""

    def __init__(
        self, app: ClientApp, config: dict[str, Any], run_config: dict[str, Any] | None = None
    ) -> None:
        self.app, self.config, self.run_config = app, config, run_config or {}
        self.alive = True  #: one that is not gets messages and does nothing
        self.fault: Fault | None = None
        """Called with each message; what it returns is the reply: None is the app's own, False none
        at all."""

    @classmethod
    def of(
        cls,
        folder: Path,
        problem: Problem,
        name: str,
        *,
        records: dict[str, Any] | None = None,
        policy: Policy | None = None,
        stand_in_seed: int | None = None,
        starts_at: int = 0,
        app: ClientApp = client_app.app,
    ) -> FlowerNode:
        """Return a client's node, which lives in a folder of its name.

        Without `records`, as its file names them, they are simulated; without a `policy` it has no
        limit; with `stand_in_seed` its noise is not private. Its own count of slots `starts_at`
        so many before the first.
        """
        path = folder / name / "node.toml"
        write_node(
            path,
            problem,
            name,
            records=records or {"kind": "simulated", "seed": 7},
            policy=policy or Policy(),
            stand_in_seed=stand_in_seed,
            starts_at=starts_at,
        )
        return cls(app, {"agewise-config": str(path)})


class FlowerGrid(Grid):
    """A grid that calls a node's ClientApp when a message for it is pushed."""

    def __init__(self, nodes: Iterable[FlowerNode]) -> None:
        self.nodes = dict(enumerate(nodes, start=101))
        self.replies: dict[str, Any] = {}
        self.numbers = itertools.count(1)
        self.pushed: list[tuple[int, Message]] = []  #: all there ever was, with the node's number

    def set_run(self, run: Any) -> None:
        """Nothing that a run needs: this grid is one run's."""
        raise NotImplementedError

    @property
    def run(self) -> Any:
        """The run that this grid is for."""
        return SimpleNamespace(run_id=7)

    def create_message(self, *_: Any, **__: Any) -> Message:
        """Nothing that a run needs: messages are made without a grid."""
        raise NotImplementedError

    def get_node_ids(self) -> list[int]:
        """The numbers of all nodes."""
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Have nodes answer at once; return the number of each message."""
        return [self._push(message) for message in messages]

    def _push(self, message: Message) -> str:
        node = self.nodes.get(message.metadata.dst_node_id)
        if node is None:
            return ""
        identity = f"m{next(self.numbers)}"
        message.metadata.__dict__["_message_id"] = identity
        self.pushed.append((message.metadata.dst_node_id, message))
        if not node.alive:
            return identity
        reply = node.fault(message) if node.fault else None
        if reply is None:
            about = message.metadata.dst_node_id, node.config, RecordDict(), node.run_config
            reply = node.app(message, Context(1, *about))
        if reply is not False:
            self.replies[identity] = reply
        return identity

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """The answers that are here, each once."""
        return [self.replies.pop(one) for one in list(message_ids) if one in self.replies]

    def send_and_receive(
        self,
        messages: Iterable[Message],
        *,
        timeout: float | None = None,  # noqa: ARG002
    ) -> list[Message]:
        """Push, and pull."""
        return self.pull_messages(self.push_messages(messages))


def failing(code: int, reason: str = "as planted") -> Fault:
    """A fault of a node: it answers every message with this error."""
    return lambda message: Message(Error(code, reason), reply_to=message)


class FlowerInProcess:
    """While it lasts, `run` with the engine "flower" needs no process but this one.

    What is submitted is carried out at once by nodes of this process, and published as Flower's
    ServerApp would.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.nodes: defaultdict[str, FlowerNode] = defaultdict(
            lambda: FlowerNode(client_app.app, {})
        )
        """By client, made when it is asked for: to let one fail, give it a `fault`."""
        self.grids: list[FlowerGrid] = []  #: one for every submission
        self.clock = clock or Clock()  #: that server and nodes go by

    def __enter__(self) -> FlowerInProcess:
        with contextlib.ExitStack() as stack:
            for patch in self._patches():
                stack.enter_context(patch)
            stack.enter_context(self.clock.kept_by("flower"))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _patches(self) -> Iterator[contextlib.AbstractContextManager[Any]]:
        yield identified()
        yield mock.patch.object(federation, "bring_up", return_value=None)
        yield mock.patch.object(federation, "bring_down", return_value=None)
        yield mock.patch.object(Submission, "_status", return_value="finished:completed")
        yield mock.patch.object(engine, "submit", self._submit)

    def _submit(self, deployment: Deployment, app: Path) -> str:
        for one in deployment.nodes:
            path = deployment.folder / one.folder / "node.toml"
            self.nodes[one.name].config = {"agewise-config": str(path)}
        self.grids.append(FlowerGrid(self.nodes[one.name] for one in deployment.nodes))
        context = Context(len(self.grids), 0, {}, RecordDict(), {})
        home = {"FLWR_HOME": deployment.environment["FLWR_HOME"]}
        failures = contextlib.suppress(RunIncomplete, LedgerDamaged)  # it publishes them
        with mock.patch.dict(os.environ, home), failures:
            make_server_app(app / "agewise_run")(self.grids[-1], context)
        return str(len(self.grids))


def identified() -> contextlib.AbstractContextManager[Any]:
    """While this lasts, messages can be made in this process, which Flower has not started."""
    return mock.patch.multiple(TaskIdentity, _task_id=1, _run_id=1, _node_id=1)
