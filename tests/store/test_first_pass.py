"""What is certified is what was there at the start: every input is read, checked and kept before the first draw."""

import re
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

import heard
from interruptible import IMAGES, Items, certify, classify, interrupted_after, votes
from smoothcert import InputError, RunError, open_run
from smoothcert.store.doctor import diagnose
from smoothcert.store.file import RunFile
from smoothcert.store.schema import InputsHash

MANY = np.concatenate([IMAGES + i / 50 for i in range(4)]).astype(np.float32)


class Labelled(Items):
    """Items with labels of their own."""

    def __init__(self, images, labels):
        super().__init__(images)
        self.labels = labels

    def __getitem__(self, row):
        return self.images[row], self.labels[row]


LABELS = [row % 3 for row in range(len(MANY))]


def begin(path, calls=500):
    """A run of 48 inputs, stopped in the middle."""
    with interrupted_after(calls):
        certify(path, data=Labelled(MANY, LABELS))
    assert 10 < len(open_run(path)) < 30


class TestResuming:
    def test_an_input_that_changed_between_the_rows_that_are_hashed(self, tmp_path):
        path, changed = tmp_path / "run.smoothcert", MANY.copy()
        begin(path)
        changed[41] += 0.1
        with pytest.raises(InputError, match=r"input 41 is not the one .* was started with: the data changed"):
            certify(path, data=Labelled(changed, LABELS))

    def test_two_rows_that_were_swapped(self, tmp_path):
        path, order = tmp_path / "run.smoothcert", list(range(48))
        begin(path)
        order[38], order[39] = 39, 38
        with pytest.raises(InputError, match=r"input 38 is not the one .* the data changed"):
            certify(path, data=Labelled(MANY[order], [LABELS[row] for row in order]))

    def test_labels_that_changed(self, tmp_path):
        path, labels = tmp_path / "run.smoothcert", list(LABELS)
        begin(path)
        labels[41] = (labels[41] + 1) % 3
        with pytest.raises(InputError, match=r"input 41 is not the one .* its label changed"):
            certify(path, data=Labelled(MANY, labels))

    def test_finished_inputs_keep_what_is_stored(self, tmp_path):
        path, changed = tmp_path / "run.smoothcert", MANY.copy()
        begin(path)
        changed[1:3] = 0  # not among the 16 rows behind the data set's own fingerprint
        labels = [*LABELS[:1], 0, 0, *LABELS[3:]]
        run = certify(path, data=Labelled(changed, labels))
        whole = certify(tmp_path / "whole.smoothcert", data=Labelled(MANY, LABELS))
        assert votes(run) == votes(whole)
        assert run.labels.tolist() == LABELS

    def test_an_image_that_was_blanked_at_the_same_size(self, tmp_path):
        folder, path = tmp_path / "pictures", tmp_path / "run.smoothcert"
        for row, image in enumerate(MANY):
            name = folder / "abc"[row % 3] / f"{row:03}.bmp"
            name.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.round(255 * image[0].clip(0, 1)).astype(np.uint8)).convert("RGB").save(name)
        with interrupted_after(400):
            certify(path, mean_colour, folder)
        last = folder / "c" / "047.bmp"
        size = last.stat().st_size
        Image.new("RGB", (4, 4)).save(last)
        assert last.stat().st_size == size
        with pytest.raises(InputError, match=r"input 47 is not the one .* the data changed"):
            certify(path, mean_colour, folder)

    @pytest.mark.parametrize("change", ["forward", "no buffer"])
    def test_a_module_that_changed_under_the_same_weights(self, tmp_path, change):
        path = tmp_path / "run.smoothcert"
        certify(path, Scaled(), n=100)
        other = Shifted() if change == "forward" else Scaled(1.25)
        assert all(map(torch.equal, other.state_dict().values(), Scaled().state_dict().values()))
        with pytest.raises(InputError, match="another model"):
            certify(path, other, n=100)


def mean_colour(batch):
    return classify(batch.mean(axis=1))


class Scaled(torch.nn.Module):
    def __init__(self, scale=1.5):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.scale = torch.nn.Linear(16, 3), torch.tensor(scale)

    def forward(self, x):
        return self.scale * self.layer(x.flatten(1))


class Shifted(Scaled):
    def forward(self, x):
        return self.scale * self.layer(x.flatten(1) + 1e-6)


Shifted.__name__ = "Scaled"  # as if its code had been edited: by its name it is the same module


class TestThePass:
    def test_hash_and_label_are_there_before_the_first_draw(self, tmp_path, monkeypatch):
        path, seen = tmp_path / "run.smoothcert", []

        def look(batch):
            if path.exists() and not seen:
                with RunFile.open_to_read(path) as file:
                    seen.append((len(file.inputs()), [r.label for r in file.inputs()], file.drawn))

        monkeypatch.setattr(heard, "call", look)
        run = certify(path)
        assert seen == [(12, [0, 1, 2] * 4, False)]
        hashed = InputsHash()
        for record in run.inputs:
            hashed.add(record)
        assert run.plan.selection.inputs == hashed.fingerprint

    def test_each_input_is_told_of(self, tmp_path):
        told = []
        certify(tmp_path / "run.smoothcert", n=100, on_read=lambda count, done: told.append((count, done)))
        assert told == [(i, i / 12) for i in range(1, 13)]

    def test_stopped_it_leaves_no_file(self, tmp_path):
        def stop(count, done):
            if count == 7:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            certify(tmp_path / "run.smoothcert", on_read=stop)
        assert not list(tmp_path.iterdir())

    def test_of_two_that_begin_at_once_the_second_goes_on_with_the_first(self, tmp_path):
        path = tmp_path / "run.smoothcert"

        def begin_another(count, done):
            if count == 12:
                certify(path, n=100)

        with pytest.raises(RunError, match="another process has begun"):
            certify(path, n=100, on_read=begin_another)
        assert open_run(path).finished
        assert [p.name for p in tmp_path.iterdir()] == ["run.smoothcert"]

    def test_records_that_were_lost_are_read_again_and_compared(self, tmp_path):
        path, saved = tmp_path / "run.smoothcert", tmp_path / "saved.smoothcert"
        begin(path)
        with RunFile.open_to_write(path) as file:
            file._db.execute("UPDATE inputs SET label = 2 - label WHERE position = 45")
            file.commit()
        assert not diagnose(path, saved).healthy
        again = tmp_path / "again.smoothcert"
        shutil.copy(saved, again)
        changed = MANY.copy()
        changed[45] += 0.1
        with pytest.raises(InputError, match=r"the inputs are not those .* was started with"):
            certify(again, data=Labelled(changed, LABELS))
        assert certify(saved, data=Labelled(MANY, LABELS)).finished


class TestRefusals:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"num_classes": 2}, "4 of 12 inputs cannot be certified"),
            ({"model": lambda batch: classify(batch)[:, :2], "num_classes": 3}, "returned 2 scores"),
            ({"model": lambda batch: 1 / 0, "num_classes": 3}, "division by zero"),
            ({"noise": "grid", "levels": 255}, "grid"),
            ({"engine": "none"}, "unknown engine"),
            ({"method": "none"}, "none"),
        ],
        ids=["labels", "classes", "model", "grid", "engine", "method"],
    )
    def test_a_call_that_is_refused_leaves_no_file(self, tmp_path, change, message):
        with pytest.raises((InputError, RunError), match=message):
            certify(tmp_path / "run.smoothcert", **change)
        assert not list(tmp_path.iterdir())

    def test_all_that_is_broken_is_listed_at_once(self, tmp_path, caplog):
        images, labels = list(MANY), list(LABELS)
        images[5], images[7], labels[20] = np.zeros((1, 5, 5), np.float32), np.full((1, 4, 4), np.nan, np.float32), 3
        data, path = Labelled(images, labels), tmp_path / "run.smoothcert"
        with pytest.raises(InputError, match=r"3 of 48 inputs cannot be certified .* pass `skip_broken`"):
            certify(path, data=data)
        for problem in (r"Row 5 .* has shape \(1, 5, 5\)", r"Row 7 .* NaN", r"input 20 has label 3"):
            assert re.search(problem, caplog.text)
        assert not list(tmp_path.iterdir())

    def test_broken_inputs_are_left_out_and_their_list_is_kept(self, tmp_path):
        images = list(MANY)
        images[0] = images[5] = np.zeros((2, 2, 2, 2), dtype=np.int64)
        data, path = Labelled(images, LABELS), tmp_path / "run.smoothcert"
        with interrupted_after(200):
            certify(path, data=data, skip_broken=True)
        run = certify(path, data=data, skip_broken=True)
        assert run.finished
        assert run.plan.selection.broken == (0, 5)
        assert run.ids == [str(row) for row in range(48) if row not in (0, 5)]
        whole = certify(tmp_path / "whole.smoothcert", data=Labelled(MANY, LABELS))
        kept = [row for row in range(48) if row not in (0, 5)]
        np.testing.assert_array_equal(run.tally.estimations, whole.tally.estimations[kept])

    def test_nothing_but_broken_inputs(self, tmp_path):
        with pytest.raises(InputError, match="none of the 12 inputs can be certified, the first because: input 0 has"):
            certify(tmp_path / "run.smoothcert", data=Labelled(IMAGES, [7] * 12), skip_broken=True)

    @pytest.mark.parametrize(
        ("images", "labels", "doubt"),
        [
            (IMAGES * 4 - 2, [0, 1, 2] * 4, r"values from -[\d.]+ to [\d.]+: are they normalised already\?"),
            (IMAGES, [1] * 12, "all 12 inputs have label 1: .*`skip`"),
        ],
        ids=["values", "one class"],
    )
    def test_what_is_possible_and_rarely_meant_is_told(self, tmp_path, caplog, images, labels, doubt):
        certify(tmp_path / "run.smoothcert", data=Labelled(images.astype(np.float32), labels), n=100)
        assert re.search(doubt, caplog.text)

    def test_folders_in_another_order_than_their_numbers(self, tmp_path, caplog):
        for k in range(11):
            (tmp_path / "data" / str(k)).mkdir(parents=True)
            Image.new("RGB", (4, 4), (20 * k, 0, 0)).save(tmp_path / "data" / str(k) / "x.png")
        for classes in (11, 12):
            scores = np.eye(48, classes)
            certify(
                tmp_path / f"{classes}.smoothcert", lambda b, w=scores: b.reshape(-1, 48) @ w, tmp_path / "data", n=100
            )
        assert "taken in the order 0, 1, 10, 2, …" in caplog.text
        assert "the data have 11 classes and the model 12" in caplog.text
