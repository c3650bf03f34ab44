"""Margin votes to radii: the exact radius of a ramp against every rival."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

from smoothcert.bounds.ramps import ramps, reach
from smoothcert.radii.lipschitz import exact_mono
from smoothcert.radii.pair import DISTRIBUTION_ERROR, distribution

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
FLATTEST, STEEPEST = 1e-12, 1e12
"""Lσ for which the exact radius is known to all digits; a flatter vote is as flat as this, a steeper one jumps."""

FEW = 256
"""Rivals. Bounds of one in so many take less than asking all of them."""

ALMOST = 1 - 1e-9
"""A mean vote that is whole is taken for this where a radius is predicted."""


def ramp_radius(p: Floats, sigma: float, lipschitz: Floats) -> Floats:
    """The exact radius of a vote with this constant and a mean of at least p."""
    return exact_mono(p, sigma, _known(sigma, lipschitz))


def promised(votes: Floats, sigma: float, lipschitz: Floats) -> Floats:
    """The radius of votes (…, points) if their mean were what it is in the sample."""
    mean = votes @ np.linspace(0, 1, votes.shape[-1]) / votes.sum(axis=-1)
    return ramp_radius(np.minimum(mean, ALMOST), sigma, lipschitz)


@dataclass
class LeastRadii:
    """`min_j T(p_j)` over the rivals j of each input that were met so far, T the exact radius and p_j the bound on its
    mean vote; with the p and the constant of the rival that it is.

    It is too large only if the bound of one rival, the worst, is wrong (Berger's intersection-union test).
    """

    radii: Floats
    means: Floats
    constants: Floats
    sigma: float
    alpha: float

    @classmethod
    def of(cls, inputs: int, sigma: float, alpha: float) -> LeastRadii:
        """Nobody was met yet."""
        return cls(np.full(inputs, np.inf), np.ones(inputs), np.full(inputs, np.inf), sigma, alpha)

    def meet(self, inputs: Ints, selection: Floats, estimation: Floats, lipschitz: Floats) -> None:
        """Further rivals: of row i of the votes, (rows, points), the input is `inputs[i]`.

        Only those that look hardest are bounded. All others are asked whether the least radius is proved against
        them, too, by one look; where it is not, some of those are bounded next, more in every round. Which ones is
        drawn with the hash of the votes for a seed: whoever makes them up cannot have the hardest met last. The radius
        is the one that bounds of all rivals give, up to the rounding of T, which is allowed for.
        """
        seed = int.from_bytes(sha256(estimation.tobytes()).digest(), "big")
        rest, many, chance = np.lexsort((promised(estimation, self.sigma, lipschitz), inputs)), 1, default_rng(seed)
        while True:
            fails = ~self._hold(inputs[rest], selection[rest], estimation[rest], lipschitz[rest])
            rest = rest[fails]
            if not rest.size:
                return
            now = _some_of_each(inputs[rest], many, chance)
            self._bound(inputs[rest[now]], selection[rest[now]], estimation[rest[now]], lipschitz[rest[now]])
            rest, many = rest[~now], 2 * many

    def _bound(self, inputs: Ints, selection: Floats, estimation: Floats, lipschitz: Floats) -> None:
        p = ramps(selection, estimation, self.alpha)
        radii = ramp_radius(p, self.sigma, lipschitz)
        order = np.lexsort((radii, inputs))
        first = order[np.diff(inputs[order], prepend=-1) != 0]
        first = first[radii[first] < self.radii[inputs[first]]]
        at = inputs[first]
        self.radii[at], self.means[at], self.constants[at] = radii[first], p[first], lipschitz[first]

    def _hold(self, inputs: Ints, selection: Floats, estimation: Floats, lipschitz: Floats) -> NDArray[np.bool_]:
        """Does the least radius hold against these rivals, too? Where it is 0 there is nothing to hold.

        It does where the mean is proved to be `G(r)`, G the distribution function whose quantile is T; or, of a vote
        that is not steeper, as large as that of the rival it comes of.
        """
        r = self.radii[inputs]
        holds = r <= 0
        asked = np.flatnonzero(np.isfinite(r) & ~holds)
        at = inputs[asked]
        w = 1 / _known(self.sigma, lipschitz[asked]) / self.sigma
        p = distribution(r[asked] / self.sigma, w) + DISTRIBUTION_ERROR
        p = np.where(lipschitz[asked] <= self.constants[at], np.minimum(p, self.means[at]), np.minimum(p, 1.0))
        holds[asked] = reach(p, selection[asked], estimation[asked], self.alpha)
        return holds


def _known(sigma: float, lipschitz: Floats) -> Floats:
    """The constants for which the exact radius is known."""
    steep = np.maximum(lipschitz, FLATTEST / sigma)
    return np.where(steep * sigma > STEEPEST, np.inf, steep)


def _some_of_each(inputs: Ints, many: int, chance: Generator) -> NDArray[np.bool_]:
    """The first row of each input, which ascend, and others by chance: about that many in all, and one in FEW."""
    first = np.diff(inputs, prepend=-1) != 0
    size = np.bincount(inputs)[inputs]
    return np.asarray(first | (chance.random(len(inputs)) < (many - 1) / size + 1 / FEW))
