"""Pictures without labels, for what needs none: a folder as it lies there, a column, an array, a list."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from smoothcert.data import as_dataset, open_data
from smoothcert.errors import InputError

PICTURES = np.arange(5 * 4 * 4 * 3, dtype=np.uint8).reshape(5, 4, 4, 3)


@pytest.fixture
def places(tmp_path):
    folder, shards = tmp_path / "folder", tmp_path / "shards"
    (folder / "holiday").mkdir(parents=True)
    shards.mkdir()
    for i, picture in enumerate(PICTURES):
        Image.fromarray(picture).save(folder / ("holiday" if i > 2 else ".") / f"{i}.png")
    encoded = [
        {"bytes": path.read_bytes(), "path": None} for path in sorted(folder.rglob("*.png"), key=lambda p: p.name)
    ]
    pq.write_table(pa.table({"img": encoded}), tmp_path / "pictures.parquet")
    pq.write_table(pa.table({"img": encoded[:2]}), shards / "0.parquet")
    pq.write_table(pa.table({"img": encoded[2:]}), shards / "1.parquet")
    np.savez(tmp_path / "pictures.npz", x=PICTURES)
    return [folder, tmp_path / "pictures.parquet", shards, tmp_path / "pictures.npz"]


def test_they_are_read_wherever_they_are(places):
    for place in places:
        data = open_data(place, labelled=False)
        rows = [data[row] for row in range(len(data))]
        assert [row.label for row in rows] == [0] * 5
        np.testing.assert_allclose(
            np.stack([row.array for row in rows]), PICTURES.transpose(0, 3, 1, 2) / 255, atol=1e-7
        )
    assert as_dataset(list(PICTURES), labelled=False)[4].array.shape == (3, 4, 4)


def test_where_labels_are_needed_they_are_missed(places):
    folder, *files = places
    assert len(open_data(folder)) == 2  # of the one class `holiday`
    for place in files:
        with pytest.raises(InputError, match=r"label|needs arrays named x/y"):
            open_data(place)


def test_labels_that_are_there_are_not_looked_at(tmp_path):
    np.savez(tmp_path / "data.npz", x=PICTURES, y=np.full(5, -1))
    assert open_data(tmp_path / "data.npz", labelled=False)[0].label == 0
    assert as_dataset([(picture, "cat") for picture in PICTURES], labelled=False)[0].label == 0


def test_a_folder_without_any_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no images: give one that does"):
        open_data(tmp_path, labelled=False)
