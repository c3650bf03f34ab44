"""The duel radius: valid whatever the scores, never below Cohen's, and exact for linear models."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

import smoothcert as sc
from smoothcert import InputError, certify_duels
from smoothcert.bounds.binomial import clopper_pearson_lower
from smoothcert.bounds.duels import duels
from smoothcert.bounds.mono import mono
from smoothcert.sampling.duels import Lost


def test_the_radius_is_that_of_the_worst_duel():
    certificate = certify_duels([40, 0, 25], 1_000, candidate=1, sigma=0.5, alpha=0.01)
    assert certificate.radius == pytest.approx(0.5 * special.ndtri(clopper_pearson_lower(960, 1_000, 0.01)), rel=1e-12)
    assert (certificate.prediction, certificate.n, certificate.alpha) == (1, 1_000, 0.01)
    assert (certificate.method, certificate.votes, certificate.basis) == ("duels", "duels", "proved")


def test_a_candidate_that_lost_no_duel_has_the_largest_radius():
    best = certify_duels([0, 0, 0], 10_000, candidate=0, sigma=0.5).radius
    assert best == pytest.approx(0.5 * special.ndtri(0.001 ** (1 / 10_000)))
    assert best > certify_duels([0, 1, 0], 10_000, candidate=0, sigma=0.5).radius > 0


@pytest.mark.parametrize("losses", [[0, 500], [0, 1_000], [0, 480]])
def test_a_duel_that_is_not_won_proves_nothing(losses):
    certificate = certify_duels(losses, 1_000, candidate=0, sigma=0.5)
    assert (certificate.prediction, certificate.radius) == (sc.ABSTAIN, 0.0)


@pytest.mark.parametrize(
    ("losses", "n", "candidate", "message"),
    [
        ([0, 5], 0, 0, "n must be"),
        ([0, 5], 4, 0, "losses must lie between 0 and n = 4"),
        ([1, 5], 10, 0, "none of the candidate to itself"),
        ([0, 5], 10, 2, "candidate must be"),
        ([0, -1], 10, 0, "losses"),
        (np.array([0, 2**64 - 5], dtype=np.uint64), 100, 0, "losses"),
        ([0], 10, 0, "losses"),
        ([0, 0.5], 10, 0, "losses"),
    ],
)
def test_what_cannot_be_lost(losses, n, candidate, message):
    with pytest.raises(InputError, match=message):
        certify_duels(losses, n, candidate=candidate, sigma=0.5)


@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.integers(2, 8), st.floats(1e-4, 0.5))
@settings(max_examples=60)
def test_never_below_cohen_for_the_same_candidate(seed, n, c, alpha):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, rng.integers(1, 20), size=(n, c)) + 3.0 * rng.random(c)
    k = int(rng.integers(c))
    lost = Lost.of(scores, k).of_class(k, n, c)
    labels = np.bincount(scores.argmax(axis=1), minlength=c)
    by_duels = float(duels(lost[None], np.array([n]), alpha)[0])
    by_labels = float(mono(np.eye(c, dtype=int)[[k]], labels[None], alpha).t[0]) / 2
    assert by_duels >= by_labels


def distance(weights, x):
    """To the nearest boundary of a linear classifier without bias, and its class."""
    z = x @ weights
    k = int(z.argmax())
    rivals = [j for j in range(len(z)) if j != k]
    return k, min((z[k] - z[j]) / np.linalg.norm(weights[:, k] - weights[:, j]) for j in rivals)


def test_exact_for_a_linear_model_with_ten_classes():
    """From a million draws within 1 % of the distance to the nearest boundary, wherever that is from σ/2 to 3σ."""
    sigma, n, rng = 0.5, 1_000_000, np.random.default_rng(1)
    weights = rng.normal(size=(12, 10))
    spread = sigma * np.linalg.cholesky(weights.T @ weights).T
    far = [x for x in rng.normal(size=(40, 12)) if sigma / 2 <= distance(weights, x)[1] <= 3 * sigma][:4]
    assert len(far) == 4
    for x in far:
        k, true = distance(weights, x)
        lost = sum(
            Lost.of(x @ weights + rng.normal(size=(n // 10, 10)) @ spread, k).of_class(k, n // 10, 10)
            for _ in range(10)
        )
        radius = certify_duels(lost, n, candidate=k, sigma=sigma).radius
        assert 0.99 * true < radius <= 1.0001 * true


def test_the_extremes_in_both_directions():
    """Duels against the multi-class margin of labels at 1,000 classes, both at infinitely many draws and σ = 1."""
    c = 1_000
    ahead, behind = 1 - 1 / c, 1 / c  # second in every draw that it does not win, and all classes win equally often
    assert special.ndtri(ahead) == pytest.approx(3.09, abs=0.005)
    assert (special.ndtri(behind) - special.ndtri(behind)) / 2 == 0
    half = 0.5  # wins half of the draws, and is last in all others, which the other classes share
    assert special.ndtri(half) == 0
    assert (special.ndtri(half) - special.ndtri(half / (c - 1))) / 2 == pytest.approx(1.65, abs=0.005)


def test_a_candidate_of_the_same_draws_errs_too_often():
    """What the docstring forbids: two classes that win equally often, and whoever leads is certified from the lead."""
    n, alpha = 100, 0.05
    won = np.arange(n + 1)
    claimed = duels(np.stack([np.zeros_like(won), n - won], axis=1), np.full(n + 1, n), alpha) > 0
    assert stats.binom.pmf(won, n, 0.5)[claimed].sum() <= alpha
    assert stats.binom.pmf(won, n, 0.5)[claimed | claimed[::-1]].sum() > 1.7 * alpha
