"""Which rows of votes can belong to a run: one rule, for one row or for many."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds.binomial import lower_quantile
from smoothcert.bounds.prediction import ABSTAIN
from smoothcert.checks import MOST_DRAWS
from smoothcert.plan import Duels, FixedN, Margins, Plan
from smoothcert.sampling.blocks import BLOCK, NO_CANDIDATE, UNIT, Claim, Phase, Soft, Votes
from smoothcert.sampling.duels import Lost
from smoothcert.sampling.margins import POINTS, WEIGHT, Spread

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
MANY = 1 << 33
"""More than a count."""

STORED = (Phase.SELECTION, Phase.ESTIMATION)


@dataclass(frozen=True)
class Keys:
    """Of each row, in the order in which rows are read: by input, the selection first, then by block.

    `sample` is 0 for the selection, 1 for the estimation and -1 for any other phase. Label `classes[i]` has `counts[i]`
    votes in row `voted_in[i]`; entry i of the `lost` duels is of row `lost_in[i]`. Shares and margin votes are read one
    row at a time: theirs are `beside`.
    """

    position: Ints
    sample: Ints
    first: Ints
    last: Ints
    draws: Ints
    voted_in: Ints
    classes: Ints
    counts: Ints
    lost_in: Ints
    lost: Lost
    beside: Soft | Spread | None = None

    @classmethod
    def of(cls, votes: Votes) -> Keys:
        """The key of one row."""
        sample = STORED.index(votes.phase) if votes.phase in STORED else -1
        lost = votes.beside if isinstance(votes.beside, Lost) else Lost(*np.zeros((3, 0), dtype=np.int64))
        beside = votes.beside if isinstance(votes.beside, Soft | Spread) else None
        numbers = np.array([votes.position, sample, votes.first, votes.last, votes.draws])
        labels = np.zeros_like(votes.classes), votes.classes, votes.counts
        columns: list[Any] = [*numbers[:, None], *labels, np.zeros_like(lost.classes), lost, beside]
        return cls(*columns)


Before = tuple[int, int, int]
"""Position, sample and end of the row before."""

NOTHING: Before = (-1, 0, 0)


def end_of(keys: Keys) -> Before:
    """What comes before the rows that follow these."""
    return int(keys.position[-1]), int(keys.sample[-1]), int(keys.last[-1])


def fit(keys: Keys, plan: Plan, before: Before) -> bool:
    """Can the rows, coming after the one before, belong to the run? No block is there twice, none has more or fewer
    draws than were planned, none is of an unknown input or class.

    A rule that looks at the votes sees them in order, the selection first: there nothing may be missing in between.
    """
    n0, most = plan.question.n0, plan.question.draws.most
    same_input = keys.position == np.append(before[0], keys.position[:-1])
    earlier = np.append(before[1], keys.sample[:-1])
    reached = np.append(before[2], keys.last[:-1])
    same = same_input & (keys.sample == earlier)
    end = np.where(same, reached, 0)
    wanted = np.where(keys.sample == 1, most, n0)
    good = (
        (keys.sample >= 0)
        & (keys.position >= 0)
        & (keys.position < plan.selection.total)
        & (keys.first >= end)
        & (keys.draws == np.minimum(BLOCK * keys.last, wanted) - BLOCK * keys.first)
        & _labels_fit(keys, plan)
        & _duels_fit(keys, plan)
        & _others_fit(keys, plan)
    )
    if plan.adaptive:
        selected = same_input & (earlier == 0) & (BLOCK * reached >= n0)
        good &= (keys.first == end) & (same | (keys.sample == 0) | selected)
    return bool(good.all())


def claim_fits(claim: Claim, plan: Plan, radii_only: bool) -> bool:
    """Can the claim belong to the run? It is of a known class with a radius or of none without, has no more draws than
    were planned, and where radii were asked for it is one of them.

    An imported log may round a radius down to 0, and has none above what unanimous draws prove, however many.
    """
    abstained, fixed = claim.prediction == ABSTAIN, isinstance(plan.question.draws, FixedN)
    known = ABSTAIN <= claim.prediction < plan.classifier.num_classes and claim.n <= plan.question.draws.most
    if fixed != radii_only or not known or (abstained and claim.radius > 0):
        return False
    if radii_only:
        return claim.radius <= largest_radius(plan)
    return abstained or (claim.radius > 0 and (not plan.radii or _is_among(claim.radius, plan.radii)))


def largest_radius(plan: Plan) -> float:
    """What as many draws as can be prove, where all of them agree."""
    return plan.classifier.sigma * _unanimous(plan.question.alpha)


@lru_cache(maxsize=16)
def _unanimous(alpha: float) -> float:
    return float(lower_quantile(MOST_DRAWS, MOST_DRAWS, alpha))


def _is_among(value: float, ascending: Sequence[float]) -> bool:
    i = bisect_left(ascending, value)
    return i < len(ascending) and ascending[i] == value


def _labels_fit(keys: Keys, plan: Plan) -> Bools:
    """Which rows have each label once and in order, of known classes, and as many votes as draws."""
    c, rows = plan.classifier.num_classes, len(keys.draws)
    wrong = (keys.classes >= c) | (keys.counts < 1) | (np.diff(keys.voted_in * c + keys.classes, prepend=-1) <= 0)
    drawn: Bools = np.bincount(keys.voted_in, keys.counts, rows) == keys.draws
    return _all(~wrong, keys.voted_in, rows) & drawn


def _others_fit(keys: Keys, plan: Plan) -> bool:
    """Is there beside the labels what this kind of votes has, and as it is counted?"""
    kind = plan.classifier.votes
    if not kind.soft:
        return keys.beside is None
    if isinstance(kind, Margins):
        return isinstance(keys.beside, Spread) and _spread_fits(keys, keys.beside, plan.classifier.num_classes)
    return isinstance(keys.beside, Soft) and _shares_fit(keys, keys.beside, plan.classifier.num_classes)


def _duels_fit(keys: Keys, plan: Plan) -> Bools:
    """Which rows have lost duels as they are counted: each pair once and in order, of known classes, no more than the
    draws in which the class was followed; where the radius is proved, of one class in all draws. None of other votes.
    """
    c, rows = plan.classifier.num_classes, len(keys.draws)
    if not isinstance(plan.classifier.votes, Duels):
        return np.asarray(np.bincount(keys.lost_in, minlength=rows) == 0)
    row, k, j, lost = keys.lost_in, keys.lost.classes, keys.lost.rivals, keys.lost.counts
    pair = (row * c + k) * c + j
    first = np.diff(row * c + k, prepend=-1) != 0
    followed = np.bincount(np.cumsum(first) - 1, np.where(k == j, lost, 0))[np.cumsum(first) - 1] if len(row) else lost
    wrong = (k >= c) | (j >= c) | (np.diff(pair, prepend=-1) <= 0) | (lost < 1) | (lost > followed)
    wrong |= followed > keys.draws[row]
    wrong |= (keys.sample[row] == 1) & (followed != keys.draws[row])
    classes = np.bincount(row, first, rows)
    one: Bools = (classes >= 1) & ((keys.sample != 1) | (classes == 1))
    return _all(~wrong, row, rows) & one & _agree(keys, c, Losses(row, k, j, lost, followed.astype(np.int64)))


@dataclass(frozen=True)
class Losses:
    """What class `classes[i]` lost to `rivals[i]` in row `rows[i]`, in the draws in which it was followed; as its own
    rival each class has an entry.

    Of a draw that the rival has the label of, at least `least` is lost, of one's own at most `most`, of any `whole`.
    """

    rows: Ints
    classes: Ints
    rivals: Ints
    lost: Ints
    followed: Ints
    least: int = 1
    most: int = 0
    whole: int = 1


def _agree(keys: Keys, c: int, losses: Losses) -> Bools:
    """Which rows have losses that go with their labels: the larger score wins the duel and is the label.

    Where a class is not followed, its rivals may have been the label. Where it is selected, those are followed that
    are the label of a draw.
    """
    row, k, j, rows = losses.rows, losses.classes, losses.rivals, len(keys.draws)
    of_class, of_rival = (_votes_of(keys, c, row, label) for label in (k, j))
    unseen, itself = keys.draws[row] - losses.followed, j == k
    met = of_rival - unseen
    most = losses.most * of_class + losses.whole * (losses.followed - of_class)
    wrong = (of_class > losses.followed) | (itself & (keys.sample[row] == 0) & (of_class == 0))
    wrong |= ~itself & ((losses.lost < losses.least * met) | (losses.lost > most))
    # Every rival with more labels than there are draws unseen is among the entries.
    group = np.cumsum(np.diff(row * c + k, prepend=-1) != 0) - 1
    listed = np.bincount(group, ~itself & (met > 0))[group] if len(row) else met
    ordered, labels = np.sort(keys.voted_in * MANY + keys.counts), np.bincount(keys.voted_in, minlength=rows)
    beyond = np.cumsum(labels)[row] - np.searchsorted(ordered, row * MANY + unseen, side="right")
    wrong |= listed != beyond - (of_class > unseen)
    chosen: Bools = (keys.sample != 0) | (np.bincount(row, itself, rows) == labels)
    return _all(~wrong, row, rows) & chosen


def _votes_of(keys: Keys, c: int, rows: Ints, classes: Ints) -> Ints:
    """How many votes these labels have in these rows."""
    labels, wanted = keys.voted_in * c + keys.classes, rows * c + classes
    at = np.searchsorted(labels, wanted).clip(max=len(labels) - 1)
    return np.where(labels[at] == wanted, keys.counts[at], 0)


def _all(good: Bools, row: Ints, rows: int) -> Bools:
    """Of which rows are all entries good?"""
    return np.asarray(np.bincount(row, ~good, rows) == 0)


def _shares_fit(keys: Keys, soft: Soft, c: int) -> bool:
    """Are these sums of shares: whole numbers of units between 0 and UNIT that make up a vote in each draw, but for
    the rounding, which is half a unit for each class; of no candidate where it is selected?

    With those ranges in this order nothing overflows.
    """
    (n,), sums, squares, products, k = keys.draws.tolist(), soft.sums, soft.squares, soft.products, soft.candidate
    if len(sums) != c or (sums < 0).any() or (sums > n * UNIT).any():
        return False
    rounding, (each, rest), (whole, part) = c // 2, np.divmod(sums, n), np.divmod(sums, UNIT)
    least, most = n * each**2 + (2 * each + 1) * rest, whole * UNIT**2 + part**2
    if abs(int(sums.sum()) - n * UNIT) > n * rounding or (squares < least).any() or (squares > most).any():
        return False
    # The label has the largest share: at least 1 in c of a vote, and no other one more than half.
    if (keys.classes >= c).any():
        return False
    of_label = np.zeros(c, dtype=np.int64)
    of_label[keys.classes] = keys.counts
    if (sums < of_label * (UNIT // c - 1)).any() or (sums > of_label * UNIT + (n - of_label) * (UNIT // 2 + 1)).any():
        return False
    if keys.sample[0] == 0:
        return k == NO_CANDIDATE and not products.any()
    if not 0 <= k < c or products[k] != squares[k] or (products < 0).any():
        return False
    # Two shares of a draw are at most a vote and a unit, and all together as above.
    together = np.minimum(sums * (UNIT + 1) - squares, sums[k] * (UNIT + 1) - squares[k])
    if (np.delete(products > together, k)).any():
        return False
    own = int(sums[k])
    return bool(abs(sum(products.tolist()) - own * UNIT) <= own * rounding and _may_covary(n, soft))


def _may_covary(n: int, soft: Soft) -> bool:
    """Are the covariances with the candidate such as the variances allow, but for rounding?"""
    sums, squares, products, k = soft.sums / UNIT, soft.squares / UNIT**2, soft.products / UNIT**2, soft.candidate
    error = 2.0**-48 * n**2
    variances = n * squares - sums**2 + error
    covariances = n * products - sums * sums[k]
    return bool((np.abs(covariances) <= np.sqrt(variances * variances[k]) + error).all())


def _spread_fits(keys: Keys, spread: Spread, c: int) -> bool:
    """Are there margin votes as they are counted: each weight once and in order, of known classes and points but the
    last, no more of a pair than the draws in which the class was followed; where the radius is proved, of one class in
    all draws?"""
    (draws,) = keys.draws
    k, j, point, weight = spread.classes, spread.rivals, spread.points, spread.weights
    if (k >= c).any() or (j >= c).any() or (point >= POINTS).any() or (weight < 1).any():
        return False
    if (np.diff((k * c + j) * POINTS + point, prepend=-1) <= 0).any() or (weight > draws * WEIGHT).any():
        return False
    first = np.diff(k * c + j, prepend=-1) != 0
    of, pair = np.cumsum(np.diff(k, prepend=-1) != 0) - 1, np.cumsum(first) - 1
    own, total, missing = (
        np.bincount(group, values).astype(np.int64)
        for group, values in ((of, np.where(k == j, weight, 0)), (pair, weight), (pair, (POINTS - point) * weight))
    )
    followed = (own >= WEIGHT) & (own % WEIGHT == 0)
    fits = followed.all() and (point[k == j] == POINTS // 2).all() and (total[pair] <= own[of]).all()
    if not fits or (keys.sample[0] == 1 and (len(own) != 1 or own[0] != draws * WEIGHT)):
        return False
    pairs = np.zeros_like(missing), k[first], j[first], missing, own[of[first]] // WEIGHT
    return bool(_agree(keys, c, Losses(*pairs, least=UNIT // 2, most=UNIT // 2, whole=UNIT)).all())
