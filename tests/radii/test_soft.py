"""Radii from shares of a vote: every method is valid, and the number of classes costs nothing."""

import numpy as np
import pytest
from scipy import stats

from smoothcert import radii
from smoothcert.bounds import SoftVotes
from smoothcert.radii.soft import SOFT_METHODS
from smoothcert.sampling.blocks import UNIT, Soft


def soft_votes(shares, candidate=None):
    """From shares (inputs, draws, classes)."""
    votes = SoftVotes.zeros(len(shares), shares.shape[2])
    for i, k in enumerate(np.rint(shares * UNIT).astype(np.int64)):
        soft = Soft.of(k, -1 if candidate is None else candidate[i])
        votes.add(i, len(k), soft.sums, soft.squares, soft.products)
    return votes


def sampled(rng, logits, inputs, draws, spread=1.0):
    z = logits + spread * rng.normal(size=(inputs, draws, len(logits)))
    shares = np.exp(z - z.max(axis=2, keepdims=True))
    return shares / shares.sum(axis=2, keepdims=True)


ATOMS = np.array([[0.9, 0.05, 0.05], [0.2, 0.7, 0.1], [0.3, 0.1, 0.6], [0.6, 0.4, 0.0]])


@pytest.mark.parametrize("method", SOFT_METHODS)
@pytest.mark.parametrize("lipschitz", [np.inf, 1.5])
def test_the_radius_is_too_large_with_probability_alpha_at_most(method, lipschitz):
    """Shares that take four values, so that their means, and with them the true radius, are known."""
    rng = np.random.default_rng(2)
    weights = np.array([0.45, 0.25, 0.25, 0.05])
    p = weights @ ATOMS
    truth = radii.exact_mult(p[0], p[1:].max(), 0.5, lipschitz)
    repeats, alpha = 1500, 0.1
    selection = soft_votes(ATOMS[rng.choice(4, size=(repeats, 40), p=weights)])
    top = selection.candidates
    estimation = soft_votes(ATOMS[rng.choice(4, size=(repeats, 200), p=weights)], top)
    found = SOFT_METHODS[method](selection, estimation, alpha, 0.5, np.full(selection.sums.shape, lipschitz))
    wrong = (found > np.where(top == 0, truth, 0.0)).sum()
    assert wrong <= stats.binom.isf(1e-4, repeats, alpha)
    assert (found > 0).any()


@pytest.mark.parametrize("method", ["betting", "bernstein", "hoeffding"])
@pytest.mark.parametrize("lipschitz", [np.inf, 0.8])
def test_the_least_radius_over_all_rivals(method, lipschitz):
    """Each rival alone against the candidate, one after the other."""
    rng = np.random.default_rng(3)
    first, second = sampled(rng, [2.5, 1.0, 0.9, 0.0, -1.0], 3, 60), sampled(rng, [2.5, 1.0, 0.9, 0.0, -1.0], 3, 2000)
    selection = soft_votes(first)
    top = selection.candidates
    together = SOFT_METHODS[method](
        selection, soft_votes(second, top), 0.01, 0.5, np.full(selection.sums.shape, lipschitz)
    )
    for i in range(3):
        alone = []
        for j in set(range(5)) - {top[i]}:
            columns = [top[i], j]
            pair = soft_votes(first[i : i + 1, :, columns]), soft_votes(second[i : i + 1, :, columns], [0])
            alone.append(float(SOFT_METHODS[method](*pair, 0.01, 0.5, np.full(pair[0].sums.shape, lipschitz))[0]))
        assert together[i] == pytest.approx(min(alone), rel=1e-9)


def test_classes_without_votes_cost_nothing_but_where_bonferroni_asks_for_them():
    rng = np.random.default_rng(4)
    first, second = sampled(rng, [2.0, 0.0], 3, 100), sampled(rng, [2.0, 0.0], 3, 1000)
    for method, compute in SOFT_METHODS.items():
        found = []
        for more in (0, 200):
            wide = [np.concatenate([s, np.zeros((*s.shape[:2], more))], axis=2) for s in (first, second)]
            selection = soft_votes(wide[0])
            estimation = soft_votes(wide[1], selection.candidates)
            found.append(compute(selection, estimation, 0.001, 0.5, np.full(selection.sums.shape, np.inf)))
        if method == "bonferroni-bernstein":
            assert (found[1] < found[0]).all()
        else:
            assert found[1] == pytest.approx(found[0])


def test_betting_proves_most_and_the_paper_least():
    rng = np.random.default_rng(5)
    selection = soft_votes(sampled(rng, [3.0, 1.0, 0.0], 8, 100))
    estimation = soft_votes(sampled(rng, [3.0, 1.0, 0.0], 8, 2000), selection.candidates)
    found = {
        m: f(selection, estimation, 0.001, 0.5, np.ones(selection.sums.shape)).mean() for m, f in SOFT_METHODS.items()
    }
    assert found["betting"] > found["bernstein"] > found["bonferroni-bernstein"]
    assert found["betting"] > found["hoeffding"]


def coin(heads, n):
    """Whole votes for two classes, kept as shares."""
    counts = np.array([[heads, n - heads]])
    products = np.array([[heads, 0]]) * UNIT**2
    return SoftVotes(np.array([n]), counts * UNIT, counts * UNIT**2, products)


@pytest.mark.parametrize("method", SOFT_METHODS)
@pytest.mark.parametrize("n", [1_000, 100_000])
def test_a_tie_proves_nothing_and_is_no_error(method, n):
    """Of 100 draws a fair coin has a larger sample variance than n draws can have."""
    for heads in range(45, 56):
        assert SOFT_METHODS[method](coin(heads, 100), coin(n // 2, n), 0.001, 0.5, np.full((1, 2), np.inf)) == 0.0
