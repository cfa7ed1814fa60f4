"""The search for the worst tree: bounds that hold, few pivots, and nothing above the account."""

import itertools

import mpmath
import numpy as np
import pytest

import agewise as aw
from agewise.privacy import pairwise, spanning
from agewise.privacy.fixed_points import Cost
from agewise.privacy.pairwise import (
    Rows,
    aged_losses,
    backward_of,
    closed_losses,
    guessed_losses,
    release_losses,
)
from agewise.privacy.spanning import Trees, worst_ratios
from attacks import aged_by_program
from random_chains import random_chain


def random_case(rng, size, most, asked=None):
    """Losses that need not be symmetric, and laws of which some entries are 0."""
    losses = closed_losses(rng.uniform(0.1 * most, most, (1, size, size)) * (1 - np.eye(size)))
    rows = rng.dirichlet(np.ones(size), asked or size)
    rows = np.where(rows < rng.choice([0, 0.1]), 0, rows)
    return losses, (rows / rows.sum(axis=1, keepdims=True))[None]


@pytest.mark.parametrize("seed", range(20))
def test_the_search_finds_what_trying_every_tree_does(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    losses, rows = random_case(rng, int(rng.integers(2, 6)), 10 ** rng.uniform(-6, 1.2))
    tried = aged_losses(losses, Rows(rows, np.zeros(1)))
    monkeypatch.setattr(pairwise, "TREES", 1)
    searched = aged_losses(losses, Rows(rows, np.zeros(1)))
    assert searched == pytest.approx(tried, rel=1e-9, abs=1e-9 * losses.max())
    assert not np.array_equal(searched, tried)


@pytest.mark.parametrize("size", [7, 12, 20])
@pytest.mark.parametrize("most", [0.1, 3.0])
def test_the_search_finds_what_linear_programs_do(size, most):
    rng = np.random.default_rng(size)
    losses, rows = random_case(rng, size, most, asked=4)
    wanted = aged_by_program(losses[0], rows[0])
    assert worst_ratios(losses, rows)[0] == pytest.approx(wanted, abs=1e-10 * size * most)


@pytest.mark.parametrize("pivots", [None, 0])
@pytest.mark.parametrize("seed", range(10))
def test_guarantee_no_likelihood_exceeds_what_the_trees_prove(seed, pivots, monkeypatch):
    """In exact arithmetic, at the vertex that was found; also if a search ends before it began."""
    rng = np.random.default_rng(seed)
    losses, rows = random_case(rng, int(rng.integers(2, 9)), 10 ** rng.uniform(-8, 1.5))
    cells = rng.integers(1, 2**20, rows.shape[1:]).astype(float)
    cells[:, 0] += 2**24 - cells.sum(axis=1)
    rows = (cells / 2**24)[None]  # they sum to one exactly
    trees = Trees()
    found = worst_ratios(losses, rows, trees)[0]
    if pivots == 0:
        monkeypatch.setattr(spanning, "FULL", 0)
        found = worst_ratios(losses, rows)[0]
    pairs = itertools.permutations(range(len(rows[0])), 2)
    logs = np.concatenate([forest.logs for forest in trees.found])
    with mpmath.workdps(60):
        for (y, low), best in zip(pairs, logs, strict=True):
            v = inside([mpmath.mpf(x) for x in best], losses[0])
            top, bottom = (
                sum(mpmath.mpf(p) * one for p, one in zip(rows[0, row], v, strict=True))
                for row in (y, low)
            )
            assert mpmath.log(top / bottom) <= found[y, low]


def inside(logs, losses):
    """The largest v in the cone that is nowhere above these, exactly."""
    size = len(logs)
    closed = [[mpmath.mpf(x) for x in row] for row in losses]
    for middle, x, z in itertools.product(range(size), repeat=3):
        closed[x][z] = min(closed[x][z], closed[x][middle] + closed[middle][z])
    return [mpmath.exp(min(logs[z] + closed[x][z] for z in range(size))) for x in range(size)]


def test_a_search_that_ends_early_only_makes_the_bound_looser():
    rng = np.random.default_rng(1)
    losses, rows = random_case(rng, 8, 2.0)
    full = worst_ratios(losses, rows)
    reached = [worst_ratios(losses, rows, most=most) for most in (0, 2, 400)]
    assert (reached[0] <= full).all()
    assert (reached[0] <= reached[1] + 1e-12).all()
    assert reached[2] == pytest.approx(full, abs=1e-10)
    assert (reached[0] < full - 0.01).any()


def test_trees_are_kept_so_that_the_next_round_takes_few_pivots():
    """Counted, not timed: pivots of a first call, of the same losses and of nearly the same."""
    chain = random_chain(np.random.default_rng(2), 16, "dense")
    rows = backward_of(chain, 0, 1)
    release = release_losses(0.5, chain.states)[None]
    trees, pivots = Trees(stray=1e-11), []
    for losses in (release, release, release * 1.001):
        before = trees.pivots
        kept = aged_losses(losses, rows, trees)
        pivots.append(trees.pivots - before)
        assert kept == pytest.approx(aged_losses(losses, rows), abs=1e-9)
    first, again, nearly = pivots
    assert 240 < first < 16 * 240
    assert again == 0
    assert nearly < first / 4


def test_a_bound_for_ever_takes_a_few_pivots_of_each_pair(monkeypatch):
    """Eight states took minutes; every round proven from nothing would take 200 times as many."""
    chain = aw.birth_death(0.1, 0.2, range(8))
    made = []
    monkeypatch.setattr(
        "agewise.privacy.gaps.Trees", lambda **given: made.append(Trees(**given)) or made[-1]
    )
    aw.continual_epsilon(chain, 1, 0.1)
    pairs = 8 * 7
    assert 0 < sum(one.pivots for one in made) < 400 * pairs


def test_a_guess_takes_no_more_pivots_than_allowed():
    chain = random_chain(np.random.default_rng(3), 10, "dense")
    trees = Trees()
    guessed = guessed_losses(
        release_losses(1.0, chain.states)[None], backward_of(chain, 0, 1), trees
    )
    assert 0 < trees.pivots <= pairwise.GUESSING * 90
    assert (
        guessed <= aged_losses(release_losses(1.0, chain.states)[None], backward_of(chain, 0, 1))
    ).all()


@pytest.mark.parametrize("seed", range(6))
def test_guarantee_no_mechanism_of_two_outputs_tells_more(seed):
    """All two-valued outputs of three releases in a row, over seven states, against the account."""
    rng = np.random.default_rng(seed)
    chain, epsilon = random_chain(rng, 7, "dense"), float(rng.uniform(0.1, 1.5))
    bound = aw.continual_epsilon(chain, 1, epsilon, release="any")
    back = backward_of(chain, 0, 1).table[0]
    sets = np.array(list(itertools.product([0, 1], repeat=7))[1:-1])
    outputs = np.exp(epsilon * sets)
    told = outputs
    for _ in range(2):
        told = (told @ back.T)[:, None] * outputs
        told = told.reshape(-1, 7)
    reached = float(np.log(told.max(axis=1) / told.min(axis=1)).max())
    assert 0.5 * bound < reached <= bound


def test_losses_that_are_no_metric_are_closed_first():
    """A direct loss above a detour says nothing more than the detour does."""
    chain = random_chain(np.random.default_rng(4), 7, "dense")
    metric = release_losses(0.5, chain.states)
    loose = metric.copy()
    loose[0, 6] = loose[6, 0] = 4.0
    rows = backward_of(chain, 0, 1)
    closed = aged_losses(metric[None], rows)
    assert aged_losses(loose[None], rows) == pytest.approx(closed, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("size", [16, 24])
def test_a_bound_for_ever_is_found_where_losses_settle_slowly(size):
    """A thousand rounds and more, of uneven steps: what is reached says that there is a bound."""
    chain = aw.birth_death(0.2, 0.25, range(1, size + 1))
    reached = aw.privacy.reached_epsilon(chain, 4, 0.1)
    assert reached <= aw.continual_epsilon(chain, 4, 0.1) < reached * (1 + 1e-6)


def test_what_takes_too_long_is_refused_with_what_to_do():
    chain = aw.birth_death(0.02, 0.03, range(90))
    with pytest.raises(aw.InvalidInput, match=r"states is 90.*minutes.*fewer states") as refused:
        aw.continual_epsilon(chain, 1, 0.5, promise="every_moment")
    assert refused.value.field == "states"
    assert aw.privacy.estimated_seconds(chain, 1, 0.5) > 600
    assert aw.privacy.estimated_seconds(aw.birth_death(0.1, 0.2, range(4)), 1, 0.5) == 0
    assert aw.privacy.reached_epsilon(chain, 1, 0.5) > 0.5  # a lower bound is had for nothing
    with pytest.raises(aw.InvalidInput, match="fewer states"):
        aw.privacy.rule_epsilon(chain, 1, 0.5)
    groups = np.arange(90) // 45
    with pytest.raises(aw.InvalidInput, match="level classes"):
        aw.continual_epsilon(aw.LiftedChain(chain, groups, [0, 1]), 1, 0.5, age=1)


def test_what_takes_seconds_tells_how_far_it_is(monkeypatch):
    chain = aw.birth_death(0.1, 0.2, range(7))
    lifted = aw.LiftedChain(chain, range(7), range(7))
    heard = []
    aw.continual_epsilon(chain, 1, 0.1, progress=lambda *done: heard.append(done))
    assert not heard  # it takes no second
    monkeypatch.setattr("agewise.privacy.fixed_points.TOLD", 0.0)
    for call in (
        lambda told: aw.continual_epsilon(chain, 1, 0.1, progress=told),
        lambda told: aw.per_release_epsilon(chain, 10, 0.1, progress=told),
        lambda told: aw.continual_epsilon(lifted, 1, 0.1, age=1, progress=told),
    ):
        heard.clear()
        call(lambda *done: heard.append(done))
        assert len(heard) > 5
        assert all(0 < done < total for done, total in heard)


def test_a_cost_counts_rounds_pairs_and_proofs():
    one = Cost(states=20, rounds=100, proven=0)
    assert Cost(states=20, rounds=200, proven=0).seconds == pytest.approx(2 * one.seconds)
    assert Cost(states=20, rounds=100, proven=50).seconds > one.seconds
    assert Cost(states=40, rounds=100, proven=0).seconds > 8 * one.seconds
    assert Cost(states=20, rounds=100, proven=0, matrices=3).seconds > 2 * one.seconds
