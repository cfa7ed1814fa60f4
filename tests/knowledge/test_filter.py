"""What a server makes of all rounds it has heard."""

import itertools

import numpy as np
import pytest

import agewise as aw
from agewise.knowledge import filter_rounds

LEVEL = aw.Level(loading=20.0, correlation=0.98)


def noise(spent, samples=100):
    return 2 * (180 / samples / np.array(spent)) ** 2


@pytest.mark.parametrize(
    ("spent", "age", "this_round", "all_rounds"),
    [
        ((0.1 / 365,) * 3, 0, 410.357, 410.345),
        ((0.07282, 0.07107, 0.09878), 0, 180.746, 134.922),
        ((0.08424, 0.08309, 0.09939), 0, 163.415, 122.735),
        ((0.18527, 0.17744, 0.70422), 4, 92.413, 89.891),
    ],
)
def test_the_table_of_rounds_heard(paper_chains, spent, age, this_round, all_rounds):
    for rounds, wanted in ((1, this_round), (60, all_rounds)):
        found = filter_rounds(
            paper_chains, 100, noise(spent), rounds=rounds, every=10, age=age, levels=[LEVEL]
        )
        assert found.loss == pytest.approx(wanted, abs=6e-4)
        assert found.nothing_collected == pytest.approx(410.362, abs=6e-4)


def test_what_is_affordable_is_worth_this_much(paper_chains):
    """From the target to the loss: every moment, for ever, at 0.1."""
    spent = [aw.affordable_epsilon(chain, every=10, epsilon=0.1) for chain in paper_chains]
    found = filter_rounds(paper_chains, 100, noise(spent), rounds=60, every=10, levels=[LEVEL])
    assert found.loss == pytest.approx(134.92, abs=0.02)


def whole_covariance(chains, samples, variances, rounds, every, age, levels):
    """Covariances of all releases, newest first and client by client, and with the target."""
    ago = age + every * np.arange(rounds)
    weights = np.array(samples) / sum(samples)
    count = len(chains)
    cov, cross, target = np.zeros((count * rounds,) * 2), np.zeros(count * rounds), 0.0
    for i, chain in enumerate(chains):
        joint = [chain.stationary[:, None] * chain.steps(int(lag)) for lag in range(ago[-1] + 1)]
        mean = chain.stationary @ chain.states
        lagged = [chain.states @ j @ chain.states - mean**2 for j in joint]
        for r in range(rounds):
            cross[i * rounds + r] += weights[i] * lagged[ago[r]] / samples[i]
            for s in range(rounds):
                place = i * rounds + r, i * rounds + s
                cov[place] += lagged[abs(ago[r] - ago[s])] / samples[i] + (r == s) * variances[i]
        target += weights[i] ** 2 * lagged[0] / samples[i]
    for loads, kept in levels:
        total = weights @ loads
        target += total**2
        for i in range(count):
            for r in range(rounds):
                cross[i * rounds + r] += total * loads[i] * kept ** ago[r]
                for j in range(count):
                    for s in range(rounds):
                        moved = loads[i] * loads[j] * kept ** abs(ago[r] - ago[s])
                        cov[i * rounds + r, j * rounds + s] += moved
    return cov, cross, target


@pytest.mark.parametrize("count", [0, 1, 2])
def test_guarantee_gains_and_loss_are_those_of_the_whole_covariance_matrix(count):
    chains = [aw.birth_death(0.3, 0.2, [1, 5, 9]), aw.MarkovChain([[0.9, 0.1], [0.4, 0.6]], [0, 7])]
    samples, variances, loads = [3, 5], [0.5, 2.0], [((2.0, -1.0), 0.9), ((1.0, 3.0), 0.5)][:count]
    given = {"rounds": 4, "every": 3, "age": 2}
    levels = [aw.Level(loading, kept) for loading, kept in loads]
    found = filter_rounds(chains, samples, variances, levels=levels, **given)
    cov, cross, target = whole_covariance(chains, samples, variances, levels=loads, **given)
    gains = np.linalg.solve(cov, cross)
    assert found.gains.ravel() == pytest.approx(gains, rel=1e-9)
    assert found.loss == pytest.approx(target - cross @ gains, rel=1e-9)
    assert found.nothing_collected == pytest.approx(target, rel=1e-12)
    by_lag = [aw.Level(one.loading, [one.correlation**lag for lag in range(12)]) for one in levels]
    again = filter_rounds(chains, samples, variances, levels=by_lag, **given)
    assert again.loss == pytest.approx(found.loss, rel=1e-9)


def test_more_rounds_never_lose_more(paper_chains):
    losses = [
        filter_rounds(
            paper_chains, 100, noise([0.1] * 3), rounds=rounds, every=5, levels=[LEVEL]
        ).loss
        for rounds in (1, 2, 5, 20, 80)
    ]
    assert all(more <= fewer * (1 + 1e-12) for fewer, more in itertools.pairwise(losses))
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"rounds": 0}, "rounds is 0"),
        ({"every": 0}, "every is 0"),
        ({"age": -1}, "age is -1"),
        ({"noise": 0.0}, "samples, noise is .*above 0"),
        ({"samples": 0}, "samples, noise is .*1 or more"),
        ({"levels": [aw.Level(1.0, [1, 0.5])]}, "level.correlation is 2 lags; allowed: .* 11:"),
    ],
)
def test_bad_input_is_refused(paper_chains, changed, words):
    given = {"samples": 100, "noise": 1.0, "rounds": 2, "every": 10} | changed
    with pytest.raises(aw.InvalidInput, match=words):
        filter_rounds(paper_chains, given.pop("samples"), given.pop("noise"), **given)
