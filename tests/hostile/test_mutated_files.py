"""Files of every kind that is read, with bytes flipped, cut, repeated and put in."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import save

from hostile.fuzzing import fuzz
from hostile.readers import network, read_checkpoint, read_data, read_image_folder, read_log, read_run
from interruptible import certify

RNG = np.random.default_rng(0)
FORMAT_2 = Path(__file__).parent.parent / "data" / "format-2-adaptive.smoothcert"
PIXELS = RNG.integers(0, 256, (6, 9, 7, 3), dtype=np.uint8)


def image(format, **options):
    buffer = io.BytesIO()
    frames = [Image.fromarray(pixels) for pixels in PIXELS]
    frames[0].save(buffer, format, **({"append_images": frames[1:], "save_all": True} if options else {}))
    return buffer.getvalue()


def archive(save):
    buffer = io.BytesIO()
    save(buffer, x=PIXELS, y=np.arange(6))
    return buffer.getvalue()


def parquet(column, **options):
    buffer = io.BytesIO()
    pq.write_table(pa.table({"img": column, "label": list(range(6))}), buffer, **options)
    return buffer.getvalue()


def encoded():
    return parquet([{"bytes": image("PNG"), "path": None}] * 6)


def numbers():
    column = pa.array((PIXELS.reshape(6, -1) / 255).tolist(), pa.list_(pa.float32()))
    return parquet(column, row_group_size=2, compression="gzip")


def checkpoint(**options):
    buffer = io.BytesIO()
    torch.save({"epoch": 3, "state_dict": network().state_dict()}, buffer, **options)
    return buffer.getvalue()


def radii():
    rows = [f"{i}\t{i % 3}\t{i % 2}\t{i / 8:.3}\t1\t0:00:01.5" for i in range(20)]
    return "\n".join(["idx\tlabel\tpredict\tradius\tcorrect\ttime", *rows]).encode()


def run(tmp_path, **plan):
    certify(tmp_path / "made.smoothcert", **plan)
    return (tmp_path / "made.smoothcert").read_bytes()


KINDS = {
    "run": (read_run, "run.smoothcert", lambda folder: run(folder, n=250), 12),
    "adaptive run": (
        read_run,
        "run.smoothcert",
        lambda folder: run(folder, radii=[0.1, 0.25], max_n=500, n=None, method=None),
        12,
    ),
    "soft run": (read_run, "run.smoothcert", lambda folder: run(folder, votes="softmax", n=250, method=None), 5),
    "older run": (read_run, "run.smoothcert", lambda _: FORMAT_2.read_bytes(), 5),
    "log": (read_log, "log_sigma_0.5.tsv", lambda _: radii(), 50),
    "npz": (read_data, "data.npz", lambda _: archive(np.savez), 150),
    "compressed npz": (read_data, "data.npz", lambda _: archive(np.savez_compressed), 150),
    "parquet of images": (read_data, "data.parquet", lambda _: encoded(), 150),
    "parquet of numbers": (read_data, "data.parquet", lambda _: numbers(), 150),
    "CIFAR-10": (read_data, "data.bin", lambda _: RNG.integers(0, 10, 3073 * 4, dtype=np.uint8).tobytes(), 50),
    "PNG": (read_image_folder, "cat/1.png", lambda _: image("PNG"), 150),
    "animated PNG": (read_image_folder, "cat/1.png", lambda _: image("PNG", animated=True), 150),
    "JPEG": (read_image_folder, "cat/1.jpeg", lambda _: image("JPEG"), 150),
    "GIF": (read_image_folder, "cat/1.gif", lambda _: image("GIF", animated=True), 150),
    "TIFF": (read_image_folder, "cat/1.tif", lambda _: image("TIFF", animated=True), 150),
    "WebP": (read_image_folder, "cat/1.webp", lambda _: image("WEBP", animated=True), 150),
    "BMP": (read_image_folder, "cat/1.bmp", lambda _: image("BMP"), 150),
    "PPM": (read_image_folder, "cat/1.ppm", lambda _: image("PPM"), 150),
    "checkpoint": (read_checkpoint, "weights.pt", lambda _: checkpoint(), 100),
    "old checkpoint": (
        read_checkpoint,
        "weights.pth",
        lambda _: checkpoint(_use_new_zipfile_serialization=False),
        100,
    ),
    "safetensors": (read_checkpoint, "weights.safetensors", lambda _: save(network().state_dict()), 150),
}


@pytest.mark.parametrize("kind", KINDS)
def test_changed_files_are_read_or_refused(kind, patient, tmp_path):
    reader, name, make, times = KINDS[kind]
    content = make(tmp_path)
    assert patient.survives(reader, tmp_path / "box", content, name) is None
    assert fuzz(patient, reader, tmp_path / "box", content, name, times, seed=0) > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_changed_files_are_read_or_refused(kind, patient, tmp_path):
    reader, name, make, times = KINDS[kind]
    fuzz(patient, reader, tmp_path / "box", make(tmp_path), name, 40 * times, seed=1)
