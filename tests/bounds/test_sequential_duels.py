"""Duels that end when their votes say so: all rivals together err no more than α, and crossings are remembered."""

import itertools

import numpy as np
import pytest
from scipy import special, stats

from smoothcert.bounds.sequential import Decision
from smoothcert.bounds.sequential_duels import UntilClaimed, UntilNarrow
from smoothcert.bounds.spending import boundary, crossing_probability, looks

AT = (5, 8, 12)
RADII = (0.1, 0.4)
NOTHING = np.zeros(2, dtype=int)


def increments(draws, cells):
    """Chances of how many duels two rivals win in so many draws; cells are those of (neither, second, first, both)."""
    chances = {}
    for _, b, c, d in (x for x in itertools.product(range(draws + 1), repeat=4) if sum(x) == draws):
        chance = stats.multinomial.pmf([draws - b - c - d, b, c, d], draws, cells)
        chances[c + d, b + d] = chances.get((c + d, b + d), 0.0) + chance
    return chances


def error(rule, cells):
    """P(a radius above the true one is claimed) against two rivals, by recursion over all that `decide` can do.

    Histories that agree in the losses now and in what has crossed go on alike: any of them stands for all.
    """
    true = rule.sigma * special.ndtri(1 - max(cells[2] + cells[3], cells[1] + cells[3]))
    needed = [boundary(float(special.ndtr(r / rule.sigma)), rule.at, rule.alpha) for r in rule.radii]
    wrong, states = 0.0, {(): (1.0, np.empty((0, 2), dtype=int))}
    for i, (n, draws) in enumerate(zip(rule.at, np.diff(rule.at, prepend=0).tolist(), strict=True), start=1):
        following, chances = {}, increments(draws, cells)
        for mass, history in states.values():
            before = history[-1] if len(history) else NOTHING
            for lost, chance in chances.items():
                path = np.vstack([history, before + lost])
                decision = rule.decide(1, NOTHING, path)
                if decision.radius > max(true - 1e-12, 0.0):
                    wrong += mass * chance
                elif not decision.stop:
                    won = np.array(rule.at[:i])[:, None] - path
                    crossed = (tuple((won >= b[:i, None]).any(axis=0)) for b in needed)
                    state = (n, *path[-1], *crossed)
                    following[state] = following.get(state, (0.0,))[0] + mass * chance, path
        states = following
    return wrong


def cells_at(p, q, overlap):
    """Chances of (neither, second, first, both) where the rivals win with chances p and q, together as far as told."""
    both = overlap * min(p, q) + (1 - overlap) * max(p + q - 1, 0.0)
    return np.array([1 - p - q + both, q - both, p - both, both])


@pytest.mark.parametrize("overlap", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("q", [0.1, 0.99])
@pytest.mark.parametrize("radius", RADII)
def test_all_rivals_and_all_radii_together_err_with_probability_at_most_alpha(radius, q, overlap):
    """The true radius is just below one of the tested; the second rival wins rarely, or nearly as often."""
    rule = UntilClaimed(1.0, AT, 0.05, 0.0, RADII)
    hardest = 1 - float(special.ndtr(radius - 1e-9))
    assert error(rule, cells_at(hardest, q * hardest, overlap)) <= 0.05


@pytest.mark.parametrize("futility", [0.0, 0.3])
def test_giving_up_never_makes_a_claim(futility):
    cells = cells_at(0.5, 0.45, 0.5)
    assert error(UntilClaimed(1.0, AT, 0.05, futility, RADII), cells) <= error(
        UntilClaimed(1.0, AT, 0.05, 0.0, RADII), cells
    )


def test_one_rival_is_the_test_of_two_outcomes():
    rule = UntilClaimed(1.0, AT, 0.05, 0.0, RADII[:1])
    p = float(special.ndtr(RADII[0] - 1e-9))
    exact = crossing_probability(boundary(float(special.ndtr(RADII[0])), AT, 0.05), AT, p)
    assert error(rule, cells_at(1 - p, 0.0, 0.0)) == pytest.approx(exact, rel=1e-9)


def test_crossings_are_remembered():
    """Each rival has crossed at a look of its own, and never both at one."""
    rule = UntilClaimed(1.0, AT, 0.05, 0.0, (0.1,))
    needed = boundary(float(special.ndtr(0.1)), AT, 0.05)
    first = [AT[1] - needed[1], AT[1] - needed[1] + 1]
    second = [AT[2] - needed[2] + 1, AT[2] - needed[2]]
    assert second[0] >= first[0]
    assert not rule.decide(1, NOTHING, np.array([[1, 1], first])).radius
    assert rule.decide(1, NOTHING, np.array([[1, 1], first, [max(first[0], second[0]), second[1]]])).radius == 0.1


def test_a_rival_that_cannot_be_beaten_ends_the_draws_at_once():
    rule = UntilClaimed(0.5, looks(10_000), 0.001, 0.05, (0.25,))
    assert rule.decide(100, np.array([0, 45]), np.empty((0, 2), dtype=int)) == Decision(0.0, True, 0)
    assert rule.decide(100, np.array([0, 10]), np.empty((0, 2), dtype=int)) == Decision(0.0, False, 100)


def test_a_rival_whose_test_has_crossed_is_no_reason_to_give_up():
    rule = UntilClaimed(0.5, looks(10_000), 0.001, 0.05, (0.25, 5.0))
    decision = rule.decide(100, np.array([0, 3]), np.array([[0, 2]]))
    assert (decision.radius, decision.stop) == (0.25, True)  # 5 is out of reach


@pytest.mark.parametrize("p", [0.5, 0.6, 0.8, 0.95])
def test_until_a_width_errs_with_probability_at_most_alpha(p):
    rng, alpha, runs = np.random.default_rng(7), 0.05, 400
    rule = UntilNarrow(1.0, looks(500, 1.5), alpha, 0.05, 0.1)
    wrong = 0
    for _ in range(runs):
        lost = rng.binomial(np.diff(rule.at, prepend=0)[:, None], [1 - p, 1 - p], size=(len(rule.at), 2)).cumsum(axis=0)
        for i in range(len(rule.at) + 1):
            decision = rule.decide(100, NOTHING, lost[:i])
            if decision.stop:
                break
        wrong += decision.radius > max(special.ndtri(p), 0.0)
    assert stats.binomtest(wrong, runs, alpha, alternative="greater").pvalue > 1e-4


def test_a_width_is_reached_before_the_last_draw():
    rule = UntilNarrow(0.5, looks(50_000, 1.5), 0.001, 0.05, 0.1)
    lost = np.array([[n // 20, n // 50] for n in rule.at])
    ends = next(d for i in range(len(rule.at) + 1) if (d := rule.decide(100, np.array([5, 2]), lost[:i])).stop)
    assert ends.next_n < 50_000
    assert 0.85 * 0.5 * special.ndtri(0.95) < ends.radius <= 0.5 * special.ndtri(0.95)
