"""A year of daily releases at one budget: ours beside what others would do with the same ε.

The paper's three chains under their stationary laws, a common level of 20 Wh of which 98 % remains
per slot, a round every 10 slots, 365 rounds. What is estimated is the mean of all 300 records at
each publication. All rivals release fresh data; their ε is classical and counts a whole year, or any
`w` rounds in a row (w-event privacy, budget division and budget absorption after Kellaris, Papadopoulos,
Xiao and Papadias 2014), which is a weaker promise. `python -m benchmarks year`.
"""

import time
from functools import partial

import numpy as np

import agewise as aw
from agewise.arrays import Array, draw_states
from agewise.knowledge import Heard, filter_heard
from agewise.learning.learner import reports
from agewise.privacy.continual import Promise
from benchmarks.recording import Row, Tables

ROUNDS, EVERY, SEEDS, SAMPLES = 365, 10, 40, 100
LEVEL = aw.Level(loading=20.0, correlation=0.98)
RANGE = 180.0
WINDOW = 30  # rounds heard by the estimates from all rounds


def simulate(
    chains: list[aw.MarkovChain], ages: list[int], rng: np.random.Generator
) -> tuple[Array, Array]:
    """Mean reports at collection and mean records at publication, `[client, seed, round]`.

    Records carry the level, and are reported as a client reports them: as they are where they are
    fresh, else as the nearest state.
    """
    levels = _levels(ages, rng)
    collected = np.empty((len(chains), SEEDS, ROUNDS))
    present = np.empty_like(collected)
    for i, (chain, age) in enumerate(zip(chains, ages, strict=True)):
        law, states = np.cumsum(chain.stationary), chain.states
        now = draw_states(np.broadcast_to(law, (SEEDS * SAMPLES, law.size)), rng)
        young, old = (np.cumsum(chain.steps(gap), axis=1) for gap in (EVERY - age, age))
        for number in range(ROUNDS):
            then = draw_states(young[now], rng)
            now = draw_states(old[then], rng)
            records = states[then].reshape(SEEDS, SAMPLES) + levels[age][:, number, None]
            told = reports(records.ravel(), states, states[:, None], as_read=age == 0)
            collected[i, :, number] = told.reshape(SEEDS, SAMPLES).mean(axis=1)
            records = states[now].reshape(SEEDS, SAMPLES) + levels[0][:, number, None]
            present[i, :, number] = records.mean(axis=1)
    return collected, present


def _levels(ages: list[int], rng: np.random.Generator) -> dict[int, Array]:
    """The common level so many slots before each publication, for each age: `[seed, round]`."""
    wanted = sorted({0, *ages}, reverse=True)
    found = {age: np.empty((SEEDS, ROUNDS)) for age in wanted}
    level = rng.normal(0, 20.0, SEEDS)
    for number in range(ROUNDS):
        before = EVERY
        for age in wanted:
            kept = 0.98 ** (before - age)
            level = kept * level + rng.normal(0, 20.0 * np.sqrt(1 - kept**2), SEEDS)
            before = age
            found[age][:, number] = level
    return found


def laplace(scale: Array | float, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    return rng.laplace(0.0, 1.0, shape) * scale


def estimates(
    chains: list[aw.MarkovChain], ages: list[int], spent: list[float], heard: Array, rounds: int
) -> Array:
    """The best linear estimate from the last `rounds` noised releases, `[seed, round]`."""
    result = np.empty((SEEDS, ROUNDS))
    found = {}
    for number in range(ROUNDS):
        count = min(rounds, number + 1)
        if count not in found:
            members = [
                Heard(
                    chain,
                    SAMPLES,
                    1 / len(chains),
                    age + EVERY * np.arange(count),
                    np.full(count, 2 * (RANGE / SAMPLES / each) ** 2),
                    fresh=np.full(count, age == 0),
                )
                for chain, age, each in zip(chains, ages, spent, strict=True)
            ]
            found[count] = filter_heard(members, [LEVEL])
        best = found[count]
        told = best.mean + np.zeros(SEEDS)
        for i, gain in enumerate(best.gains):
            last = heard[i][:, number - count + 1 : number + 1][:, ::-1]
            told = told + (last - best.expected[i]) @ gain
        result[:, number] = told
    return result


def w_event(truth: Array, epsilon: float, w: int, absorb: bool, rng: np.random.Generator) -> Array:
    """One client's stream by budget division (or absorption): what is known of it in each round."""
    seeds, rounds = truth.shape
    reach = RANGE / SAMPLES
    known, started = np.zeros(seeds), np.zeros(seeds, dtype=bool)
    spent = np.zeros((seeds, rounds))
    nullified, last_at = np.zeros(seeds), np.full(seeds, -1)
    out = np.empty_like(truth)
    for t in range(rounds):
        apart = np.abs(truth[:, t] - known) + laplace(2 * w * reach / epsilon, (seeds,), rng)
        if absorb:
            unit = epsilon / (2 * w)
            waiting = t - last_at <= nullified
            budget = np.where(waiting, 0.0, unit * np.minimum(t - last_at - nullified, w))
        else:
            window = spent[:, max(0, t - w + 1) : t].sum(axis=1)
            budget = np.maximum(epsilon / 2 - window, 0.0) / 2
        with np.errstate(divide="ignore"):
            error = np.where(budget > 0, reach / np.where(budget > 0, budget, 1), np.inf)
        publish = (budget > 0) & ((apart > error) | ~started)
        noised = truth[:, t] + laplace(np.where(publish, error, 0.0), (seeds,), rng)
        known = np.where(publish, noised, known)
        spent[publish, t] = budget[publish]
        if absorb:
            nullified[publish] = budget[publish] / (epsilon / (2 * w)) - 1
            last_at[publish] = t
        started |= publish
        out[:, t] = known
    return out


def report(
    rows: dict[str, Row], column: str, name: str, promise: str, told: Array, target: Array
) -> None:
    per_seed = np.sqrt(np.square(told - target).mean(axis=1))
    error = per_seed.std(ddof=1) / np.sqrt(SEEDS)
    print(f"  {name:44} {promise:34} {per_seed.mean():12.2f} ± {error:.2f}", flush=True)
    row = rows.setdefault(name + promise, {"": name, "promise": promise})
    row[column] = float(per_seed.mean())


def one_target(
    chains: list[aw.MarkovChain], epsilon: float, rng: np.random.Generator, rows: dict[str, Row]
) -> None:
    note = partial(report, rows, f"error at ε = {epsilon:g} (Wh)")
    fresh = [0] * len(chains)
    means, present = simulate(chains, fresh, rng)
    target = present.mean(axis=0)
    expected = np.mean([chain.stationary @ chain.states for chain in chains])
    print(f"\nε = {epsilon:g}; root mean square error over {ROUNDS} rounds, {SEEDS} seeds (Wh)")
    note("nothing collected", "ε = 0", np.full_like(target, expected), target)
    split = epsilon / ROUNDS
    noised = means + laplace(RANGE / SAMPLES / split, means.shape, rng)
    note("uniform split, plain mean", "classical, the whole year", noised.mean(axis=0), target)
    shrunk = estimates(chains, fresh, [split] * len(chains), noised, 1)
    note("uniform split, shrunk by the server", "classical, the whole year", shrunk, target)
    shrunk = estimates(chains, fresh, [split] * len(chains), noised, WINDOW)
    note(
        "uniform split, shrunk by the server, all rounds heard",
        "classical, the whole year",
        shrunk,
        target,
    )
    for w in (WINDOW, ROUNDS):
        for absorb in (False, True):
            told = np.mean([w_event(one, epsilon, w, absorb, rng) for one in means], axis=0)
            name = f"w-event budget {'absorption' if absorb else 'division'}"
            note(name, f"classical, any {w} rounds", told, target)
    promises: tuple[Promise, ...] = ("every_moment", "present")
    for promise in promises:
        spent = _spent(chains, fresh, epsilon, promise)
        noised = np.stack(
            [
                one + laplace(RANGE / SAMPLES / s, one.shape, rng)
                for one, s in zip(means, spent, strict=True)
            ]
        )
        told = estimates(chains, fresh, spent, noised, WINDOW)
        note("ours, fresh, all rounds heard", f"{promise}, for ever", told, target)
    problem = aw.scenarios.for_ever().replace(epsilon=epsilon)
    plan = aw.plan(problem)
    print(f"  planned ages: {', '.join(map(str, plan.ages))}")
    means, present = simulate(chains, plan.ages, rng)
    noised = np.stack(
        [
            one + laplace(scale, one.shape, rng)
            for one, scale in zip(means, plan.noise_scales, strict=True)
        ]
    )
    spent = [RANGE / SAMPLES / scale for scale in plan.noise_scales]
    for rounds, name in ((1, "this round only"), (WINDOW, "all rounds heard")):
        told = estimates(chains, plan.ages, spent, noised, rounds)
        note(f"ours, planned ages, {name}", "present, for ever", told, present.mean(axis=0))


def _spent(
    chains: list[aw.MarkovChain], ages: list[int], epsilon: float, promise: Promise
) -> list[float]:
    return [
        aw.per_release_epsilon(chain, EVERY, epsilon, age, promise)
        for chain, age in zip(chains, ages, strict=True)
    ]


def main() -> Tables:
    rows: dict[str, Row] = {}
    start = time.perf_counter()
    processes = [client.process.homogeneous for client in aw.scenarios.for_ever().clients]
    chains = [chain for chain in processes if chain is not None]
    rng = np.random.default_rng(1)
    for epsilon in (0.1, 1.0):
        one_target(chains, epsilon, rng, rows)
    print(f"  ({time.perf_counter() - start:.0f} s)")
    return {"errors": list(rows.values())}


if __name__ == "__main__":
    main()
