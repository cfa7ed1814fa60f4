"""Records: what their fields take, and that all that is wrong with them is told at once."""

import dataclasses
import pickle

import numpy as np
import pytest

import agewise as aw

CHAIN = aw.birth_death(0.1, 0.2, [20, 50, 100])
PAIR = [aw.Client("a", CHAIN, samples=10), aw.Client("b", CHAIN, samples=10)]


@pytest.mark.parametrize("number", [5, 5.0, np.int64(5), np.float32(5), np.uint8(5)], ids=repr)
def test_whole_numbers_of_any_kind_are_welcome(number):
    client = aw.Client("a", CHAIN, samples=number)
    assert (client.samples, type(client.samples)) == (5, int)
    assert aw.Problem(PAIR, number, 0.5).aggregate_at == 5


@pytest.mark.parametrize("number", [2, np.float32(2), np.int8(2), 2.0], ids=repr)
def test_numbers_of_any_kind_become_floats(number):
    problem = aw.Problem(PAIR, 5, number)
    assert (problem.epsilon, type(problem.epsilon)) == (2.0, float)


@pytest.mark.parametrize("bad", ["5", True, np.True_, None, [5], 5.5, np.nan, 10**400], ids=repr)
def test_texts_and_truths_are_no_numbers(bad):
    for call in (
        lambda: aw.Client("a", CHAIN, samples=bad),
        lambda: aw.Problem(PAIR, bad, 0.5),
        lambda: aw.Target("0.5" if bad == 5.5 else bad, "exact", "sharp"),
    ):
        with pytest.raises(aw.InvalidInput):
            call()


def told(call):
    with pytest.raises(aw.InvalidInput) as refused:
        call()
    return [(one.field, one.allowed) for one in getattr(refused.value, "problems", [refused.value])]


def test_all_that_is_wrong_is_told_at_once_whether_by_place_or_by_name():
    wrong = told(lambda: aw.Problem(PAIR, 0, -1.0, "exat", rounds=3))
    assert wrong == [
        ("aggregate_at", "a whole number from 1 to 100000"),
        ("epsilon", "a finite number above 0"),
        ("mixing", "one of exact, own_law, any_prior, spectral"),
        ("every", "a number of slots"),
    ]
    assert wrong == told(
        lambda: aw.Problem(clients=PAIR, aggregate_at=0, epsilon=-1.0, mixing="exat", rounds=3)
    )


def test_what_does_not_go_together_is_told_with_what_is_wrong_by_itself():
    """As far as the rest can tell: of the estimator nothing is known."""
    fields = [
        field
        for field, _ in told(
            lambda: aw.Problem(
                [PAIR[0], PAIR[0]],
                4,
                0.5,
                estimator="bst",
                calibration="tight",
                mixing="any_prior",
                level=aw.Level(1.0, 0.5),
                learner=aw.Histogram(),
            )
        )
    ]
    assert fields == ["estimator", "clients", "calibration", "calibration", "level"]


def test_a_misspelt_word_gets_a_suggestion_in_python_too():
    with pytest.raises(aw.InvalidInput, match=r"Did you mean propagated\?"):
        aw.Problem(PAIR, 4, 0.5, estimator="propogated")
    with pytest.raises(aw.InvalidInput, match=r"sampels is not a known key \(did you mean samples"):
        aw.Client("a", CHAIN, sampels=3)


def test_arguments_that_python_itself_refuses_are_left_to_it():
    with pytest.raises(TypeError):
        aw.Client("a", CHAIN, name="b")
    with pytest.raises(TypeError):
        aw.Mean("mean")


def test_records_travel_compare_and_stay_as_they_are():
    for one in (
        PAIR[0],
        aw.Level([1.0, 2.0], [1.0, 0.5]),
        aw.Statistics([[1.0], [2.0]], names=["x"]),
        aw.Target(0.1, "exact", "sharp"),
        aw.Problem(PAIR, 4, 0.5, learner=aw.Histogram()),
    ):
        again = pickle.loads(pickle.dumps(one))
        assert again == one
        assert hash(again) == hash(one)
        name = dataclasses.fields(one)[0].name
        with pytest.raises(AttributeError):
            setattr(one, name, None)


def test_tables_and_words_of_files_are_read_in_python_too():
    problem = aw.Problem(
        PAIR,
        4,
        0.5,
        estimator="plain",
        learner={"kind": "histogram"},
        rounds="forever",
        every=4,
    )
    assert (problem.learner, problem.rounds) == (aw.Histogram(), None)
    assert aw.Problem(PAIR, 4, 0.5, level=[{"loading": 1, "correlation": 0.5}]).level == (
        aw.Level(1.0, 0.5),
    )
