"""Vectors of many coordinates: a coarser grid, drawn in pieces, with OpenDP's own map."""

import numpy as np
import opendp.prelude as dp
import pytest
from scipy.stats import norm

from agewise.mechanism import MECHANISMS, laplace
from agewise.mechanism.mechanism import LONG, PIECE, draw_in_pieces, grid_of

FAILURE = {"laplace": 0.0, "gaussian": 1e-6}
EXCESS = 1e-9


@pytest.mark.parametrize("kind", MECHANISMS)
@pytest.mark.parametrize("scale", [1e-300, 1e-3, 2.0, 3e15])
def test_guarantee_a_long_vector_spends_what_a_short_one_does(kind, scale):
    """To nine digits, at every scale, by the map of OpenDP's measurement of that size and grid."""
    mechanism, size = MECHANISMS[kind], LONG + 1
    choices = {"sensitivity": scale / 4, "scale": scale, "failure": FAILURE[kind]}
    drawn = mechanism.draw(np.zeros(size), **choices)
    short = mechanism.certified(scale / 4, scale, FAILURE[kind])
    assert scale <= drawn.scale <= scale * (1 + EXCESS)
    assert drawn.epsilon == pytest.approx(short, rel=EXCESS)
    domain = dp.vector_domain(dp.atom_domain(T="f64", nan=False), size=size)
    if kind == "laplace":
        direct = dp.m.make_laplace(
            domain, dp.l1_distance(T="f64"), scale=drawn.scale, k=grid_of(scale)
        )
        assert drawn.epsilon == direct.map(scale / 4) <= short
    else:
        direct = dp.m.make_gaussian(
            domain, dp.l2_distance(T="f64"), scale=drawn.scale, k=grid_of(scale)
        )
        whole = dp.c.make_zCDP_to_approxDP(direct).map(scale / 4)
        assert short * (1 - EXCESS) <= drawn.epsilon < 0.95 * whole.epsilon(FAILURE[kind])
        mu = np.sqrt(2 * direct.map(scale / 4))  # exactly, at this sensitivity (Balle and Wang)
        failing = norm.cdf(mu / 2 - drawn.epsilon / mu) - np.exp(drawn.epsilon) * norm.cdf(
            -mu / 2 - drawn.epsilon / mu
        )
        assert failing <= FAILURE[kind]


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 30.0])
def test_guarantee_no_more_than_asked_is_spent(epsilon):
    drawn = laplace(np.zeros(5000), sensitivity=1.0, epsilon=epsilon)
    assert drawn.epsilon <= epsilon
    assert 1 <= drawn.scale * epsilon <= 1 + 1e-6


@pytest.mark.parametrize("kind", MECHANISMS)
def test_every_coordinate_of_every_piece_is_noised_in_its_place(kind):
    size, scale = 2 * PIECE + 7, 2.0
    value = np.arange(size) * 1e4
    noise = (
        MECHANISMS[kind].draw(value, sensitivity=0.5, scale=scale, failure=FAILURE[kind]).value
        - value
    )
    assert np.abs(noise).max() < 1e3
    assert (noise != 0).all()
    expected = scale * {"laplace": 1.0, "gaussian": np.sqrt(2 / np.pi)}[kind]
    for piece in (noise[:PIECE], noise[PIECE : 2 * PIECE]):
        error = 6 * scale / np.sqrt(PIECE)  # six standard errors
        assert abs(np.abs(piece).mean() - expected) < error
        assert abs(1.3 * np.abs(piece).mean() - expected) > error
    # No piece is used twice. Of single draws some agree to the digits that large values leave.
    assert len(np.unique(noise)) > size - 50


def test_a_piece_that_fails_fails_the_whole():
    def make(size):
        raise ValueError("no such measurement")

    with pytest.raises(ValueError, match="no such measurement"):
        draw_in_pieces(make, [0.0] * (PIECE + 1))
