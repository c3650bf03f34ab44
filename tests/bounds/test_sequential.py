"""Stopping early never costs more than α, whatever the looks show."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import special, stats

from smoothcert.bounds.binomial import lower_quantile
from smoothcert.bounds.pairwise import pairwise_margin
from smoothcert.bounds.sequential import BOUND_GROWTH, MONO, PAIRWISE, Decision, SequentialPlan, choose_test, decide
from smoothcert.bounds.spending import boundary, crossing_probability, give_up, looks, portions
from smoothcert.errors import InputError

Counts = NDArray[np.int64]


def without_spending(target: float, at: tuple[int, ...], alpha: float) -> Counts:
    """The wrong way: the fixed-n test at level α at every look."""
    return np.array([int(stats.binom.isf(alpha, n, target)) + 1 for n in at])


# --- looks ---


@given(st.integers(1, 3000), st.sampled_from([1.1, 1.2, 2.0]))
def test_looks_grow_by_the_factor_rounded_up_to_blocks(blocks: int, growth: float) -> None:
    at = np.array(looks(100 * blocks, growth))
    assert at[0] == 100
    assert at[-1] == 100 * blocks
    assert np.all(at % 100 == 0)
    assert np.all(at[1:] < growth * at[:-1] + 100)
    assert np.all(at[1:-1] >= growth * at[:-2] - 1e-6)


@pytest.mark.parametrize("max_n", [0, 50, 150, -100])
def test_looks_need_whole_blocks(max_n: int) -> None:
    with pytest.raises(InputError, match="multiple of 100"):
        looks(max_n)


@given(st.integers(1, 2000), st.floats(1e-6, 0.5))
def test_the_levels_of_all_looks_add_up_to_alpha(blocks: int, alpha: float) -> None:
    shares = portions(looks(100 * blocks, 2.0), alpha)
    assert np.all(shares > 0)
    assert shares.sum() == pytest.approx(alpha, rel=1e-12)


# --- the two-outcome test: exact boundaries ---


def enumerated(needed: Counts, at: tuple[int, ...], p: Fraction) -> Fraction:
    """The probability of ever crossing, summed over all outcomes of all blocks in rational arithmetic."""
    blocks = np.diff(at, prepend=0).tolist()
    total = Fraction(0)
    for hits in itertools.product(*(range(m + 1) for m in blocks)):
        if np.any(np.cumsum(hits) >= needed):
            chances = (comb(m, k) * p**k * (1 - p) ** (m - k) for m, k in zip(blocks, hits, strict=True))
            total += np.prod(list(chances))
    return total


SMALL = (6, 9, 14, 20)


@pytest.mark.parametrize("p", [Fraction(1, 2), Fraction(3, 5), Fraction(7, 8)])
@pytest.mark.parametrize("alpha", [0.01, 0.1])
def test_boundary_is_the_smallest_that_keeps_within_the_spent_alpha(p: Fraction, alpha: float) -> None:
    needed = boundary(float(p), SMALL, alpha)
    for i, n in enumerate(SMALL):
        so_far, at = needed[: i + 1], SMALL[: i + 1]
        allowed = alpha * np.sqrt(n / SMALL[-1])
        error = enumerated(so_far, at, p)
        assert error <= allowed
        assert crossing_probability(so_far, at, float(p)) == pytest.approx(float(error), rel=1e-11, abs=1e-14)
        one_less = np.append(so_far[:-1], so_far[-1] - 1)
        assert enumerated(one_less, at, p) > allowed


TARGETS = [0.5, *special.ndtr([0.25, 1.0, 2.0, 3.0, 3.6]).tolist()]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("alpha", "max_n"), [(0.001, 100_000), (0.05, 2_000), (1e-6, 10_000)])
def test_error_is_at_most_alpha_at_and_below_the_target(target: float, alpha: float, max_n: int) -> None:
    at = looks(max_n)
    needed = boundary(target, at, alpha)
    shares = target * np.array([1, 0.9999, 0.999, 0.99, 0.9, 0.5])
    errors = [crossing_probability(needed, at, p) for p in shares]
    assert max(errors) <= alpha
    assert np.all(np.diff(errors) <= 1e-13)


@pytest.mark.parametrize("target", TARGETS[:4])
def test_next_to_nothing_of_alpha_is_wasted(target: float) -> None:
    at = looks(100_000)
    assert crossing_probability(boundary(target, at, 0.001), at, target) > 0.99e-3


@pytest.mark.parametrize("target", TARGETS[:4])
@pytest.mark.parametrize(("alpha", "max_n"), [(0.001, 100_000), (0.05, 2_000)])
def test_the_fixed_n_test_at_every_look_is_not_valid(target: float, alpha: float, max_n: int) -> None:
    at = looks(max_n)
    assert crossing_probability(without_spending(target, at, alpha), at, target) > 2 * alpha


def test_no_count_is_enough_for_a_radius_beyond_the_draws() -> None:
    at = looks(1_000)
    target = float(special.ndtr(3.0))  # 0.99865 ** 1000 = 0.26 > alpha
    assert np.all(boundary(target, at, 0.001) == np.array(at) + 1)
    assert decide(SequentialPlan(sigma=1.0, radii=(3.0,), max_n=1_000), [100, 0], []) == Decision(0.0, True, 0)


@pytest.mark.parametrize("target", TARGETS[1:5])
def test_power_at_max_n_is_close_to_that_of_the_fixed_sample(target: float) -> None:
    at = looks(100_000)
    fixed = int(stats.binom.isf(0.001, at[-1], target)) + 1
    p = float(special.betaincinv(fixed, at[-1] - fixed + 1, 0.95))  # passes the fixed sample with probability 0.95
    assert crossing_probability(boundary(target, at, 0.001), at, p) > 0.88


# --- the whole procedure, driven as the sampler drives it ---


def error_of_whole_procedure(plan: SequentialPlan, selection: list[int], p: float) -> float:
    """P(a radius above the true one is claimed) for two outcomes, by recursion over what `decide` can do.

    Histories that agree in the count and in the radius claimed are one state: any of them stands for all.
    """
    true_radius = plan.sigma * special.ndtri(p)
    wrong, states = 0.0, {(0, 0.0): (1.0, np.empty((0, 2), dtype=np.int64))}
    while states:
        following: dict[tuple[int, float], tuple[float, Counts]] = {}
        for (count, _), (mass, history) in states.items():
            decision = decide(plan, selection, history)
            if decision.radius > max(true_radius - 1e-12, 0.0):
                wrong += mass
            elif not decision.stop:
                draws = decision.next_n - (int(history[-1].sum()) if len(history) else 0)
                hits = np.arange(draws + 1)
                for k, chance in zip(count + hits, stats.binom.pmf(hits, draws, p), strict=True):
                    if mass * chance < 1e-9:
                        wrong += mass * chance
                        continue
                    state = (int(k), decision.radius)
                    known, path = following.get(state, (0.0, np.vstack([history, [k, decision.next_n - k]])))
                    following[state] = (known + mass * chance, path)
        states = following
    return wrong


RADII = (0.25, 0.5, 0.6)
SHARES = [*special.ndtr(RADII).tolist(), 0.55, 0.65, 0.7]


@pytest.mark.parametrize("p", SHARES)
@pytest.mark.parametrize("futility", [0.0, 0.1])
def test_all_radii_together_err_with_probability_at_most_alpha(p: float, futility: float) -> None:
    plan = SequentialPlan(sigma=1.0, radii=RADII, alpha=0.05, max_n=500, futility=futility)
    assert 0 < error_of_whole_procedure(plan, [80, 20], p) <= 0.05


@pytest.mark.parametrize("p", [0.5, *(pytest.param(p, marks=pytest.mark.slow) for p in (0.6, 0.8)), 0.95])
def test_until_width_errs_with_probability_at_most_alpha(p: float) -> None:
    plan = SequentialPlan(sigma=1.0, width=0.1, alpha=0.05, max_n=300)
    assert 0 < error_of_whole_procedure(plan, [80, 20], p) <= 0.05


@given(st.integers(0, 2**32 - 1), st.floats(0.5, 0.999))
@settings(max_examples=50)
def test_replaying_the_counts_gives_the_same_decisions(seed: int, p: float) -> None:
    rng = np.random.default_rng(seed)
    plan = SequentialPlan(sigma=0.5, radii=(0.1, 0.25, 0.5, 1.0), max_n=20_000)
    s = rng.binomial(100, p)
    at = looks(plan.max_n)
    hits = rng.binomial(np.diff(at, prepend=0), p).cumsum()
    counts = np.stack([hits, at - hits], axis=1)
    whole = decide(plan, [s, 100 - s], counts)
    steps = [decide(plan, [s, 100 - s], counts[:i]) for i in range(len(at) + 1)]
    first = next(i for i, step in enumerate(steps) if step.stop)
    assert all(step == whole for step in steps[first:])
    assert [step.next_n for step in steps[:first]] == list(at[:first])
    assert all(a.radius <= b.radius for a, b in itertools.pairwise(steps))
    assert whole.next_n == (at[first - 1] if first else 0)


def test_giving_up_costs_no_more_power_than_promised() -> None:
    rng = np.random.default_rng(5)
    at, target, runs = looks(20_000), float(special.ndtr(1.0)), 20_000
    last = int(boundary(target, at, 0.001)[-1])
    q = float(special.betaincinv(last, at[-1] - last + 1, 0.95))  # passes the last look with probability 0.95
    counts = rng.binomial(np.diff(at, prepend=0), q, size=(runs, len(at))).cumsum(axis=1)
    pooled = np.column_stack([np.zeros(runs, dtype=np.int64), counts]) + rng.binomial(100, q, size=(runs, 1))
    given_up = np.any(pooled < give_up(target, at, 0.001, 0.05, 100), axis=1).mean()
    assert 0.03 < given_up <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / runs)


# --- the pairwise test ---

NULLS = [(1.0, -1.2), (2.0, -1.6), (2.0, -1.0)]  # (t, z): the shares Φ(z + t) and Φ(z), the last without a rest


def claims(n1: Counts, nj: Counts, n: int, level: float, t: float) -> NDArray[np.bool_]:
    """`pairwise_margin(n1, nj, n, level) ≥ t`, which grows with n1: by bisection for each value of nj."""
    rivals = np.arange(nj.min(), nj.max() + 1)
    low, high = np.full_like(rivals, n1.min() - 1), np.minimum(n1.max(), n - rivals) + 1
    while np.any(high - low > 1):
        middle = np.maximum((low + high) // 2, 0)
        proved = pairwise_margin(middle, rivals, n, level) >= t
        low, high = np.where(proved, low, middle), np.where(proved, middle, high)
    return n1 >= high[nj - nj.min()]


def false_claims(t: float, z: float, at: tuple[int, ...], level: NDArray[np.float64], runs: int) -> float:
    """The share of runs on the edge of the null that claim t at some look, as if there were no other rival."""
    rng = np.random.default_rng(11)
    p1, pj = special.ndtr([z + t, z])
    steps = [rng.multinomial(m, [p1, pj, max(1 - p1 - pj, 0)], size=runs) for m in np.diff(at, prepend=0)]
    looked = zip(at, level, itertools.accumulate(steps), strict=True)
    claimed = [claims(counts[:, 0], counts[:, 1], n, float(a), t) for n, a, counts in looked]
    return float(np.any(claimed, axis=0).mean())


def most(alpha: float, runs: int) -> float:
    """What a true error of α exceeds in that many runs with probability below 1e-4."""
    return alpha + 4 * np.sqrt(alpha / runs)


@pytest.mark.parametrize(("t", "z"), NULLS[2:])
def test_pairwise_claims_err_with_probability_at_most_alpha(t: float, z: float) -> None:
    alpha, runs, at = 0.05, 20_000, looks(300, BOUND_GROWTH)
    assert false_claims(t, z, at, portions(at, alpha), runs) <= most(alpha, runs)


@pytest.mark.slow
def test_pairwise_claims_at_level_alpha_at_every_look_are_not_valid() -> None:
    alpha, runs, at = 0.05, 20_000, looks(300, BOUND_GROWTH)
    assert false_claims(*NULLS[1], at, np.full(len(at), alpha), runs) > most(alpha, runs)


@pytest.mark.slow
@pytest.mark.parametrize(("t", "z"), NULLS)
def test_a_million_pairwise_runs_err_with_probability_at_most_alpha(t: float, z: float) -> None:
    alpha, runs, at = 0.001, 1_000_000, looks(2_000, BOUND_GROWTH)
    assert false_claims(t, z, at, portions(at, alpha), runs) <= most(alpha, runs)


def path(shares: list[float], at: tuple[int, ...], seed: int) -> Counts:
    """Cumulative votes of one input at the looks."""
    rng = np.random.default_rng(seed)
    return np.array([rng.multinomial(m, shares) for m in np.diff(at, prepend=0)]).cumsum(axis=0)


@pytest.mark.parametrize("seed", range(3))
def test_pairwise_claims_are_what_the_bound_at_the_level_of_the_look_proves(seed: int) -> None:
    plan = SequentialPlan(sigma=1.0, radii=(0.2, 0.25, 0.3, 0.35, 2.0), max_n=5_000, futility=0.0)
    at = looks(plan.max_n, BOUND_GROWTH)
    counts = path([0.45, 0.2, 0.2, 0.15], at, seed)
    rivals = counts[:, 1:].max(axis=1)
    proved = pairwise_margin(counts[:, 0], rivals, np.array(at), portions(at, plan.alpha)).max() / 2
    assert 0.2 < proved < 2.0
    largest = max(r for r in plan.radii if r <= proved)
    assert decide(plan, [45, 20, 20, 15], counts) == Decision(largest, True, plan.max_n)


def test_a_radius_far_out_of_reach_is_given_up_and_one_at_hand_is_not() -> None:
    far, near = (SequentialPlan(sigma=1.0, radii=(r,)) for r in (1.5, 0.25))
    assert decide(far, [45, 20, 20, 15], []) == Decision(0.0, True, 0)
    assert decide(near, [45, 20, 20, 15], []) == Decision(0.0, False, 100)


# --- until a width ---


@pytest.mark.parametrize(
    ("votes", "test"), [([90, 10], MONO), ([98, 1, 1], PAIRWISE), ([70, 20, 10], PAIRWISE), ([40, 20, 40], PAIRWISE)]
)
def test_until_width_stops_as_soon_as_the_width_is_reached(votes: list[int], test: str) -> None:
    plan = SequentialPlan(sigma=2.0, width=0.2, max_n=50_000)
    assert choose_test(plan, votes) == test
    at = looks(plan.max_n, BOUND_GROWTH)
    counts = np.outer(at, votes) // 100  # votes that keep the shares of the selection at every look

    def proved(n: int, level: float) -> float:
        n1, nj, _ = (np.array([max(votes), sorted(votes)[-2], 100]) * n // 100).tolist()
        return 2.0 * float(lower_quantile(n1, n, level) if test == MONO else pairwise_margin(n1, nj, n, level) / 2)

    by_look = [proved(n, a) for n, a in zip(at, portions(at, plan.alpha), strict=True)]
    enough = [n for n, radius in zip(at, by_look, strict=True) if radius >= 0.8 * proved(plan.max_n, plan.alpha) > 0]
    decision = decide(plan, votes, counts)
    assert decision.stop
    if enough:
        assert decision.next_n == enough[0] < plan.max_n
        assert decision.radius == pytest.approx(by_look[at.index(enough[0])])
    else:
        assert decision.radius == 0.0


def test_a_tie_is_given_up_before_max_n() -> None:
    plan = SequentialPlan(sigma=1.0, width=0.1)
    at = looks(plan.max_n, BOUND_GROWTH)
    n1 = np.array(at) * 45 // 100
    decision = decide(plan, [50, 50], np.stack([n1, at - n1], axis=1))
    assert decision.stop
    assert decision.radius == 0.0
    assert decision.next_n < 2_000


# --- which test ---


@pytest.mark.parametrize(
    ("selection", "test"),
    [
        ([80, 20], MONO),  # two classes: the same statement
        ([51, 49], MONO),
        ([80, 20, 0, 0], MONO),  # hardly a rest
        ([100, 0, 0, 0], MONO),
        ([97, 2, 1, 0], MONO),
        ([40, 10, 11, 39], PAIRWISE),  # no majority: mono can claim nothing
        ([60, 5, 5, 30], PAIRWISE),
        ([70, 10, 10, 10], PAIRWISE),
    ],
)
def test_choice_of_the_test(selection: list[int], test: str) -> None:
    assert choose_test(SequentialPlan(sigma=1.0, radii=(0.25, 0.5)), selection) == test


# --- calls that are refused ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either"),
        ({"radii": (0.5,), "width": 0.1}, "either"),
        ({"radii": (0.5, 0.25)}, "increasing"),
        ({"radii": (0.25, 0.25)}, "increasing"),
        ({"radii": tuple(range(1, 1002))}, "at most 1,000 radii can be asked for, got 1,001: take fewer"),
        ({"radii": (0.0, 0.25)}, "positive"),
        ({"radii": (float("nan"),)}, "positive"),
        ({"width": 1.0}, "width"),
        ({"radii": (0.5,), "max_n": 150}, "multiple of 100"),
        ({"radii": (0.5,), "futility": 0.5}, "futility"),
        ({"radii": (0.5,), "alpha": 0.0}, "alpha"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SequentialPlan(sigma=1.0, **options)


def test_counts_between_the_looks_are_refused() -> None:
    with pytest.raises(InputError, match="looks at 100, 200"):
        decide(SequentialPlan(sigma=1.0, radii=(0.5,)), [80, 20], [[80, 70]])
