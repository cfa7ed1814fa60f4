"""What every process promises; one class per process inherits it."""

import numpy as np
import pytest

import agewise as aw
from agewise.federation.client import refuse_shift
from agewise.mixing import MIXINGS, assumption, slot_delta
from agewise.process import Process

CALM, BUSY = [[0.9, 0.1, 0], [0.05, 0.9, 0.05], [0, 0.2, 0.8]], np.full((3, 3), 1 / 3)


class ProcessContract:
    process = None
    same = None
    other = None
    last = 6

    def test_it_is_a_process(self):
        assert isinstance(self.process, Process)
        assert isinstance(self.process.markov, bool)
        assert self.process.states.ndim == 1

    def test_it_says_what_it_is_and_what_it_rests_on(self):
        assert self.process.kind == self.process.to_dict()["kind"]
        assert 0 < self.process.confidence <= 1
        assert isinstance(self.process.assumes, str)
        given = "with the process given" in assumption(self.process, "exact")
        assert given == (self.process.confidence == 1)

    def test_after_a_day_everything_repeats(self):
        day = self.process.day
        assert day >= 1
        for slot in range(1, self.last + 1):
            assert self.process.knows(slot + day, self.last + day)
            np.testing.assert_array_equal(self.process.law(slot + day), self.process.law(slot))
            np.testing.assert_array_equal(
                self.process.kernel(slot + day, self.last + day),
                self.process.kernel(slot, self.last),
            )

    def test_what_is_homogeneous_is_one_matrix_for_all_slots(self):
        chain = self.process.homogeneous
        if chain is not None:
            assert (self.process.markov, self.process.day) == (True, 1)
            for slot in range(1, self.last + 1):
                np.testing.assert_array_equal(
                    self.process.kernel(slot, self.last), chain.steps(self.last - slot)
                )

    def test_nothing_is_claimed_of_slots_that_it_does_not_know(self):
        for slot, later in ((1, self.last), (1, self.last + 1), (self.last, 2 * self.last)):
            if not self.process.knows(slot, later):
                assert slot_delta(self.process, slot, later, "exact") == 1
                with pytest.raises(aw.InvalidInput, match="slots that were measured"):
                    self.process.joint(slot, later)
            else:
                self.process.joint(slot, later)

    def test_runs_are_shifted_by_whole_days(self):
        day = self.process.day
        refuse_shift(self.process, 3 * day)
        if day > 1:
            with pytest.raises(aw.InvalidInput, match=f"a multiple of {day} slots: whole days"):
                refuse_shift(self.process, 3 * day + 1)

    def test_kernels_are_laws_by_row(self):
        for slot in range(1, self.last + 1):
            kernel = self.process.kernel(slot, self.last)
            np.testing.assert_allclose(kernel.sum(axis=1), 1, rtol=1e-12)
            assert (kernel >= 0).all()
            assert (self.process.reachable(slot, self.last) | (kernel == 0)).all()
        np.testing.assert_array_equal(
            self.process.kernel(self.last, self.last), np.eye(len(self.process.states))
        )

    def test_the_joint_law_is_law_times_kernel(self):
        for slot in range(1, self.last):
            joint = self.process.joint(slot, self.last)
            want = self.process.law(slot)[:, None] * self.process.kernel(slot, self.last)
            np.testing.assert_allclose(joint.matrix, want, rtol=1e-9, atol=1e-15)
            np.testing.assert_allclose(joint.matrix.sum(), 1, rtol=1e-12)

    def test_its_own_law_moves_with_it(self):
        for slot in range(1, self.last):
            moved = self.process.law(slot) @ self.process.kernel(slot, self.last)
            np.testing.assert_allclose(moved, self.process.law(self.last), rtol=1e-9)

    def test_what_is_markov_composes(self):
        if self.process.markov:
            for middle in range(1, self.last + 1):
                two = self.process.kernel(1, middle) @ self.process.kernel(middle, self.last)
                np.testing.assert_allclose(two, self.process.kernel(1, self.last), rtol=1e-12)

    def test_fingerprints_tell_processes_apart(self):
        assert self.process.fingerprint == self.same.fingerprint
        assert self.process.fingerprint != self.other.fingerprint

    def test_it_can_be_planned_for_run_and_written_down(self):
        problem = aw.Problem([aw.Client("c", self.process, samples=20)], self.last, 0.5)
        plan = aw.plan(problem)
        assert aw.Plan.from_json(plan.to_json()).problem == problem
        assert aw.run(plan).private


class TestMarkovChain(ProcessContract):
    process = aw.MarkovChain(CALM, [1, 2, 3])
    same = aw.MarkovChain(CALM, [1, 2, 3])
    other = aw.MarkovChain(CALM, [1, 2, 4])


class TestPeriodicChain(ProcessContract):
    process = aw.PeriodicChain([CALM, BUSY, CALM], [1, 2, 3])
    same = aw.PeriodicChain([CALM, BUSY, CALM], [1, 2, 3])
    other = aw.PeriodicChain([CALM, CALM, BUSY], [1, 2, 3])


def measured(limit):
    chain = aw.MarkovChain(CALM, [1, 2, 3])
    joints = [chain.joint(slot, 6).matrix for slot in range(1, 7)]
    limits = [max(limit, aw.total_variation(chain, 6 - slot)) for slot in range(1, 6)] + [1.0]
    return aw.MeasuredLaw(joints, limits, [1, 2, 3], confidence=0.95, day=6)


class TestMeasuredLaw(ProcessContract):
    process = measured(0.9)
    same = measured(0.9)
    other = measured(0.95)


class TestLiftedChain(ProcessContract):
    process = aw.LiftedChain(aw.MarkovChain(CALM, [0, 1, 2]), [0, 1, 1], [1, 2])
    same = aw.LiftedChain(aw.MarkovChain(CALM, [7, 8, 9]), [0, 1, 1], [1, 2])
    other = aw.LiftedChain(aw.MarkovChain(CALM, [0, 1, 2]), [0, 0, 1], [1, 2])


class TestLiftedDay(ProcessContract):
    process = aw.LiftedChain(aw.PeriodicChain([CALM, BUSY], [0, 1, 2]), [0, 1, 1], [1, 2])
    same = aw.LiftedChain(aw.PeriodicChain([CALM, BUSY], [7, 8, 9]), [0, 1, 1], [1, 2])
    other = aw.LiftedChain(aw.PeriodicChain([BUSY, CALM], [0, 1, 2]), [0, 1, 1], [1, 2])


class MixingContract:
    method = None
    law = None

    @pytest.mark.parametrize("seed", range(6))
    def test_it_starts_at_one_and_never_grows(self, seed):
        rng = np.random.default_rng(seed)
        up, down = rng.dirichlet([2, 2, 2])[:2]
        chain = aw.birth_death(up, down, [1, 2, 3])
        values = aw.total_variation(chain, np.arange(12), self.method, self.law)
        assert values[0] == 1
        assert ((values >= 0) & (values <= 1)).all()
        assert (np.diff(values) <= 1e-12).all()

    def test_it_says_what_it_assumes(self):
        mixing = MIXINGS[self.method]
        assert mixing.name == self.method
        assert mixing.assumption.endswith(".")
        assert mixing.allows_tight == (mixing.sharpness == "rows")

    def test_statements_made_with_it_say_so(self):
        chain = aw.birth_death(0.2, 0.3, [1, 2, 3])
        client = aw.Client("c", chain, law=[0.2, 0.3, 0.5], samples=30)
        problem = aw.Problem([client], 5, 0.4, mixing=self.method)
        statement = aw.run(aw.plan(problem)).statement.to_markdown()
        assert f"Δ by `{self.method}`" in statement


class TestExact(MixingContract):
    method = "exact"


class TestOwnLaw(MixingContract):
    method = "own_law"
    law = (0.2, 0.3, 0.5)


class TestAnyPrior(MixingContract):
    method = "any_prior"


class TestSpectral(MixingContract):
    method = "spectral"
