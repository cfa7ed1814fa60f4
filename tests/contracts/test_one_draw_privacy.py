"""One draw of noise at the server: no client's record is told more of than its ε, by enumeration.

What is published is a weighted sum of all clients' means and one draw of Laplace noise. Its law
given one record's present value is a mixture over every value of every record at collection; the
ratio of two such mixtures is monotone between their kinks, so its extremes are at kinks.
"""

import itertools
import math

import numpy as np
import pytest

import agewise as aw


def published_laws(problem, plan, client):
    """Places and chances of the noiseless sum, given each present value of one record."""
    past = []  # for every record: (moves of the sum, chances)
    given = None
    for place, (one, member) in enumerate(zip(plan.assignments, problem.clients, strict=True)):
        chain = member.process
        gain = np.ravel(plan.gains)[place]
        law, power = chain.stationary, np.linalg.matrix_power(chain.transition, one.age)
        joint = law[:, None] * power  # [then, now]
        release = chain.states if problem.estimator != "propagated" else power @ chain.states
        moves = gain * release / member.samples
        for record in range(member.samples):
            if place == client and record == 0:
                given = moves, joint / joint.sum(axis=0)
            else:
                past.append((moves, joint.sum(axis=1)))
    sums, chances = [], []
    for cells in itertools.product(*(range(len(moves)) for moves, _ in past)):
        sums.append(sum(past[r][0][c] for r, c in enumerate(cells)))
        chances.append(math.prod(past[r][1][c] for r, c in enumerate(cells)))
    moves, then = given
    places = (np.array(sums)[:, None] + moves[None]).ravel()
    return places, [
        (np.array(chances)[:, None] * then[None, :, now]).ravel() for now in range(len(moves))
    ]


def true_loss(places, laws, scale):
    if scale == 0:  # no noise is needed: the sum itself is seen
        _, group = np.unique(np.round(places, 9), return_inverse=True)
        masses = np.array([np.bincount(group, law) for law in laws])
        return float(np.log(masses.max(axis=0) / masses.min(axis=0)).max())
    kernel = np.exp(-np.abs(places[:, None] - places[None]) / scale)
    densities = [kernel @ law for law in laws]
    worst = 0.0
    for one, other in itertools.permutations(densities, 2):
        worst = max(worst, float(np.log(one / other).max()))
    for sign in (-1, 1):  # far away on either side the ratio is constant
        tails = [float(law @ np.exp(sign * places / scale)) for law in laws]
        worst = max(worst, math.log(max(tails) / min(tails)))
    return worst


def small_problem(rng, estimator):
    clients = []
    for name in range(int(rng.integers(2, 4))):
        size = int(rng.integers(2, 4))
        transition = rng.dirichlet(np.ones(size), size) * 0.6 + 0.4 * np.eye(size)
        states = np.sort(rng.uniform(0, 10, size)) + np.arange(size)
        chain = aw.MarkovChain(transition, states=states)
        target = float(rng.uniform(0.05, 1.5))
        samples = int(rng.integers(1, 3))
        clients.append(aw.Client(f"c{name}", process=chain, samples=samples, epsilon=target))
    return aw.Problem(
        clients, 4, 0.5, mixing="exact", calibration="sharp", estimator=estimator, noise="server"
    )


@pytest.mark.parametrize("estimator", ["plain", "propagated", "best"])
def test_guarantee_no_record_is_told_more_of_than_its_epsilon(estimator):
    rng = np.random.default_rng(12)
    closest, quieter = 0.0, 0
    for _ in range(25):
        problem = small_problem(rng, estimator)
        plan = aw.evaluate(problem, rng.integers(1, 5, len(problem.clients)))
        for client, one in enumerate(plan.assignments):
            places, laws = published_laws(problem, plan, client)
            loss = true_loss(places, laws, plan.draw_scale)
            assert loss <= one.aged_epsilon * (1 + 1e-9)
            assert one.aged_epsilon <= problem.clients[client].epsilon * (1 + 1e-9)
            closest = max(closest, loss / one.aged_epsilon)
            quieter += true_loss(places, laws, plan.draw_scale / 2) > one.aged_epsilon
    assert closest > 0.9  # the test is about something
    assert quieter > 0  # and would notice half the noise
