"""Training on real readings: is the half-hour after 18:00 high, from the one before? Thirty rounds.

63 London households (those on the standard tariff) in three districts of 21. A household's record
of a day is (this half-hour, the next), each above its own median of the first half of the year or
not: four states. The privacy of ours is about today's record, from releases of every earlier day,
for ever: a chain on (level class, record), fitted to the first half, with the fewest classes whose
claims adversaries kept to on the second half. Trainings run there, from several days on; losses are
log losses (nats) on the whole of it, above those of the best model for it. Needs the readings in
`../shared/data/london`, or in the folder that AGEWISE_LONDON names. `python -m benchmarks
models_london`.
"""

import os
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize
from scipy.special import expit

import agewise as aw
from agewise.arrays import Array
from agewise.fitting.laws import Codes
from agewise.fitting.leftover import left_over
from agewise.fitting.levels import LevelChain, Rounds, fit_levels
from agewise.fitting.round_adversary import RoundAttack, judge, replay_rounds
from agewise.fitting.rounds import LEVELS, Tried
from agewise.process import LiftedChain
from benchmarks.recording import Row, Tables
from benchmarks.training import Means, flower_trained, multiplier, trained

FOLDER = Path(os.environ.get("AGEWISE_LONDON", Path(__file__).parents[2] / "shared/data/london"))
EPSILONS = (0.1, 0.5, 1.0, 2.0)
DISTRICTS, HOUSEHOLDS, ROUNDS, DELTA = 3, 21, 30, 1e-5
STARTS, SEEDS = (0, 30, 60, 90, 120), 20
AT = 36
"""18:00, in half-hours from midnight."""
STATES = 4
MEMORY = 0.05
LEARNER = aw.Logistic([[-1.0], [-1.0], [1.0], [1.0]], [0, 1, 0, 1], names=["this half-hour"])


def records() -> Rounds:
    """State 2·(this half-hour is high) + (the next is high) of each household and day."""
    tariff = pl.read_csv(FOLDER / "households.csv")
    standard = set(tariff.filter(pl.col("tariff") == "Std")["household"])
    readings = aw.read_readings(FOLDER / "lcl_2013_halfhourly.parquet")
    kept = [place for place, name in enumerate(readings.entities) if name in standard]
    first = (AT - readings.first_of_day) % readings.day
    days = readings.values.shape[1] // readings.day
    high = []
    for slot in (first, first + 1):
        values = readings.values[kept, slot :: readings.day][:, :days]
        high.append(values > np.median(values[:, : days // 2], axis=1, keepdims=True))
    codes = (2 * high[0] + high[1]).astype(np.int8)
    names = tuple(readings.entities[place] for place in kept)
    return Rounds(names, codes, np.arange(STATES, dtype=float), 1, "each household's own median")


def claim(chain: LevelChain, classical_epsilon: float) -> float:
    """ε about today's record, of releases by any mechanism of this ε on all days before."""
    groups = np.tile(np.arange(STATES), chain.levels)
    lifted = LiftedChain(chain.process, groups, np.arange(STATES))
    return aw.continual_epsilon(lifted, 1, classical_epsilon, 1, release=np.eye(STATES))


def affordable(chain: LevelChain, epsilon: float) -> float:
    """The classical ε of each release whose claim is the target, to 2 %, from below."""
    low = high = epsilon / ROUNDS
    while claim(chain, high) < epsilon:
        low, high = high, 3 * high
    ends = float(np.log(low)), float(np.log(high))
    found = brentq(lambda log: claim(chain, float(np.exp(log))) - epsilon, *ends, xtol=0.01)
    spent = float(np.exp(found))
    while claim(chain, spent) > epsilon:
        spent *= 0.99
    return spent


def tested_chain(rounds: Rounds) -> list[RoundAttack]:
    """Claims at the targets, by the chain with the fewest level classes that keeps to all of them.

    On the second half, by adversaries who hear releases of the classical ε that each affords.
    """
    judged = rounds.codes.shape[1] - rounds.half
    for levels in LEVELS:
        chain = fit_levels(rounds.part(slice(None, rounds.half)), levels, MEMORY)
        attacks = []
        for epsilon in EPSILONS:
            spent = affordable(chain, epsilon)
            calls = replay_rounds(rounds, chain, spent, judged=judged)
            told = np.full(len(rounds.entities), epsilon)
            attacks.append(judge(calls, f"{levels} classes", spent, told))
        tried = Tried(left_over(rounds, chain, judged), tuple(attacks))
        best = ", ".join(f"{max(one.log_ratios):.2f} of {one.epsilon:.2f}" for one in attacks)
        print(f"{levels} level classes: adversaries reach {best}; holds: {tried.holds}", flush=True)
        if tried.holds:
            return attacks
    raise SystemExit("no number of level classes gives claims that hold")


def district_means(codes: Codes, first: int, age: int) -> Means:
    """Mean gradients of the records of each district, a round per day, `age` days old."""

    def means(number: int, table: Array) -> list[Array]:
        return [
            table[one].mean(axis=0)
            for one in np.split(codes[: DISTRICTS * HOUSEHOLDS, first + number - age], DISTRICTS)
        ]

    return means


def log_loss(vector: Array, counts: NDArray[np.intp]) -> float:
    chance = np.clip(expit(np.array([-1, -1, 1, 1]) * vector[0] + vector[1]), 1e-12, 1 - 1e-12)
    return float(counts @ -np.log(np.where([0, 1, 0, 1], chance, 1 - chance)) / counts.sum())


def best_model(counts: NDArray[np.intp]) -> Array:
    return np.asarray(minimize(log_loss, np.zeros(2), args=(counts,), tol=1e-10).x)


def main() -> Tables | None:
    if not (FOLDER / "households.csv").exists():
        print(f"skipped: no readings in {FOLDER}")
        return None
    rounds = records()
    attacks = tested_chain(rounds)
    half, codes = rounds.half, rounds.codes
    known, judged = (np.bincount(part.ravel()) for part in np.split(codes, [half], axis=1))
    least = log_loss(best_model(judged), judged)
    nothing = log_loss(best_model(known), judged) - least
    print(
        f"best model {least:.4f} nats; trained on the first half, nothing collected: +{nothing:.5f}"
    )
    rows: list[Row] = []
    for epsilon, attack in zip(EPSILONS, attacks, strict=True):
        spent, share = attack.classical_epsilon, epsilon / ROUNDS
        reach = LEARNER.reach(1) / HOUSEHOLDS
        noise = multiplier(ROUNDS, epsilon, DELTA)
        found: dict[str, list[float]] = {}
        for start in STARTS:
            fresh, old = (district_means(codes, half + start, age) for age in (0, 1))
            for seed in range(SEEDS):
                rng = np.random.default_rng([start, seed])
                models = {
                    "ours, a day old": trained(LEARNER, ROUNDS, old, [reach / spent] * 3, rng),
                    "classical, fresh": trained(LEARNER, ROUNDS, fresh, [reach / share] * 3, rng),
                    "no privacy": trained(LEARNER, ROUNDS, fresh, [0.0] * 3, rng),
                }
                for side in ("client", "server"):
                    name = f"Flower, {side} side, (ε, {DELTA:g})"
                    models[name] = flower_trained(LEARNER, ROUNDS, fresh, noise, side, rng)
                for name, vector in models.items():
                    found.setdefault(name, []).append(log_loss(vector, judged) - least)
        ours, theirs = (np.mean(found[name]) for name in ("ours, a day old", "classical, fresh"))
        row: Row = {"ε": epsilon, "classical over ours": float(theirs / ours)}
        row |= {name: _told(values) for name, values in found.items()}
        row |= {"nothing collected": f"{nothing:.5f}", "ε of a release, ours": spent}
        row |= {"ε of a release, classical": share, "adversaries reach": max(attack.log_ratios)}
        rows.append(row)
        print(row, flush=True)
    return {"losses": rows}


def _told(values: list[float]) -> str:
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.3g} ± {error:.1g}"


if __name__ == "__main__":
    main()
