"""Random tables of many kinds, for searches that were made for none of them."""

from collections.abc import Callable

import numpy as np

from agewise.arrays import Array

Pair = tuple[Array, Array]
FAMILIES: dict[str, Callable[[int, int, np.random.Generator], Pair]] = {}

Make = Callable[[int, int, np.random.Generator], Pair]


def instance(make: Make) -> Make:
    FAMILIES[make.__name__] = make
    return make


@instance
def normal(m: int, slots: int, rng: np.random.Generator) -> Pair:
    return rng.random((m, slots)) / m**2, rng.normal(size=(m, slots)) / m


@instance
def large_biases(m: int, slots: int, rng: np.random.Generator) -> Pair:
    return rng.random((m, slots)) / m**2, 100 * rng.normal(size=(m, slots)) / m


@instance
def heavy_tails(m: int, slots: int, rng: np.random.Generator) -> Pair:
    return rng.random((m, slots)) / m**2, rng.standard_cauchy((m, slots)) / m


@instance
def one_sign(m: int, slots: int, rng: np.random.Generator) -> Pair:
    return rng.random((m, slots)) / m, rng.random((m, slots)) / m


@instance
def whole_numbers(m: int, slots: int, rng: np.random.Generator) -> Pair:
    return rng.integers(0, 5, (m, slots)) / m, rng.integers(0, 4, (m, slots)) / m


@instance
def ten_kinds(m: int, slots: int, rng: np.random.Generator) -> Pair:
    kind = rng.integers(10, size=m)
    return rng.random((10, slots))[kind] / m**2, rng.normal(size=(10, slots))[kind] / m


@instance
def two_kinds(m: int, slots: int, rng: np.random.Generator) -> Pair:
    kind = rng.integers(2, size=m)
    return rng.random((2, slots))[kind] / m**2, rng.normal(size=(2, slots))[kind] / m


@instance
def rows_of_all_sizes(m: int, slots: int, rng: np.random.Generator) -> Pair:
    size = np.exp(2 * rng.normal(size=(m, 1))) / m
    return np.exp(3 * rng.normal(size=(m, slots))) / m**2, size * rng.normal(size=(m, slots))


@instance
def no_costs(m: int, slots: int, rng: np.random.Generator) -> Pair:
    return np.zeros((m, slots)), rng.normal(size=(m, slots)) / m


@instance
def no_biases(m: int, slots: int, rng: np.random.Generator) -> Pair:
    return rng.random((m, slots)) / m**2, np.zeros((m, slots))


@instance
def fading(m: int, slots: int, rng: np.random.Generator) -> Pair:
    kept = np.exp(-rng.random((m, 1)) * np.arange(slots)[::-1])
    return (1 + 5 * kept**2) / m**2 * (1 + rng.random((m, 1))), (1 - kept) * rng.normal(
        size=(m, 1)
    ) / m


@instance
def fading_of_unequal_weight(m: int, slots: int, rng: np.random.Generator) -> Pair:
    kept = np.exp(-rng.random((m, 1)) * np.arange(slots)[::-1])
    weight = rng.pareto(1.2, (m, 1))
    weight /= weight.sum()
    return weight**2 * (1 + 5 * kept**2), weight * (1 - kept) * rng.normal(size=(m, 1))


@instance
def sorted_rows(m: int, slots: int, rng: np.random.Generator) -> Pair:
    return np.sort(rng.random((m, 1)), axis=0) * rng.random((m, slots)) / m**2, np.sort(
        rng.normal(size=(m, 1)), axis=0
    ) * rng.random((m, slots)) / m


@instance
def every_hundredth_is_large(m: int, slots: int, rng: np.random.Generator) -> Pair:
    large = np.where(np.arange(m) % 100 == 0, 50, 1)[:, None]
    return rng.random((m, slots)) / m**2, large * rng.random((m, slots)) / m


@instance
def forbidden_slots(m: int, slots: int, rng: np.random.Generator) -> Pair:
    u, b = normal(m, slots, rng)
    u[rng.random(u.shape) < 0.3] = np.inf
    u[:, 0] = np.where(np.isfinite(u).any(axis=1), u[:, 0], 0.5 / m**2)
    return u, b


@instance
def one_kind(m: int, slots: int, rng: np.random.Generator) -> Pair:
    one = rng.random((1, slots)) / m, rng.normal(size=(1, slots)) / m
    return np.repeat(one[0], m, axis=0), np.repeat(one[1], m, axis=0)


@instance
def one_outweighs_all(m: int, slots: int, rng: np.random.Generator) -> Pair:
    u, b = normal(m, slots, rng)
    b[0] *= m
    return u, b


@instance
def random_walks(m: int, slots: int, rng: np.random.Generator) -> Pair:
    u, b = (np.cumsum(rng.normal(size=(m, slots)), axis=1) for _ in range(2))
    return np.abs(u) / m**2, b / m


@instance
def signs(m: int, slots: int, rng: np.random.Generator) -> Pair:
    return rng.random((m, slots)) / m**2, rng.choice([-1.0, 1.0], (m, slots)) / m


@instance
def costs_of_all_sizes(m: int, slots: int, rng: np.random.Generator) -> Pair:
    b = rng.random((m, slots)) * rng.normal(size=(m, 1))
    return rng.pareto(0.8, (m, slots)) / m**2, b / m
