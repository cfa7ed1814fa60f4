"""Every test of this folder goes by a clock of its own; nothing needs Flower's processes."""

import pytest
from london import NAMES, node

from agewise.testing import Clock, FlowerInProcess, identified


@pytest.fixture(autouse=True)
def identity():
    with identified():
        yield


@pytest.fixture(autouse=True)
def clock():
    """Server and nodes go by one clock, which only waiting moves on."""
    with Clock().kept_by("flower") as made:
        yield made


@pytest.fixture
def nodes(tmp_path):
    return {name: node(tmp_path, name) for name in NAMES}


@pytest.fixture
def federation(clock):
    """Nodes by client, and the grids of what was submitted, which is carried out at once."""
    with FlowerInProcess(clock) as flower:
        yield flower.nodes, flower.grids
