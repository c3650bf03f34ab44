"""Data that are read while the network trains: each row once, in an order that the seed names."""

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from smoothcert.data import digits, open_data
from smoothcert.errors import InputError
from smoothcert.training import train
from smoothcert.training.pictures import Held, Streamed

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """200 digits as pictures in a folder for each class."""
    path, data = tmp_path_factory.mktemp("folder"), digits(train=True)
    for row in range(200):
        example = data[row]
        place = path / str(example.label) / f"{row}.png"
        place.parent.mkdir(exist_ok=True)
        Image.fromarray(np.uint8(255 * example.array[0])).convert("RGB").resize((16, 16)).save(place)
    return path


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """25 files of 4 row groups of 100 rows each; each row holds its number."""
    path = tmp_path_factory.mktemp("shards")
    for part in range(25):
        rows = np.arange(400 * part, 400 * (part + 1), dtype=np.float32)
        images = pa.array([[[[row]]] for row in rows], pa.list_(pa.list_(pa.list_(pa.float32()))))
        table = pa.table({"x": images, "label": rows.astype(np.int64) % 10})
        pq.write_table(table, path / f"{part:02}.parquet", row_group_size=100)
    return path


def tune(folder, out, **changes):
    plan = {
        "sigma": 0.25,
        "epochs": 2,
        "batch": 32,
        "rate": 0.05,
        "device": "cpu",
        "options": {"width": 4, "blocks": 1},
    }
    return train("cifar_small", open_data(folder), out=out, **{**plan, **changes})


def test_streamed_is_held_to_the_bit_where_every_row_is_a_file(folder, tmp_path):
    logs = [tune(folder, tmp_path / str(workers), workers=workers) for workers in (0, 2)]
    assert [(e.loss, e.accuracy) for e in logs[0]] == [(e.loss, e.accuracy) for e in logs[1]]
    first, second = (load_file(tmp_path / name / "last.safetensors") for name in ("0", "2"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_streamed_training_resumes_with_another_number_of_workers(folder, tmp_path):
    def stop(images, done):
        if done > 0.6:
            raise KeyboardInterrupt

    tune(folder, tmp_path / "whole", workers=1)
    with pytest.raises(KeyboardInterrupt):
        tune(folder, tmp_path / "parts", workers=1, on_progress=stop)
    tune(folder, tmp_path / "parts", workers=2)
    first, second = (load_file(tmp_path / name / "last.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    with pytest.raises(InputError, match="holds a training with streamed True, not False"):
        tune(folder, tmp_path / "whole", workers=0)


def test_shards_are_one_data_set(shards):
    data = open_data(shards)
    assert len(data) == 10_000
    for row in (0, 399, 400, 5_123, 9_999):
        assert (data[row].array.item(), data[row].label) == (row, row % 10)
    assert data.fingerprint == open_data(shards).fingerprint != open_data(shards / "00.parquet").fingerprint
    assert pickle.loads(pickle.dumps(data))[777].array.item() == 777


def test_a_stream_of_shards_has_each_row_once_in_another_order_each_epoch(shards):
    stream = Streamed(open_data(shards), 10, CPU, 2)
    generator = torch.Generator().manual_seed(0)
    orders = [stream.order(generator) for _ in range(2)]
    assert not torch.equal(*orders)
    for order in orders:
        assert sorted(order.tolist()) == list(range(10_000))
    read = [x.flatten() for x, _ in stream.batches(orders[0], 256)]
    assert torch.equal(torch.cat(read).long(), orders[0])


def test_a_batch_mixes_many_places_that_are_done_with_soon(shards):
    order = Streamed(open_data(shards), 10, CPU, 1).order(torch.Generator().manual_seed(0))
    places = [set((rows // 100).tolist()) for rows in torch.split(order, 200)]
    assert min(map(len, places)) >= 10
    last = {place: i for i, found in enumerate(places) for place in found}
    first = {place: -i for i, found in reversed(list(enumerate(places))) for place in found}
    assert max(last[place] + first[place] for place in last) <= 8


def test_what_cannot_be_read_is_one_sentence_from_a_worker_too(folder, tmp_path):
    data = open_data(folder)
    broken = tmp_path / "broken"
    for image in folder.rglob("*.png"):
        (broken / image.parent.name).mkdir(parents=True, exist_ok=True)
        (broken / image.parent.name / image.name).write_bytes(image.read_bytes())
    victim = sorted((broken / "3").iterdir())[0]
    victim.write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"cannot be decoded: replace or remove it\.") as caught:
        tune(broken, tmp_path / "out", workers=2)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="has the label 9, and the network 9 classes"):
        list(Streamed(data, 9, CPU, 1).batches(torch.arange(len(data)), 64))
    with pytest.raises(InputError, match="has the label 9, and the network 9 classes"):
        Held(data, 9, CPU)
