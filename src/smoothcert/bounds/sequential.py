"""Draw until the answer is known: claims that hold whenever, and for whatever reason, the sampling stops.

Asked for radii, an input is drawn until the largest is claimed or the next one is out of reach; asked for a width,
until more draws would hardly raise the certified radius. Only claims spend α. There are two tests:

- `mono`, the candidate against the rest: the exact boundaries of `spending.boundary`. Radii are tested from small to
  large, each at the full α and only when all smaller ones are claimed. A false claim then implies that the smallest
  false radius was claimed, one event of probability at most α.
- `pairwise`, the candidate against its largest rival: the fixed-n pairwise bound, at the level `spending.portions` of
  each look. All bounds hold at once with probability at least 1 − α, and with them every claim.

For a width, mono too is a fixed-n bound (Clopper-Pearson) at the level of each look. Which test an input gets depends
on its selection counts only. Everything is a function of the counts at the looks: replayed, they give the same
decisions.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from smoothcert.bounds.binomial import ROUNDING, lower_quantile, may_exceed, upper_quantile
from smoothcert.bounds.method import Counts
from smoothcert.bounds.pairwise import margin_at_most, pairwise_margin
from smoothcert.bounds.spending import Looks, boundary, give_up, looks, portions
from smoothcert.checks import MOST_DRAWS, check_level, check_number, check_sigma, check_whole
from smoothcert.errors import InputError

MONO, PAIRWISE = "mono", "pairwise"
EXACT_GROWTH, BOUND_GROWTH = 1.2, 1.5  # a look costs the exact test nothing, and a bound a share of α
MOST_RADII = 1_000
PAIRWISE_DRAWS = 1.13  # times the draws of mono, where both see the same evidence


@dataclass(frozen=True)
class SequentialPlan:
    """What is asked of every input, fixed before the first draw: radii to test, or else a relative width.

    `futility` is the chance that an input is given up early although max_n draws would certify it with probability
    1 − futility; with 0 no input is given up. It costs certified inputs, never validity.
    """

    sigma: float
    radii: tuple[float, ...] = ()
    width: float | None = None
    alpha: float = 0.001
    max_n: int = 100_000
    futility: float = 0.05

    def __post_init__(self) -> None:
        check_sigma(self.sigma)
        check_level(self.alpha)
        looks(check_whole("max_n", self.max_n, 1, MOST_DRAWS))
        check_number("futility", self.futility)
        if bool(self.radii) == (self.width is not None):
            raise InputError("ask either for radii to test or for a width, not both.")
        if len(self.radii) > MOST_RADII:
            raise InputError(f"at most {MOST_RADII:,} radii can be asked for, got {len(self.radii):,}: take fewer.")
        if list(self.radii) != sorted({r for r in self.radii if 0 < r < math.inf}):
            raise InputError(f"radii must be positive and increasing, got {self.radii!r}.")
        if self.width is not None and not 0 < check_number("width", self.width) < 1:
            raise InputError(f"width must lie strictly between 0 and 1, got {self.width!r}: 0.02 stops 2 % short.")
        if not 0 <= self.futility < 0.5:
            raise InputError(f"futility must be at least 0 and below 0.5, got {self.futility!r}: 0.05 is usual.")


@dataclass(frozen=True)
class Decision:
    """The largest radius claimed so far, 0 for none; whether to stop; the estimation draws at the next look, or
    those used at a stop."""

    radius: float
    stop: bool
    next_n: int


def choose_test(plan: SequentialPlan, selection: ArrayLike) -> str:
    """`mono` or `pairwise`, whichever should need fewer draws if the shares are those of the selection votes.

    Of two classes both make the same statement, and mono is the cheaper test of it. Otherwise a width needs the
    larger radius of pairwise; and for radii the evidence of one draw about the largest radius that the shares support
    is compared, for the draws needed go with its inverse square. Half a vote is added to the candidate, to the rival
    and to the rest: no votes for the rest do not mean that there is none.
    """
    votes = np.asarray(selection)
    if len(votes) == 2:
        return MONO
    if plan.width is not None:
        return PAIRWISE
    nj, n1 = np.sort(votes)[-2:]
    p1, pj = float(n1 + 0.5) / (votes.sum() + 1.5), float(nj + 0.5) / (votes.sum() + 1.5)
    margin = float(special.ndtri(p1)) - float(special.ndtri(pj))
    supported = bisect_left(plan.radii, margin, key=lambda r: 2 * r / plan.sigma)
    t = 2 * plan.radii[max(supported - 1, 0)] / plan.sigma
    of_rest, of_pair = _evidence(p1, 1 - p1, t), _evidence(p1, pj, t)
    return MONO if of_rest > 0 and PAIRWISE_DRAWS * of_rest**2 >= of_pair**2 else PAIRWISE


def looks_of(plan: SequentialPlan, test: str) -> Looks:
    """The looks of an input that got this test."""
    return looks(plan.max_n, EXACT_GROWTH if _exact(plan, test) else BOUND_GROWTH)


def decide(plan: SequentialPlan, selection: ArrayLike, counts_at_looks: ArrayLike) -> Decision:
    """What to do with an input after the looks so far.

    `selection` are its votes (c,), `counts_at_looks` its cumulative estimation votes (i, c) at the first i looks:
    start with none, draw up to `next_n`, append the counts, ask again. Rows after a stop are ignored.

    >>> plan = SequentialPlan(sigma=0.5, radii=(0.25, 0.5), max_n=10_000)
    >>> decide(plan, [97, 3], [])
    Decision(radius=0.0, stop=False, next_n=100)
    >>> decide(plan, [97, 3], [[99, 1]])
    Decision(radius=0.5, stop=True, next_n=100)
    >>> decide(plan, [55, 45], [])
    Decision(radius=0.0, stop=True, next_n=0)
    """
    chosen = np.asarray(selection)
    test = choose_test(plan, chosen)
    at = looks_of(plan, test)
    counts = np.asarray(counts_at_looks, dtype=np.int64).reshape(-1, len(chosen))
    if counts.sum(axis=1).tolist() != list(at[: len(counts)]):
        raise InputError(f"the {test} test looks at {', '.join(map(str, at))} draws: pass the counts at those.")
    step = _step_exactly if _exact(plan, test) else _step_by_bounds
    candidate, radius = int(chosen.argmax()), 0.0
    for i, drawn in enumerate([np.zeros_like(chosen), *counts]):
        votes, pooled = _votes(drawn, candidate, test), _votes(chosen + drawn, candidate, test)
        radius, done = step(plan, test, at, i, votes, pooled, radius)
        if done or i == len(at):
            return Decision(radius, True, votes.n)
    return Decision(radius, False, at[len(counts)])


def may_claim(plan: SequentialPlan, selection: ArrayLike, counts_at_looks: ArrayLike, radius: float) -> bool:
    """Can `decide` have claimed this radius? Never False where it has.

    Takes microseconds where bounds by pairwise take tens of milliseconds. A claim of mono has the Clopper-Pearson bound
    at the look's portion of α, by the exact test at all that is spent by then; one of pairwise `margin_at_most`.
    """
    chosen = np.asarray(selection)
    test, counts = choose_test(plan, chosen), np.asarray(counts_at_looks, dtype=np.int64).reshape(-1, len(chosen))
    at, candidate = looks_of(plan, test)[: len(counts)], int(chosen.argmax())
    if not at:
        return False
    levels, n1, z = portions(looks_of(plan, test), plan.alpha)[: len(at)], counts[:, candidate], radius / plan.sigma
    if test == MONO:
        return bool(may_exceed(n1, at, z, np.cumsum(levels) if plan.radii else levels).any())
    nj = np.delete(counts, candidate, axis=1).max(axis=1)
    return bool((margin_at_most(n1, nj, at, levels) >= 2 * z * (1 - ROUNDING)).any())


@dataclass(frozen=True)
class _Votes:
    """What a test sees of n draws: the counts of the candidate and of its rival, for mono all the rest."""

    n1: int
    nj: int
    n: int

    def evidence(self, t: float) -> float:
        """`_evidence` at the shares (N + ½)/(n + 1), of which none is 0 or 1."""
        return _evidence((self.n1 + 0.5) / (self.n + 1), (self.nj + 0.5) / (self.n + 1), t)


def _evidence(p1: float, pj: float, t: float) -> float:
    """By how much `Φ⁻¹(p₁) − Φ⁻¹(p_j)` exceeds t, in standard errors of its estimate from one draw (delta method):

    `s² = a² p₁(1−p₁) + b² p_j(1−p_j) + 2ab p₁p_j` with a = 1/φ(Φ⁻¹(p₁)), b = 1/φ(Φ⁻¹(p_j)).
    """
    z1, zj = float(special.ndtri(p1)), float(special.ndtri(pj))
    a, b = math.exp(z1 * z1 / 2), math.exp(zj * zj / 2)
    variance = a * a * p1 * (1 - p1) + b * b * pj * (1 - pj) + 2 * a * b * p1 * pj
    return (z1 - zj - t) / math.sqrt(2 * math.pi * variance)


def _exact(plan: SequentialPlan, test: str) -> bool:
    return test == MONO and bool(plan.radii)


def _votes(counts: Counts, candidate: int, test: str) -> _Votes:
    n, n1 = int(counts.sum()), int(counts[candidate])
    return _Votes(n1, n - n1 if test == MONO else int(np.delete(counts, candidate).max()), n)


def _step_exactly(
    plan: SequentialPlan, test: str, at: Looks, i: int, votes: _Votes, pooled: _Votes, radius: float
) -> tuple[float, bool]:
    """The radius claimed after look i (0: after the selection) and whether to stop, by the exact boundaries."""
    for r in plan.radii:
        if r <= radius:
            continue
        target = float(special.ndtr(r / plan.sigma))
        if not i or votes.n1 < boundary(target, at, plan.alpha)[i - 1]:
            least = give_up(target, at, plan.alpha, plan.futility, pooled.n - votes.n)[i]
            return radius, bool(pooled.n1 < least)
        radius = r
    return radius, True


def _step_by_bounds(
    plan: SequentialPlan, test: str, at: Looks, i: int, votes: _Votes, pooled: _Votes, radius: float
) -> tuple[float, bool]:
    """The same by the fixed-n bound of each look."""
    ahead = [r for r in plan.radii if r > radius]
    t = 2 * ahead[0] / plan.sigma if ahead else 0.0
    level = float(portions(at, plan.alpha)[i - 1]) if i else 0.0
    if i and _within_reach(votes, t, level):
        proved = plan.sigma / 2 * _bound(votes, test, level)
        radius = max([radius, *([r for r in ahead if r <= proved] if plan.radii else [proved])])
    if plan.width is not None:
        done = radius > 0 and radius >= (1 - plan.width) * plan.sigma / 2 * _bound_at_max_n(plan, test, votes)
    else:
        ahead = [r for r in ahead if r > radius]
        done, t = not ahead, 2 * ahead[0] / plan.sigma if ahead else 0.0
    return radius, done or _out_of_reach(plan, at, i, votes, pooled, t)


def _within_reach(votes: _Votes, t: float, level: float) -> bool:
    """May the bound at this level exceed t? It takes tens of milliseconds, and not claiming is always valid.

    Separate Clopper-Pearson bounds at 30 times the level are above it in practice.
    """
    easy = min(30 * level, 0.4)
    return bool(lower_quantile(votes.n1, votes.n, easy) - upper_quantile(votes.nj, votes.n, easy) > t)


def _bound(votes: _Votes, test: str, level: float) -> float:
    """A lower bound of the margin from a fixed sample."""
    if test == MONO:
        return 2 * float(lower_quantile(votes.n1, votes.n, level))
    return float(pairwise_margin(votes.n1, votes.nj, votes.n, level))


def _bound_at_max_n(plan: SequentialPlan, test: str, votes: _Votes) -> float:
    """What a fixed sample of max_n draws with these shares would prove."""
    n1, nj = (k * plan.max_n // votes.n for k in (votes.n1, votes.nj))
    return _bound(_Votes(n1, nj, plan.max_n), test, plan.alpha)


def _out_of_reach(plan: SequentialPlan, at: Looks, i: int, votes: _Votes, pooled: _Votes, t: float) -> bool:
    """`spending.give_up` for a margin above t, in the normal approximation.

    Where the last look, at its level α', passes with probability 1 − β, the evidence is (z_α' + z_β)/√max_n. An
    estimate that falls short of it by more than z_β'/√n, β' the level of β at look i, is given up.
    """
    if plan.futility == 0:
        return False
    n0 = pooled.n - votes.n
    level, beta = portions(at, plan.alpha)[-1], portions((n0, *(n0 + n for n in at)), plan.futility)[i]
    z_last, z_all, z_now = -special.ndtri([level, plan.futility, beta])
    return bool(pooled.evidence(t) < (z_last + z_all) / math.sqrt(plan.max_n) - z_now / math.sqrt(pooled.n))
