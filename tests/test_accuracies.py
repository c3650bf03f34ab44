"""What stands beside the certified accuracy, and what a run will cost."""

import re
import sqlite3

import numpy as np
import pytest
import torch

from smoothcert import Duels, Labels, RunError, SmoothedClassifier, Softmax, open_run
from smoothcert.certification.cost import Cost
from smoothcert.cli import translated
from smoothcert.sampling.noise.base import Piece
from smoothcert.sampling.noise.silence import Silence
from smoothcert.store.doctor import diagnose
from smoothcert.store.shards import merge_runs
from smoothcert.summary import Accuracies, summarise

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(24, 6)).astype(np.float32)


def module():
    torch.manual_seed(0)
    return torch.nn.Linear(6, 3)


def answers():
    with torch.no_grad():
        return module()(torch.from_numpy(IMAGES)).argmax(dim=1).numpy()


def certify(out, labels, **options):
    data = [(x, int(k)) for x, k in zip(IMAGES, labels, strict=False)]
    votes = {"votes": options.pop("votes")} if "votes" in options else {}
    smoothed = SmoothedClassifier(module(), sigma=0.3, num_classes=3, batch=50, seed=0, **votes)
    return smoothed.certify_dataset(data, out=out, **{"n": 300, **options})


@pytest.mark.parametrize("options", [{}, {"votes": Labels()}, {"votes": Softmax(0.5)}, {"radii": [0.1], "n": None}])
def test_accuracies_of_the_model_and_of_its_draws(tmp_path, options):
    labels = np.where(np.arange(24) % 4, answers(), (answers() + 1) % 3)
    run = certify(tmp_path / "run", labels, **options)
    np.testing.assert_array_equal(run.clean, answers())
    assert run.accuracies.clean == 0.75
    assert run.accuracies.noisy == pytest.approx(
        np.mean([run.tally.selections[i, k] / 100 for i, k in enumerate(labels)])
    )
    assert run.accuracies.smoothed >= summarise(run.certificates(), labels, [0]).accuracy


def three_winners_and_a_second(batch):
    """Classes 1 to 3 win most draws, a third of them each; class 0 is second in these and wins the few others."""
    angles = np.arange(3) * 2 * np.pi / 3
    winners = batch @ np.stack([np.cos(angles), np.sin(angles)]).astype(np.float32)
    return np.column_stack([0.9 * winners.max(axis=1) + 0.1, winners])


@pytest.mark.parametrize(("votes", "right"), [(Duels(), 1.0), (Labels(), 0.0)])
def test_smoothed_accuracy_is_that_of_the_votes_that_are_certified(tmp_path, votes, right):
    smoothed = SmoothedClassifier(three_winners_and_a_second, sigma=3.0, num_classes=4, batch=100, seed=0, votes=votes)
    run = smoothed.certify_dataset([(np.zeros(2), 0)] * 3, out=tmp_path / "run", n=1_000)
    assert run.accuracies.smoothed == right


def test_they_survive_a_stop_a_merge_and_the_doctor(tmp_path):
    parts = [certify(tmp_path / f"{i}", answers(), shard=(i, 2)) for i in (1, 2)]
    merged = merge_runs([part.path for part in parts], tmp_path / "whole")
    np.testing.assert_array_equal(merged.clean, answers())
    diagnose(merged.path, tmp_path / "copy")
    np.testing.assert_array_equal(open_run(tmp_path / "copy").clean, answers())
    again = certify(tmp_path / "again", answers())
    with sqlite3.connect(again.path) as db:
        db.execute("DELETE FROM clean WHERE position > 5")
    assert open_run(again.path).accuracies.clean is None
    np.testing.assert_array_equal(certify(again.path, answers()).clean, answers())


def test_a_damaged_class_is_found(tmp_path):
    path = certify(tmp_path / "run", answers()).path
    with sqlite3.connect(path) as db:
        db.execute("UPDATE clean SET class = 1 - class WHERE position = 3 AND class < 2")
        db.execute("UPDATE clean SET class = 0 WHERE position = 3 AND class = 2")
    with pytest.raises(RunError, match="a damaged class without noise for input number 3"):
        _ = open_run(path).clean
    assert any("input number 3" in fault.lower() for fault in diagnose(path).faults)


def test_a_label_that_is_no_class_is_never_right(tmp_path):
    run = open_run(certify(tmp_path / "run", answers()).path)
    run.labels = np.full(24, 7)
    assert run.accuracies == Accuracies(0.0, 0.0, 0.0)


def test_a_draw_without_noise_is_the_input_itself():
    rows, x = np.full((3, 4), 7, np.float32), np.array([0.1, -2.5, 1e-30, 3e38], np.float32)
    Silence().draw([Piece(b"a key", 0, 1, Silence().centre(x)), Piece(b"another", 5, 2, Silence().centre(x))], rows)
    np.testing.assert_array_equal(rows, np.stack([x] * 3))


@pytest.mark.parametrize(("inputs", "warned"), [(11, False), (12, True), (24, True)])
def test_a_wrong_order_of_the_classes_is_hinted_at_from_twelve_inputs_on(tmp_path, caplog, inputs, warned):
    run = certify(tmp_path / "run", (answers() + 1) % 3, limit=inputs)
    assert ("without noise the model is right as rarely as by chance" in caplog.text) is warned
    assert bool(run.hint) is warned


def test_noise_that_kills_the_model_is_told_from_a_wrong_order():
    assert Accuracies(0.9, 0.35, 0.33).hint(100, 3).startswith("under noise")
    assert Accuracies(0.9, 0.6, 0.7).hint(100, 3) is None
    assert "--sigma" in translated(Accuracies(0.9, 0.35, 0.33).hint(100, 3), "certify")
    # Of 12 inputs in 10 classes guessing is right on 4 or more in 1 of 39 runs, on 5 or more in 1 of 230.
    assert Accuracies(4 / 12, None, None).hint(12, 10)
    assert Accuracies(5 / 12, None, None).hint(12, 10) is None


def test_noise_that_takes_a_third_of_the_accuracy_points_to_training():
    assert "docs/training.md" in Accuracies(0.75, 0.49, 0.6).hint(100, 10)
    assert Accuracies(0.75, 0.51, 0.6).hint(100, 10) is None
    assert Accuracies(None, 0.49, 0.6).hint(100, 10) is None
    assert Accuracies(0.75, 0.49, 0.6).hint(11, 10) is None


def test_the_cost_is_told_before_the_first_draw(tmp_path, caplog):
    caplog.set_level("INFO", "smoothcert")
    certify(tmp_path / "run", answers())
    (said,) = [m for m in caplog.messages if "draws" in m and "24 inputs" in m]
    assert re.fullmatch(
        r"24 inputs: about 9,600 draws, at [\d,]+ a second \d+ s; for a few `radii` alone about \d+ s", said
    )
    caplog.clear()
    certify(tmp_path / "run", answers())
    assert not [m for m in caplog.messages if "24 inputs" in m]


def test_the_cost_alone_is_asked_for_in_python():
    smoothed = SmoothedClassifier(module(), sigma=0.3, num_classes=3, batch=50, seed=0)
    data = [(x, 0) for x in IMAGES]
    cost = smoothed.cost(data, n=1_000, limit=10)
    assert (cost.inputs, cost.draws, cost.most, cost.by_radii) == (10, 11_000, 11_000, 11_000)
    assert cost.seconds == cost.draws / cost.rate > 0
    adaptive = smoothed.cost(data, radii=[0.1], max_n=100_000)
    assert (adaptive.draws, adaptive.most, adaptive.by_radii) == (24 * 1_600, 24 * 100_100, None)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.1, "1 s"), (59, "59 s"), (600, "10 min"), (9_000, "2:30:00 h"), (200_000, "2 days, 7:33:20 h")],
)
def test_times_are_told_as_people_tell_them(seconds, said):
    assert f"a second {said};" in str(Cost(10, 1_000, 1_000, 1_000 / seconds, 50))
    assert str(Cost(1, 1_000, 2_000)) == "1 input: about 1,000 draws (at most 2,000)"
