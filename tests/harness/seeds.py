"""Seeds of random cases: a few are enough to notice most faults, the others are slow tests."""

import pytest


def seeds(quick, every):
    """Cases of a test by seed: the first of them, and the others as slow ones."""
    later = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(quick, every)]
    return [*range(quick), *later]
