"""Reading a whole run at once adds up to reading it row by row, and refuses what that refuses."""

import sqlite3
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interruptible import certify
from smoothcert import InputError, RunError, open_run
from smoothcert.plan import (
    KINDS,
    Classifier,
    Duels,
    FixedN,
    Labels,
    Margins,
    Plan,
    Question,
    Selection,
    Setting,
    Softmax,
)
from smoothcert.plan.tally import SEVERAL, Shares
from smoothcert.sampling.blocks import BLOCK, NO_CANDIDATE, UNIT, Phase, Soft, Votes, join
from smoothcert.sampling.duels import Lost
from smoothcert.sampling.margins import POINTS, WEIGHT, Spread
from smoothcert.store import counts
from smoothcert.store.doctor import diagnose
from smoothcert.store.file import RunFile
from smoothcert.store.rows import NOTHING, Keys, end_of, fit
from smoothcert.store.schema import pack, unpack

ADAPTIVE = {"radii": [0.1, 0.2], "max_n": 1000}


@pytest.fixture(params=[{}, ADAPTIVE], ids=["fixed", "adaptive"])
def path(request, tmp_path):
    certify(tmp_path / "run.smoothcert", **request.param)
    return tmp_path / "run.smoothcert"


def at_once(path):
    with RunFile.open_to_read(path) as file:
        positions = np.array([record.position for record in file.inputs()])
        return counts.read_counts(file._vote_rows(), file.plan, positions, positions)


def row_by_row(path):
    with RunFile.open_to_read(path) as file:
        total = np.zeros((2, len(file.inputs()), file.plan.classifier.num_classes), dtype=np.int64)
        seconds = np.zeros(len(file.inputs()))
        for v in file.votes():
            total[int(v.phase.value == "estimation"), v.position, v.classes] += v.counts
            seconds[v.position] += v.seconds
        return total, seconds


@pytest.mark.parametrize("chunk", [1, 7, 20_000])
def test_both_ways_of_reading_agree(path, chunk, monkeypatch):
    monkeypatch.setattr(counts, "CHUNK", chunk)
    quick, slow = at_once(path), row_by_row(path)
    np.testing.assert_array_equal([quick.selections, quick.estimations], slow[0])
    np.testing.assert_allclose(quick.seconds, slow[1])
    with RunFile.open_to_read(path) as file:
        again = np.array([record.position for record in file.inputs()])
        votes = list(file.votes())
        kind, c = file.plan.classifier.votes, file.plan.classifier.num_classes
    others = kind.others(len(again), c)
    for v in votes:
        others.add(v.beside, v.draws, v.position, int(v.phase.value == "estimation"))
    for name in ("lost", "chosen", "named"):
        np.testing.assert_array_equal(getattr(quick.others, name), getattr(others, name))


def rewrite(path, change, row=-1):
    """Changes one stored row of votes and writes it with a checksum that is right."""
    with RunFile.open_to_read(path) as file:
        votes = [unpack(stored) for stored in file._vote_rows()]
    old = votes[row]
    row = pack(change(old))
    with sqlite3.connect(path) as database:
        database.execute(
            "DELETE FROM votes WHERE position = ? AND phase = ? AND first = ?", (old.position, old.phase, old.first)
        )
        database.execute("INSERT INTO votes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    database.close()


@pytest.mark.parametrize(
    "change",
    [
        {"position": 10**6},
        {"position": -1},
        {"draws": 10**6},
        {"counts": "one more"},
        {"classes": "too large"},
    ],
    ids=str,
)
def test_rows_that_contradict_the_plan(path, change):
    def spoil(votes):
        values = dict(change)
        if "counts" in values:
            values["counts"] = votes.counts + 1
        if "classes" in values:
            values["classes"] = votes.classes + 3
        return replace(votes, **values)

    rewrite(path, spoil)
    assert at_once(path) is None
    with pytest.raises(RunError):
        len(open_run(path))


def counted(kind, scores, phase, candidate):
    """What the executor makes of scores, a row for each two blocks at most."""
    labels, ballots = scores.argmax(dim=1).numpy(), kind.ballots(scores).numpy()
    blocks = []
    for first in range(0, len(labels), BLOCK):
        part = slice(first, first + BLOCK)
        found = np.bincount(labels[part])
        key = 0, phase, first // BLOCK, first // BLOCK + 1, len(labels[part])
        beside = kind.count(ballots[part], candidate)
        blocks.append(Votes(*key, found.nonzero()[0], found[found.nonzero()], 0.0, beside))
    return [join(blocks[i : i + 2]) for i in range(0, len(blocks), 2)]


@settings(deadline=None, max_examples=200)
@given(
    kind=st.sampled_from([Margins(0.5) if kind is Margins else kind() for kind in KINDS]),
    seed=st.integers(0, 2**32 - 1),
    scale=st.sampled_from([0.0, 1e-6, 0.3, 1.0, 30.0, 1e9, 1e30]),
    whole=st.booleans(),
    c=st.integers(2, 9),
    n0=st.integers(1, 320),
    n=st.integers(2, 530),
)
def test_every_honest_row_is_read(kind, seed, scale, whole, c, n0, n):
    """Of scores of all sizes, with and without ties."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n0 + n, c)) + rng.exponential(size=c)
    scores = torch.from_numpy((scale * (np.round(scores) if whole else scores)).astype(np.float32))
    classifier = Classifier(sigma=0.5, num_classes=c, votes=kind)
    plan = Plan(classifier, Question(n0=n0, draws=FixedN(n)).about(classifier), Setting(), Selection(total=1))
    rows = counted(kind, scores[:n0], Phase.SELECTION, NO_CANDIDATE)
    chosen = NO_CANDIDATE if rows[0].beside is None else rows[0].beside.join([v.beside for v in rows]).leader(n0)
    rows += counted(kind, scores[n0:], Phase.ESTIMATION, chosen)
    before = NOTHING
    for votes in rows:
        keys = Keys.of(unpack(pack(votes)))
        assert fit(keys, plan, before)
        before = end_of(keys)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda v: np.array([0, 0, 1]), id="twice"),
        pytest.param(lambda v: np.array([1, 0, 2]), id="out of order"),
    ],
)
def test_labels_that_are_listed_otherwise(labels, spoil):
    def listed(votes):
        return replace(votes, classes=spoil(votes), counts=np.array([1, 1, votes.draws - 2]))

    rewrite(labels, listed)
    assert at_once(labels) is None
    with pytest.raises(RunError, match="contradict"):
        len(open_run(labels))
    assert not diagnose(labels).healthy


def test_labels_without_a_vote(labels):
    rewrite(labels, lambda v: replace(v, classes=np.array([0, 1]), counts=np.array([v.draws, 0])))
    assert at_once(labels) is None
    assert not diagnose(labels).healthy


LAST = {"selection": -2, "estimation": -1}


def labelled(votes, *counts):
    """The votes with other labels beside what the scores add up to."""
    counts = np.array(counts)
    return replace(votes, classes=counts.nonzero()[0], counts=counts[counts > 0])


@pytest.fixture(params=[Duels(), Margins(0.5)], ids=str)
def scored(request, tmp_path):
    """A run in which class 1 leads in all draws of the last input."""
    path, k, n = tmp_path / "run.smoothcert", np.array([1]), np.array([100])
    certify(path, votes=request.param, n0=100, n=100)
    won = Lost(k, k, n) if request.param == Duels() else Spread(k, k, n * 0 + POINTS // 2, n * WEIGHT)
    for row in LAST.values():
        rewrite(path, lambda v: labelled(replace(v, beside=won), 0, 100, 0), row)
    return path


@pytest.mark.parametrize("sample", LAST)
@pytest.mark.parametrize("labels", [(1, 99, 0), (0, 99, 1), (0, 0, 100), (30, 40, 30)], ids=str)
def test_labels_that_the_scores_contradict(scored, sample, labels):
    """What leads in all draws is the label of all."""
    assert len(open_run(scored)) == 12
    rewrite(scored, lambda v: labelled(v, *labels), LAST[sample])
    with pytest.raises(RunError, match="contradict"):
        len(open_run(scored))
    assert not diagnose(scored).healthy


@pytest.mark.parametrize(
    ("labels", "good"),
    [((60, 40, 0), True), ((0, 100, 0), False), ((20, 41, 39), False), ((10, 90, 0), False)],
    ids=str,
)
def test_labels_beside_some_losses(scored, labels, good):
    """Class 1 loses 60 draws to class 0, and as margins all of their vote; it is the label of none of these."""
    k, j = np.array([1, 1]), np.array([0, 1])
    lost = Lost(k, j, np.array([60, 100]))
    spread = Spread(k, j, np.array([0, POINTS // 2]), np.array([60, 100]) * WEIGHT)

    def other(votes):
        return labelled(replace(votes, beside=lost if isinstance(votes.beside, Lost) else spread), *labels)

    rewrite(scored, other)
    if good:
        assert len(open_run(scored)) == 12
    else:
        with pytest.raises(RunError, match="contradict"):
            len(open_run(scored))


@pytest.fixture
def shares(tmp_path):
    """A run of softmax votes."""
    certify(tmp_path / "shares.smoothcert", votes=Softmax(1.0), n0=100, n=100)
    return tmp_path / "shares.smoothcert"


def shares_of(sample, **changes):
    """A change of sums, squares or products: where a number is, it is added to that of the first class."""

    def spoil(votes):
        values = {
            name: getattr(votes.beside, name) + np.array([by, 0, 0]) if name != "candidate" else by
            for name, by in changes.items()
        }
        return replace(votes, beside=replace(votes.beside, **values))

    return pytest.param(spoil, LAST[sample], id=f"{sample} {changes}")


@pytest.mark.parametrize(
    ("spoil", "row"),
    [
        shares_of("selection", candidate=0),
        shares_of("selection", products=1),
        shares_of("selection", sums=-200 * UNIT),
        shares_of("selection", sums=201),
        shares_of("selection", sums=-201),
        shares_of("selection", squares=-(1 << 62)),
        shares_of("selection", squares=100 * UNIT**2),
        shares_of("estimation", candidate=NO_CANDIDATE),
        shares_of("estimation", candidate=3),
        shares_of("estimation", sums=100 * UNIT),
        shares_of("estimation", sums=1 << 62),
        shares_of("estimation", squares=1 << 62),
        shares_of("estimation", products=-(1 << 62)),
        shares_of("estimation", products=100 * UNIT**2),
        shares_of("estimation", squares=1, products=2),
    ],
)
def test_shares_that_nobody_added_up(shares, spoil, row):
    rewrite(shares, spoil, row)
    with pytest.raises(RunError, match=r"contradict|damaged"):
        len(open_run(shares))
    assert not diagnose(shares).healthy


@pytest.mark.parametrize(
    ("sums", "squares", "products", "good"),
    [
        ((50, 50, 0), (25, 25, 0), (25, 25, 0), True),
        ((60, 40, 0), (60, 40, 0), (60, 0, 0), True),
        ((60, 40, 0), (48, 28, 0), (48, 12, 0), True),
        ((60, 40, 0), (35, 16, 0), (35, 25, 0), False),
        ((60, 40, 0), (61, 39, 0), (61, 0, 0), False),
        ((60, 0, 0), (48, 0, 0), (48, 0, 0), False),
        ((60, 40, 0), (48, 28, 0), (48, 13, 0), False),
        ((60, 40, 0), (48, 28, 0), (47, 13, 0), False),
        ((60, 40, 0), (48, 39, 0), (48, 12, 0), False),
        ((40, 30, 30), (24, 14, 14), (24, 8, 8), True),
        ((40, 30, 30), (24, 14, 14), (24, 12, 4), False),
        ((0, 100, 0), (0, 100, 0), (0, 0, 0), False),
        ((30, 40, 30), (12, 20, 12), (12, 10, 8), False),
    ],
    ids=str,
)
def test_moments_that_can_be_and_such_that_cannot(shares, sums, squares, products, good):
    """In votes, over 100 draws with label 0."""
    columns = (np.array(c) * unit for c, unit in ((sums, UNIT), (squares, UNIT**2), (products, UNIT**2)))
    changed = {"classes": np.array([0]), "counts": np.array([100]), "beside": Soft(0, *columns)}
    rewrite(shares, lambda v: replace(v, **changed))
    with RunFile.open_to_read(shares) as file:
        if good:
            assert len(list(file.votes())) == 24
        else:
            with pytest.raises(RunError, match="contradict"):
                list(file.votes())


def test_shares_of_two_candidates_are_of_none():
    """Each sound by itself: products with another class would lower the variance."""
    shares = Shares.zeros(1, 3)
    for k in (2, 0):
        shares.add(Soft(k, *np.ones((3, 3), dtype=np.int64)), 100, 0, 1)
    assert shares.named[0] == SEVERAL


def lost_of(votes, **changes):
    return replace(votes, beside=replace(votes.beside, **changes))


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda v: replace(v, beside=None), id="no duels"),
        pytest.param(lambda v: replace(v, beside=Soft(0, *np.ones((3, 3), dtype=int))), id="shares"),
        pytest.param(lambda v: lost_of(v, classes=v.beside.classes + 3, rivals=v.beside.rivals + 3), id="class"),
        pytest.param(lambda v: lost_of(v, rivals=v.beside.rivals + 3), id="rival"),
        pytest.param(lambda v: lost_of(v, counts=v.beside.counts + 1), id="more than were drawn"),
        pytest.param(lambda v: lost_of(v, counts=v.beside.counts * 0), id="none"),
        pytest.param(lambda v: lost_of(v, counts=v.beside.counts // 2 + 1), id="followed in some draws"),
        pytest.param(lambda v: replace(v, beside=Lost(*(np.tile(a, 2) for a in columns(v)))), id="pairs twice"),
        pytest.param(lambda v: replace(v, beside=Lost(*(a[::-1] for a in two_classes(v)))), id="pairs out of order"),
        pytest.param(lambda v: replace(v, beside=Lost(*two_classes(v))), id="two candidates"),
    ],
)
def test_duels_that_nobody_counted(path, spoil):
    rewrite(path, spoil)
    assert at_once(path) is None
    with pytest.raises(RunError, match=r"contradict|damaged"):
        len(open_run(path))


def columns(votes):
    return votes.beside.classes, votes.beside.rivals, votes.beside.counts


def two_classes(votes):
    return np.array([0, 1]), np.array([0, 1]), np.array([votes.draws, votes.draws])


def test_duels_of_a_class_that_was_not_selected(path):
    """Sound by themselves: the whole run shows that its selection chose another one, and that no claim rests on it."""

    def other(votes):
        k, draws = np.array([(votes.candidate + 1) % 3]), np.array([votes.draws])
        return replace(votes, classes=k, counts=draws, beside=Lost(k, k, draws))

    rewrite(path, other)
    assert at_once(path) is not None
    with pytest.raises(
        RunError, match=r"draws for a class that the selection did not choose|a claim that its votes do not bear"
    ):
        len(open_run(path))


def test_a_damaged_row(path):
    with sqlite3.connect(path) as database:
        database.execute("UPDATE votes SET seconds = 1, draws = draws + 1 WHERE position = 3 AND phase = 'selection'")
    database.close()
    assert at_once(path) is None
    with pytest.raises(RunError, match="input number 3"):
        len(open_run(path))


def test_a_block_that_is_stored_twice(tmp_path):
    path = certify(tmp_path / "run.smoothcert").path
    with RunFile.open_to_read(path) as file:
        votes = [v for v in file.votes() if v.position == 2 and v.phase.value == "estimation"]
    longest = max(votes, key=lambda v: v.last - v.first)
    assert longest.last - longest.first > 1
    again = replace(longest, first=longest.first + 1, draws=longest.draws - 100)
    again = replace(again, classes=np.array([0]), counts=np.array([again.draws]))
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO votes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", pack(again))
    database.close()
    assert at_once(path) is None
    with pytest.raises(RunError, match="contradict"):
        len(open_run(path))


def margins_of(votes, **changes):
    return replace(votes, beside=replace(votes.beside, **changes))


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda v: replace(v, beside=None), id="none"),
        pytest.param(lambda v: replace(v, beside=Lost(*two_classes(v))), id="duels"),
        pytest.param(lambda v: margins_of(v, classes=v.beside.classes + 3), id="class"),
        pytest.param(lambda v: margins_of(v, rivals=v.beside.rivals + 3), id="rival"),
        pytest.param(lambda v: margins_of(v, points=v.beside.points + POINTS), id="point"),
        pytest.param(lambda v: margins_of(v, points=v.beside.points * 0), id="weights twice"),
        pytest.param(lambda v: margins_of(v, weights=v.beside.weights + 1), id="more than were drawn"),
        pytest.param(lambda v: margins_of(v, weights=v.beside.weights * 0), id="no weight"),
        pytest.param(lambda v: margins_of(v, weights=v.beside.weights - (1 << 62)), id="negative weight"),
        pytest.param(lambda v: margins_of(v, weights=v.beside.weights // 2 + 1), id="followed in some draws"),
        pytest.param(lambda v: replace(v, beside=Spread(*(a[::-1] for a in spread_columns(v)))), id="out of order"),
        pytest.param(lambda v: replace(v, beside=Spread(*(a[:0] for a in spread_columns(v)))), id="empty"),
        pytest.param(lambda v: replace(v, beside=followed_by(v, 0, 1)), id="two candidates"),
    ],
)
def test_margins_that_nobody_counted(tmp_path, spoil):
    path = tmp_path / "run.smoothcert"
    certify(path, votes=Margins(0.5), n=430)
    rewrite(path, spoil)
    with pytest.raises(RunError, match=r"contradict|damaged"):
        len(open_run(path))


def test_margins_of_a_class_that_was_not_selected(tmp_path):
    path = tmp_path / "run.smoothcert"
    certify(path, votes=Margins(0.5), n=430)

    def other(votes):
        k = (votes.candidate + 1) % 3
        return replace(votes, classes=np.array([k]), counts=np.array([votes.draws]), beside=followed_by(votes, k))

    rewrite(path, other)
    with pytest.raises(RunError, match="draws for a class that the selection did not choose"):
        len(open_run(path))


def test_margins_in_a_run_of_duels(path):
    rewrite(path, lambda v: replace(v, beside=followed_by(v, v.candidate)))
    with pytest.raises(RunError, match=r"contradict|damaged"):
        len(open_run(path))


def spread_columns(votes):
    return votes.beside.classes, votes.beside.rivals, votes.beside.points, votes.beside.weights


def followed_by(votes, *classes):
    """Margin votes that are all whole, of these classes."""
    k = np.array(classes)
    return Spread(k, k, np.full_like(k, POINTS // 2), np.full_like(k, votes.draws * WEIGHT))


@pytest.fixture
def labels(tmp_path):
    """A run of label votes."""
    certify(tmp_path / "labels.smoothcert", votes=Labels(), n=100)
    return tmp_path / "labels.smoothcert"


def test_long_work_is_refused(labels):
    hasty, patient = open_run(labels, patience=0), open_run(labels, patience=float("inf"))
    refusal = (
        r"by pairwise of 12 inputs take about \d+ seconds? of a processor: allow them with a `patience` of \d+, or"
    )
    with pytest.raises(InputError, match=refusal):
        hasty.certificates()
    assert "by pairwise of 12 inputs take about" in hasty._repr_html_()
    assert len(hasty.certificates("union")) == 12
    assert patient.certificates() == open_run(labels).certificates()


@pytest.mark.parametrize("patience", [float("nan"), -1, "10", None, True])
def test_patience_is_a_number_of_seconds(labels, patience):
    with pytest.raises(InputError, match="patience must be a number"):
        open_run(labels, patience=patience)


def test_what_takes_long_beside_the_declared_method_is_left_out(labels, tmp_path, caplog):
    duels = certify(tmp_path / "duels.smoothcert", n=100)
    assert "pairwise" in duels.compared
    with caplog.at_level("INFO", logger="smoothcert"):
        assert set(duels.compared) - set(open_run(duels.path, patience=0).compared) == {"pairwise"}
    assert "left out: bounds by pairwise of 12 inputs" in caplog.text
    assert "pairwise" in open_run(labels, patience=0).compared
