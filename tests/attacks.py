"""Pairwise losses by linear programs, and attacks on releases by enumeration: sharing no code."""

import itertools

import numpy as np
from scipy.optimize import linprog


def aged_by_program(losses, rows):
    """max ln(rows[y]·v / rows[y′]·v) over v with v(x) ≤ e^{losses[x, x′]} v(x′), for all y, y′."""
    size = len(losses)
    constraints = []
    for x, other in itertools.permutations(range(size), 2):
        line = np.zeros(size)
        line[x], line[other] = 1, -np.exp(losses[x, other])
        constraints.append(line)
    aged = np.zeros((len(rows), len(rows)))
    for y, other in itertools.permutations(range(len(rows)), 2):
        found = linprog(
            -rows[y],
            A_ub=np.array(constraints),
            b_ub=np.zeros(len(constraints)),
            A_eq=rows[other][None],
            b_eq=[1],
        )
        aged[y, other] = np.log(-found.fun)
    return aged


def backward(law, kernel):
    """The law of the earlier value given each later one, and which later ones can occur."""
    joint = law[:, None] * kernel
    later = joint.sum(axis=0)
    return (joint / np.where(later > 0, later, 1)).T, later > 0


def binary_outputs(epsilon, size):
    """Every likelihood with two values, e^ε apart: what two-output mechanisms are mixtures of."""
    sets = itertools.product((1.0, np.exp(epsilon)), repeat=size)
    return np.array([v for v in sets if len(set(v)) == 2])


def laplace_outputs(epsilon, values):
    """Likelihoods of the outputs at which Laplace noise tells most: at the values themselves."""
    return np.exp(-epsilon * np.abs(values[:, None] - values) / np.ptp(values))


def attack(transition, law, slots, outputs, seen_at):
    """The most that a string of outputs tells two values at `seen_at` apart by.

    `outputs` has a table `[output, state]` of likelihoods for each release; all strings are tried.
    `law` holds in the first of `slots`. Values that cannot occur are left out.
    """
    size = len(law)
    step = np.linalg.matrix_power
    past, now = np.ones((1, size)), law
    possible = law > 0
    at = slots[0]
    for slot, table in zip(slots, outputs, strict=True):
        if slot <= seen_at:
            rows, possible = backward(now, step(transition, slot - at))
            past = (past @ rows.T)[:, None] * table
            past, now, at = past.reshape(-1, size), now @ step(transition, slot - at), slot
    if seen_at >= slots[0]:
        rows, possible = backward(now, step(transition, seen_at - at))
        past = past @ rows.T
    future, at = np.ones((1, size)), slots[-1]
    for slot, table in reversed(list(zip(slots, outputs, strict=True))):
        if slot > seen_at:
            future = (future @ step(transition, at - slot).T)[:, None] * table
            future, at = future.reshape(-1, size), slot
    future = future @ step(transition, max(at - seen_at, 0)).T
    logs = [np.log(v[:, possible]) for v in (past, future)]
    apart = sum((u[:, :, None] - u[:, None]).max(axis=0) for u in logs)
    return float(apart.max())
