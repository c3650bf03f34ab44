"""Soft votes: every interval is valid for pairs, the number of classes costs nothing, and integers merge exactly."""

import numpy as np
import pytest
from scipy import stats

from smoothcert import InputError, radii
from smoothcert.bounds import SOFT_METHODS, SoftVotes, betting_moments_lower, betting_moments_upper
from smoothcert.bounds.soft import UNIT
from smoothcert.certificate import certify_soft_batch, find_interval, find_method
from smoothcert.sampling.blocks import Soft

GUESSES = [(m, v) for m in (0.02, 0.3, 0.5, 0.9, 1.0) for v in (1e-6, 0.003, 0.05, 0.25)]


@pytest.mark.parametrize(("mean_guess", "variance_guess"), GUESSES)
@pytest.mark.parametrize("alpha", [0.2, 0.01])
def test_bets_on_moments_cover_two_points_whatever_was_guessed(mean_guess, variance_guess, alpha):
    """The exact probability that the bound passes the mean, for every count of n draws that are 0 or 1."""
    n, p = 30, np.linspace(0.005, 0.995, 100)
    k = np.arange(n + 1)
    variance = k * (n - k) / (n * (n - 1))
    lower = betting_moments_lower(k / n, variance, n, alpha, mean_guess, variance_guess)
    upper = betting_moments_upper(k / n, variance, n, alpha, mean_guess, variance_guess)
    mass = stats.binom.pmf(k, n, p[:, None])
    assert ((lower > p[:, None] + 1e-12) * mass).sum(axis=1).max() <= alpha
    assert ((upper < p[:, None] - 1e-12) * mass).sum(axis=1).max() <= alpha


SAMPLERS = {
    "beta": (lambda rng, shape: rng.beta(0.5, 2, shape), 0.2),
    "narrow beta": (lambda rng, shape: rng.beta(40, 10, shape), 0.8),
    "two points": (lambda rng, shape: 0.3 + 0.4 * (rng.random(shape) < 0.25), 0.4),
    "spiked": (lambda rng, shape: 1.0 - 0.9 * (rng.random(shape) < 0.02), 0.982),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_bets_on_moments_cover_by_simulation(name):
    sampler, mean = SAMPLERS[name]
    rng = np.random.default_rng(1)
    alpha, repeats, n = 0.05, 4000, 150
    before, x = sampler(rng, (repeats, 50)), sampler(rng, (repeats, n))
    guess = before.mean(axis=1), (50 * before.var(axis=1) + 0.25) / 51
    moments = x.mean(axis=1), x.var(axis=1, ddof=1), n, alpha
    misses = (betting_moments_lower(*moments, *guess) > mean + 1e-12).sum()
    assert misses <= stats.binom.isf(1e-4, repeats, alpha)
    misses = (betting_moments_upper(*moments, *guess) < mean - 1e-12).sum()
    assert misses <= stats.binom.isf(1e-4, repeats, alpha)


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
    found = SOFT_METHODS[method](selection, estimation, alpha, 0.5, np.full(repeats, lipschitz))
    wrong = (found > np.where(top == 0, truth, 0.0)).sum()
    assert wrong <= stats.binom.isf(1e-4, repeats, alpha)
    assert (found > 0).any()


@pytest.mark.parametrize("method", ["betting", "bernstein", "hoeffding"])
@pytest.mark.parametrize("lipschitz", [np.inf, 0.8])
def test_the_least_radius_over_all_rivals(method, lipschitz):
    """Each rival alone against the candidate, one after the other."""
    rng = np.random.default_rng(3)
    first, second = sampled(rng, [2.5, 1.0, 0.9, 0.0, -1.0], 6, 60), sampled(rng, [2.5, 1.0, 0.9, 0.0, -1.0], 6, 2000)
    selection = soft_votes(first)
    top = selection.candidates
    together = SOFT_METHODS[method](selection, soft_votes(second, top), 0.01, 0.5, np.full(6, lipschitz))
    for i in range(6):
        alone = []
        for j in set(range(5)) - {top[i]}:
            columns = [top[i], j]
            pair = soft_votes(first[i : i + 1, :, columns]), soft_votes(second[i : i + 1, :, columns], [0])
            alone.append(float(SOFT_METHODS[method](*pair, 0.01, 0.5, np.array([lipschitz]))[0]))
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
            found.append(compute(selection, estimation, 0.001, 0.5, np.full(3, np.inf)))
        if method == "bonferroni-bernstein":
            assert (found[1] < found[0]).all()
        else:
            assert found[1] == pytest.approx(found[0])


def test_betting_proves_most_and_the_paper_least():
    rng = np.random.default_rng(5)
    selection = soft_votes(sampled(rng, [3.0, 1.0, 0.0], 8, 100))
    estimation = soft_votes(sampled(rng, [3.0, 1.0, 0.0], 8, 2000), selection.candidates)
    found = {m: f(selection, estimation, 0.001, 0.5, np.full(8, 1.0)).mean() for m, f in SOFT_METHODS.items()}
    assert found["betting"] > found["bernstein"] > found["bonferroni-bernstein"]
    assert found["betting"] > found["hoeffding"]


def test_a_certificate_carries_its_constant_and_its_basis():
    rng = np.random.default_rng(6)
    selection = soft_votes(sampled(rng, [3.0, 0.0], 1, 100))
    estimation = soft_votes(sampled(rng, [3.0, 0.0], 1, 1000), selection.candidates)
    plain, lipschitz = (
        certify_soft_batch(selection, estimation, sigma=0.5, votes="softmax", lipschitz=constant)[0]
        for constant in (None, np.array([1.0]))
    )
    assert (plain.votes, plain.basis, plain.lipschitz, plain.n0, plain.n) == ("softmax", "proved", None, 100, 1000)
    assert lipschitz.lipschitz == 1.0
    assert lipschitz.radius > plain.radius > 0


def test_names_that_do_not_fit_the_votes_are_refused():
    with pytest.raises(InputError, match="unknown interval 'mono': choose one of betting, bernstein"):
        find_interval("mono")
    with pytest.raises(InputError, match="betting is for soft votes"):
        find_method("betting")
