"""Margin votes of many inputs: added up in any parts, and the least radius over all rivals of each."""

import numpy as np
import pytest

from smoothcert.bounds.ramps import ramps
from smoothcert.plan import Margins, Slopes, Tally
from smoothcert.radii.ramps import ramp_radius
from smoothcert.sampling.blocks import NO_CANDIDATE, Phase, Votes
from smoothcert.sampling.margins import Spread

KIND = Margins(1.0)
ALPHA, SIGMA = 0.001, 0.5


def drawn(m, c, seed=0, n0=100, n=300):
    """The votes of affine scores: half of the classes are far behind in every draw, two are equal."""
    rng = np.random.default_rng(seed)
    tally, weights = Tally.zeros(m, c, KIND.others(m, c)), rng.normal(size=(8, c))
    shift = np.where(np.arange(c) % 2, 0.0, -6.0)
    if c > 2:
        weights[:, -1], shift[-1] = weights[:, 0], shift[0]
    for i, x in enumerate(2 * rng.normal(size=(m, 8))):
        scores = (x + SIGMA * rng.normal(size=(n0 + n, 8))) @ weights + shift
        first = KIND.count(scores[:n0], NO_CANDIDATE)
        both = first, KIND.count(scores[n0:], first.leader(n0))
        for sample, (beside, draws) in enumerate(zip(both, (n0, n), strict=True)):
            phase = (Phase.SELECTION, Phase.ESTIMATION)[sample]
            label, count = np.array([0]), np.array([draws])
            tally.add(Votes(i, phase, 0, draws // 100, draws, label, count, 0.0, beside), i, sample)
    return tally


def in_full(tally, known):
    """The bound of every pair there is, those with every vote too."""
    m, c = known.shape
    top, radii = tally.ramps.candidates, np.empty((m, c))
    for i, k in enumerate(top):
        bounds = ramps(*tally.ramps.votes(i, k, np.arange(c)), ALPHA)
        radii[i] = ramp_radius(bounds, SIGMA, known[i])
        radii[i, k] = np.inf
    return top, np.maximum(radii.min(axis=1), 0.0)


@pytest.mark.parametrize(("m", "c"), [(30, 2), (30, 3), (40, 10), (5, 400)])
def test_the_radius_is_the_least_of_all_pairs_without_a_constant(m, c):
    tally = drawn(m, c)
    top, radii = in_full(tally, np.full((m, c), np.inf))
    proved = KIND.prove(tally, "ramps", ALPHA, SIGMA, None)
    assert proved.radii == pytest.approx(radii, rel=1e-13, abs=1e-14)
    assert np.array_equal(proved.top, top)
    assert (radii > 0).any()
    assert proved.lipschitz is None


@pytest.mark.parametrize("one_row", [False, True])
@pytest.mark.parametrize(("m", "c"), [(30, 2), (30, 3), (40, 10), (5, 400)])
def test_the_radius_is_the_least_of_all_pairs_with_constants(m, c, one_row):
    """Some of which are 0: those votes do not change."""
    tally = drawn(m, c, seed=1)
    pairs = np.random.default_rng(2).choice([0.0, 0.2, 1.0, 1.5, 9.0], (1 if one_row else c, c))
    slopes = Slopes(np.ones(m), pairs)
    known = slopes.against(tally.ramps.candidates, c) / 2 * (1 + 2.0**-50)
    top, radii = in_full(tally, known)
    proved = KIND.prove(tally, "ramps", ALPHA, SIGMA, slopes)
    assert proved.radii == pytest.approx(radii, rel=1e-13, abs=1e-14)
    assert np.array_equal(proved.top, top)
    assert (radii > 0).any()
    assert np.array_equal(proved.lipschitz, known.max(axis=1))


def test_rivals_that_are_met_in_parts(monkeypatch):
    """An input may have more of them than are looked at together."""
    tally = drawn(3, 60)
    whole = KIND.prove(tally, "ramps", ALPHA, SIGMA, None)
    monkeypatch.setattr("smoothcert.plan.kinds.margins.AT_ONCE", 7)
    parted = KIND.prove(tally, "ramps", ALPHA, SIGMA, None)
    assert parted.radii == pytest.approx(whole.radii, rel=1e-13, abs=1e-14)


def test_votes_in_parts_are_added_up_as_one():
    """In any order; and few parts wait to be joined, however many there were."""
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(6400, 5))
    parts = [Spread.of(scores[first : first + 100], 1.0, 2) for first in range(0, 6400, 100)]
    for order in (range(64), rng.permutation(64)):
        ramps_ = KIND.others(1, 5)
        for b in order:
            ramps_.add(parts[b], 100, 0, 1)
            assert len(ramps_.parts[0][1]) <= 8
        assert ramps_.sample(0, 1).equals(Spread.of(scores, 1.0, 2))
        assert (ramps_.draws.tolist(), ramps_.named.tolist()) == ([[0, 6400]], [2])
