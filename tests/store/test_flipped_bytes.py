"""A run file in which bytes have changed, anywhere: it says what it said before, or that it is damaged."""

import random
from contextlib import suppress

import pytest

from interruptible import certify
from smoothcert import InputError, RunError, open_run
from smoothcert.store.doctor import diagnose

PLANS = {"fixed": {"n": 250}, "adaptive": {"radii": [0.1, 0.25], "max_n": 500}}


def said(path):
    """All that a reader learns, but for times."""
    run = open_run(path)
    tally = run.tally
    return (
        run.plan,
        run.info,
        run.ids,
        run.labels.tolist(),
        tally.selections.tolist(),
        tally.estimations.tolist(),
        [(c.prediction, c.radius, c.n) for c in run.certificates()],
    )


@pytest.fixture(scope="module", params=PLANS)
def intact(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("intact") / "run.smoothcert"
    certify(path, images=False, **PLANS[request.param])
    return path.read_bytes(), said(path)


def test_random_bytes(tmp_path, intact):
    content, before = intact
    chance = random.Random(0)
    reported = sum(
        changed_is_reported(tmp_path, content, before, chance, [chance.randrange(len(content))]) for _ in range(300)
    )
    assert reported > 30


@pytest.mark.slow
def test_every_byte(tmp_path, intact):
    content, before = intact
    chance = random.Random(1)
    for position in range(len(content)):
        changed_is_reported(tmp_path, content, before, chance, [position])


@pytest.mark.slow
def test_several_bytes_of_a_page(tmp_path, intact):
    content, before = intact
    chance = random.Random(2)
    for _ in range(3000):
        page = 4096 * chance.randrange(len(content) // 4096)
        positions = [page + chance.randrange(4096) for _ in range(chance.randint(2, 40))]
        changed_is_reported(tmp_path, content, before, chance, positions)


def changed_is_reported(folder, content, before, chance, positions):
    """Whether it was, after making sure that it was wherever what is said would be another."""
    changed = bytearray(content)
    for position in positions:
        changed[position] ^= chance.choice((1 << chance.randrange(8), chance.randint(1, 255)))
    path = folder / "changed.smoothcert"
    path.write_bytes(changed)
    try:
        after = said(path)
    except (InputError, RunError):
        with suppress(InputError):
            assert not diagnose(path).healthy
        assert path.read_bytes() == changed
        return True
    subset(after, before)
    return False


def subset(after, before):
    """Rows may have vanished, which leaves inputs to be drawn again; what is said of the others is unchanged."""
    assert after[:2] == before[:2]
    rows = dict(zip(before[2], zip(*before[2:], strict=True), strict=True))
    assert all(rows[id] == row for id, row in zip(after[2], zip(*after[2:], strict=True), strict=True))
