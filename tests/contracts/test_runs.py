"""The local engine keeps to the contract of all runs."""

from contextlib import ExitStack
from itertools import product

import pytest

from agewise.testing import RunContract, killed_at

LONG = "many rounds with server noise"
"""What each half of it does is in another mode, and both together in some of the golden cells."""


class TestLocalRuns(RunContract):
    modes = tuple(mode for mode in RunContract.modes if mode.name != LONG)


@pytest.mark.slow
class TestMoreLocalRuns(RunContract):
    modes = tuple(mode for mode in RunContract.modes if mode.name == LONG)


def test_every_step_is_met(tmp_path):
    """One that is not, since its method is gone or not called, would cut nothing off."""
    met, contract = set(), RunContract()
    for mode in contract.modes[:4]:
        with ExitStack() as stack:
            kills = {
                at: stack.enter_context(killed_at(*at, end=lambda: None))
                for at in product(contract.steps, ("before", "after"))
            }
            contract.begin(mode, tmp_path / mode.name, 1, ())
        met |= {at for at, kill in kills.items() if kill.done}
    assert met == set(product(contract.steps, ("before", "after")))


class TestForgetfulRuns(RunContract):
    """The contract, of an engine that begins anew where it should go on."""

    modes = RunContract.modes[:1]
    __test__ = False

    def resume(self, mode, folder):
        for path in sorted(folder.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        return self.begin(mode, folder, 3, ())


def test_an_engine_that_forgets_is_found(tmp_path):
    contract = TestForgetfulRuns()
    test = contract.test_cut_off_anywhere_it_goes_on_as_if_nothing_had_been
    with pytest.raises(AssertionError, match="had released"):
        test(contract.modes[0], None, tmp_path)
