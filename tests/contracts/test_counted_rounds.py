"""A few rounds, counted one by one: against every string of outputs, about every slot."""

import numpy as np
import pytest

import agewise as aw
from attacks import attack, laplace_outputs
from random_chains import random_chain


@pytest.mark.parametrize("seed", range(25))
def test_guarantee_no_string_of_outputs_tells_more_than_a_number_of_rounds(seed):
    rng = np.random.default_rng(seed)
    chain = random_chain(rng, int(rng.integers(2, 5)), "dense")
    every, spent = int(rng.integers(1, 4)), float(rng.uniform(0.05, 1.2))
    rounds, age = int(rng.integers(1, 6)), int(rng.integers(0, 3))
    slots = [1 + every * j for j in range(rounds)]
    outputs = [laplace_outputs(spent, chain.states)] * rounds

    def told(seen_at, count=rounds):
        return attack(chain.transition, chain.stationary, slots[:count], outputs[:count], seen_at)

    def bound(promise):
        return aw.continual_epsilon(chain, every, spent, age, promise, rounds=rounds)

    present = max(told(slots[j] + age, j + 1) for j in range(rounds))
    ever = max(told(s) for s in range(slots[0], slots[-1] + age + 1))
    assert present <= bound("present") * (1 + 1e-11)
    assert ever <= bound("every_moment") * (1 + 1e-11)
    assert bound("present") <= aw.continual_epsilon(chain, every, spent, age) * (1 + 1e-9)
    assert ever >= 0.6 * bound("every_moment")  # and the bounds are not idle
    for last in (0, 1, every + age, 10):
        about = [
            told(s, j + 1)
            for j in range(rounds)
            for s in range(max(slots[0], slots[j] + age - last), slots[j] + age + 1)
        ]
        assert max(about) <= bound(last) * (1 + 1e-11)
        assert bound(last) <= bound("every_moment") * (1 + 1e-9)
