"""Flower keeps to the contract of all runs, on a grid in this process."""

import shutil

import pytest

from agewise.testing import STEPS, RunContract

FEW = ("one round", "turns")


class TestFlowerRuns(RunContract):
    """Whoever submits a run may be killed, and so may the ServerApp with all nodes."""

    modes = tuple(mode for mode in RunContract.modes if mode.name in FEW)
    steps = tuple(STEPS)

    @pytest.fixture(autouse=True)
    def _federation(self, federation):
        self.nodes, _ = federation

    def begin(self, mode, folder, seed, silent, **choices):
        for client in mode.problem().clients:
            fault = (lambda _: False) if client.name in silent else None
            self.nodes[client.name].fault = fault
        return self.carry_out(mode, folder, seed, engine="flower", **choices)

    def begin_again(self, mode, folder, seed):
        shutil.rmtree(folder)  # a deployment wants an empty one
        return self.begin(mode, folder, seed, ())


@pytest.mark.slow
class TestMoreFlowerRuns(TestFlowerRuns):
    """The other modes, but for the one in which all clients are in one process."""

    modes = tuple(m for m in RunContract.modes if m.name not in FEW and not m.one_file)
