"""What classes are called."""

import json

import numpy as np
import pytest
from PIL import Image

from smoothcert.data import open_data
from smoothcert.errors import InputError

KERAS = {"0": ["n00000001", "tench"], "1": ["n00000002", "shark"]}


def by_wnid(tmp_path):
    for wnid in ("n00000001", "n00000002"):
        (tmp_path / "val" / wnid).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(tmp_path / "val" / wnid / "1.png")
    return tmp_path / "val"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("names.txt", "tench\nshark\n"),
        ("synsets.txt", "n00000002 shark\nn00000009 eel, an\nn00000001 tench\n"),
        ("words.txt", "n00000001\ttench\nn00000002\tshark\n"),
        ("names.json", json.dumps(["tench", "shark"])),
        ("index.json", json.dumps(KERAS)),
        ("more.json", json.dumps({**KERAS, "2": ["n00000003", "eel"]})),
        ("wnids.json", json.dumps({"n00000002": "shark", "n00000001": "tench", "n00000003": "eel"})),
        ("id2label.json", json.dumps({"0": "tench", "1": "shark"})),
    ],
)
def test_names_by_wnid_or_by_number(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    data = open_data(by_wnid(tmp_path), class_names=tmp_path / name)
    assert data.classes == ("tench", "shark")
    assert [e.label for e in data] == [0, 1]
    assert data.fingerprint == open_data(tmp_path / "val").fingerprint


def test_numbered_labels_are_named_by_their_number(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.zeros((2, 4)), y=np.arange(2))
    (tmp_path / "names.txt").write_text("great white shark\ngold fish\n")
    assert open_data(tmp_path / "d.npz", class_names=tmp_path / "names.txt").classes == (
        "great white shark",
        "gold fish",
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("names.txt", "tench\n", "names 1 classes and the data have 2 classes"),
        ("names.txt", "", "names 0 classes"),
        ("names.json", '{"n00000001": "tench"}', "names 1 classes and the data have 2 classes, n00000001 the first"),
        ("names.json", "{", "cannot be read: it is a text file .* or JSON"),
        ("names.json", "3", "cannot be read"),
        ("names.json", "[1, 2]", "cannot be read"),
        ("names.json", "[[], []]", "cannot be read"),
        ("names.json", "[" * 100_000, "cannot be read"),
    ],
)
def test_names_that_do_not_fit_are_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        open_data(by_wnid(tmp_path), class_names=tmp_path / name)
