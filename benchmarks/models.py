"""Models at age 0 beside what people use now: ridge regression and histograms at the same ε.

scikit-learn's diabetes data, 100 splits, the same bounds for everybody; seeded noise of the same
law as the private one. Needs `pip install 'agewise[bench]'`. `python -m benchmarks models`.
"""

import importlib
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from examples.central.ridge import fit_ridge

import agewise as aw
from agewise.arrays import Array
from agewise.calibration import terms
from agewise.federation.client import private_noise
from benchmarks.recording import Row, Tables

SEEDS, DRAWS, DELTA = 100, 3000, 1e-6
EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0)
# age (years), sex, body mass (kg/m²), blood pressure (mmHg), six blood values: round numbers
LOW = np.array([18, 1, 18, 60, 95, 40, 20, 2, 3, 55], dtype=np.float64)
HIGH = np.array([80, 2, 43, 135, 305, 245, 100, 10, 6.2, 125], dtype=np.float64)
LABELS = (25.0, 350.0)

Fit = Callable[[Array, Array, float, int], Callable[[Array], Array]]


def main() -> Tables | None:
    try:
        rival = importlib.import_module("diffprivlib.models").LinearRegression
        features, labels = importlib.import_module("sklearn.datasets").load_diabetes(
            return_X_y=True, scaled=False
        )
    except ImportError as missing:
        print(f"skipped: {missing}. Install the extra bench: pip install 'agewise[bench]'")
        histograms()
        return None
    pairs: list[tuple[str, Fit, str, Fit]] = [
        ("ours, Laplace", ours(None), "diffprivlib", diffprivlib(rival)),
        ("ours, Gaussian", ours(DELTA), "AdaSSP", adassp),
    ]
    middle = measure(features, labels, lambda *_: at_the_middle, 1.0)
    print(
        f"mean squared error on a quarter of {len(labels)} patients, {SEEDS} splits, less that of"
    )
    print(f"least squares without privacy; predicting the middle of the labels: {shown(middle)}")
    rows: dict[float, Row] = {epsilon: {"ε": epsilon} for epsilon in EPSILONS}
    for name, own, other, its in pairs:
        print(f"\n{'ε':>5} {name:>20} {other:>20} {'ours / theirs':>14}   theirs − ours")
        for epsilon in EPSILONS:
            mine = measure(features, labels, own, epsilon)
            theirs = measure(features, labels, its, epsilon)
            ratio = mine.mean() / theirs.mean()
            print(
                f"{epsilon:>5} {shown(mine):>20} {shown(theirs):>20} {ratio:>14.2f}   "
                f"{shown(theirs - mine)}",
                flush=True,
            )
            rows[epsilon] |= {name: shown(mine), other: shown(theirs), f"{name} / {other}": ratio}
    return {
        "ridge": list(rows.values()),
        "rivals": [{"predicting the middle of the labels": shown(middle)}],
        "histograms": histograms(),
    }


def shown(values: Array) -> str:
    return f"{values.mean():.0f} ± {values.std(ddof=1) / math.sqrt(len(values)):.0f}"


def at_the_middle(rows: Array) -> Array:
    return np.full(len(rows), sum(LABELS) / 2)


def measure(features: Array, labels: Array, fit: Fit, epsilon: float) -> Array:
    """Excess of the mean squared error of a fit over plain least squares, by split."""
    excess = np.empty(SEEDS)
    for seed in range(SEEDS):
        order = np.random.default_rng(seed).permutation(len(labels))
        test, train = order[: len(labels) // 4], order[len(labels) // 4 :]
        rows, known = features[train], labels[train]
        best = np.linalg.lstsq(np.column_stack([np.ones(len(rows)), rows]), known, rcond=None)[0]
        plain = np.column_stack([np.ones(len(test)), features[test]]) @ best
        told = fit(rows, known, epsilon, seed)(features[test]).clip(*LABELS)
        least = np.square(plain - labels[test]).mean()
        excess[seed] = np.square(told - labels[test]).mean() - least
    return excess


def ours(delta: float | None) -> Fit:
    def fit(rows: Array, labels: Array, epsilon: float, seed: int) -> Callable[[Array], Array]:
        return fit_ridge(
            rows,
            labels,
            bounds=(LOW, HIGH),
            label_bounds=LABELS,
            epsilon=epsilon,
            delta=delta,
            rng=np.random.default_rng(seed),
        ).predict

    return fit


def diffprivlib(rival: Any) -> Fit:
    def fit(rows: Array, labels: Array, epsilon: float, seed: int) -> Callable[[Array], Array]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = rival(
                epsilon=epsilon, bounds_X=(LOW, HIGH), bounds_y=LABELS, random_state=seed
            ).fit(rows, labels)

        def predict(rows: Array) -> Array:
            return np.asarray(model.predict(rows))

        return predict

    return fit


def adassp(rows: Array, labels: Array, epsilon: float, seed: int) -> Callable[[Array], Array]:
    """Wang 2018, Algorithm 2, as printed (ρ = 0.05): neighbours differ by a row added or removed.

    The rows are ours: scaled and shortened in the same way, with a column for the intercept.
    """
    rng, reach = np.random.default_rng(seed), math.sqrt((len(LOW) + 2) / 3)

    def scaled(given: Array) -> Array:
        x = (2 * given.clip(LOW, HIGH) - LOW - HIGH) / (HIGH - LOW) / reach
        x = x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))
        return np.column_stack([np.ones(len(x)), x])

    x, half = scaled(rows), (LABELS[1] - LABELS[0]) / 2
    y = (labels.clip(*LABELS) - sum(LABELS) / 2) / half
    size, third, square, tail = x.shape[1], epsilon / 3, 2.0, math.log(6 / DELTA)
    moments = x.T @ x
    least = np.linalg.eigvalsh(moments)[0]
    least += math.sqrt(tail) / third * square * rng.normal() - tail / third * square
    ridge = math.sqrt(size * tail * math.log(2 * size**2 / 0.05)) * square / third - max(least, 0)
    upper = np.triu(rng.normal(size=(size, size)))
    noise = upper + np.triu(upper, 1).T
    moments = moments + math.sqrt(tail) * square / third * noise
    products = x.T @ y + math.sqrt(tail) * math.sqrt(square) / third * rng.normal(size=size)
    found = np.linalg.solve(moments + max(ridge, 0) * np.eye(size), products)
    return lambda given: np.asarray(sum(LABELS) / 2 + half * scaled(given) @ found)


def histograms() -> list[Row]:
    """Shares of 1,000 records in ten states, one of them replaced: ours and OpenDP's own."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    records, size = 1000, 10
    client = aw.Client("c", aw.birth_death(0.2, 0.2, range(size)), samples=records)
    print(f"\n{'ε':>5} {'ours':>20} {'OpenDP':>20} {'ours / theirs':>14}   (histogram, RMSE × 10⁴)")
    rows: list[Row] = []
    for epsilon in EPSILONS:
        problem = aw.Problem([client], 2, epsilon, learner=aw.Histogram(), estimator="plain")
        own = terms(client, problem.target_of(client), problem.learner, "plain", 2, 2)
        space = dp.vector_domain(dp.atom_domain(T="i32")), dp.symmetric_distance()
        counts = dp.t.make_count_by_categories(
            *space, categories=list(range(size)), null_category=False, MO=dp.L1Distance["i64"]
        )

        def noised(scale: float, counts: Any = counts) -> Any:
            return counts >> dp.m.then_laplace(scale)

        # A record replaced is one removed and one added.
        private = dp.binary_search_chain(noised, d_in=2, d_out=epsilon, bounds=(1e-3, 1e5))
        errors: list[list[float]] = [[], []]
        for seed in range(DRAWS):
            states = np.random.default_rng(seed).integers(0, size, records)
            shares = np.bincount(states, minlength=size) / records
            drawn = private_noise(shares, own, own.scale)
            theirs = np.asarray(private(states.tolist())) / records
            for kept, told in zip(errors, (np.asarray(drawn.value), theirs), strict=True):
                kept.append(1e4 * math.sqrt(float(np.square(told - shares).mean())))
        mine, others = (np.array(kept) for kept in errors)
        print(
            f"{epsilon:>5} {spread(mine):>20} {spread(others):>20} "
            f"{mine.mean() / others.mean():>14.3f}",
            flush=True,
        )
        ratio = float(mine.mean() / others.mean())
        rows.append(
            {"ε": epsilon, "ours / OpenDP's": ratio, "ours": spread(mine), "OpenDP": spread(others)}
        )
    return rows


def spread(values: Array) -> str:
    return f"{values.mean():.2f} ± {values.std(ddof=1) / math.sqrt(len(values)):.2f}"


if __name__ == "__main__":
    main()
