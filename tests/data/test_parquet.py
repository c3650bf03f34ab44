"""Parquet files as Hugging Face writes them, and parquet files of arrays."""

import hashlib
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from smoothcert.data import open_data, parquet
from smoothcert.errors import InputError

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "cifar10"
needs_cifar10 = pytest.mark.skipif(not SHARED.is_dir(), reason="CIFAR-10 is not in ../shared/data/cifar10")


def pixels(row, shape=(4, 6, 3)):
    return np.random.default_rng(row).integers(0, 256, shape, dtype=np.uint8)


def png(array):
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, "PNG")
    return buffer.getvalue()


def write_images(path, count=7, column="image", label="label", encoded=None, group=3):
    rows = encoded or [{"bytes": png(pixels(r)), "path": f"{r}.png"} for r in range(count)]
    table = pa.table(
        {
            "id": pa.array(range(len(rows))),
            column: pa.array(rows, pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
            label: pa.array([r % 3 for r in range(len(rows))], pa.int64()),
        }
    )
    features = {column: {"_type": "Image"}, label: {"names": ["ant", "bee", "cow"], "_type": "ClassLabel"}}
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, path, row_group_size=group)
    return str(path)


def write_array(path, column, label=None, **field):
    labels = pa.array(range(len(column)) if label is None else label)
    schema = pa.schema([pa.field("x", column.type, **field), pa.field("label", labels.type)])
    pq.write_table(pa.table([column, labels], schema=schema), path)
    return str(path)


@pytest.mark.parametrize("column", ["img", "image", "picture"])
@pytest.mark.parametrize("label", ["label", "labels", "fine_label"])
def test_hugging_face_images_in_any_order(tmp_path, column, label):
    data = open_data(write_images(tmp_path / "d.parquet", column=column, label=label))
    assert len(data) == 7
    assert data.classes == ("ant", "bee", "cow")
    assert data.eight_bit
    for row in (6, 0, 3, 2, 5, 6, 1, 4):
        example = data[row]
        assert (example.id, example.label) == (str(row), row % 3)
        np.testing.assert_array_equal(example.array, pixels(row).transpose(2, 0, 1).astype(np.float32) / 255)


def test_rows_are_right_when_the_cache_holds_one_group_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_CACHE_BYTES", 1)
    data = open_data(write_images(tmp_path / "d.parquet"))
    for row in (6, 0, 3, 6, 1):
        np.testing.assert_array_equal(data[row].array * 255, pixels(row).transpose(2, 0, 1))


def test_encoded_images_are_resized_and_cropped(tmp_path):
    data = open_data(write_images(tmp_path / "d.parquet"), resize=8, crop=5)
    assert data[3].array.shape == (3, 5, 5)
    assert data.preprocessing == "resize=8 crop=5"


def test_damaged_and_missing_images_name_their_row(tmp_path):
    good = {"bytes": png(pixels(0)), "path": None}
    bad = {"bytes": good["bytes"][:30], "path": None}
    data = open_data(write_images(tmp_path / "d.parquet", encoded=[good, bad, {"bytes": None, "path": "x"}, None]))
    for row in (1, 2, 3):
        with pytest.raises(InputError, match=rf"in row {row} of .*d\.parquet cannot be decoded"):
            data[row]


def test_labels_beyond_the_named_classes_are_refused(tmp_path):
    path = write_images(tmp_path / "d.parquet")
    table = pq.read_table(path)
    labels = pa.array([0, 1, 2, 3, None, 0, 0])
    pq.write_table(table.set_column(2, "label", labels), path)
    data = open_data(path)
    with pytest.raises(InputError, match=r"Row 3 .* label 3, but there are 3 classes"):
        data[3]
    with pytest.raises(InputError, match=r"Row 4 .* label None"):
        data[4]


def test_arrays_in_each_of_their_layouts(tmp_path):
    values = np.random.default_rng(0).random((4, 3, 2, 5)).astype(np.float32)
    flat = pa.array(values.reshape(4, -1).tolist(), pa.list_(pa.float32()))
    fixed = pa.array(values.reshape(4, -1).tolist(), pa.list_(pa.float32(), 30))
    nested = pa.array(values.tolist(), pa.list_(pa.list_(pa.list_(pa.float32()))))
    tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(values)
    paths = [
        write_array(tmp_path / "flat.parquet", flat, metadata={"shape": "[3, 2, 5]"}),
        write_array(tmp_path / "fixed.parquet", fixed, metadata={"shape": "[3, 2, 5]"}),
        write_array(tmp_path / "nested.parquet", nested),
        write_array(tmp_path / "tensor.parquet", tensor),
    ]
    for path in paths:
        data = open_data(path)
        assert not data.eight_bit
        np.testing.assert_array_equal([example.array for example in data], values)
        assert [example.label for example in data] == [0, 1, 2, 3]
    assert open_data(write_array(tmp_path / "vector.parquet", flat)).shape == (30,)


def test_the_permutation_of_a_tensor_column_is_followed(tmp_path):
    stored = np.random.default_rng(0).random((2, 4, 6, 3))
    kind = pa.fixed_shape_tensor(pa.float64(), (4, 6, 3), permutation=[2, 0, 1])
    storage = pa.array(stored.reshape(2, -1).tolist(), kind.storage_type)
    data = open_data(write_array(tmp_path / "d.parquet", pa.ExtensionArray.from_storage(kind, storage)))
    np.testing.assert_array_equal(data[1].array, stored[1].transpose(2, 0, 1).astype(np.float32))


def test_bytes_in_nested_lists_are_images(tmp_path):
    images = np.stack([pixels(0), pixels(1)])
    nested = pa.array(images.tolist(), pa.list_(pa.list_(pa.list_(pa.uint8()))))
    data = open_data(write_array(tmp_path / "d.parquet", nested))
    assert data.eight_bit
    np.testing.assert_array_equal(data[1].array * 255, images[1].transpose(2, 0, 1))


def test_ragged_and_incomplete_arrays_name_their_row(tmp_path):
    ragged = pa.array([[[1.0, 2.0], [3.0, 4.0]], [[1.0], [2.0, 3.0]], None], pa.list_(pa.list_(pa.float64())))
    data = open_data(write_array(tmp_path / "d.parquet", ragged))
    with pytest.raises(InputError, match=r"Row 1 .* no full array in 'x'"):
        data[1]
    with pytest.raises(InputError, match="Row 2"):
        data[2]


def test_a_file_cut_off_or_of_another_kind_is_refused(tmp_path):
    path = Path(write_images(tmp_path / "d.parquet"))
    whole = path.read_bytes()
    for broken in (whole[: len(whole) // 2], whole[:-1], b"", b"PAR1", b"hello" * 100):
        path.write_bytes(broken)
        with pytest.raises(InputError, match=r"d\.parquet cannot be read, it may be cut off"):
            open_data(str(path))


def test_damage_inside_the_file_is_an_error_and_not_data(tmp_path):
    path = Path(write_images(tmp_path / "d.parquet", count=40, group=20))
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + bytes(200) + whole[204:])
    data = open_data(str(path))
    with pytest.raises(InputError, match=r"d\.parquet"):
        data[0]
    assert data[20].label == 20 % 3


def test_a_file_without_inputs_or_labels_tells_its_columns(tmp_path):
    pq.write_table(pa.table({"label": [1, 2], "text": ["a", "b"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": [[1.0, 2.0]], "weight": [1.0]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"a": [[1.0]], "b": [[2.0]], "label": [0]}), tmp_path / "c.parquet")
    for name, columns in [("a", "label, text"), ("b", "x, weight"), ("c", "a, b, label")]:
        with pytest.raises(InputError, match=f"has the columns {columns}: it needs"):
            open_data(str(tmp_path / f"{name}.parquet"))


def test_a_file_without_rows_is_refused(tmp_path):
    with pytest.raises(InputError, match="nothing in"):
        open_data(write_array(tmp_path / "d.parquet", pa.array([], pa.list_(pa.float32()))))


def test_the_fingerprint_is_the_sha256_of_the_file(tmp_path):
    path = write_images(tmp_path / "d.parquet")
    assert open_data(path).fingerprint == hashlib.sha256(Path(path).read_bytes()).hexdigest()


@needs_cifar10
def test_cifar10_has_ten_balanced_classes_of_32_pixel_images():
    data = open_data(str(SHARED / "test.parquet"))
    assert len(data) == 10_000
    assert data.shape == (3, 32, 32)
    assert " ".join(data.classes) == "airplane automobile bird cat deer dog frog horse ship truck"
    assert data.eight_bit
    labels = np.bincount([example.label for example in data])
    np.testing.assert_array_equal(labels, [1000] * 10)


@needs_cifar10
def test_cifar10_rows_are_the_pixels_of_their_jpegs():
    data = open_data(str(SHARED / "test.parquet"))
    table = pq.read_table(SHARED / "test.parquet")
    for row in (9_999, 0, 4_999, 5_000, 1_234):
        stored = table["img"][row].as_py()["bytes"]
        image = np.asarray(Image.open(io.BytesIO(stored)).convert("RGB"))
        np.testing.assert_array_equal(np.rint(data[row].array * 255), image.transpose(2, 0, 1))
        assert data[row].label == table["label"][row].as_py()


@pytest.fixture
def repository(tmp_path):
    """A folder as downloaded from Hugging Face: two shards of test, one of train."""
    folder = tmp_path / "pets" / "data"
    folder.mkdir(parents=True)
    for shard in range(2):
        rows = [{"bytes": png(pixels(10 * shard + r)), "path": "a.png"} for r in range(4)]
        write_images(folder / f"test-0000{shard}-of-00002.parquet", encoded=rows)
    write_images(folder / "train-00000-of-00001.parquet", count=2)
    return folder


def test_shards_are_one_table(repository):
    data = open_data(str(repository / "test-*.parquet"))
    assert len(data) == 8
    assert data.classes == ("ant", "bee", "cow")
    for row in (7, 0, 4, 3):
        expected = pixels(10 * (row // 4) + row % 4).transpose(2, 0, 1).astype(np.float32) / 255
        np.testing.assert_array_equal(data[row].array, expected)
    first = open_data(repository / "test-00000-of-00002.parquet")
    assert len(first) == 4
    assert data.fingerprint != first.fingerprint


def test_a_folder_of_shards_is_read_whole_and_splits_are_not_mixed(repository):
    for folder in (repository, repository.parent):
        with pytest.raises(InputError, match=r"not mixed: give '.*/test\*\.parquet' or '.*/train\*\.parquet'"):
            open_data(folder)
    (repository / "train-00000-of-00001.parquet").unlink()
    assert len(open_data(repository)) == len(open_data(repository.parent)) == 8
    (repository / "test-00000-of-00002.parquet").unlink()
    with pytest.raises(InputError, match="holds 1 of 2 shards"):
        open_data(repository)
    with pytest.raises(InputError, match="There is no data at"):
        open_data(str(repository / "validation-*.parquet"))
