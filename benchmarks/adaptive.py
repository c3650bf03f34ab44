"""How many draws does "is it robust at r?" take? A replay of published certification logs.

Each row of the logs of Cohen, Rosenfeld and Kolter (2019, CIFAR-10) becomes an input whose candidate has the
share p = Φ(radius/σ), or ½ where they abstained. Votes are drawn with that share and certified twice from the same
draws: by a fixed sample of n = 100 000 (Clopper-Pearson), and stopping early. Certified accuracy counts the rows that
they classified correctly. Draws are those of the estimation sample, over all rows.

The floor is the expected size of the sequential probability ratio test (Wald, 1945) that is told the p of each input
and has the power of the fixed sample: see `sprt_draws`.

    python benchmarks/adaptive.py [--data DIRECTORY] [--replays 20] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from smoothcert.bounds.sequential import SequentialPlan, decide
from smoothcert.bounds.spending import looks

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

RADII = {
    0.25: (0.25, 0.5, 0.75),
    0.5: (0.25, 0.5, 0.75, 1.0, 1.25, 1.5),
    1.0: (0.25, 0.5, 0.75, 1.0, 1.25, 1.5),
}
ALPHA, N0, N = 0.001, 100, 100_000


@dataclass(frozen=True)
class Row:
    """One line of the table: accuracies at the largest radius, draws to decide all of them."""

    sigma: float
    radii: tuple[float, ...]
    fixed_accuracy: float
    accuracy: float
    mean_draws: float
    median_draws: float
    factor: float
    floor: float


@dataclass(frozen=True)
class Votes:
    """The candidate's votes in k replays of m inputs: selection (m, k), estimation (m, k, looks), cumulative."""

    selection: Ints
    estimation: Ints


def read_log(directory: Path, sigma: float) -> tuple[Floats, Flags]:
    """The share of the candidate and whether it is the true class, row by row."""
    path = directory / f"cifar10__resnet110__noise_{sigma:.2f}__test__sigma_{sigma:.2f}.tsv"
    if not path.exists():
        sys.exit(f"{path} is missing: pass the directory of the published logs with --data.")
    log = np.genfromtxt(path, delimiter="\t", names=True)
    return np.where(log["predict"] < 0, 0.5, special.ndtr(log["radius"] / sigma)), log["correct"] == 1


def draw(p: Floats, replays: int, rng: np.random.Generator) -> Votes:
    """Binomial votes, one path up to N draws for each input and replay."""
    shares = np.repeat(p[:, None], replays, axis=1)
    steps = np.diff(looks(N), prepend=0)
    return Votes(rng.binomial(N0, shares), rng.binomial(steps, shares[..., None]).cumsum(axis=2))


def replay(plan: SequentialPlan, votes: Votes) -> tuple[Floats, Floats]:
    """The claimed radius and the draws used, (m, k) each."""
    at = np.array(looks(N))
    radius, draws = np.empty(votes.selection.shape), np.empty(votes.selection.shape)
    for index, s in np.ndenumerate(votes.selection):
        n1 = votes.estimation[index]
        end = decide(plan, [s, N0 - s], np.stack([n1, at - n1], axis=1))
        radius[index], draws[index] = end.radius, end.next_n
    return radius, draws


def divergence(p: Floats, q: Floats) -> Floats:
    """Kullback-Leibler divergence of Bernoulli(p) from Bernoulli(q)."""
    return special.rel_entr(p, q) + special.rel_entr(1 - p, 1 - q)


def sprt_draws(p: Floats, target: float, beta: float) -> Floats:
    """Wald's expected sample size `d(π(p), π(q)) / d(p, q)` at p, for the q that is hardest to tell from p.

    d is the divergence and π the chance to be certified: that of the fixed sample, at least α and at most 1 − β. No
    test with that π needs fewer draws at p on average; the SPRT of p against q attains it but for the overshoot.
    """
    needed = stats.binom.isf(ALPHA, N, target) + 1

    def power(share: Floats) -> Floats:
        return np.clip(stats.binom.sf(needed - 1, N, share), ALPHA, 1 - beta)

    spread = 6 * np.sqrt(target * (1 - target) / N) * np.linspace(-1, 1, 601)
    q = np.clip(np.concatenate([[target], target + spread, needed / N + spread]), 1e-9, 1 - 1e-9)
    with np.errstate(divide="ignore", invalid="ignore"):
        draws = divergence(power(p)[:, None], power(q)) / divergence(p[:, None], q)
    return np.nanmax(draws, axis=1)


def measure(sigma: float, radii: tuple[float, ...], p: Floats, correct: Flags, votes: Votes) -> Row:
    """Both certifications of all replays, and the floor: no less than that of any single radius."""
    plan = SequentialPlan(sigma=sigma, radii=radii, alpha=ALPHA, max_n=N)
    radius, draws = replay(plan, votes)
    floors = [sprt_draws(p, float(special.ndtr(r / sigma)), plan.futility) for r in radii]
    fixed = stats.binom.sf(votes.estimation[..., -1] - 1, N, special.ndtr(radii[-1] / sigma)) <= ALPHA
    return Row(
        sigma=sigma,
        radii=radii,
        fixed_accuracy=float((fixed & correct[:, None]).mean()),
        accuracy=float(((radius >= radii[-1]) & correct[:, None]).mean()),
        mean_draws=float(draws.mean()),
        median_draws=float(np.median(draws)),
        factor=N / float(draws.mean()),
        floor=float(np.max(floors, axis=0).mean()),
    )


def show(rows: list[Row]) -> None:
    """The table; `all` decides all radii of its σ in one run, and its accuracies are those at the largest."""
    print(f"{'':12}{'certified accuracy':^26}{'draws':>14}{'':4}{'times':>8}{'SPRT':>8}{'draws /':>9}")
    print(f"{'σ':>4}{'ε':>6}  {'fixed':>8}{'ours':>9}{'lost':>9}", end="")
    print(f"{'mean':>9}{'median':>9}{'fewer':>8}{'floor':>8}{'floor':>9}")
    for row in rows:
        asked = f"{row.radii[-1]:.2f}" if len(row.radii) == 1 else "all"
        lost = 100 * (row.fixed_accuracy - row.accuracy)
        print(f"{row.sigma:>4.2f}{asked:>6}  {row.fixed_accuracy:>8.4f}{row.accuracy:>9.4f}{lost:>6.2f} pt", end="")
        print(f"{row.mean_draws:>9.0f}{row.median_draws:>9.0f}{row.factor:>8.0f}", end="")
        print(f"{row.floor:>8.0f}{row.mean_draws / row.floor:>9.2f}")


def main() -> None:
    shared = Path(__file__).resolve().parents[2] / "shared" / "data" / "cohen2019"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=shared, help="directory of the published logs (*.tsv)")
    parser.add_argument("--replays", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the rows to this file too")
    args = parser.parse_args()
    rows = []
    for sigma, radii in RADII.items():
        p, correct = read_log(args.data, sigma)
        votes = draw(p, args.replays, np.random.default_rng(args.seed))
        rows += [measure(sigma, asked, p, correct, votes) for asked in [*((r,) for r in radii), radii]]
    show(rows)
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


if __name__ == "__main__":
    main()
