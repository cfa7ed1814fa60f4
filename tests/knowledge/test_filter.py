"""What a server makes of all rounds it has heard."""

import itertools

import numpy as np
import pytest

import agewise as aw
from agewise.knowledge import Heard, filter_heard, filter_rounds
from agewise.knowledge.passed import Report, covariances

LEVEL = aw.Level(loading=20.0, correlation=0.98)


def noise(spent, samples=100):
    return 2 * (180 / samples / np.array(spent)) ** 2


@pytest.mark.parametrize(
    ("spent", "age", "this_round", "all_rounds"),
    [
        ((0.1 / 365,) * 3, 0, 410.3586, 410.3513),
        ((0.07282, 0.07107, 0.09878), 0, 224.5138, 167.4086),
        ((0.08424, 0.08309, 0.09939), 0, 207.0371, 154.1542),
        ((0.15006, 0.14786, 0.64749), 4, 180.687, 157.595),
    ],
)
def test_the_table_of_rounds_heard(paper_chains, spent, age, this_round, all_rounds):
    for rounds, wanted in ((1, this_round), (60, all_rounds)):
        found = filter_rounds(
            paper_chains, 100, noise(spent), rounds=rounds, every=10, age=age, levels=[LEVEL]
        )
        assert found.loss == pytest.approx(wanted, abs=2e-3)
        assert found.nothing_collected == pytest.approx(410.362, abs=6e-4)


def test_what_is_affordable_is_worth_this_much(paper_chains):
    """From the target to the loss: every moment, for ever, at 0.1."""
    spent = [
        aw.per_release_epsilon(chain, every=10, epsilon=0.1, promise="every_moment")
        for chain in paper_chains
    ]
    found = filter_rounds(paper_chains, 100, noise(spent), rounds=60, every=10, levels=[LEVEL])
    assert found.loss == pytest.approx(167.41, abs=0.02)


def covariance_of(one, other, levels):
    """Of two mean reports (client's place, slots ago, fresh, loadings, chain, samples)."""
    i, ago, fresh, loads, chain, samples = one
    j, then, _, other_loads, other_chain, _ = other
    kept = [level.correlation ** abs(ago - then) for level in levels]
    spreads = np.linalg.norm(loads), np.linalg.norm(other_loads)
    among = sum(a * b * k for a, b, k in zip(loads, other_loads, kept, strict=True))
    among = among / np.prod(spreads) if np.prod(spreads) > 0 else 0.0
    first, second = (
        Report(tuple(c.states), f, float(spread))
        for c, f, spread in ((chain, fresh, spreads[0]), (other_chain, other[2], spreads[1]))
    )
    both = covariances(first, second, among)
    shared = chain.stationary @ both @ other_chain.stationary
    if i != j:
        return shared
    joint = chain.stationary[:, None] * np.linalg.matrix_power(chain.transition, abs(ago - then))
    if ago < then:
        joint = joint.T  # of the record now and then, as the two are given
    apart = joint - np.outer(chain.stationary, chain.stationary)
    return shared + (apart * (both + np.outer(first.mean, second.mean))).sum() / samples


def covariance_with_now(one, weights, all_loads, levels):
    """Of a mean report and the weighted mean of all records now."""
    i, ago, fresh, loads, chain, samples = one
    spread = float(np.linalg.norm(loads))
    report = Report(tuple(chain.states), fresh, spread)
    moved = chain.stationary @ report.slope / (spread or 1.0)
    total = weights @ np.array(all_loads)
    kept = [level.correlation**ago for level in levels]
    shared = moved * sum(a * b * k for a, b, k in zip(loads, total, kept, strict=True))
    joint = chain.stationary[:, None] * np.linalg.matrix_power(chain.transition, ago)
    apart = joint - np.outer(chain.stationary, chain.stationary)
    return shared + weights[i] * report.mean @ apart @ chain.states / samples


def whole(heard, levels):
    """Covariances of all releases, client by client, with the target, and its own variance."""
    loads = [tuple(level.loading_of(i) for level in levels) for i in range(len(heard))]
    weights = np.array([one.weight for one in heard])
    told = [
        (i, int(ago), bool(fresh), loads[i], one.chain, one.samples)
        for i, one in enumerate(heard)
        for ago, fresh in zip(one.ago, one.fresh, strict=True)
    ]
    law = np.array([[covariance_of(a, b, levels) for b in told] for a in told])
    law = law.reshape(len(told), len(told)) + np.diag(np.concatenate([one.noise for one in heard]))
    cross = np.array([covariance_with_now(a, weights, loads, levels) for a in told])
    variance = [
        one.chain.stationary @ (one.chain.states - one.chain.stationary @ one.chain.states) ** 2
        for one in heard
    ]
    own = sum(w**2 * v / one.samples for w, v, one in zip(weights, variance, heard, strict=True))
    return law, cross, own + np.square(weights @ np.array(loads)).sum()


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("age", [0, 2])
def test_guarantee_gains_and_loss_are_those_of_the_whole_covariance_matrix(count, age):
    chains = [aw.birth_death(0.3, 0.2, [1, 5, 9]), aw.MarkovChain([[0.9, 0.1], [0.4, 0.6]], [0, 7])]
    samples, variances, loads = [3, 5], [0.5, 2.0], [((2.0, -1.0), 0.9), ((1.0, 3.0), 0.5)][:count]
    given = {"rounds": 4, "every": 3, "age": age}
    levels = [aw.Level(loading, kept) for loading, kept in loads]
    found = filter_rounds(chains, samples, variances, levels=levels, **given)
    ago = age + 3 * np.arange(4)
    heard = [
        Heard(chain, n, n / 8, ago, np.full(4, v), fresh=np.full(4, age == 0))
        for chain, n, v in zip(chains, samples, variances, strict=True)
    ]
    cov, cross, target = whole(heard, levels)
    gains = np.linalg.solve(cov, cross)
    assert np.concatenate(found.gains) == pytest.approx(gains, rel=1e-6)
    assert found.loss == pytest.approx(target - cross @ gains, rel=1e-8)
    assert found.nothing_collected == pytest.approx(target, rel=1e-12)
    by_lag = [aw.Level(one.loading, [one.correlation**lag for lag in range(12)]) for one in levels]
    again = filter_rounds(chains, samples, variances, levels=by_lag, **given)
    assert again.loss == pytest.approx(found.loss, rel=1e-9)


def filtered_run(rng, chains, rounds, ages, scales, level, trials):
    """Squared errors of the estimate, on records followed one by one and moved by the level."""
    found = filter_rounds(
        chains, 20, 2 * np.square(scales), rounds=rounds, every=4, age=ages, levels=[level]
    )
    last, errors = 4 * rounds, []
    for _ in range(trials):
        path = [rng.standard_normal()]
        for _ in range(last):
            step = np.sqrt(1 - level.correlation**2) * rng.standard_normal()
            path.append(level.correlation * path[-1] + step)
        releases, truth = [], 0.0
        for chain, age, scale in zip(chains, ages, scales, strict=True):
            size = chain.states.size
            now = rng.choice(size, 20, p=chain.stationary)
            states = [now]
            for _ in range(last):
                beyond = rng.random((20, 1)) > chain.transition.cumsum(axis=1)[now]
                now = beyond[:, :-1].sum(axis=1)
                states.append(now)
            own = []
            for number in range(rounds):
                at = last - 4 * number - age
                readings = chain.states[states[at]] + level.loading * path[at]
                if age:
                    near = np.abs(readings[:, None] - chain.states).argmin(axis=1)
                    readings = chain.states[near]
                own.append(readings.clip(chain.states[0], chain.states[-1]).mean())
            releases.append(np.array(own) + rng.laplace(0, scale, rounds))
            truth += (chain.states[states[last]] + level.loading * path[last]).mean() / 2
        errors.append((found.of(releases) - truth) ** 2)
    return found, np.array(errors)


@pytest.mark.parametrize("ages", [(0, 0), (3, 1), (0, 2)])
def test_guarantee_the_loss_over_rounds_is_that_of_records_with_a_level(ages):
    chains = [aw.birth_death(0.3, 0.2, [0, 10, 30]), aw.birth_death(0.1, 0.1, [0, 10, 30])]
    rng, level = np.random.default_rng(8), aw.Level(12.0, 0.9)
    found, errors = filtered_run(rng, chains, 3, ages, (1.0, 2.0), level, 400)
    assert abs(errors.mean() - found.loss) < 4 * errors.std() / 20
    assert found.loss < 0.7 * found.nothing_collected
    assert errors.std() / 20 < 0.12 * found.loss


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


def test_guarantee_whoever_was_missing_and_whenever_the_gains_are_those_of_the_covariances():
    rng = np.random.default_rng(4)
    for _ in range(20):
        level = aw.Level([3.0, 1.0], 0.9)
        heard = []
        for i in range(2):
            chain = aw.MarkovChain(rng.dirichlet(np.ones(3), 3), np.sort(rng.normal(0, 5, 3)))
            ago = np.sort(rng.choice(12, int(rng.integers(0, 5)), replace=False))
            noise, fresh = rng.uniform(0.1, 3, len(ago)), rng.random(len(ago)) < 0.5
            heard.append(Heard(chain, 5 + i, (0.3, 0.7)[i], ago, noise, fresh=fresh))
        found = filter_heard(heard, [level])
        law, cross, nothing = whole(heard, [level])
        gains = np.linalg.solve(law, cross) if len(cross) else np.zeros(0)
        assert np.concatenate(found.gains) == pytest.approx(gains, rel=1e-6, abs=1e-9)
        assert found.loss == pytest.approx(nothing - cross @ gains, rel=1e-8)
        assert found.nothing_collected == pytest.approx(nothing)
        values = [rng.normal(size=len(one.ago)) for one in heard]
        off = np.concatenate([v - e for v, e in zip(values, found.expected, strict=True)])
        assert found.of(values) == pytest.approx(found.mean + gains @ off)
