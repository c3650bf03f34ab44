"""A run split into files and joined again is the run that was never split."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from interruptible import IMAGES, Items, certify, classify, interrupted_after
from smoothcert import InputError, Margins, RunError, SmoothedClassifier, open_run
from smoothcert.sampling.blocks import join
from smoothcert.store.file import RunFile
from smoothcert.store.schema import pack
from smoothcert.store.shards import merge_runs

PLANS = {
    "fixed": {"n": 430},
    "adaptive": {"radii": [0.1, 0.25], "max_n": 500},
    "labels": {"n": 430, "votes": "labels"},
    "soft": {"n": 430, "votes": "softmax"},
    "margins": {"n": 430, "votes": Margins(0.5)},
}


def contents(path):
    """The plan, every input with its picture, every claim, and the votes of each input and phase."""
    with RunFile.open_to_read(path) as file:
        inputs = [(record, file.thumbnail(record.position)) for record in file.inputs()]
        votes = {}
        for v in file.votes():
            votes.setdefault((v.position, v.phase), []).append(v)
        votes = {key: packed(join(parts)) for key, parts in votes.items()}
        claims = [(c.position, c.prediction, c.radius, c.n) for c in file.claims()]
        return file.plan, inputs, claims, votes


def packed(votes):
    return pack(replace(votes, seconds=0.0))


def split(folder, k, **plan):
    paths = [folder / f"{i}of{k}.smoothcert" for i in range(1, k + 1)]
    for i, path in enumerate(paths, start=1):
        certify(path, shard=(i, k), **plan)
    return paths


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("k", [5, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2, 12))])
def test_merged_is_never_split(tmp_path, plan, k):
    whole, merged = tmp_path / "whole.smoothcert", tmp_path / "merged.smoothcert"
    certify(whole, **PLANS[plan])
    paths = split(tmp_path, k, **PLANS[plan])
    merge_runs(list(reversed(paths)), merged)
    assert contents(merged) == contents(whole)
    assert open_run(merged).certificates() == open_run(whole).certificates()
    assert open_run(merged).finished


def test_certify_has_nothing_to_add_to_a_merged_run(tmp_path):
    merged = tmp_path / "merged.smoothcert"
    merge_runs(split(tmp_path, 3, n=430), merged)
    before = contents(merged)
    certify(merged, n=430)
    assert contents(merged) == before


def test_a_shard_is_a_run_of_its_own_inputs(tmp_path):
    path = split(tmp_path, 5, n=430)[1]
    run = open_run(path)
    assert run.ids == ["1", "6", "11"]
    assert run.finished
    assert run.plan.selection.total == 3
    assert run.plan.selection.shard == (2, 5)


def test_a_shard_does_not_go_on_as_another(tmp_path):
    path = split(tmp_path, 2, n=430)[0]
    for shard in (None, (2, 2), (1, 3)):
        with pytest.raises(InputError, match="another `out`"):
            certify(path, n=430, shard=shard)


def other(batch):
    return classify(batch)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1}, r"seed = 0 and 1"),
        ({"sigma": 0.31}, r"sigma = 0.3 and 0.31"),
        ({"n": 431}, r"n = 430 and 431"),
        ({"batch": 65}, r"batch = 64 and 65"),
        ({"model": other}, r"model = "),
        ({"data": Items(1 - IMAGES)}, r"data = "),
        ({"limit": 11}, r"limit = None and 11"),
        ({"shard": (2, 3)}, r"split into 2 and 3"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_foreign_shards_are_refused(tmp_path, changes, message):
    first, second = tmp_path / "1.smoothcert", tmp_path / "2.smoothcert"
    certify(first, n=430, shard=(1, 2))
    certify(second, **{"n": 430, "shard": (2, 2), **changes})
    refused([first, second], tmp_path, f"different runs .*{message}")


def test_overlapping_missing_and_whole_ones_are_refused(tmp_path):
    one, two, three = split(tmp_path, 3, n=430)
    certify(tmp_path / "whole.smoothcert", n=430)
    refused([one, two, two, three], tmp_path, "are both shard 2/3: give each once")
    refused([two], tmp_path, "of 3 shards there is no 1/3, no 3/3")
    refused([tmp_path / "whole.smoothcert"], tmp_path, "is no shard but a whole run")
    refused([one, tmp_path / "whole.smoothcert", three], tmp_path, "is no shard but a whole run")


def test_an_unfinished_shard_is_refused(tmp_path):
    one, two = split(tmp_path, 2, n=430)
    two.unlink()
    with interrupted_after(20):
        certify(two, n=430, shard=(2, 2))
    refused([one, two], tmp_path, r"has \d of 6 inputs: let certify finish it first")


def refused(paths, folder, message):
    out = folder / "out.smoothcert"
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(InputError, match=message):
        merge_runs(paths, out)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_nothing_is_overwritten_and_a_damaged_shard_leaves_nothing_behind(tmp_path):
    one, two = split(tmp_path, 2, n=430)
    refused_out = tmp_path / "out.smoothcert"
    refused_out.write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        merge_runs([one, two], refused_out)
    assert refused_out.read_text() == "mine"
    refused_out.unlink()
    content = bytearray(two.read_bytes())
    at = content.index(b"estimation")
    content[at] ^= 1
    two.write_bytes(content)
    with pytest.raises(RunError, match="`diagnose` copies what is intact"):
        merge_runs([one, two], refused_out)
    assert sorted(tmp_path.iterdir()) == [one, two]


@pytest.mark.parametrize("shard", [(0, 3), (4, 3), (1, 0), (1.0, 3), "1/3", (1, 2, 3)])
def test_what_is_no_shard(tmp_path, shard):
    with pytest.raises(InputError, match="a shard is i/k"):
        certify(tmp_path / "run.smoothcert", shard=shard)


def test_more_shards_than_inputs(tmp_path):
    with pytest.raises(InputError, match="there are 12 inputs"):
        certify(tmp_path / "run.smoothcert", shard=(1, 13))


def test_shards_without_a_batch_have_one_that_no_machine_chooses(tmp_path):
    data = [(np.full((1, 4, 4), k / 8, np.float32), k % 3) for k in range(8)]
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))
    smoothed = SmoothedClassifier(module, sigma=0.5, num_classes=3, seed=0)
    parts = [smoothed.certify_dataset(data, out=tmp_path / f"{i}", n=500, shard=(i, 2)) for i in (1, 2)]
    assert {(p.plan.setting.batch, str(p.plan.setting.engine)) for p in parts} == {(200, str(smoothed.engine.identity))}
    assert len(merge_runs([p.path for p in parts], tmp_path / "whole")) == 8
