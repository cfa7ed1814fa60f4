"""Checks of single values: what passes, and the words for what does not."""

import math
import pickle

import numpy as np
import pytest

import agewise as aw
from agewise.checks import finite_array, fraction, one_of, positive, whole
from agewise.scenario import InvalidScenario
from parties import BadMessage


@pytest.mark.parametrize("value", [0, 1, -0.1, 1.1, math.nan, math.inf, "0.5", True, None, 10**400])
def test_a_fraction_is_a_number_between_zero_and_one(value):
    assert fraction("share", np.float32(0.5)) == 0.5
    with pytest.raises(aw.InvalidInput, match=r"^share is .*; allowed: above 0 and below 1\.$"):
        fraction("share", value)


def test_the_ends_of_a_fraction_count_where_that_is_said():
    assert fraction("share", 0, with_zero=True) == 0
    assert fraction("share", 1, with_one=True) == 1
    with pytest.raises(aw.InvalidInput, match="above 0 and at most 1"):
        fraction("share", 0, with_one=True)
    with pytest.raises(aw.InvalidInput, match="from 0 and below 1"):
        fraction("share", 1, with_zero=True)
    with pytest.raises(aw.InvalidInput, match="from 0 to 1"):
        fraction("share", 2, with_zero=True, with_one=True)


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (lambda: positive("x", 0), "a finite number above 0"),
        (lambda: positive("x", "1"), "a finite number above 0"),
        (lambda: whole("x", 1.5, 1), "a whole number of 1 or more"),
        (lambda: whole("x", 4, 1, 3), "a whole number from 1 to 3"),
        (lambda: whole("x", True, 0), "a whole number"),
        (lambda: one_of("x", "c", ("a", "b")), "x is 'c'; allowed: one of a, b"),
        (lambda: finite_array("x", [[1], [1, 2]], "numbers"), "rows of one length"),
        (lambda: finite_array("x", [], "numbers"), "x is empty"),
        (lambda: finite_array("x", [[0, math.nan]], "numbers"), r"x\[0, 1\] is nan"),
    ],
)
def test_what_cannot_be_used_is_named(check, words):
    with pytest.raises(aw.InvalidInput, match=words):
        check()


@pytest.mark.parametrize(
    "error",
    [
        aw.InvalidInput("share", 2, "0 to 1", "Give less."),
        InvalidScenario([aw.InvalidInput("share", 2, "0 to 1")], "mine.toml"),
        BadMessage("malformed", "nothing"),
        aw.BudgetExceeded("too much"),
    ],
)
def test_errors_travel_between_processes(error):
    """One that does not would have a pool of workers wait for ever."""
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again).keys()) == (
        type(error),
        str(error),
        vars(error).keys(),
    )
