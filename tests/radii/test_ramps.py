"""The least radius over all rivals, most of whom are only asked: the one that bounds of all of them give."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothcert.bounds.comparison import comparison_lower
from smoothcert.bounds.ramps import _bets_are_better, _variance, ramps, reach
from smoothcert.bounds.spread import spread_lower
from smoothcert.radii.pair import DISTRIBUTION_ERROR, distribution
from smoothcert.radii.ramps import LeastRadii, ramp_radius

B = 32
POINTS = np.linspace(0, 1, B + 1)
CONSTANTS = [np.inf, 0.0, 1e-9, 0.5, 3.0, 3.0 + 1e-9, 40.0]


def sample(rng, rows, draws):
    """Votes that are spread, narrow, whole or mostly so, near a mean of their own."""
    mean, width = rng.uniform(0.45, 1, rows), rng.choice([0.0, 0.02, 0.3], rows)
    values = np.clip(mean[:, None] + width[:, None] * rng.normal(size=(rows, draws)), 0, 1)
    jumps = rng.random(rows) < 0.4
    values[jumps] = rng.random((jumps.sum(), draws)) < mean[jumps, None]
    counts = np.zeros((rows, B + 1))
    np.add.at(counts, (np.repeat(np.arange(rows), draws), np.floor(values * B).astype(int).ravel()), 1)
    return counts


def in_full(selection, estimation, alpha):
    """The bound of every row, both being computed."""
    n, guess = estimation.sum(axis=1), _variance(selection)
    bets = _bets_are_better(selection, guess, n, alpha)
    by_bets, by_comparison = spread_lower(estimation, alpha, guess), comparison_lower(estimation @ POINTS, n, alpha)
    return np.where(bets, by_bets, by_comparison)


def least_in_full(inputs, selection, estimation, lipschitz, sigma, alpha):
    radii = ramp_radius(in_full(selection, estimation, alpha), sigma, lipschitz)
    return np.array([radii[inputs == i].min() for i in range(inputs.max() + 1)])


def least(inputs, selection, estimation, lipschitz, sigma, alpha, parts=1):
    found = LeastRadii.of(inputs.max() + 1, sigma, alpha)
    for part in np.array_split(np.arange(len(inputs)), parts):
        found.meet(inputs[part], selection[part], estimation[part], lipschitz[part])
    return found.radii


def agree(ours, full):
    """To the last digits of a radius, which Newton's method takes in other company; without one nobody asks how far."""
    return np.maximum(ours, 0) == pytest.approx(np.maximum(full, 0), rel=1e-13, abs=1e-14)


@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    constants=st.lists(st.sampled_from(CONSTANTS), min_size=1, max_size=4),
    draws=st.sampled_from([(1, 2), (20, 90), (100, 1000)]),
    alpha=st.sampled_from([0.3, 0.001, 1e-9]),
    parts=st.integers(1, 3),
)
@settings(max_examples=150)
def test_it_is_the_least_of_all_bounds(seed, sizes, constants, draws, alpha, parts):
    """Whatever the constants, with rows that are there twice, and in parts."""
    rng = np.random.default_rng(seed)
    inputs = np.repeat(np.arange(len(sizes)), sizes)
    again = rng.integers(0, len(inputs), len(inputs)) if rng.random() < 0.3 else np.arange(len(inputs))
    selection, estimation = (sample(rng, len(inputs), n)[again] for n in draws)
    rows = inputs, selection, estimation, rng.choice(constants, len(inputs)), rng.choice([0.12, 1.0]), alpha
    assert agree(least(*rows, parts), least_in_full(*rows))


def test_many_rivals_in_an_order_that_misleads():
    """The larger the mean, the smaller the bound: what looks hardest is easiest."""
    rows = 2000
    selection, estimation = np.zeros((2, rows, B + 1))
    lost = np.linspace(0, 60, rows)
    selection[:, 0], selection[:, -1] = lost, 100 - lost
    estimation[:, 4] = 100 - lost / 30
    estimation[:, -1] = 1000 - estimation[:, 4]
    rows = np.zeros(rows, dtype=int), selection, estimation, np.full(rows, np.inf), 0.25, 0.001
    assert agree(least(*rows), least_in_full(*rows))


def met_at_equal_distances(rows):
    """At which step each row is bounded by someone who takes the first and others at equal distances, twice as many in
    every round, as long as all others look harder."""
    step, rest, many = np.empty(rows, dtype=int), np.arange(rows), 1
    while rest.size:
        now = np.arange(len(rest)) % -(-len(rest) // many) == 0
        step[rest[now]] = rows - len(rest) + np.arange(now.sum())
        rest, many = rest[~now], 2 * many
    return step


@pytest.mark.parametrize("harder", [met_at_equal_distances, np.arange])
def test_nobody_can_arrange_that_all_rivals_are_bounded(harder, monkeypatch):
    """They look equally hard, and each is a little harder than those that somebody who guesses would meet before."""
    bounded = []
    monkeypatch.setattr("smoothcert.radii.ramps.ramps", lambda *votes: bounded.append(len(votes[0])) or ramps(*votes))
    rows = 4000
    selection, estimation = np.zeros((2, rows, B + 1))
    selection[:, 20] = selection[:, 28] = 5 + 15 * harder(rows) / rows
    selection[:, 24] = 100 - 2 * selection[:, 20]
    estimation[:, 24] = 1000 - 1e-9 * np.arange(rows)[::-1]
    estimation[:, 16] = 1000 - estimation[:, 24]
    rows = np.zeros(rows, dtype=int), selection, estimation, np.full(rows, np.inf), 0.25, 0.001
    assert agree(least(*rows), least_in_full(*rows))
    assert sum(bounded) < 200


def test_votes_that_are_all_whole():
    """They are bounded alike, whatever the selection was."""
    rng = np.random.default_rng(0)
    selection, estimation = sample(rng, 300, 100), np.zeros((300, B + 1))
    estimation[:, -1] = 1000
    rows = np.zeros(300, dtype=int), selection, estimation, np.full(300, 2.0), 0.5, 0.001
    assert agree(least(*rows), least_in_full(*rows))


@pytest.mark.parametrize("draws", [(1, 2), (30, 57), (100, 1000), (100, 20_000)])
@pytest.mark.parametrize("alpha", [0.2, 0.001])
def test_a_bound_is_reached_up_to_itself_and_no_further(draws, alpha):
    rng = np.random.default_rng(1)
    selection, estimation = (sample(rng, 400, n) for n in draws)
    bound = ramps(selection, estimation, alpha)
    assert np.array_equal(bound, in_full(selection, estimation, alpha))
    some = bound > 0
    assert reach(bound[some], selection[some], estimation[some], alpha).mean() > 0.99  # the last digit of some is lost
    for off in (1e-12, 1e-6, 1e-3, 0.1):
        more, less = np.minimum(bound + off, 1.0), bound - off
        assert not reach(more, selection, estimation, alpha).any()
        some = less > 0
        assert reach(less[some], selection[some], estimation[some], alpha).all()


@given(st.floats(-12, 12), st.floats(1e-3, 6), st.floats(0.01, 4))
@settings(max_examples=200)
def test_the_mean_that_is_asked_for_has_the_radius(power, t, sigma):
    """As computed, at every steepness; where it is not 1 already."""
    steep = 10**power
    t *= max(1, 1 / (2 * steep))
    p = distribution(np.array(t), np.array(1 / steep)) + DISTRIBUTION_ERROR
    if p < 1:
        assert ramp_radius(p, sigma, np.array(steep / sigma)) >= t * sigma
