"""Choices side by side."""

import builtins
import json
import math

import pytest

import agewise as aw
import in_process

LONDON = aw.scenarios.london()
GRID = {
    "estimator": ["plain", "propagated"],
    "calibration": ["formula", "tight"],
    "mixing": ["spectral", "exact"],
}


@pytest.fixture(scope="module")
def compared():
    return aw.compare(LONDON, **GRID)


def test_rows_are_the_plans_of_every_combination(compared):
    assert len(compared) == len(list(compared)) == 10
    planned = compared[:8]
    assert [row.choices["estimator"] for row in planned] == ["plain"] * 4 + ["propagated"] * 4
    for row in planned:
        if row.reason is None:
            made = aw.plan(LONDON.replace(**row.choices))
            assert row.plan == made
            assert (row.ages, row.gap) == (made.ages, made.gap)
            assert row.mean_noise_scale == pytest.approx(sum(made.noise_scales) / 3)
            assert row.largest_classical_epsilon == max(made.classical_epsilons)


def test_what_is_not_possible_is_listed_with_the_reason(compared):
    reasons = {tuple(row.choices.values()): row.reason for row in compared if row.reason}
    assert set(reasons) == {("plain", "tight", "spectral"), ("propagated", "tight", "spectral")}
    assert all("tight with mixing exact or own_law" in why for why in reasons.values())
    assert str(compared).count("not possible") == 3  # two rows, and the reason once
    assert [row.ages for row in compared if row.reason] == [None, None]


def test_a_frame_has_a_column_for_every_choice_and_number(compared):
    frame = compared.to_frame()
    assert frame.columns == [
        "name",
        *GRID,
        "ages",
        "gap",
        "mean_noise_scale",
        "largest_classical_epsilon",
        "reason",
    ]
    assert frame.height == 10
    assert frame["gap"].null_count() == 2
    assert frame["ages"].to_list()[0] == [0, 9, 9]


def test_a_frame_without_polars_says_what_is_missing(compared, monkeypatch):
    original = builtins.__import__

    def without(name, *rest):
        if name == "polars":
            raise ImportError(name)
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(aw.AgewiseError, match="needs the package polars; install it, or use"):
        compared.to_frame()


def test_a_choice_may_stand_alone_and_progress_is_told():
    seen = []
    rows = aw.compare(
        LONDON,
        epsilon=(e for e in (0.03, 0.1)),
        estimator="plain",
        capacity=[None, 1],
        progress=lambda done, total: seen.append((done, total)),
    )
    assert [row.choices["capacity"] for row in rows[:4]] == [None, 1, None, 1]
    rivals = [(row.name.split()[0], row.choices["epsilon"], round(row.gap, 4)) for row in rows[4:]]
    assert rivals == [
        ("nothing", 0.0, 4.7089),
        ("classical,", 0.03, 4.693),
        ("classical,", 0.1, 4.5394),
    ]
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert rows[2].gap == pytest.approx(127.07, abs=1e-3)
    assert len(aw.compare(LONDON)) == 3


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"estimator": ["typo"]}, "estimator is 'typo'; allowed: one of plain, propagated"),
        ({"estimator": []}, "estimator is empty"),
        ({"epsilon": [0.1, -1]}, "epsilon is -1"),
        ({"clients": [()]}, "choice is 'clients'; allowed: one of aggregate_at"),
        ({"odd": [1]}, "choice is 'odd'"),
        ({"epsilon": [0.1] * 200, "aggregate_at": [5] * 200}, "40,000 combinations"),
    ],
)
def test_bad_choices_are_refused(choices, words):
    with pytest.raises(aw.InvalidInput, match=words):
        aw.compare(LONDON.replace(epsilon=0.1), **{**choices})


def test_a_release_without_noise_is_said_to_have_an_infinite_epsilon():
    chain = aw.MarkovChain([[0.3, 0.7], [0.3, 0.7]], [0, 1])
    problem = aw.Problem([aw.Client("a", chain)], 3, 0.1)
    rows = aw.compare(problem, estimator=["plain"])
    assert any(math.isinf(row.largest_classical_epsilon) for row in rows)
    for row, listed in zip(rows, rows.to_list(), strict=True):
        infinite = math.isinf(row.largest_classical_epsilon)
        assert (listed["largest_classical_epsilon"] == "inf") == infinite
    json.dumps(rows.to_list(), allow_nan=False)


def test_the_command_prints_rows_for_programs_and_people(monkeypatch):
    options = ["compare", "--estimator", "plain, propagated", "--epsilon", "0.03,0.1"]
    done = in_process.command(*options, "--json")
    rows = json.loads(done.stdout)
    assert (
        rows == aw.compare(LONDON, estimator=["plain", "propagated"], epsilon=[0.03, 0.1]).to_list()
    )
    monkeypatch.setenv("COLUMNS", "140")
    table = in_process.command(*options).stdout
    assert "1045.02" in table
    assert "mean noise scale (Wh)" in table


def test_the_command_without_choices_compares_estimators_and_mixings():
    rows = json.loads(in_process.command("compare", "--json").stdout)
    assert {(row["estimator"], row["mixing"]) for row in rows} >= {
        ("plain", "spectral"),
        ("propagated", "any_prior"),
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--epsilon", "0.1,x"], "--epsilon is '0.1,x'; allowed: numbers separated by commas"),
        (["--capacity", "1.5"], "--capacity is '1.5'; allowed: whole numbers separated by"),
        (["--estimator", "plain,"], "estimator is ''; allowed: one of plain"),
        (["--calibration", "tight"], "not possible in any combination"),
    ],
)
def test_the_command_refuses_what_cannot_be(options, words):
    done = in_process.command("compare", *options)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())


def test_levels_and_learners_are_plain_data_in_a_list():
    london = aw.scenarios.london().replace(estimator="best", mixing="exact")
    rows = aw.compare(london, level=[None, aw.Level(20.0, 0.98)]).to_list()
    assert json.loads(json.dumps(rows))[1]["level"] == {"loading": 20.0, "correlation": 0.98}
    shares = aw.compare(london, learner=[aw.Histogram()]).to_list()
    assert json.loads(json.dumps(shares))[0]["learner"] == {"kind": "histogram"}
