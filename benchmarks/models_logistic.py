"""Logistic regression against its rivals: on records as they are, and on records that change.

Age 0: scikit-learn's breast cancer data (569 records, 30 features), standardised by their own means
and deviations rounded to one digit, which are taken as public, rows scaled down to the same length
for everybody; four fifths to train, the rest to test, split anew for each seed. The defaults of ours
were chosen on these very splits. Digits (5 or more, or less) and wine (class 1, or not) were looked
at only afterwards, on other seeds. `diffprivlib` is given its default regularisation and two more.

With age: three clients whose records move among six labelled states, thirty rounds; excess log
loss at the end over the best model of the clients' own law. The first part needs the extra `bench`.
`python -m benchmarks models_logistic`.
"""

import warnings
from collections import defaultdict
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
from examples.central.logistic import fit_logistic
from scipy.optimize import minimize
from scipy.special import expit

import agewise as aw
from agewise.arrays import Array
from benchmarks.recording import Row, Tables
from benchmarks.training import Means, flower_trained, multiplier, trained

SEEDS = 100
EPSILONS = (0.1, 0.5, 1.0, 2.0)
ROUNDS = 30
DELTA = 1e-5
CENTRES = (
    *(10, 20, 90, 700, 0.1, 0.1, 0.09, 0.05, 0.2, 0.06, 0.4, 1, 3, 40, 0.007),
    *(0.03, 0.03, 0.01, 0.02, 0.004, 20, 30, 100, 900, 0.1, 0.3, 0.3, 0.1, 0.3, 0.08),
)
SPREADS = (
    *(4, 4, 20, 400, 0.01, 0.05, 0.08, 0.04, 0.03, 0.007, 0.3, 0.6, 2, 50, 0.003),
    *(0.02, 0.03, 0.006, 0.008, 0.003, 5, 6, 30, 600, 0.02, 0.2, 0.2, 0.07, 0.06, 0.02),
)


def scored(chance: Array, labels: Any) -> tuple[float, float]:
    """Log loss in nats, and accuracy, of the probability of class 1."""
    chance = np.clip(chance, 1e-15, 1 - 1e-15)
    loss = -np.log(np.where(labels == 1, chance, 1 - chance)).mean()
    return float(loss), float(((chance > 0.5) == labels).mean())


def data_sets() -> Iterator[tuple[str, Array, Any, float, range]]:
    """Name, rows, labels, public bound on the length of a row, seeds."""
    from sklearn.datasets import load_breast_cancer, load_digits, load_wine

    raw, labels = load_breast_cancer(return_X_y=True)
    yield "breast cancer", (raw - np.array(CENTRES)) / np.array(SPREADS), labels, 5.5, range(SEEDS)
    raw, digits = load_digits(return_X_y=True)
    yield "digits", raw / 16 - 0.5, (digits >= 5).astype(int), 4.0, range(1000, 1015)
    raw, wines = load_wine(return_X_y=True)
    rows = (raw - raw.mean(axis=0)) / raw.std(axis=0)
    yield "wine", rows, (wines == 1).astype(int), 13**0.5, range(1000, 1015)


def at_age_0(name: str, rows: Array, labels: Any, bound: float, seeds: range) -> list[Row]:
    from diffprivlib.models import LogisticRegression as Rival
    from sklearn.linear_model import LogisticRegression

    rows = rows * np.minimum(1, bound / np.linalg.norm(rows, axis=1))[:, None]
    found: dict[tuple[float, str], list[tuple[float, float]]] = defaultdict(list)
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(len(rows))
        train, test = np.split(order, [len(rows) * 4 // 5])
        x, y = rows[train], labels[train]

        def note(epsilon: float, who: str, chance: Array, where: Any = test) -> None:
            found[epsilon, who].append(scored(chance, labels[where]))

        plain = LogisticRegression(max_iter=2000).fit(x, y)
        note(0, "no privacy", plain.predict_proba(rows[test])[:, 1])
        note(0, "majority class", np.full(len(test), y.mean()))
        for epsilon in EPSILONS:
            for delta, who in ((None, "ours, ε"), (DELTA, f"ours, (ε, {DELTA:g})")):
                fit = fit_logistic(x, y, classes=(0, 1), bound=bound, epsilon=epsilon, delta=delta)
                note(epsilon, who, fit.model.predict_probability(rows[test])[:, 1])
            for strength in (1.0, 0.1, 0.01):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    rival = Rival(
                        epsilon=epsilon, data_norm=bound, C=strength, random_state=seed
                    ).fit(x, y)
                note(
                    epsilon, f"diffprivlib, C = {strength:g}", rival.predict_proba(rows[test])[:, 1]
                )
    print(f"\n{name}, {len(seeds)} seeds: test log loss (nats) and accuracy, ± standard error")
    for (epsilon, who), both in found.items():
        _row(epsilon, who, np.array(both))
    table: list[Row] = []
    for epsilon in EPSILONS:
        ours = np.array(found[epsilon, "ours, ε"])
        theirs = [np.array(v) for (e, w), v in found.items() if e == epsilon and "diffpriv" in w]
        best = min(theirs, key=lambda one: one[:, 0].mean())
        ratio = float(ours[:, 0].mean() / best[:, 0].mean())
        print(f"ε = {epsilon:g}: our log loss is {ratio:.2f} times that of the best of theirs")
        row: Row = {"data": name, "ε": epsilon, "ours / best of diffprivlib": ratio}
        row |= {who: _cell(found[epsilon, who]) for who in ("ours, ε", f"ours, (ε, {DELTA:g})")}
        row |= {"diffprivlib, best C": _cell(best), "diffprivlib, C = 1": _cell(theirs[0])}
        table.append(row | {who: _cell(found[0, who]) for who in ("no privacy", "majority class")})
    return table


def _cell(scores: Any) -> str:
    """Log loss ± standard error, accuracy."""
    losses, hits = np.array(scores).T
    error = losses.std(ddof=1) / np.sqrt(len(losses))
    return f"{losses.mean():.3f} ± {error:.3f}, {hits.mean():.3f}"


def _row(epsilon: float, who: str, both: Array) -> None:
    mean, error = both.mean(axis=0), both.std(axis=0, ddof=1) / np.sqrt(len(both))
    at = f"ε = {epsilon:<4g}" if epsilon else " " * 8
    print(
        f"{at} {who:24} log loss {mean[0]:7.4f} ± {error[0]:.4f}   accuracy {mean[1]:.4f} ± "
        f"{error[1]:.4f}",
        flush=True,
    )


LABELS = (0, 0, 0, 1, 1, 1)
STATES = np.array([(a, b) for a in (-1.0, 0.0, 1.0) for b in (-1.0, 1.0)])


def drifting() -> list[aw.Client]:
    """Six states: a label that leans on the first of two features; records move a little a slot."""
    clients = []
    for k in range(3):
        rng = np.random.default_rng(k)
        stay = 0.7
        move = rng.dirichlet(np.full(6, 2.0), 6)
        chain = aw.MarkovChain(stay * np.eye(6) + (1 - stay) * move, np.arange(6.0))
        clients.append(aw.Client(f"client {k + 1}", chain, samples=200))
    return clients


def means_of(clients: list[aw.Client], ages: list[int], rng: np.random.Generator) -> Means:
    """Mean gradients of records drawn from the clients' chains, moved forward by their ages."""

    def means(_: int, table: Array) -> list[Array]:
        found = []
        for client, age in zip(clients, ages, strict=True):
            counts = rng.multinomial(client.samples, client.process.law(8)) / client.samples
            found.append(counts @ client.process.kernel(8 - age, 8) @ table)
        return found

    return means


def with_age(seeds: int) -> list[Row]:
    learner = aw.Logistic(STATES, LABELS, clip=1.0)
    clients = drifting()
    inputs = np.hstack([STATES, np.ones((6, 1))])
    law = np.mean([c.process.law(8) for c in clients], axis=0)

    def loss(vector: Array) -> float:
        chance = np.clip(expit(inputs @ vector), 1e-15, 1 - 1e-15)
        own = -np.log(np.where(np.array(LABELS) == 1, chance, 1 - chance))
        return float(law @ own) + learner.penalty / 2 * float(np.square(vector).sum())

    least = minimize(loss, np.zeros(3), tol=1e-12).fun
    print(
        f"\ndrifting federation, {ROUNDS} rounds, {seeds} seeds: excess loss (nats) ± standard error"
    )
    rows: list[Row] = []
    for epsilon in EPSILONS:
        problem = aw.Problem(
            clients, 8, epsilon, estimator="propagated", learner=learner, rounds=ROUNDS, every=8
        )
        plan = aw.plan(problem)
        classical = [learner.reach(1) / 200 / (epsilon / ROUNDS)] * 3
        row: Row = {"ε": epsilon, "ages": ", ".join(map(str, plan.ages))}
        rows.append(row)
        for who, ages, scales, noised in (
            ("ours", plan.ages, plan.noise_scales, True),
            ("classical composition", [0, 0, 0], classical, True),
            ("no privacy", [0, 0, 0], classical, False),
        ):
            off = []
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                found = trained(
                    learner,
                    ROUNDS,
                    means_of(clients, ages, rng),
                    scales if noised else [0.0] * 3,
                    rng,
                )
                off.append(loss(found) - least)
            row[who] = _excess(off)
            print(f"ε = {epsilon:<4g} {who:24} {row[who]}   ages {ages}", flush=True)
        noise = multiplier(ROUNDS, epsilon, DELTA)
        for side in ("client", "server"):
            off = []
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                fresh = means_of(clients, [0, 0, 0], rng)
                off.append(loss(flower_trained(learner, ROUNDS, fresh, noise, side, rng)) - least)
            who = f"Flower, {side} side, (ε, {DELTA:g})"
            row[who] = _excess(off)
            print(f"ε = {epsilon:<4g} {who:24} {row[who]}", flush=True)
    return rows


def _excess(losses: list[float]) -> str:
    error = np.std(losses, ddof=1) / np.sqrt(len(losses))
    return f"{np.mean(losses):.3g} ± {error:.1g}"


def main() -> Tables | None:
    if find_spec("diffprivlib") is None:
        print(
            "Left out the comparison at age 0: it needs the extra bench (pip install '.[bench]')."
        )
        with_age(SEEDS)
        return None
    tables = {one[0].replace(" ", "_"): at_age_0(*one) for one in data_sets()}
    return {**tables, "with_age": with_age(SEEDS)}


if __name__ == "__main__":
    main()
