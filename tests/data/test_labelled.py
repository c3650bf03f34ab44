"""Images in one folder, with labels in a file."""

import os
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from PIL import Image
from scipy.io import loadmat, savemat

from smoothcert.data import open_data
from smoothcert.data.matlab import read_table
from smoothcert.errors import InputError
from some import some


@pytest.fixture
def flat(tmp_path):
    """Three images by the names of ImageNet's validation set; the grey level of each is its number."""
    folder = tmp_path / "val"
    folder.mkdir()
    for number in (1, 2, 4):
        image = Image.fromarray(np.full((4, 4, 3), number, np.uint8))
        image.save(folder / f"ILSVRC2012_val_{number:08d}.JPEG", quality=100)
    return folder


def labels_of(folder, tmp_path, text, **options):
    file = tmp_path / "labels.csv"
    file.write_text(text)
    data = open_data(folder, labels=file, **options)
    assert [round(255 * float(e.array.mean())) for e in data] == [1, 2, 4]
    return data.classes, [e.label for e in data]


NAMES = ["ILSVRC2012_val_00000001.JPEG", "ILSVRC2012_val_00000002.JPEG", "ILSVRC2012_val_00000004.JPEG"]


@pytest.mark.parametrize(
    ("template", "head"),
    [
        ("{name},{label}", "name,label\n"),
        ('"{name}", {label}', ""),
        ("{name}\t{label}\t0\t0\t10\t12", ""),
        ("{name} {label}", ""),
        ("{stem},{label}", "ImageId,Label\n"),
    ],
)
def test_names_and_numbers_in_the_ways_they_are_written(flat, tmp_path, template, head):
    lines = [template.format(name=n, stem=n[:-5], label=k) for n, k in zip(NAMES, (7, 0, 3), strict=True)]
    assert labels_of(flat, tmp_path, head + "\n".join(reversed(lines))) == (None, [7, 0, 3])


def test_classes_by_name_are_sorted_over_the_whole_file_or_ordered_by_another(flat, tmp_path):
    text = "\n".join([f"{NAMES[0]},dog", f"{NAMES[1]},wild cat", f"{NAMES[2]},dog", "absent.png,ape"])
    assert labels_of(flat, tmp_path, text) == (("ape", "dog", "wild cat"), [1, 2, 1])
    order = tmp_path / "classes.txt"
    order.write_text("wild cat\nape\neel\ndog\n")
    assert labels_of(flat, tmp_path, text, classes=order)[1] == [3, 0, 3]


def test_kaggles_file_has_boxes_behind_the_class(flat, tmp_path):
    lines = [f"{n[:-5]},{k} 85 1 499 272 {k} 3 3 5 5" for n, k in zip(NAMES, ("n02", "n01", "n02"), strict=True)]
    text = "ImageId,PredictionString\n" + "\n".join(lines).replace("n0", "n0000000")
    assert labels_of(flat, tmp_path, text) == (("n00000001", "n00000002"), [1, 0, 1])


def test_a_line_of_a_list_of_classes_is_the_image_of_that_number(flat, tmp_path):
    text = "n00000002\nn00000001\nn00000009\nn00000002\n"
    assert labels_of(flat, tmp_path, text) == (("n00000001", "n00000002", "n00000009"), [1, 0, 1])


def development_kit(folder, compressed=False):
    """As ImageNet's: numbers in an order of their own, and nodes above the classes."""
    rows = [(1, "n00000005", 0), (2, "n00000003", 0), (3, "n00000004", 0), (4, "n00000001", 3)]
    kind = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("gloss", "O"), ("num_children", "O")]
    synsets = np.array([(np.uint8(k), wnid, "a word", "", np.uint8(n)) for k, wnid, n in rows], dtype=kind)
    savemat(folder / "meta.mat", {"other": 1.0, "synsets": synsets.reshape(-1, 1)}, do_compression=compressed)


def test_the_numbers_of_the_development_kit_are_no_class_numbers(flat, tmp_path):
    with pytest.raises(InputError, match=r"lines of .*labels\.csv have no names.*meta\.mat"):
        labels_of(flat, tmp_path, "1\n2\n3\n3\n")
    development_kit(tmp_path)
    assert labels_of(flat, tmp_path, "1\n2\n3\n3\n") == (("n00000003", "n00000004", "n00000005"), [2, 0, 1])
    with pytest.raises(InputError, match=r"has labels that meta\.mat does not name"):
        labels_of(flat, tmp_path, "1\n2\n4\n4\n")
    for content in (b"MATLAB 5.0 no more", b"MATLAB 5.0".ljust(124) + b"\0\1IM" + packed(zlib.compress(b""))):
        (tmp_path / "meta.mat").write_bytes(content)
        with pytest.raises(InputError, match=r"meta\.mat is not that of ImageNet's development kit"):
            labels_of(flat, tmp_path, "1\n2\n3\n3\n")


@pytest.mark.parametrize("compressed", [False, True])
def test_a_table_of_matlab_is_what_scipy_reads(tmp_path, compressed):
    development_kit(tmp_path, compressed)
    theirs = loadmat(tmp_path / "meta.mat", squeeze_me=True)["synsets"]
    ours = list(read_table(tmp_path / "meta.mat", "synsets", 1 << 20))
    assert [tuple(row) for row in ours] == [theirs.dtype.names] * 4
    for row, their in zip(ours, theirs, strict=True):
        assert [row[name] for name in ("ILSVRC2012_ID", "WNID", "words", "num_children")] == [
            their[name] for name in ("ILSVRC2012_ID", "WNID", "words", "num_children")
        ]


def test_a_table_of_another_byte_order_and_with_wide_letters(tmp_path):
    """As MATLAB writes letters: two bytes each."""

    def element(kind, content):
        return struct.pack(">II", kind, len(content)) + content + bytes(-len(content) % 8)

    def array(kind, name, *parts):
        head = element(6, struct.pack(">II", kind, 0)) + element(5, struct.pack(">ii", 1, 1)) + element(1, name)
        return element(14, head + b"".join(parts))

    fields = struct.pack(">HHI", 4, 5, 4) + element(1, b"ab\0\0cd\0\0")
    values = array(4, b"", element(4, "né".encode("utf-16-be"))), array(6, b"", element(3, struct.pack(">h", -2)))
    table = array(2, b"table", fields, *values, *values)
    (tmp_path / "t.mat").write_bytes(b"MATLAB 5.0".ljust(124) + b"\1\0MI" + table)
    assert list(read_table(tmp_path / "t.mat", "table", 1 << 20)) == [{"ab": "né", "cd": -2.0}] * 2


def bomb(unpacked):
    """A table of so many bytes of nothing."""
    head = struct.pack("<IIIIIIIIII", 14, unpacked, 6, 8, 2, 0, 5, 8, 1, unpacked) + struct.pack(
        "<II7sx", 1, 7, b"synsets"
    )
    packing = zlib.compressobj(9)
    parts = [
        packing.compress(head),
        *(packing.compress(bytes(1 << 24)) for _ in range(unpacked >> 24)),
        packing.flush(),
    ]
    return b"".join(parts)


def packed(content):
    return struct.pack("<II", 15, len(content)) + content


@pytest.mark.parametrize("twice", some([True, False]))
def test_a_table_that_unpacks_to_gigabytes_is_refused(flat, tmp_path, twice):
    content = packed(bomb(1 << 30))
    if twice:
        content = packed(zlib.compress(content))
    (tmp_path / "meta.mat").write_bytes(b"MATLAB 5.0".ljust(124) + b"\0\1IM" + content)
    assert (tmp_path / "meta.mat").stat().st_size < 1 << 22
    tracemalloc.start()
    with pytest.raises(InputError, match=r"meta\.mat is not that of ImageNet's development kit"):
        labels_of(flat, tmp_path, "1\n2\n3\n3\n")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 26


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{NAMES[0]},1\n", r"no label for ILSVRC2012_val_00000002\.JPEG \(2 such\)"),
        (f"{NAMES[0]},1\n{NAMES[0]},2\n", "two labels for ILSVRC2012_val_00000001"),
        (f"{NAMES[0]},1\n{NAMES[1]}\n", "'ILSVRC2012_val_00000002.JPEG' of .* has no label"),
        ("", "holds no lines such as"),
        ("name,label\n", "holds no lines such as"),
        (f"{NAMES[0]},-1\n{NAMES[1]},0\n{NAMES[2]},0", "has the label -1: a negative label marks no class"),
    ],
)
def test_a_label_file_that_does_not_fit_says_why(flat, tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        labels_of(flat, tmp_path, text)


def test_labels_are_for_folders_and_their_classes_for_names(flat, tmp_path):
    np.savez(tmp_path / "d.npz", x=np.zeros((2, 4)), y=np.zeros(2))
    order = tmp_path / "classes.txt"
    order.write_text("0\n")
    with pytest.raises(InputError, match="`labels` is for folders of images"):
        open_data(tmp_path / "d.npz", labels=order)
    with pytest.raises(InputError, match="are numbers already"):
        labels_of(flat, tmp_path, "\n".join(f"{n},0" for n in NAMES), classes=order)
    with pytest.raises(InputError, match=r"absent\.csv cannot be read"):
        open_data(flat, labels=tmp_path / "absent.csv")
    with pytest.raises(InputError, match=r"holds no images in subfolders.*`labels`"):
        open_data(flat)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "endless"])
def test_what_is_named_beside_data_is_a_plain_file(flat, tmp_path, make):
    """A pipe would be waited for, and zeros would have no end."""
    make(tmp_path / "list")
    labels, named = tmp_path / "labels.csv", tmp_path / "list"
    labels.write_text("\n".join(f"{name},cat" for name in NAMES))
    for files in ({"labels": named}, {"labels": labels, "classes": named}, {"labels": labels, "class_names": named}):
        with pytest.raises(InputError, match=r"list cannot be read: it is .*, a plain file of at most 64 MB"):
            open_data(flat, **files)
    (tmp_path / "names").symlink_to("labels.csv")
    assert open_data(flat, labels=tmp_path / "names").classes == ("cat",)
