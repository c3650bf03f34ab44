"""CIFAR-10's binary version, byte by byte as its page describes it."""

import numpy as np
import pytest

from smoothcert.data import open_data
from smoothcert.errors import InputError

NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def batch(count, seed=0):
    """Label bytes and, for each image, 1 024 red, 1 024 green and 1 024 blue bytes, row by row."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, count)
    images = rng.integers(0, 256, (count, 3072))
    content = b"".join(bytes([k]) + bytes(i.tolist()) for k, i in zip(labels.tolist(), images, strict=True))
    return labels, images, content


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "cifar-10-batches-bin"
    root.mkdir()
    (root / "test_batch.bin").write_bytes(batch(7, seed=1)[2])
    (root / "data_batch_1.bin").write_bytes(batch(5, seed=2)[2])
    (root / "batches.meta.txt").write_text("\n".join(NAMES) + "\n\n")
    return root


def test_a_folder_is_its_test_batch(folder):
    labels, images, _ = batch(7, seed=1)
    data = open_data(str(folder))
    assert data.classes == tuple(NAMES)
    assert data.shape == (3, 32, 32)
    assert data.eight_bit
    assert [e.label for e in data] == labels.tolist()
    for row in (0, 6):
        for c, h, w in [(0, 0, 0), (0, 0, 31), (1, 3, 4), (2, 31, 31)]:
            assert data[row].array[c, h, w] == np.float32(images[row, 1024 * c + 32 * h + w] / 255)


def test_a_file_is_itself(folder):
    data = open_data(str(folder / "data_batch_1.bin"))
    assert len(data) == 5
    assert [e.label for e in data] == batch(5, seed=2)[0].tolist()
    assert data.fingerprint != open_data(str(folder)).fingerprint


@pytest.mark.parametrize("size", [0, 1, 3072, 7 * 3073 - 1, 4 * 3074])
def test_files_of_another_size_are_refused(folder, size):
    (folder / "test_batch.bin").write_bytes(bytes(size))
    with pytest.raises(InputError, match=f"has {size} bytes, no multiple of CIFAR-10's 3073"):
        open_data(str(folder))


def test_bytes_that_are_no_labels_are_refused(folder):
    (folder / "test_batch.bin").write_bytes(bytes([10]) + bytes(3072))
    with pytest.raises(InputError, match="not the binary version of CIFAR-10"):
        open_data(str(folder))


def test_names_are_read_from_a_plain_file_alone(folder):
    """A link may lead to what is nobody's business, or never ends."""
    names = folder / "batches.meta.txt"
    names.rename(folder.parent / "secret.txt")
    names.symlink_to(folder.parent / "secret.txt")
    assert open_data(str(folder)).classes is None
    names.unlink()
    with names.open("wb") as file:
        file.truncate(1 << 40)
    assert open_data(str(folder)).classes is None


def test_a_file_that_is_cut_off_meanwhile_says_so(folder):
    """A mapped one would end the process (SIGBUS)."""
    data = open_data(str(folder))
    labels = batch(7, seed=1)[0]
    with (folder / "test_batch.bin").open("r+b") as file:
        file.truncate(2 * 3073 + 5)
    assert data[1].label == labels[1]
    with pytest.raises(InputError, match=r"test_batch\.bin was cut off while it was read: copy it again"):
        data[2]
    (folder / "test_batch.bin").unlink()
    with pytest.raises(InputError, match="cannot be read"):
        data[0]
