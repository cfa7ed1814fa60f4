import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("agewise", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("agewise")

WATT_HOURS = [20, 50, 100, 200]


@pytest.fixture
def rng():
    return np.random.default_rng(20_240_509)


@pytest.fixture
def paper_chains():
    import agewise as aw

    return [aw.birth_death(p, q, WATT_HOURS) for p, q in ((0.1, 0.2), (0.2, 0.1), (0.4, 0.4))]
