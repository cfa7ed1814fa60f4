"""Privacy losses by summing over every path of a chain: slow, obvious, sharing no code."""

import itertools
import math

import numpy as np


def random_mechanism(rng, size, outputs, epsilon):
    """A random finite mechanism `[state, output]` whose classical ε is exactly the one returned."""
    logits = rng.uniform(0, epsilon, (size, outputs))
    table = np.exp(logits)
    table /= table.sum(axis=1, keepdims=True)
    logs = np.log(table)
    return table, float((logs.max(axis=0) - logs.min(axis=0)).max())


def true_loss(transition, law, releases, seen_at):
    """max ln P(outputs | value y at `seen_at`) / P(outputs | value y′), over outputs, y and y′.

    `releases` is a list of (slot, mechanism); `law` holds in the earliest slot. Some of them may
    be collected after `seen_at`.
    """
    size = len(law)
    first = min(slot for slot, _ in releases)
    last = max(seen_at, *(slot for slot, _ in releases))
    likelihood = {}
    mass = np.zeros(size)
    outputs = list(itertools.product(*(range(m.shape[1]) for _, m in releases)))
    for path in itertools.product(range(size), repeat=last - first + 1):
        weight = law[path[0]] * math.prod(transition[a, b] for a, b in itertools.pairwise(path))
        if weight == 0:
            continue
        then = path[seen_at - first]
        mass[then] += weight
        for output in outputs:
            chance = math.prod(
                m[path[slot - first], o] for (slot, m), o in zip(releases, output, strict=True)
            )
            key = (output, then)
            likelihood[key] = likelihood.get(key, 0.0) + weight * chance
    worst = 0.0
    for output in outputs:
        given = [likelihood[output, y] / mass[y] for y in range(size) if mass[y] > 0]
        worst = max(worst, math.log(max(given) / min(given)))
    return worst
