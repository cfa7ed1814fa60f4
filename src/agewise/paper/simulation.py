"""Monte Carlo: the loss gap from simulated records and noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array
from agewise.checks import generator_or_fresh, refuse_size, whole
from agewise.errors import InvalidInput
from agewise.knowledge import Levels
from agewise.learning import judged, release_step, reports
from agewise.loss import CostTables, Estimate, cost_tables
from agewise.loss.estimator import estimator_of
from agewise.loss.kinds import kinds_of
from agewise.loss.tables import schedule_cells
from agewise.mechanism import MECHANISMS
from agewise.problem import Client, Problem
from agewise.progress import Progress
from agewise.scheduling import Schedule, exhaustive

BATCH = 20_000
"""Trials drawn at once."""


def simulate_gap(
    problem: Problem,
    ages: ArrayLike,
    trials: int = 100_000,
    rng: np.random.Generator | None = None,
    progress: Progress | None = None,
) -> Estimate:
    """Estimate the loss gap of a schedule by simulation; one age a client.

    One trial draws, for each client, how many of its n records are in each of the S × S cells
    (value at collection, value at aggregation), which is all that a mean depends on, and its
    Laplace noise, and what clients share. Cost O(trials · m · S²), whatever n is.

    >>> from agewise import scenarios
    >>> estimate = simulate_gap(scenarios.london(), [0, 9, 9], 20_000, np.random.default_rng(1))
    >>> abs(estimate - 127.07) < 4 * estimate.standard_error
    True
    """
    generator = generator_or_fresh(rng)
    trials = whole("trials", trials, 2)
    clients, columns = schedule_cells(problem, ages)
    if problem.knowledge is not None:
        raise InvalidInput(
            "knowledge",
            "measured",
            "none, or levels",
            "There is no law to draw from; a back-test shows what a promise is worth.",
        )
    alone = not problem.uses_knowledge and not problem.known.shared
    alone = alone and not problem.server_adds_noise
    draw = None if alone else _known_errors(problem, columns)
    tables = cost_tables(problem)
    total, squares, done = 0.0, 0.0, 0
    while done < trials:
        count = min(BATCH, trials - done)
        error: Array | float = 0.0
        if draw is not None:
            error = draw(count, generator)
        else:
            for i, slot in zip(clients.tolist(), columns.tolist(), strict=True):
                error = error + client_errors(problem, tables, i, slot, count, generator)
        square = np.square(error).reshape(count, -1).sum(axis=1)
        total += float(square.sum())
        squares += float((square**2).sum())
        done += count
        if progress is not None:
            progress(done, trials)
    mean = total / trials
    variance = max(squares / trials - mean**2, 0.0) * trials / (trials - 1)
    return Estimate(mean, math.sqrt(variance / trials), trials)


def _known_errors(
    problem: Problem, columns: NDArray[np.intp]
) -> Callable[[int, np.random.Generator], Array]:
    """How to draw the error of an estimate with gains or one draw, and of shared levels.

    Records are drawn one by one as the processes say, and moved by levels; what clients make of
    these readings gets noise, and gains as a server would apply them.
    """
    estimate = estimator_of(problem, (columns + 1).tolist())
    gains, offset, once = estimate.gains, estimate.offset, estimate.draw
    imitate = MECHANISMS[problem.mechanism].imitate
    tables = kinds_of(problem).slots()
    members = list(zip(problem.clients, tables, columns.tolist(), strict=True))

    last = problem.aggregate_at - 1
    paths = _level_paths(problem, [*columns.tolist(), last])

    def draw(trials: int, rng: np.random.Generator) -> Array:
        error = np.repeat(offset[None], trials, axis=0)
        levels = paths(trials, rng)
        for i, (client, table, slot) in enumerate(members):
            row, states = table.row[slot], client.process.states
            cells = (table.law_rows[row][:, None] * table.kernel_rows[row]).ravel()
            counts = rng.multinomial(client.records, cells / cells.sum(), size=trials)
            shares = counts.reshape(trials, states.size, states.size) / client.records
            fresh = shares.sum(axis=1) @ problem.learner.table(states)
            if levels is None:
                heard = shares.sum(axis=2) @ table.release_rows[row]
            else:
                read = (states + levels[slot][:, i, None]).ravel()
                made = reports(read, states, table.release_rows[row], as_read=slot == last)
                heard = (shares.sum(axis=2) * made.reshape(trials, -1)).sum(axis=1)[:, None]
                fresh = fresh + levels[last][:, i, None]
            scale = float(table.scale[slot]) if once is None else 0.0
            if scale > 0:
                heard += _noise(problem, client, scale, heard.shape, rng)
            error += gains[i] * heard - problem.weights[i] * fresh
        if once:
            noise = imitate(np.zeros(error.size), scale=once, rng=rng).value
            error += np.reshape(noise, error.shape)
        return judged(problem.learner, problem.clients[0].process.states, error)

    return draw


def _level_paths(
    problem: Problem, columns: Sequence[int]
) -> Callable[[int, np.random.Generator], dict[int, Array] | None]:
    """How to draw what levels add to each client's records in each column, `[trials, m]`."""
    known, there = problem.known, sorted(set(columns))
    if not isinstance(known, Levels):
        return lambda trials, rng: None  # noqa: ARG005
    loadings = known.loadings(len(problem.clients))
    apart = np.abs(np.subtract.outer(there, there))
    roots = []
    for level in known.levels:
        values, vectors = np.linalg.eigh(level.remains(apart))
        roots.append(vectors * np.sqrt(np.maximum(values, 0.0)))

    def draw(trials: int, rng: np.random.Generator) -> dict[int, Array]:
        drawn = np.stack([rng.standard_normal((trials, len(there))) @ root.T for root in roots])
        return {
            column: np.einsum("lt,ml->tm", drawn[:, :, place], loadings)
            for place, column in enumerate(there)
        }

    return draw


def client_errors(
    problem: Problem,
    tables: CostTables,
    client: int,
    slot: int,
    trials: int,
    rng: np.random.Generator,
) -> Array:
    """Draw p·(released mean − mean at aggregation), noise included, of one client `trials` times.

    `[trials]`, or `judged` vectors `[trials, r]` for a learner of several coordinates. `slot`
    counts from 0.
    """
    member, table, learner = problem.clients[client], tables.slots[client], problem.learner
    row, states = table.row[slot], member.process.states
    cells = table.law_rows[row][:, None] * table.kernel_rows[row]
    error = table.release_rows[row][:, None] - learner.table(states)
    width = error.shape[-1]
    values, place = np.unique(error.reshape(-1, width), axis=0, return_inverse=True)
    chance = np.bincount(place.ravel(), cells.ravel())
    order = np.argsort(-chance)  # likely cells first: the rest of the row then ends early
    chance, values = chance[order] / chance.sum(), values[order]
    counts: NDArray[np.int64] = rng.multinomial(member.records, chance, size=trials)
    scale = float(table.scale[slot])
    mean = counts @ (values[:, 0] if width == 1 else values) / member.records
    if scale > 0:
        mean = mean + _noise(problem, member, scale, mean.shape, rng)
    return np.asarray(
        problem.weights[client] * (mean if width == 1 else judged(learner, states, mean))
    )


def _noise(
    problem: Problem,
    client: Client,
    scale: float,
    shape: tuple[int, ...],
    rng: np.random.Generator,
) -> Array:
    """The noise in what a client sends: the mean of its members'."""
    step = release_step(problem.learner, problem.estimator, client.samples)
    none = np.zeros(math.prod(shape) * client.members)
    noise = MECHANISMS[problem.mechanism].imitate(none, scale=scale, rng=rng, step=step).value
    return np.asarray(np.reshape(noise, (*shape, -1)).mean(axis=-1))


def exhaustive_simulated(
    problem: Problem,
    trials: int,
    rng: np.random.Generator | None = None,
    progress: Progress | None = None,
) -> Schedule:
    """Return the best schedule by the mean over the same trials for every one, of all of them.

    The square of a sum needs only the mean products of the clients' errors, so `trials` draws
    of each cell serve all schedules.
    """
    trials, generator = whole("trials", trials, 2), generator_or_fresh(rng)
    tables = cost_tables(problem)
    clients, slots = tables.u.shape
    held = 2 * 8.0 * clients * slots * trials * problem.width  # the draws, and their stack
    refuse_size("trials", trials, held, "Give fewer trials; their error falls with the root only.")
    errors = []
    for cell in range(clients * slots):
        client, slot = divmod(cell, slots)
        errors.append(np.ravel(client_errors(problem, tables, client, slot, trials, generator)))
        if progress is not None:
            progress(cell + 1, clients * slots)
    draws = np.stack(errors)
    products = draws @ draws.T / trials
    base = slots * np.arange(clients)

    def evaluate(schedules: NDArray[np.intp]) -> Array:
        cells = schedules + base
        return np.asarray(products[cells[:, :, None], cells[:, None, :]].sum(axis=(1, 2)))

    return exhaustive(evaluate, clients, slots, problem.capacity)
