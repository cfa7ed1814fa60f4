import math

import numpy as np
import pytest

import agewise as aw
from agewise.learning import Labelled

STATES = Labelled([[0.0, 10.0], [1.0, 30.0], [2.0, 20.0]], [5.0, 6.0, 6.0])


@pytest.mark.parametrize(
    ("features", "labels", "words"),
    [
        ([[0.0, math.nan], [1.0, 2.0]], [0, 1], r"features\[0, 1\] is nan"),
        ([[0.0], [1.0]], [0, math.inf], r"labels\[1\] is inf"),
        ([[0.0], [1.0, 2.0]], [0, 1], "rows of one length"),
        ([[[0.0]], [[1.0]]], [0, 1], "features is of shape"),
        ([[0.0], [1.0]], [0, 1, 1], r"labels is of shape \(3,\); allowed: 2 labels, one per row"),
        ([[0.0], [1.0]], ["a", 1], "labels is"),
        ([[0.0, 3.0], [1.0, 3.0]], [0, 1], "feature 'x2' is 3 in every state.*intercept"),
        ([[0.0, 1e16], [1.0, 1e16 + 2]], [0, 1], "feature 'x2'"),
        ([[0.0], [1e31]], [0, 1], "features is 1e.31; allowed: up to 1e.30"),
        ([[0.0], [1.0]], [0, -1e31], "labels is 1e.31; allowed: up to 1e.30"),
        ([[1.0]], [0], "features is 1 state; allowed: 2 states or more"),
        ([], [], "features is empty"),
    ],
)
def test_bad_states_are_refused(features, labels, words):
    with pytest.raises(aw.InvalidInput, match=words):
        Labelled(features, labels)


@pytest.mark.parametrize("names", [("a",), ("a", "a"), ("a", 1), "ab"])
def test_names_are_one_different_word_per_feature(names):
    with pytest.raises(aw.InvalidInput, match=r"names is .*2 different words"):
        Labelled(STATES.features, STATES.labels, names)
    assert Labelled(STATES.features, STATES.labels, ["a", "b"]).feature_names == ["a", "b"]
    assert STATES.feature_names == ["x1", "x2"]


def test_equal_states_are_equal_and_hash_alike():
    again = Labelled(np.asarray(STATES.features), np.asarray(STATES.labels))
    assert (again, hash(again)) == (STATES, hash(STATES))


def test_the_nearest_state_weighs_each_column_by_its_range():
    # By raw distance the first record is nearest to state 0, by ranges of 2 and 20 to state 2.
    places = STATES.nearest([[1.9, 14.0], [-99, -99], [0.4, 26.0]], [6.0, 5.0, 6.4])
    assert places.tolist() == [2, 0, 1]
    assert STATES.nearest([[1.0, 20.0]], [5.0]).tolist() == [0]  # by its label


def test_of_equally_near_states_the_first():
    assert Labelled([0.0, 2.0], [1.0, 1.0]).nearest([1.0], [1.0]).tolist() == [0]


def test_a_record_of_a_class_stays_in_it():
    assert STATES.nearest([[0.0, 9.0]], [6], classes=True).tolist() == [2]
    words = Labelled(STATES.features, ["no", "yes", "yes"])
    assert words.classes == ["no", "yes"]
    assert words.nearest([[0.0, 9.0], [2.0, 20.0]], ["yes", "no"]).tolist() == [2, 0]


@pytest.mark.parametrize(
    ("states", "label", "words"),
    [
        (STATES, 7.0, r"labels\[1\] is 7.0; allowed: 5.0, 6.0"),
        (Labelled(STATES.features, ["no", "yes", "yes"]), "maybe", "'maybe'; allowed: 'no', 'yes'"),
    ],
)
def test_labels_outside_the_alphabet_are_refused(states, label, words):
    with pytest.raises(aw.InvalidInput, match=words):
        states.nearest(states.features[:2], [states.labels[0], label], classes=True)


@pytest.mark.parametrize(
    ("features", "labels", "words"),
    [
        ([[1.0]], [5.0], "features is of 1 columns; allowed: 2"),
        ([[1.0, 2.0]], [5.0, 6.0], "labels is of shape"),
        ([[1.0, math.nan]], [5.0], r"features\[0, 1\] is nan"),
        ([[1.0, 2.0]], ["high"], r"labels\[0\] is 'high'; allowed: 5.0, 6.0"),
    ],
)
def test_records_of_another_shape_are_refused(features, labels, words):
    with pytest.raises(aw.InvalidInput, match=words):
        STATES.nearest(features, labels)
