"""What plans, runs, ledgers and checks say is what they said: in every pair of modes.

A change that moves a number on purpose writes the facts anew (`make golden`), and says so in the
changelog.
"""

import cells
import facts
import pytest

TABLE = cells.stored()
TOLD, DRAWN_ALIKE = facts.stored()


def test_cells_cover_every_pair_that_can_be_had():
    assert not list(cells.uncovered(TABLE))
    pairs = list(cells.pairs())
    assert (len(pairs), len(TABLE["refused"]), len(TABLE["cells"])) == (1074, 86, 63)


def test_every_cell_has_its_facts():
    assert [told["cell"] for told in TOLD] == TABLE["cells"]


@pytest.mark.parametrize("told", TOLD, ids=[cells.title(told["cell"]) for told in TOLD])
def test_a_cell_says_what_it_said(told):
    found = facts.facts_of(told["cell"])
    assert not list(facts.differences(told, found, drawn=DRAWN_ALIKE))
    for name in ("plan travels", "scenario travels", "resumed is the same"):
        assert found[name] is True
    assert found["check finds"] == []


@pytest.mark.parametrize(
    ("told", "found", "paths"),
    [
        ({"spent": 1.0}, {"spent": 1.0 + 1e-10}, []),
        ({"spent": 1.0}, {"spent": 1.0 + 1e-8}, ["/spent"]),
        ({"spent": 1.0}, {"spent": float("nan")}, ["/spent"]),
        ({"spent": 0.0}, {"spent": 1e-13}, []),
        ({"lower bound": 1.0}, {"lower bound": 1.0 + 1e-7}, []),
        ({"age": 3}, {"age": 4}, ["/age"]),
        ({"private": True}, {"private": 1}, ["/private"]),
        ({"spent": None}, {"spent": 1.0}, ["/spent"]),
        ({"slots": [1, 2]}, {"slots": [1, 3]}, ["/slots[1]"]),
        ({"slots": [1, 2]}, {"slots": [1]}, ["/slots"]),
        ({"age": 3}, {}, ["/age"]),
        ({}, {"age": 3}, ["/age"]),
        ({"model": [1.0], "spent": 1.0}, {"model": [2.0], "spent": 2.0}, ["/model[0]", "/spent"]),
    ],
)
def test_what_differs_is_found(told, found, paths):
    assert [path for path, *_ in facts.differences(told, found)] == paths
    left = [path for path, *_ in facts.differences(told, found, drawn=False)]
    assert left == [path for path in paths if "model" not in path]
