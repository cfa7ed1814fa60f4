import itertools

import numpy as np
import pytest

import agewise as aw
from agewise.paper import reproduction

# Best ages and gap of each scheme at ε̄ = 0.03, 0.1, 0.3 (scheme 4 with its bound).
TABLE = {
    1: [(None, 2462.995), (None, 295.395), (None, 104.802)],
    2: [(None, 1829.799), (None, 239.107), (None, 98.767)],
    3: [([4, 9, 0], 2407.958), ([4, 9, 0], 223.958), ([4, 9, 0], 31.958)],
    4: [([9, 9, 9], 1045.249), ([1, 9, 9], 132.003), ([4, 9, 0], 29.004)],
    5: [([0, 0, 0], 2400.000), ([0, 0, 0], 216.000), ([0, 0, 0], 24.000)],
    6: [([9, 9, 8], 1045.025), ([0, 9, 9], 127.070), ([0, 0, 0], 24.000)],
}
BOUNDS_OF_4 = [1301.353, 414.382, 276.639]


def test_the_table_of_schemes():
    rows = aw.compare_schemes(aw.scenarios.london(), [0.03, 0.1, 0.3])
    assert [row.scheme for row in rows] == [1, 2, 3, 4, 5, 6] * 3
    for place in range(3):
        for row in rows[6 * place : 6 * place + 6]:
            ages, gap = TABLE[row.scheme][place]
            assert row.ages == ages
            assert row.gap == pytest.approx(gap, abs=6e-4)
        assert rows[6 * place + 3]["bound"] == pytest.approx(BOUNDS_OF_4[place], abs=6e-4)


@pytest.mark.parametrize(
    ("choices", "wanted"),
    [
        ({"mixing": "exact"}, [([9, 9, 6], 254.569), ([4, 9, 2], 86.515), ([0, 9, 8], 20.976)]),
        (
            {"mixing": "exact", "estimator": "propagated"},
            [([9, 9, 6], 14.912), ([9, 9, 4], 10.026), ([5, 8, 2], 8.914)],
        ),
    ],
)
def test_what_better_calibration_buys(choices, wanted):
    for epsilon, (ages, gap) in zip((0.03, 0.1, 0.3), wanted, strict=True):
        made = aw.plan(aw.scenarios.london().replace(epsilon=epsilon, **choices), "exhaustive")
        assert made.ages == ages
        assert made.gap == pytest.approx(gap, abs=6e-4)


def test_the_size_of_what_this_adds_to_the_paper():
    base = aw.scenarios.london().replace(epsilon=0.01)
    assert aw.plan(base, "exhaustive").gap == pytest.approx(8504, abs=0.5)
    better = base.replace(mixing="exact", estimator="propagated")
    assert aw.plan(better, "exhaustive").gap == pytest.approx(56, abs=0.5)


def test_random_constant_noise_by_loops():
    problem = aw.scenarios.london()
    row = aw.compare_schemes(problem, [0.1], schemes=[1])[0]
    gaps = []
    for ages in itertools.product(range(10), repeat=3):
        deltas = [
            aw.total_variation(c.process, a, "spectral")
            for c, a in zip(problem.clients, ages, strict=True)
        ]
        common = min(aw.classical_epsilon(0.1, d) for d in deltas)
        free = aw.loss_gap(problem, ages) - sum(
            2 * (1.8 / aw.classical_epsilon(0.1, d)) ** 2 / 9 for d in deltas
        )
        gaps.append(free + 3 * 2 * (1.8 / common) ** 2 / 9)
    assert row.gap == pytest.approx(np.mean(gaps), rel=1e-9)


def test_capacity_is_honoured():
    for row in aw.compare_schemes(aw.scenarios.london().replace(capacity=1), [0.03]):
        assert row.ages is None or len(set(row.ages)) == 3


def test_no_scheme_reaches_more_than_its_target():
    for choices in ({}, {"mixing": "exact", "calibration": "tight"}):
        for row in aw.compare_schemes(aw.scenarios.london().replace(**choices), [0.1]):
            assert row.achieved_epsilon <= 0.1


def test_slow_and_fast_can_be_compared():
    rows = aw.compare_schemes(
        aw.scenarios.slow_and_fast().replace(aggregate_at=6, estimator="plain"), [0.2]
    )
    assert len(rows) == 6


def test_bad_input_is_refused():
    with pytest.raises(aw.InvalidInput, match="epsilons is empty"):
        aw.compare_schemes(aw.scenarios.london(), [])
    with pytest.raises(aw.InvalidInput, match="scheme is 7"):
        aw.compare_schemes(aw.scenarios.london(), schemes=[7])
    with pytest.raises(aw.InvalidInput, match="epsilon is 0"):
        aw.compare_schemes(aw.scenarios.london(), [0])


def test_figure_2_claims():
    rows, claims, targets = reproduction.figure_2()
    assert [c.holds for c in claims] == [True, False, False]
    assert len(rows) == 30
    by_client = {}
    for row in rows:
        by_client.setdefault(row["client"], []).append(row["exact_delta"])
    first, second, third = (int(np.argmin(v)) for v in by_client.values())
    assert first == 9
    assert 0 < second < 9
    assert 0 < third < 9
    assert rows[9]["as_stated"] == pytest.approx(725.67, rel=1e-4)  # the fresh point, matched
    assert 0.0944 < targets["found"] < 0.1319


def test_figure_3_claims():
    rows, claims = reproduction.figure_3()
    assert len(rows) == 2 * 6 * 21
    assert [c.holds for c in claims] == 2 * [True, True, False, False, False, True]


def test_theorem_1_costs_less_where_only_one_client_can_upload_at_a_time():
    rows, claims = reproduction.figure_3()
    worst = {}
    for capacity in (None, 1):
        gap = {
            s: np.array([r.gap for r in rows if (r.scheme, r.capacity) == (s, capacity)])
            for s in range(1, 7)
        }
        worst[capacity] = (gap[4] / gap[6]).max(), (gap[3] / gap[5]).max()
    assert worst[None] == pytest.approx((4.59, 4.68), abs=0.005)
    assert worst[1] == pytest.approx((1.52, 1.55), abs=0.005)
    told = [c.evidence for c in claims if c.claim.endswith("(one upload per slot)")]
    assert any("1 to 1.52, worst at ε̄ = 1.000" in one for one in told)
    assert any("1 to 1.55, worst at ε̄ = 1.000" in one for one in told)
    assert min(r.gap for r in rows if r.capacity == 1) > rows[0].nothing_collected


def test_random_schedules_are_uniform_over_those_the_capacity_allows():
    problem = aw.scenarios.london().replace(capacity=1)
    allowed = [a for a in itertools.product(range(10), repeat=3) if len(set(a)) == 3]
    gaps = [aw.loss_gap(problem, ages) for ages in allowed]
    row = aw.compare_schemes(problem, [0.1], schemes=[2])[0]
    assert len(allowed) == 720
    assert row.gap == pytest.approx(np.mean(gaps), rel=1e-9)
