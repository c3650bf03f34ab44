"""Which blocks are drawn: each once, full batches, the same decisions after any interruption, nothing recomputed."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import interruptible
from interruptible import certify, interrupted_after
from smoothcert import ABSTAIN, Duels, InputError, Labels, SmoothedClassifier, UntilRadii, UntilWidth, open_run
from smoothcert.plan import Classifier, bears
from smoothcert.plan.schedules import Fixed, SelectFirst
from smoothcert.sampling.blocks import BLOCK, NO_CANDIDATE, Claim, Phase, Soft, Votes
from smoothcert.store.file import RunFile

ASK = {"radii": [0.1, 0.2, 0.3], "max_n": 5000}
DRAWS = {Phase.SELECTION: 130, Phase.ESTIMATION: 450}


def half_space(batch):
    """Class 1 where the first value is positive: the radius of x is |x₀|."""
    return (batch[:, 0] > 0).astype(np.int64)


def at_distance(d):
    return np.array([d, 0.0], dtype=np.float32)


def claims(run):
    return [(c.prediction, c.radius, c.n) for c in run.certificates()]


def votes_of(block, shares=(0, 0, 1)):
    """The votes of a block whose every draw is divided so."""
    soft = Soft.of(np.tile(np.array(shares), (block.draws, 1)), block.candidate)
    label = np.array([int(np.argmax(shares))]), np.array([block.draws])
    return Votes(block.position, block.phase, block.index, block.index + 1, block.draws, *label, 0.0, soft)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The adaptive run, never stopped."""
    return certify(tmp_path_factory.mktemp("whole") / "run.smoothcert", **ASK)


@pytest.mark.parametrize("kind", [Fixed, SelectFirst], ids=["fixed", "select first"])
def test_every_draw_of_every_input_is_asked_for_once(kind):
    schedule = kind(inputs=3, draws=DRAWS)
    wanted = {(i, phase, draw) for i in range(3) for phase, n in DRAWS.items() for draw in range(n)}
    for block in schedule:
        draws = {(block.position, block.phase, BLOCK * block.index + i) for i in range(block.draws)}
        assert draws <= wanted
        wanted -= draws
        schedule.tell(votes_of(block))
    assert not wanted
    assert schedule.done == 1


@pytest.mark.parametrize("known", [0, 1, 5, 13, 20, 21])
def test_what_an_earlier_session_drew_is_not_asked_for_again(known):
    blocks = list(Fixed(inputs=3, draws=DRAWS))
    schedule = Fixed(inputs=3, draws=DRAWS)
    for block in blocks[:known]:
        schedule.tell(votes_of(block))
    assert schedule.done == sum(b.draws for b in blocks[:known]) / (3 * 580)
    assert list(schedule) == blocks[known:]


def test_soft_votes_name_their_candidate_before_it_is_proved():
    """The largest sum of shares, the lowest id among equal ones; asked for votes, the schedule waits for them."""
    shares = [(1, 5, 0), (3, 0, 3), (0, 0, 2)]
    schedule = SelectFirst(inputs=3, draws=DRAWS)
    candidates, late = {}, []
    for block in schedule:
        if block is None:
            schedule.tell(votes_of(late[0], shares[late[0].position]))
            del late[0]
        elif block.phase is Phase.SELECTION:
            assert block.candidate == NO_CANDIDATE
            late.append(block)
        else:
            candidates.setdefault(block.position, set()).add(block.candidate)
    assert not late
    assert candidates == {0: {1}, 1: {0}, 2: {2}}


def test_easy_inputs_need_few_draws_and_hard_ones_are_given_up():
    smoothed = SmoothedClassifier(half_space, sigma=0.5, num_classes=2, seed=0)
    easy, hard, hopeless = (smoothed.certify(at_distance(d), radii=[0.5], max_n=20_000) for d in (1.2, 0.52, 0.1))
    assert (easy.prediction, easy.radius, easy.n) == (1, 0.5, 100)
    assert easy.certified_at(0.5)
    assert hard.n > 5_000
    assert (hopeless.prediction, hopeless.radius) == (ABSTAIN, 0.0)
    assert hopeless.n <= 500


def test_no_radius_above_the_true_one_is_claimed():
    radii = np.arange(0.05, 1.5, 0.05)
    for seed in range(20):
        smoothed = SmoothedClassifier(half_space, sigma=0.5, num_classes=2, seed=seed)
        claimed = smoothed.certify(at_distance(0.42), radii=radii, max_n=5_000)
        assert claimed.radius < 0.42
        assert claimed.radius in [0.0, *radii]


def test_width_stops_near_the_radius_of_max_n():
    smoothed = SmoothedClassifier(half_space, sigma=0.5, num_classes=2, seed=0)
    fixed = smoothed.certify(at_distance(0.4), n=50_000, method="mono")
    early = smoothed.certify(at_distance(0.4), width=0.1, max_n=50_000)
    assert early.n < 50_000
    assert 0.85 * fixed.radius < early.radius <= 0.4


def test_several_radii_cost_less_than_one_by_one():
    smoothed = SmoothedClassifier(half_space, sigma=0.5, num_classes=2, seed=0)
    together = smoothed.certify(at_distance(0.6), radii=[0.2, 0.3, 0.4], max_n=20_000)
    alone = [smoothed.certify(at_distance(0.6), radii=[r], max_n=20_000) for r in (0.2, 0.3, 0.4)]
    assert together.radius == 0.4
    assert together.n < sum(c.n for c in alone)


@pytest.mark.parametrize("calls", [1, 5, 20, 60, 100])
def test_interrupted_runs_decide_the_same(tmp_path, whole, calls):
    path = tmp_path / "run.smoothcert"
    with interrupted_after(calls):
        certify(path, **ASK)
    again = certify(path, **ASK)
    assert claims(again) == claims(whole)
    np.testing.assert_array_equal(again.tally.estimations, whole.tally.estimations)
    assert {c.radius for c in again.certificates()} > {0.0}


@settings(deadline=None, max_examples=60)
@given(
    kind=st.sampled_from([Labels(), Duels()]),
    ends=st.sampled_from([UntilRadii(radii=(0.1, 0.3, 0.7), max_n=1500), UntilWidth(width=0.2, max_n=800)]),
    c=st.integers(2, 5),
    n0=st.sampled_from([1, 30, 100, 250]),
    alpha=st.sampled_from([1e-6, 1e-3, 0.3]),
    lead=st.floats(0, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_votes_bear_every_claim_that_is_made_of_them(kind, ends, c, n0, alpha, lead, seed):
    """And none of another class, of other draws, or that unanimous votes would not prove."""
    rng, means = np.random.default_rng(seed), np.append(lead, np.zeros(c - 1))
    classifier, claim, known = Classifier(sigma=0.5, num_classes=c, votes=kind), None, []
    schedule = ends.schedule(classifier, n0, alpha, inputs=1)
    for block in schedule:
        if block is None:
            continue
        scores = means + rng.normal(size=(block.draws, c))
        counts = np.bincount(scores.argmax(axis=1))
        place = 0, block.phase, block.index, block.index + 1, block.draws
        beside = kind.count(scores, block.candidate)
        known.append(Votes(*place, counts.nonzero()[0], counts[counts > 0], 0.0, beside))
        claim = schedule.tell(known[-1]) or claim
    rule = ends.rule(classifier, alpha)
    assert bears(rule, n0, claim, known)
    k = claim.prediction
    others = [Claim(0, (k + 1) % c, 0.1, claim.n), Claim(0, max(k, 0), 3.0, claim.n), Claim(0, k, claim.radius, 50)]
    if claim.n:
        others.append(dataclasses.replace(claim, n=claim.n - BLOCK))
    else:
        others.append(Claim(0, max(k, 0), 0.1, 0))
    assert not any(bears(rule, n0, other, known) for other in others[k == ABSTAIN :])
    assert not bears(rule, n0, claim, known[1:])


def test_batches_are_full_until_the_last_inputs(tmp_path):
    """600 inputs that need 100 draws each: at least 0.9 of the rows that go through the model are draws."""
    rows = []

    def model(batch):
        rows.append(len(batch))
        return np.tile([1.0, 0.0, 0.0], (len(batch), 1))

    images = np.random.default_rng(0).random((600, 1, 4, 4)).astype(np.float32)
    settings = {**ASK, "radii": [0.1], "batch": 800, "n0": 100}
    run = certify(tmp_path / "run.smoothcert", model, interruptible.Items(images), **settings)
    assert {c.n for c in run.certificates()} == {100}
    assert run.draws == 600 * 200
    assert run.draws / sum(rows) > 0.9


def test_fixed_bounds_are_refused_on_votes_that_ended_the_draws(whole):
    for change in ({"method": "mono"}, {"alpha": 0.01}):
        with pytest.raises(InputError, match="stopped drawing when its votes said so"):
            open_run(whole.path).certificates(**change)


def test_another_question_is_refused_on_resuming(whole):
    for change in ({"radii": [0.1, 0.2]}, {"max_n": 6000}, {"futility": 0.01}):
        with pytest.raises(InputError, match=r"radii|n = |futility"):
            certify(whole.path, **{**ASK, **change})


def test_the_draws_of_an_adaptive_run_are_those_of_a_fixed_one(tmp_path, whole):
    """Same seed, same input, same block: same noise, so the first 100 votes of an input are the same ones."""
    fixed = certify(tmp_path / "run.smoothcert", n=100)
    with RunFile.open_to_read(whole.path) as file:
        first = {v.position: v for v in file.votes() if v.phase == "estimation" and v.first == 0 and v.last == 1}
    assert len(first) >= 6
    for position, votes in first.items():
        np.testing.assert_array_equal(
            fixed.tally.estimations[position, votes.classes], votes.counts, err_msg=str(position)
        )


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        ({"radii": [0.2, 0.1]}, "increasing"),
        ({"radii": [-1.0]}, "positive"),
        ({"radii": [0.1], "width": 0.1}, "not both"),
        ({"width": 1.5}, "width must lie"),
        ({"radii": [0.1], "max_n": 150}, "multiple of 100"),
        ({"radii": [0.1], "futility": 0.7}, "futility must be"),
        ({"radii": []}, "either"),
    ],
)
def test_questions_that_make_no_sense(ask, message):
    with pytest.raises(InputError, match=message):
        SmoothedClassifier(half_space, sigma=0.5, num_classes=2, seed=0).certify(at_distance(0.5), **ask)


@pytest.mark.parametrize("seeds", [100, pytest.param(500, marks=pytest.mark.slow)])
def test_false_claims_stay_below_alpha(seeds):
    """At α = 0.05, the true radius just below the tested one."""
    wrong = 0
    for seed in range(seeds):
        smoothed = SmoothedClassifier(half_space, sigma=0.5, num_classes=2, batch=100, seed=seed)
        wrong += smoothed.certify(at_distance(0.2499), radii=[0.25], max_n=1000, alpha=0.05, futility=0).radius > 0
    assert stats.binomtest(wrong, seeds, 0.05, alternative="greater").pvalue > 1e-4
