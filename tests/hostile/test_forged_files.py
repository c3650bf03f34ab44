"""Files made to do harm: to run something, to fill the memory, to never end. Each is refused with one sentence."""

import copy
import csv
import io
import json
import os
import pickle
import re
import sqlite3
import struct
import warnings
import zipfile
import zlib
from contextlib import suppress
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save

from hostile.fuzzing import is_harmless, is_one_sentence
from hostile.readers import (
    load_built_in,
    network,
    read_checkpoint,
    read_class_file,
    read_data,
    read_image_folder,
    read_log,
    read_onnx,
    read_run,
    shown,
)
from interruptible import certify
from smoothcert import InputError, open_run
from smoothcert.checks import LEAST_ALPHA
from smoothcert.data import open_data, parquet
from smoothcert.data.images import Preprocessing, decode
from smoothcert.models import load_model
from smoothcert.store import schema
from smoothcert.store.export import export_run
from smoothcert.store.file import RunFile
from smoothcert.store.new_run import new_run
from smoothcert.store.schema import Info, info_from_json, meta_checksum
from some import some

FORMAT_2 = Path(__file__).parent.parent / "data" / "format-2-labels.smoothcert"


class Canary:
    """Unpickled, it makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.fixture
def refuses(patient, tmp_path):
    """Has a file read; it must be refused, nothing run, and the sentence is returned."""

    def read(reader, name, content):
        refusal = patient.survives(reader, tmp_path / "box", content, name)
        assert refusal is not None
        assert not (tmp_path / "canary").exists()
        return refusal

    return read


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width, height, depth=8, colour=2, data=b""):
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def saved(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


# ---- images


def progressive(scans):
    """A JPEG that goes over its pixels so many times."""
    content = saved(Image.new("L", (8, 8)), "JPEG", progressive=True)
    last = content.rindex(b"\xff\xda")
    return content[:last] + content[last:-2] * scans + content[-2:]


def tiff(width, height):
    """A picture of 16 × 16 pixels in one tile of that size."""
    short, long = 3, 4
    tags = [(256, short, 16), (257, short, 16), (258, short, 8), (259, short, 8), (262, short, 1), (277, short, 1)]
    tags += [(322, long, width), (323, long, height), (324, long, 200), (325, long, 9)]
    entries = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in tags)
    head = b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)
    return head.ljust(200, b"\0") + zlib.compress(b"")[:9].ljust(9)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (png(30_000, 30_000), "larger than 67108864 pixels"),
        (png(10_000, 10_000), "larger than 67108864 pixels"),
        (png(2**31 - 1, 2**31 - 1), "larger than|cannot be decoded"),
        (png(4_000, 4_000), "cannot be decoded"),
        (saved(Image.new("1", (34_000, 1_500)), "PNG"), "larger than 16777216 pixels as an input"),
        (png(3, 3, depth=16, colour=0, data=bytes(3 * 7)), "more than 8 bits"),
        (png(3, 3, depth=16, colour=2, data=bytes(3 * 19)), "more than 8 bits"),
        (saved(Image.new("RGB", (64, 64)), "PNG")[:-30], "cannot be decoded"),
        (saved(Image.new("RGB", (64, 64)), "JPEG")[:-300], "cannot be decoded"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "cannot be decoded"),
        (progressive(200), "of more than 100 scans"),
        (tiff(1 << 15, 1 << 14), "larger than 67108864 pixels"),
    ],
    ids=[
        "bomb",
        "large",
        "huge",
        "hollow",
        "wide",
        "16-bit grey",
        "16-bit colour",
        "cut PNG",
        "cut JPEG",
        "EPS",
        "scans",
        "tile",
    ],
)
def test_images(refuses, content, message):
    assert re.search(message, refuses(read_image_folder, "cat/1.png", content))


def test_a_narrow_image_is_not_resized_to_a_huge_one(tmp_path):
    (tmp_path / "cat").mkdir()
    Image.new("L", (60_000, 1)).save(tmp_path / "cat" / "1.png")
    with pytest.raises(InputError, match="pixels when resized"):
        open_data(tmp_path, resize=224)


def test_four_colours_and_several_frames_are_read(patient, tmp_path):
    frames = [Image.new("RGB", (9, 7), (k, 0, 0)) for k in range(3)]
    animated = saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert patient.survives(read_image_folder, tmp_path / "box", animated, "cat/1.gif") is None
    cmyk = saved(Image.new("CMYK", (9, 7)), "JPEG")
    assert patient.survives(read_image_folder, tmp_path / "box", cmyk, "cat/1.jpg") is None


# ---- arrays


def npz(entries):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(f"{name}.npy", content, compresslevel=1)
    return buffer.getvalue()


def npy(shape, data=b"", kind="<f4"):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": kind, "fortran_order": False, "shape": shape})
    return buffer.getvalue() + data


def parquet_of(table):
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def test_webp_takes_four_times_its_pixels():
    content = saved(Image.new("L", (6000, 6000)), "WEBP", quality=0, method=0)
    with pytest.raises(InputError, match="larger than 33554432 pixels"):
        decode(content, "of one colour", Preprocessing())


def test_parquet_names_no_file(tmp_path):
    """Pillow opens text as the name of a file: whatever image was named was read, certified and kept as a thumbnail."""
    Image.new("RGB", (8, 8)).save(tmp_path / "secret.png")
    column = pa.array([{"bytes": str(tmp_path / "secret.png")}] * 2)
    (tmp_path / "d.parquet").write_bytes(parquet_of(pa.table({"image": column, "label": [0, 1]})))
    with pytest.raises(InputError, match="it needs one of images"):
        open_data(tmp_path / "d.parquet")


def test_parquet_of_odd_columns(refuses):
    numbers = pa.array([[1.0, 2.0]] * 2)
    twice = pa.Table.from_arrays([numbers, numbers, pa.array([0, 1])], names=["x", "x", "label"])
    assert "two columns of one name" in refuses(read_data, "d.parquet", parquet_of(twice))
    deep = pa.field("x", numbers.type, metadata={b"shape": b"[" * 100_000})
    nested = pa.Table.from_arrays([numbers, pa.array([0, 1])], schema=pa.schema([deep, pa.field("label", pa.int64())]))
    assert "no full array" in refuses(read_data, "d.parquet", parquet_of(nested))


def test_parquet_of_rows_without_end(refuses):
    """A kilobyte for 60 million of them, which took 2 GB and a quarter of a minute."""
    rows = (1 << 20) + 1
    numbers = pa.ListArray.from_arrays(np.arange(rows + 1, dtype=np.int32), pa.repeat(pa.scalar(1.0), rows))
    buffer = io.BytesIO()
    table = pa.table({"x": numbers, "label": pa.repeat(0, rows)})
    pq.write_table(table, buffer, row_group_size=rows, compression="zstd")
    assert "a row group of more than 1,048,576 rows" in refuses(read_data, "d.parquet", buffer.getvalue())


def test_npz_of_nothing(tmp_path):
    """A terabyte of labels for inputs that hold no number."""
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("x.npy", npy((1 << 40, 0)))
    with pytest.raises(InputError, match="which are none"):
        open_data(tmp_path / "d.npz", labelled=False)


def test_npz(refuses, tmp_path):
    labels = npy((2,), bytes(16), "<i8")
    for shape in ((2, 1 << 38), (2, 1 << 61), (1 << 40, 4), (2, -4)):
        assert "cannot be read" in refuses(read_data, "d.npz", npz({"x": npy(shape), "y": labels}))
    bomb = npz({"x": npy((2, 1 << 25), bytes(1 << 28)), "y": labels})
    assert len(bomb) < 1 << 22
    assert "would unpack to" in refuses(read_data, "d.npz", bomb)
    pickled = npy((2, 1), pickle.dumps([Canary(tmp_path / "canary")] * 2), "|O")
    assert "never loaded" in refuses(read_data, "d.npz", npz({"x": pickled, "y": labels}))
    nested = npz({"x": b"\x93NUMPY\x01\x00" + struct.pack("<H", 9000) + b"(" * 9000, "y": labels})
    assert "cannot be read" in refuses(read_data, "d.npz", nested)


def table(column, labels, metadata=None):
    buffer = io.BytesIO()
    pq.write_table(pa.table({"img": column, "label": labels}).replace_schema_metadata(metadata), buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("value", [{"bytes": bytes(1 << 16), "path": None}, np.zeros(1 << 14, np.float32)])
def test_parquet_that_repeats_a_value(monkeypatch, tmp_path, value):
    monkeypatch.setattr(parquet, "_GROUP_BYTES", 1 << 20)
    bomb = table([value] * 100, [0] * 100)
    assert len(bomb) < 1 << 15
    (tmp_path / "d.parquet").write_bytes(bomb)
    with pytest.raises(InputError, match="row group above"):
        open_data(tmp_path / "d.parquet")


def test_parquet(refuses):
    deep = {b"huggingface": b"[" * 100_000}
    assert "cannot be decoded" in refuses(read_data, "d.parquet", table([{"bytes": b"", "path": None}], [0], deep))
    for labels in (["cat"], [None], [-1], [1.5], [[0, 1]]):
        assert "label" in refuses(read_data, "d.parquet", table([[0.5, 0.5]], labels))
    no_utf8 = table([[0.5, 0.5]], [0]).replace(b"label", b"la\x8cel")
    assert "cannot be read" in refuses(read_data, "d.parquet", no_utf8)


def test_cifar(refuses):
    assert "no multiple of" in refuses(read_data, "d.bin", bytes(3072))
    assert "labels above 9" in refuses(read_data, "d.bin", b"\xff" * 3073)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"cat\ncat\n", b"\x1b[31mcat\n", b"\n" * 9])
def test_class_files(refuses, tmp_path, patient, content):
    box = tmp_path / "box"
    (box / "in" / "images" / "cat").mkdir(parents=True)
    (box / "in" / "images" / "cat" / "1.png").write_bytes(saved(Image.new("L", (4, 4)), "PNG"))
    (box / "in" / "classes.txt").write_bytes(content)
    assert patient.read(read_class_file, box)


# ---- checkpoints and graphs


def torch_file(content, **options):
    buffer = io.BytesIO()
    torch.save(content, buffer, **options)
    return buffer.getvalue()


def test_checkpoints(refuses, tmp_path):
    state = network().state_dict()
    canary = Canary(tmp_path / "canary")
    for zipped in (True, False):
        hostile = torch_file({**state, "0.bias": canary}, _use_new_zipfile_serialization=zipped)
        assert "nothing in it was executed" in refuses(read_checkpoint, "w.pt", hostile)
    assert refuses(read_checkpoint, "w.pt", pickle.dumps(canary))
    for odd in (
        {1: torch.zeros(3)},
        {**state, "0.weight": torch.empty(3, 4, device="meta")},
        {**state, "0.weight": torch.zeros(3, 4).to_sparse()},
        {**state, "0.weight": torch.zeros(3, 4, dtype=torch.complex64)},
    ):
        assert "holds no state dict" in refuses(read_checkpoint, "w.pt", torch_file(odd))
    endless = {**state, "0.weight": torch.zeros(1).expand(1 << 40)}
    assert "another shape" in refuses(read_checkpoint, "w.pt", torch_file(endless))
    loud = {"\x1b[2J\n" * 99: torch.zeros(1)}
    assert "do not fit" in refuses(read_checkpoint, "w.pt", torch_file(loud))


def test_a_checkpoint_that_is_compressed(refuses):
    plain, packed = zipfile.ZipFile(io.BytesIO(torch_file(network().state_dict()))), io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as bomb:
        for name in plain.namelist():
            bomb.writestr(name, bytes(1 << 30) if name.endswith("data/0") else plain.read(name))
    assert len(packed.getvalue()) < 1 << 21
    assert "would unpack to" in refuses(read_checkpoint, "w.pt", packed.getvalue())
    for hidden in (bytes(66_000), packed.getvalue()[-2000:]):  # torch looks for the list of contents elsewhere, too
        assert "is no checkpoint" in refuses(read_checkpoint, "w.pt", packed.getvalue() + hidden)


def lying(entries, name, method):
    """An archive whose list of contents says that an entry is as short as it should be; it goes on for longer."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for key, content in entries.items():
            entry = zipfile.ZipInfo(key)
            entry.compress_type = method if key == name else zipfile.ZIP_STORED
            with archive.open(entry, "w", force_zip64=True) as file:
                file.write(content)
                if key == name:
                    file.write(bytes(1 << 26))
            entry.file_size = len(content)
    return buffer.getvalue()


def pickled(made):
    """A checkpoint with this pickle."""
    plain, packed = zipfile.ZipFile(io.BytesIO(torch_file(network().state_dict()))), io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in plain.namelist():
            archive.writestr(name, made if name.endswith("data.pkl") else plain.read(name))
    return packed.getvalue()


def test_a_pickle_that_rebuilds_in_many_layers_ends(refuses):
    """Each layer names the one before, and all of them are gone through each time."""
    rebuild, layers = b"ctorch._tensor\n_rebuild_from_type_v2\n", 900
    made = (
        b"\x80\x02"
        + rebuild
        + b"q\x00(h\x00N)Ntq\x01"
        + b"(h\x00Nh\x01Ntq\x01" * layers
        + b"h\x00h\x01R0" * 1000
        + b"."
    )
    assert "takes more steps to read" in refuses(read_checkpoint, "w.pt", pickled(made))


def short(text):
    return b"X" + struct.pack("<I", len(text.encode())) + text.encode()


def test_a_pickle_of_long_names_that_are_equal_ends(refuses):
    """Each is compared with the other, which is another text, whenever it is named."""
    name = chr(0x1F600) * 100_000
    storage = b"(" + short("storage") + b"ctorch\nFloatStorage\n" + short(name) + short("cpu") + b"K\x01t"
    made = b"\x80\x02" + storage + b"q\x00Q" + storage + b"q\x01Q(" + b"h\x00Qh\x01Q" * 100_000 + b"t}."
    assert "no checkpoint" in refuses(read_checkpoint, "w.pt", pickled(made))


def test_a_pickle_of_tensors_of_many_axes_ends(refuses):
    rebuilt = b"ctorch._utils\n_rebuild_tensor\nq\x01"
    storage = b"(" + short("storage") + b"ctorch\nFloatStorage\n" + short("0") + short("cpu") + b"K\x01tQq\x00"
    strides = b"(" + (b"\x8a\x08" + struct.pack("<q", (1 << 61) - 1)) * 64 + b"t"
    about = b"(h\x00K\x00(" + b"K\x01" * 64 + b"t" + strides + b"tq\x02"
    padding = short("x" * 2_500_000)  # for more steps
    made = b"\x80\x02" + storage + rebuilt + about + padding + b"(" + b"h\x01h\x02R" * 400_000 + b"t}."
    assert "takes more steps to read" in refuses(load_built_in, "w.pt", pickled(made))


def test_archives_that_lie_about_their_entries(refuses):
    """Python unpacks all of an entry before it looks at its size."""
    plain = zipfile.ZipFile(io.BytesIO(torch_file(network().state_dict())))
    entries = {name: plain.read(name) for name in plain.namelist()}
    contents = next(name for name in entries if name.endswith("data.pkl"))
    arrays = {"x.npy": npy((2, 4), bytes(32)), "y.npy": npy((2,), bytes(16), "<i8")}
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_DEFLATED):
        assert "is compressed" in refuses(read_checkpoint, "w.pt", lying(entries, contents, method))
    assert "is packed otherwise" in refuses(read_data, "d.npz", lying(arrays, "x.npy", zipfile.ZIP_BZIP2))
    bare = {**arrays, "x.npy": b"no array"}
    assert "cannot be read" in refuses(read_data, "d.npz", lying(bare, "x.npy", zipfile.ZIP_DEFLATED))


def test_safetensors(refuses):
    def lying(header, data=b""):
        text = json.dumps(header).encode() if isinstance(header, dict) else header
        return struct.pack("<Q", len(text)) + text + data

    entry = {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}
    for content in (
        struct.pack("<Q", 1 << 62) + b"{}",
        lying(b"[" * 50_000),
        lying({"0.weight": entry}),
        lying({"0.weight": {**entry, "data_offsets": [0, 1 << 40]}}, bytes(48)),
        lying({"0.weight": {**entry, "shape": [1 << 40, 1 << 40]}}, bytes(48)),
        lying({"a": entry, "b": entry}, bytes(48)),
    ):
        assert "no checkpoint" in refuses(read_checkpoint, "w.safetensors", content)


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        ("digits_cnn", {"width": 10**9}),
        ("digits_cnn", {"num_classes": 10**12}),
        ("digits_cnn", {"num_classes": "9"}),
        ("digits_cnn", {"width": -1}),
        ("cifar_small", {"blocks": 10**9}),
        ("liresnet", {"depth": 10**9}),
    ],
)
def test_options_that_the_weights_do_not_bear_out(tmp_path, arch, options):
    about = {"configuration": json.dumps({"arch": arch, "options": options})}
    path = tmp_path / "w.safetensors"
    path.write_bytes(save({"a": torch.zeros(3)}, about))
    with pytest.raises(InputError) as caught:
        load_model(arch, weights=path)
    assert is_one_sentence(str(caught.value))


def test_onnx_files(refuses, tmp_path):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    helper, numbers = onnx.helper, onnx.TensorProto.FLOAT
    weights = onnx.numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
    batch, scores = (helper.make_tensor_value_info(n, numbers, ["b", k]) for n, k in (("x", 4), ("y", 3)))

    def model(inputs, *nodes, initializers=(weights,)):
        graph = helper.make_graph(nodes, "g", inputs, [scores], initializers)
        return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)])

    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    content = model([batch], product).SerializeToString()
    outside = onnx.TensorProto(name="w", dims=[4, 3], data_type=numbers, data_location=onnx.TensorProto.EXTERNAL)
    outside.external_data.add(key="offset", value="0")  # before the location, which a reader may look for first
    outside.external_data.add(key="location", value="w.bin")
    constant = helper.make_node("Constant", [], ["w"], value=outside)
    branch = helper.make_graph([constant], "then", [], [scores])
    choice = helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch)
    unlocated = onnx.TensorProto(name="w", dims=[4, 3], data_type=numbers, data_location=onnx.TensorProto.EXTERNAL)
    for leaning in (
        model([batch], product, initializers=[outside]),
        model([batch], product, initializers=[unlocated]),
        model([batch], constant, product, initializers=[]),
        model([batch], choice, initializers=[]),
    ):
        assert "files beside it" in refuses(read_onnx, "model.onnx", leaning.SerializeToString())
    assert "0 inputs" in refuses(
        read_onnx, "model.onnx", model([], helper.make_node("Identity", ["w"], ["y"])).SerializeToString()
    )
    assert "cannot open" in refuses(read_onnx, "model.onnx", content[:-20])


def test_onnx_weights_whose_entries_come_in_another_order(refuses):
    """Key and value of an entry may stand in either order in the bytes, which no pattern of them foresees."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")

    def field(number, content):
        return bytes([number << 3 | 2, len(content)]) + content

    entry = field(2, b"w.bin") + field(1, b"location")
    tensor = b"\x08\x04\x08\x03" + b"\x10\x01" + field(8, b"w") + b"\x70\x01" + field(13, entry)
    assert onnx.TensorProto.FromString(tensor).external_data[0].key == "location"
    content = b"\x08\x08" + field(7, field(5, tensor))
    assert "files beside it" in refuses(read_onnx, "model.onnx", content)


# ---- run files and logs


@pytest.fixture(scope="module")
def run_bytes(tmp_path_factory):
    path = tmp_path_factory.mktemp("forged") / "run.smoothcert"
    certify(path, n=250)
    return path.read_bytes()


@pytest.fixture(scope="module")
def soft_bytes(tmp_path_factory):
    path = tmp_path_factory.mktemp("forged") / "run.smoothcert"
    certify(path, n=250, votes="softmax", lipschitz=2.0, method=None)
    return path.read_bytes()


@pytest.fixture
def forge(tmp_path):
    """A run file after some statements, its plan as `change` returns it or as text, and its checksum mended."""

    def forged(content, *statements, change=lambda plan: plan, text=None):
        path = tmp_path / "forged"
        path.write_bytes(content)
        with sqlite3.connect(path) as db:
            meta = dict(db.execute("SELECT key, value FROM meta"))
            meta["plan"] = text or json.dumps(change(json.loads(meta["plan"])))
            del meta["checksum"]
            rows = {**meta, "checksum": meta_checksum(meta)}
            db.executemany("REPLACE INTO meta VALUES (?, ?)", rows.items())
            for statement in statements:
                db.execute(statement)
        db.close()
        return path.read_bytes()

    return forged


def at(place, value):
    """Puts the value there, or takes what is there away."""

    def change(plan):
        *outer, last = place.split(".")
        noun = plan
        for name in outer:
            noun = noun[name]
        if value is GONE:
            del noun[last]
        else:
            noun[last] = value
        return plan

    return change


GONE = object()


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"


@pytest.mark.parametrize(
    "statements",
    [
        ["DROP TABLE claims", f"CREATE VIEW claims AS {ENDLESS} SELECT x, 0, 0.5, 1, 0.0, x'00' FROM c"],
        ["DROP TABLE votes", f"CREATE VIEW votes AS {ENDLESS} SELECT x, 'a', 0, 1, 1, x'', NULL, 0.0, x'' FROM c"],
        ["CREATE TRIGGER t AFTER INSERT ON votes BEGIN DELETE FROM votes; END"],
        ["ALTER TABLE inputs ADD COLUMN more AS (zeroblob(900000000))"],
        ["CREATE TABLE other (a)"],
        ["CREATE INDEX i ON votes (position)"],
        *(
            ["ALTER TABLE claims RENAME TO was", f"CREATE TABLE claims ({columns})", "DROP TABLE was"]
            for columns in (
                "position INTEGER PRIMARY KEY, prediction, radius, n, seconds, checksum",
                "position INTEGER PRIMARY KEY, prediction INTEGER NOT NULL, radius REAL NOT NULL, n INTEGER NOT NULL, "
                "seconds REAL NOT NULL, checksum BLOB NOT NULL, CHECK (length(hex(zeroblob(400000000))) > 5)",
            )
        ),
        ["ANALYZE"],
        ["UPDATE inputs SET thumbnail = zeroblob(70000000) WHERE position = 3"],
        ["UPDATE inputs SET thumbnail = 'text' WHERE position = 3"],
        ["UPDATE votes SET seconds = 'long'"],
        ["UPDATE votes SET seconds = 1e300"],
        ["UPDATE inputs SET id = char(27) || '[2J'"],
        ["INSERT INTO meta VALUES (x'00', 1)"],
    ],
    ids=[
        "endless claims",
        "endless votes",
        "trigger",
        "computed",
        "table",
        "index",
        "other columns",
        "check",
        "statistics",
        "big",
        "text",
        "time",
        "age",
        "escape",
        "key",
    ],
)
def test_run_files_with_other_tables_and_values(refuses, run_bytes, forge, statements):
    assert refuses(read_run, "run.smoothcert", forge(run_bytes, *statements))


@pytest.mark.parametrize("space", ["\u0085", "\u00a0", "\u2003", "\u3000"], ids=ascii)
def test_what_is_no_space_for_sqlite_is_none_for_us(refuses, run_bytes, forge, space):
    """There it is a letter: the columns have types of odd names, no key, and may be NULL."""
    table = "CREATE TABLE clean (position INTEGER PRIMARY KEY, class INTEGER NOT NULL, checksum BLOB NOT NULL)"
    table = table.replace("PRIMARY KEY", f"PRIMARY{space}KEY").replace("NOT NULL", f"NOT{space}NULL")
    said = refuses(read_run, "run.smoothcert", forge(run_bytes, "DROP TABLE clean", table))
    assert "tables that are not those of a run" in said


@pytest.mark.parametrize("size", [(64_000, 64_000), (5_000, 5_000), (65, 65), (3, 2)])
def test_thumbnails_that_are_bombs_or_unlike_the_others(refuses, run_bytes, forge, size):
    content = saved(Image.new("L", (3, 2)), "PNG") if size == (3, 2) else png(*size)
    statement = f"UPDATE inputs SET thumbnail = x'{content.hex()}' WHERE position = 5"
    assert "thumbnail" in refuses(read_run, "run.smoothcert", forge(run_bytes, statement))


FLAT_PLANS = [
    {"num_classes": 10**9},
    {"num_classes": 0},
    {"total": 10**15},
    {"total": -1},
    {"sigma": "0.5"},
    {"sigma": -1.0},
    {"sigma": 1e308},
    {"alpha": 2.0},
    {"alpha": [0.1]},
    {"n": 10**30},
    {"n0": True},
    {"method": "\x1b[2J"},
    {"method": ["mono"]},
    {"noise": "loud"},
    {"method": "adaptive", "radii": "wide"},
    {"method": "adaptive", "radii": [], "width": None},
    {"method": "adaptive", "radii": [0.1], "futility": None},
    {"noise_error": 1.0},
    {"votes": None},
    {"votes": ["softmax"]},
    {"votes": "softmax", "temperature": 0},
    {"lipschitz": "given", "constant": 1.0},
    {"engine": 5},
    {"engine": ["torch"]},
    {"batch": -1},
    {"batch": "large"},
    {"shard": [3, 2]},
]


@pytest.mark.parametrize("changes", FLAT_PLANS, ids=str)
def test_flat_plans_that_nobody_can_have_declared(refuses, forge, changes):
    forgery = forge(FORMAT_2.read_bytes(), change=lambda plan: {**plan, **changes})
    assert "a damaged plan" in refuses(read_run, "run.smoothcert", forgery)


@pytest.mark.parametrize("name", ["method", "alpha", "n0", "n", "sigma", "num_classes", "engine", "batch"])
def test_flat_plans_that_lack_something(refuses, forge, name):
    forgery = forge(FORMAT_2.read_bytes(), change=at(name, GONE))
    assert "a damaged plan" in refuses(read_run, "run.smoothcert", forgery)


def test_the_name_of_an_engine_is_read_in_bounded_time(patient, forge, tmp_path):
    for name in (" (" * 10**5, ") on " * 10**5, " on numpy " * 10**5):
        forgery = forge(FORMAT_2.read_bytes(), change=at("engine", name))
        patient.survives(read_run, tmp_path / "box", forgery, "run.smoothcert")


INFINITE, NAN = float("inf"), float("nan")
FIXED = {"kind": "fixed", "n": 250, "method": "cpm"}
RADII = {"kind": "until-radii", "max_n": 500, "futility": 0.05, "radii": [0.1]}
WIDTH = {"kind": "until-width", "max_n": 500, "futility": 0.05, "width": 0.1}
ENGINE = {"engine": "callable", "versions": "numpy 2", "device": "cpu", "precision": ""}
DEEP = json.loads("[" * 400 + "]" * 400)
PLANS = {
    **{noun: (GONE, None, [], "text", 5, DEEP) for noun in ("classifier", "question", "setting", "selection")},
    "classifier.sigma": (
        GONE,
        1e999,
        1e308,
        1e99,
        5e-324,
        NAN,
        -0.5,
        0.0,
        10**400,
        2**70,
        True,
        "0.5",
        None,
        [0.5],
        {},
    ),
    "classifier.num_classes": (GONE, 2**40, 1, 0, -3, 3.0, True, "3", None, NAN),
    "classifier.noise": ("loud", "", 5, None, ["grid"], {"kind": "grid"}),
    "classifier.levels": (255, 0, 16.0, "16", True),
    "classifier.votes": (
        *(
            {"kind": kind}
            for kind in ("majority", "fixed", "Labels", "", None, 5, True, ["softmax"], {"kind": "labels"})
        ),
        *({"kind": "softmax", "temperature": t} for t in (0, -1.0, NAN, INFINITE, "1", None, True, [1.0], 2**70)),
        *({}, "labels", None, 5, [], DEEP),
    ),
    "classifier.model": (None, 5, ["a"], {}),
    "question.n0": (0, -1, 2**80, 100.0, True, "100", None),
    "question.alpha": (0.0, 1.0, -1.0, 2.0, NAN, INFINITE, True, "0.1", None, [0.1]),
    "question.draws": (
        *({**FIXED, "n": n} for n in (0, -1, 2**80, 250.0, True, "250", None)),
        *({**FIXED, "method": m} for m in ("best", "betting", "", "\x1b[2J", 5, ["cpm"], {"kind": "cpm"})),
        *({"kind": kind} for kind in ("forever", "softmax", "until-radii", "until-width", None, 5, ["fixed"])),
        *({**RADII, "radii": r} for r in ([], [NAN], [1e999], [-0.1], [0.0], [[0.1]], 0.1, "0.1", None, {"0": 0.1})),
        {**RADII, "radii": [1e-6 * i for i in range(1, 150_001)]},
        *({**RADII, "max_n": n} for n in (0, 2**80, True, "500", None)),
        *({**RADII, "futility": f} for f in (-0.1, 1.0, NAN, True, "0", None)),
        *({**WIDTH, "width": w} for w in (0.0, 1.0, -0.1, NAN, INFINITE, True, "0.1", None)),
        *({"n": 250}, "fixed", None, 250, [], DEEP),
    ),
    "question.lipschitz": (1.0, "product", "local", "guess", -1.0, 0, NAN, INFINITE, True, [1.0], {"kind": "product"}),
    "setting.engine": (
        *({**ENGINE, name: value} for name in ENGINE for value in (5, None, ["cpu"], {})),
        *({"engine": "torch"}, {}, None, 5, ["torch"], DEEP),
    ),
    "setting.batch": (0, -1, 64.0, True, "large", "64", None, [64]),
    "setting.seed": (0.5, "0", True, None, NAN),
    "selection.skip": (0, -1, 1.0, True, "1", None),
    "selection.limit": (0, -1, 5.0, True, "5"),
    "selection.shard": ([0, 3], [4, 3], [1], [1, 2, 3], [1.0, 2], [True, 2], "1/2", 5, {}),
    "selection.data": (None, 5, []),
    "selection.preprocessing": (None, 5, []),
    "selection.total": (-1, 10**15, 12.0, True, "12", None),
    "noise_error": (1.0, -1e-9, NAN, INFINITE, True, "0", None),
    "constant": (0.0, -1.0, NAN, INFINITE, True, "1", [1.0]),
}


@pytest.mark.parametrize("place", some(PLANS))
def test_plans_that_nobody_can_have_declared(refuses, run_bytes, forge, place):
    for value in PLANS[place]:
        forgery = forge(run_bytes, change=at(place, copy.deepcopy(value) if value is not GONE else GONE))
        assert "a damaged plan" in refuses(read_run, "run.smoothcert", forgery), value


@pytest.mark.parametrize(
    "text",
    [
        "5",
        "null",
        '"plan"',
        "[]",
        "{}",
        "{",
        "no JSON",
        "[" * 100_000,
        '{"classifier":' * 100_000,
        '{"classifier": ' + "[" * 900 + "]" * 900 + "}",
        '{"classifier": {"votes": ' * 300 + "0" + "}}" * 300,
        '{"classifier": {"sigma": 1' + "0" * 10_000 + "}}",
        '{"classifier": {"sigma": 0.5, "num_classes": 3, "sigma": -1}, "question": {}, "setting": {}, "selection": {}}',
        "\ud800",
    ],
    ids=lambda text: text[:20],
)
def test_plans_that_are_none(refuses, run_bytes, forge, text):
    for content in (run_bytes, FORMAT_2.read_bytes()):
        assert "a damaged plan" in refuses(read_run, "run.smoothcert", forge(content, text=ascii(text)[1:-1]))


def test_plans_of_one_format_in_a_file_of_the_other(refuses, run_bytes, forge):
    for content, version in ((run_bytes, 2), (run_bytes, 1), (FORMAT_2.read_bytes(), 3)):
        refusal = refuses(read_run, "run.smoothcert", forge(content, f"PRAGMA user_version = {version}"))
        assert re.search("a damaged plan|tables that are not those of a run", refusal)


def test_fields_that_nobody_knows_are_left_out(patient, run_bytes, forge, tmp_path):
    """A later version may add some."""
    places = ("classifier.", "classifier.votes.", "question.", "question.draws.", "setting.", "selection.", "")
    values = (None, 5, NAN, "\x1b[2J", DEEP, {"kind": "labels"}, {"sigma": -1})
    changes = [at(f"{place}more", value) for place, value in zip(places, values, strict=True)]
    forgery = forge(run_bytes, change=lambda plan: reduce(lambda plan, change: change(plan), changes, plan))
    assert patient.survives(read_run, tmp_path / "box", forgery, "run.smoothcert") is None
    (tmp_path / "run").write_bytes(run_bytes)
    before, after = open_run(tmp_path / "run"), open_run(tmp_path / "box" / "in" / "run.smoothcert")
    assert after.plan == before.plan
    assert after.certificates() == before.certificates()


def test_a_plan_sends_nobody_to_a_cluster(patient, run_bytes, forge, tmp_path):
    forgery = forge(run_bytes, change=at("setting.cluster", {"address": "evil.example:1"}))
    assert patient.survives(read_run, tmp_path / "box", forgery, "run.smoothcert") is None
    assert open_run(tmp_path / "box" / "in" / "run.smoothcert").plan.setting.cluster is None


@pytest.mark.parametrize(
    "place", some(["classifier.model", "selection.data", "setting.engine.engine", "selection.preprocessing"])
)
def test_text_in_a_plan_is_shown_harmlessly(patient, run_bytes, forge, tmp_path, place):
    for name in ("\x1b[2J\x1b]0;owned\x07", "two\nlines\u2028three", "\u202egpj.exe", "half \ud800", "x" * 10**6):
        forgery = forge(run_bytes, change=at(place, name))
        assert patient.survives(read_run, tmp_path / "box", forgery, "run.smoothcert") is None
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        shown(tmp_path / "box" / "in" / "run.smoothcert", out)
        out.flush()
        assert is_harmless(out.buffer.getvalue().decode().replace("\n", ""))
        assert is_harmless((tmp_path / "box" / "out" / "table.json").read_text().replace("\n", ""))


@pytest.mark.parametrize("place", ["classifier.model", "selection.data", "setting.engine.engine"])
def test_text_in_a_plan_is_no_formula_in_a_table(run_bytes, forge, tmp_path, place):
    path = tmp_path / "run.smoothcert"
    path.write_bytes(forge(run_bytes, change=at(place, '=HYPERLINK("http://example.org")')))
    for kind, separator in (("csv", ","), ("tsv", "\t")):
        export_run(open_run(path), tmp_path / kind, kind)
        cells = {cell for row in csv.reader((tmp_path / kind).open(), delimiter=separator) for cell in row}
        assert not {cell for cell in cells if cell.startswith("=")}


SMALLEST, LARGEST = 5e-324, 1.7e308
EXTREMES = {
    "classifier.sigma": (1e-30, 1e30, 2**63),
    "classifier.num_classes": (2, 1 << 12),
    "question.n0": (1, 1 << 40),
    "question.alpha": (SMALLEST, LEAST_ALPHA, 1 - 1e-16),
    "setting.batch": (2**80,),
    "setting.seed": (-(10**100), 10**4000),
    "selection.skip": (10**100,),
    "selection.limit": (10**100,),
    "selection.total": (0, 1, (1 << 31) - 1),
    "selection.shard": ([1, 10**100],),
    "noise_error": (SMALLEST, 0.0009999999),
}
SOFT_EXTREMES = {
    "classifier.sigma": (1e-30, 1e30),
    "classifier.votes.temperature": (SMALLEST, 1e-300, LARGEST),
    "question.alpha": (SMALLEST, LEAST_ALPHA, 1 - 1e-16),
    "question.lipschitz": (SMALLEST, LARGEST, "local", "product", None),
    "constant": (SMALLEST, LARGEST, None),
}


@pytest.mark.parametrize("place", some({**EXTREMES, **SOFT_EXTREMES}))
def test_numbers_at_the_ends_of_what_is_possible(patient, run_bytes, soft_bytes, forge, tmp_path, place):
    """They are read, or refused with one sentence."""
    for content, extremes in ((run_bytes, EXTREMES), (soft_bytes, SOFT_EXTREMES)):
        for value in extremes.get(place, ()):
            forgery = forge(content, change=at(place, value))
            patient.survives(read_run, tmp_path / "box", forgery, "run.smoothcert")


@pytest.mark.parametrize("soft", [False, True], ids=["labels", "soft"])
def test_the_least_risk_there_is_warns_nobody(run_bytes, soft_bytes, forge, tmp_path, soft):
    path = tmp_path / "run.smoothcert"
    path.write_bytes(forge(soft_bytes if soft else run_bytes, change=at("question.alpha", LEAST_ALPHA)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for method in open_run(path).methods:
            with suppress(InputError):
                assert {c.radius for c in open_run(path).certificates(method)} == {0.0}
        shown(path)


def test_of_what_is_listed_without_end_ten_are_shown(run_bytes, forge, tmp_path):
    path, out = tmp_path / "run.smoothcert", io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    path.write_bytes(forge(run_bytes, change=at("selection.broken", list(range(100_000, 200_000)))))
    with RunFile.open_to_read(path) as file, new_run(tmp_path / "named", file.plan, MANY_VERSIONS):
        pass
    shown(tmp_path / "named", out)
    out.flush()
    text = " ".join(out.buffer.getvalue().decode().split())
    assert "100007, 100008, 100009 and 99,990 more" in text
    assert "p8 1, p9 1 and 199,990 more" in text
    assert len(text) < 3_000


MANY_VERSIONS = Info("", "", "", "", None, {f"p{i}": "1" for i in range(200_000)})


def test_a_run_of_very_many_inputs_is_checked_in_bounded_time(refuses, run_bytes, forge):
    def change(plan):
        return at("selection.total", 10**9)(at("classifier.num_classes", 1 << 14)(plan))

    assert refuses(read_run, "run.smoothcert", forge(run_bytes, "UPDATE votes SET checksum = x'00'", change=change))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda x: st.lists(x, max_size=4) | st.dictionaries(st.text(), x, max_size=4),
    max_leaves=8,
)


@given(data=st.data())
def test_records_hold_what_is_declared_or_are_refused(data):
    whole = json.loads(schema.to_json(Info("", "", "", "", ("a", "b"), {"x": "1"})))
    name = data.draw(st.sampled_from(sorted(whole)))
    try:
        info = info_from_json(json.dumps({**whole, name: data.draw(JSON)}))
    except ValueError:
        return
    assert all(isinstance(text, str) for text in (info.created, info.command, info.model, info.data))
    assert info.classes is None or all(isinstance(text, str) for text in info.classes)
    assert isinstance(info.radii_only, bool)


HEADER = "idx\tlabel\tpredict\tradius\tcorrect\ttime"


@pytest.mark.parametrize(
    "row",
    [
        "0\t999999999\t0\t0.5\t1\t0:00:01",
        "0\t1\t0\tnan\t1\t0:00:01",
        "0\t1\t0\t-1\t1\t0:00:01",
        "\x1b[2J\t1\t0\t1\t1\t0:00:01",
        "0\t1\t0\t1\t1",
        "0\t٣x\t0\t1\t1\t0:00:01",
    ],
)
def test_logs(refuses, row):
    assert refuses(read_log, "log_sigma_0.5.tsv", f"{HEADER}\n{row}\n".encode())


def test_a_log_of_noise_that_nobody_can_draw(refuses):
    log = f"{HEADER}\n0\t1\t1\t0.5\t1\t0:00:01\n".encode()
    assert "sigma must lie between" in refuses(read_log, f"log_sigma_1{'0' * 200}.tsv", log)


@pytest.mark.parametrize("radius", ["1e300", "1e12"])
def test_a_log_with_huge_radii(refuses, radius):
    log = f"{HEADER}\n0\t1\t1\t{radius}\t1\t99999999 days, 0:00:01\n".encode()
    assert "which no number of draws proves" in refuses(read_log, "log_sigma_0.5.tsv", log)


def test_settings_beside_logs(patient, tmp_path):
    for text in ("[" * 100_000, '{"alpha": [0.1, 0.2], "sigma": 1}', '{"sigma": "1"}', '{"sigma": 1e999}', "5", "{"):
        folder = tmp_path / "logs" / "in"
        folder.mkdir(parents=True, exist_ok=True)
        for name, counts in (("a.tsv", "[3, 7]"), ("b.tsv", "[30, 70]")):
            (folder / name).write_text(f"idx\tlabel\tcounts\n0\t1\t{counts}\n")
        (folder / "certify_args.json").write_text(text)
        assert patient.read(read_log, folder.parent)
        (folder.parent / "out").rmdir()
