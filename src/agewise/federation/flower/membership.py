"""Which nodes of a deployment have joined its SuperLink: a node that runs may still be refused."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Any

from agewise.federation.flower.commands import ask_flower
from agewise.federation.flower.deployment import Deployment
from agewise.federation.flower.supervisor import read_state
from agewise.federation.flower.units import PROFILE
from agewise.federation.happened import RunIncomplete
from agewise.progress import Progress
from agewise.wording import listed

NUMBER = re.compile(r"SuperNode ID: (\d+)")
"""By this line of its log a node without a key says which number it was given."""
PAUSE = 1.0


def joined_nodes(deployment: Deployment, state: dict[str, Any]) -> dict[str, bool]:
    """Client → whether the SuperLink has counted its node as online since it was last started."""
    answer = ask_flower(deployment, "supernode", "list", PROFILE)
    listed = {str(one["node-id"]): one for one in answer.get("nodes") or []}
    keyed = deployment.node_numbers() or {}
    members = {}
    for node in deployment.nodes:
        process = state["processes"].get(node.name)
        number = str(keyed.get(node.name) or _number_in_log(deployment, node.name))
        one = listed.get(number)
        members[node.name] = (
            process is not None
            and process["running"]
            and one is not None
            and one["status"] == "online"
            and _instant(one["online-at"]) > process["started"] - 1  # told in whole seconds
        )
    return members


def wait_for_nodes(
    deployment: Deployment, wait: float, progress: Progress | None = None
) -> dict[str, Any]:
    """Return the state once all nodes have joined; raise, naming the others, if time is over."""
    until = time.time() + wait
    while True:
        state = read_state(deployment)
        if state is None:
            raise RunIncomplete(f"the federation in {deployment.folder} was stopped.")
        joined = joined_nodes(deployment, state)
        if progress is not None:
            progress(sum(joined.values()), len(joined))
        absent = [name for name, there in joined.items() if not there]
        if not absent:
            return state
        if time.time() > until:
            logs = listed([f"{name!r} (log: {deployment.log_of(name)})" for name in absent], 5)
            raise RunIncomplete(
                f"{len(absent)} of {len(joined)} nodes have not joined the SuperLink at "
                f"{deployment.address} after {wait:g} s: {logs}. They are still tried: "
                f"agewise deploy status {deployment.folder} shows how they stand, "
                f"agewise deploy down {deployment.folder} stops them."
            )
        time.sleep(PAUSE)


def _number_in_log(deployment: Deployment, name: str) -> str:
    try:
        text = deployment.log_of(name).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return next(iter(reversed(NUMBER.findall(text))), "")


def _instant(text: str) -> float:
    """A time as Flower tells it, in seconds; long ago if it tells none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
