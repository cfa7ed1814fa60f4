"""A deployment from its layout to its end, for tests that go through that step by step."""

from agewise.federation.flower.commands import healthy
from agewise.federation.flower.deployment import (
    Deployment,
    change_layout,
    elsewhere,
    init_deployment,
)
from agewise.federation.flower.membership import wait_for_nodes
from agewise.federation.flower.supervisor import bring_down, bring_up, read_state

__all__ = [
    "Deployment",
    "bring_down",
    "bring_up",
    "change_layout",
    "elsewhere",
    "healthy",
    "init_deployment",
    "read_state",
    "wait_for_nodes",
]
