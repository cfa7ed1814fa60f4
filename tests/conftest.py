import numpy as np
import pytest
from hypothesis import settings

from harness.budget import Budget
from harness.cost import Costs

settings.register_profile("agewise", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("agewise")

WATT_HOURS = [20, 50, 100, 200]


def pytest_addoption(parser):
    parser.addoption("--budget", type=float, metavar="SECONDS", help="begin no test after so long")
    parser.addoption("--costs", metavar="FILE", help="write what every test cost, in CPU seconds")


def pytest_configure(config):
    config.pluginmanager.register(Costs(config.getoption("costs")), "costs")
    if config.getoption("budget") is not None:
        config.pluginmanager.register(Budget(config.getoption("budget")), "budget")


def pytest_collection_modifyitems(items):
    """Long work may take an hour; everything else the time limit of pyproject.toml."""
    for item in items:
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
