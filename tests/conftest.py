from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from harness.budget import Budget
from harness.cost import Costs

settings.register_profile("agewise", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("agewise")

WATT_HOURS = [20, 50, 100, 200]
SLOW = Path(__file__).with_name("slow.txt")
"""Tests and cases over half a second of a processor, which no claim needs in the quick suite."""


def pytest_addoption(parser):
    parser.addoption("--budget", type=float, metavar="SECONDS", help="begin no test after so long")
    parser.addoption("--costs", metavar="FILE", help="write what every test cost, in CPU seconds")


def pytest_configure(config):
    config.pluginmanager.register(Costs(config.getoption("costs")), "costs")
    if config.getoption("budget") is not None:
        config.pluginmanager.register(Budget(config.getoption("budget")), "budget")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """What is listed as slow is; long work may take an hour, else pyproject.toml has the limit."""
    listed = set(SLOW.read_text(encoding="utf-8").splitlines())
    for item in items:
        if item.nodeid in listed:
            item.add_marker("slow")
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(3600))


@pytest.fixture(scope="session", autouse=True)
def _state(tmp_path_factory):
    """Nothing that a test does is remembered in the home of whoever runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGEWISE_STATE", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def rng():
    return np.random.default_rng(20_240_509)


@pytest.fixture
def paper_chains():
    import agewise as aw

    return [aw.birth_death(p, q, WATT_HOURS) for p, q in ((0.1, 0.2), (0.2, 0.1), (0.4, 0.4))]
