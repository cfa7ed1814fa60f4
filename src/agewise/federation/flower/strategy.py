"""For apps that exist already: any strategy of Flower, with a plan's orders in its messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from logging import INFO, WARNING
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore.utils import get_flwr_home

from agewise.checks import whole
from agewise.errors import InvalidInput
from agewise.federation.flower.client_app import RECORD, refusal_in
from agewise.federation.flower.deployment import Deployment
from agewise.federation.flower.mod import PlanHelper
from agewise.planning import Plan
from agewise.planning import plan as make_plan
from agewise.planning.turns import resting
from agewise.scenario import load_scenario


class AgedStrategy(Strategy):
    """A strategy whose train messages carry a plan's orders, for clients with `age_dp_mod`.

    `strategy` samples, aggregates and evaluates as it always did. Each of Flower's rounds is a
    round of the `plan`, `every` slots after the one before, and a release of its own: `run` names
    them, and must be new for every run (a run that is begun again under its name gets the updates
    that were released under it; None: by Flower's number of the run). `starts_at` is how many slots
    lie before the first round, counted from the nodes' own. `keyed` is as for `PlanHelper`.

    Where the ServerApp runs in a deployment (`agewise deploy`), no `plan` means one for the
    scenario that it was laid out with, and no `keyed` the keys that are registered there.

    The metrics of each round get `present-epsilon`, `classical-epsilon` and with Gaussian noise
    `present-delta`, what all releases so far add up to by the ledger of the client with the largest
    total (where the noise is private), and `refused-WORD`, how many clients refused for that
    reason. `refused` names them.

    Guarantees
        A node that is no client of the plan, and a client that the plan does not hear or that rests
        in this round, get no train message. Evaluate messages are the strategy's own.
    """

    def __init__(
        self,
        strategy: Strategy,
        plan: Plan | None = None,
        run: str | None = None,
        keyed: Mapping[str, int] | None = None,
        starts_at: int = 0,
    ) -> None:
        here = _deployment()
        if plan is None:
            if here is None:
                where = "a plan, where the ServerApp runs in no deployment of agewise"
                raise InvalidInput("plan", None, where)
            plan = make_plan(load_scenario(here.scenario))
        if keyed is None and here is not None:
            keyed = here.node_numbers()
        PlanHelper(plan, run or "flower", keyed)  # which refuses what no app of one's own can do
        self.strategy, self.plan, self.run, self.keyed = strategy, plan, run, keyed
        self.starts_at = whole("starts_at", starts_at, 0)
        self.refused: dict[int, dict[str, str]] = {}
        """By round: client → the word with which it refused."""
        self._names: dict[int, str] = {}
        self._spent: dict[str, tuple[float, float, float]] = {}
        """Client → what it has told last: ε and δ about the present, and the classical ε."""

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Go through the rounds; refuse more of them than the plan has before the first."""
        self._before(num_rounds)
        return super().start(
            grid,
            initial_arrays,
            num_rounds,
            timeout,
            train_config,
            evaluate_config,
            evaluate_fn,
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The strategy's messages, each with its client's order."""
        run, before = self.run or f"flower-{grid.run.run_id}", self._before(server_round)
        helper = PlanHelper(self.plan, f"{run}-{server_round:05d}", self.keyed, before)
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        if not {one.metadata.dst_node_id for one in messages} <= self._names.keys():
            self._names = {node: name for name, node in helper.nodes(grid).items()}
        heard = {one.client for one in self.plan.assignments} - set(self.plan.unheard)
        absent = resting(self.plan.problem, server_round)
        ordered = []
        for message in messages:
            node, about = message.metadata.dst_node_id, message.metadata
            name = self._names.get(node)
            if name not in heard or name is None:
                log(WARNING, "agewise: node %d is no client that the plan hears", node)
                continue
            if name in absent:
                continue
            content = RecordDict({**message.content, RECORD: helper.order(name)})
            ordered.append(
                Message(content, node, about.message_type, ttl=about.ttl, group_id=about.group_id)
            )
        return ordered

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """What the strategy makes of the replies, and what all rounds so far have spent."""
        told = list(replies)
        self.refused[server_round] = refused = {}
        for reply in told:
            name = self._names.get(reply.metadata.src_node_id, "?")
            word = refusal_in(reply)
            if word is not None:
                refused[name] = word
                log(INFO, "agewise: %s refused (%s) and is left out of this round", name, word)
            elif not reply.has_error():
                self._note(name, reply)
        arrays, metrics = self.strategy.aggregate_train(server_round, told)
        more: dict[str, int | float] = {**Counter(f"refused-{word}" for word in refused.values())}
        if self._spent:
            present, failure, classical = map(max, zip(*self._spent.values(), strict=True))
            more |= {"present-epsilon": present, "classical-epsilon": classical}
            more |= {"present-delta": failure} if failure else {}
        return arrays, MetricRecord({**(metrics or {}), **more})

    def _note(self, name: str, reply: Message) -> None:
        record = reply.content.config_records.get(RECORD) or ConfigRecord()
        told = [record.get(key) for key in ("total_aged", "total_delta", "total_classical")]
        present, failure, classical = (one if isinstance(one, float) else None for one in told)
        if present is not None and failure is not None and classical is not None:
            self._spent[name] = present, failure, classical

    def _before(self, server_round: int) -> int | None:
        """How many slots lie before a round; None where the plan is for one."""
        rounds, every = self.plan.problem.rounds, self.plan.problem.every
        if rounds is not None and server_round > rounds:
            remedy = "Plan for as many: problem.replace(rounds=..., every=...)."
            allowed = f"1 to {rounds}, the rounds of the plan"
            raise InvalidInput("num_rounds", server_round, allowed, remedy)
        return None if every is None else self.starts_at + (server_round - 1) * every

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The strategy's own."""
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """The strategy's own."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        """Log the plan's target and the strategy's own summary."""
        problem = self.plan.problem
        log(INFO, "\t├──> Agewise: target ε %g, %d clients", problem.epsilon, len(problem.clients))
        self.strategy.summary()


def _deployment() -> Deployment | None:
    """The deployment that this ServerApp runs in, by Flower's home; None: it runs in none."""
    folder = Path(get_flwr_home()).parent
    return Deployment.load(folder) if (folder / "deployment.json").is_file() else None
