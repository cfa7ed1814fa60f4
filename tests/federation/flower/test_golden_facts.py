"""The golden cells on a grid in this process: what they say is what the local engine says."""

import cells
import facts
import numpy as np
import pytest

TOLD, DRAWN_ALIKE = facts.stored()


def every_cell():
    """Every second cell in one of two ways by turns; all of them in both in `make test-rest`."""
    kinds = ("private", "seeded")
    for number, told in enumerate(TOLD):
        for place, kind in enumerate(kinds):
            marks = () if number % 4 == 2 * place else pytest.mark.slow
            title = f"{kind}: {cells.title(told['cell'])}"
            yield pytest.param(told, kind, id=title, marks=marks)


@pytest.mark.parametrize(("told", "kind"), list(every_cell()))
def test_guarantee_a_cell_says_on_flower_what_it_says_here(told, kind, tmp_path, federation):
    cell, (nodes, _) = told["cell"], federation
    for name in facts.gone(cell):
        nodes[name].fault = lambda _: False
    rng = np.random.default_rng(7) if kind == "seeded" else None
    run = facts.Run(cells.plan(cell), cell, tmp_path, rng, engine="flower")
    found = facts.plain(run.facts())
    kept = facts.kept(cell, {kind: facts.values(found) if rng else facts.claims(found)})
    assert not list(facts.differences(told[kind], kept[kind], drawn=DRAWN_ALIKE))
    assert run.check() == []
