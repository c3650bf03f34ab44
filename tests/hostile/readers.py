"""Every reader of a file, as a function of a folder: what is in `in` is read, what is written goes to `out`."""

import io
import shutil
import time
from contextlib import redirect_stdout, suppress
from functools import partial

import pyarrow as pa
import torch

from smoothcert import InputError, RunError, open_run
from smoothcert.cli.recertify import recertify
from smoothcert.cli.show import show
from smoothcert.data import open_data
from smoothcert.models import load_model, load_weights
from smoothcert.models.checkpoints import read_configuration
from smoothcert.report.write import write_report
from smoothcert.sampling.engines.onnx import OnnxFileEngine
from smoothcert.store.doctor import diagnose
from smoothcert.store.export import WRITERS, export_run
from smoothcert.store.file import RunFile
from smoothcert.store.logs import import_logs
from smoothcert.store.shards import merge_runs

pa.set_memory_pool(pa.system_memory_pool())  # the others reserve a gigabyte at once, which is all that a child has

TABLES = ("html", "markdown", "latex", "csv")
SECONDS = 10
"""So long may each thing take that is done with a run file of a few megabytes."""


def read_run(folder):
    """All that can be done with a run file, each on its own; the first refusal of it at the end."""
    path, out = folder / "in" / "run.smoothcert", folder / "out"
    out.mkdir()
    refusals = []
    for act in (
        partial(shown, path),
        lambda: open_run(path).to_pandas(),
        lambda: open_run(path)._repr_html_(),
        *(partial(exported, path, out, kind) for kind in WRITERS),
        *(partial(reported, path, out, kind) for kind in TABLES),
        partial(recertified, path),
        lambda: diagnose(path, out / "copy"),
        partial(merged, path, out),
        partial(opened_to_write, path, out),
    ):
        began = time.process_time()
        try:
            act()
        except (InputError, RunError) as error:
            refusals.append(error)
        assert time.process_time() - began < SECONDS, act
    if refusals:
        raise refusals[0]


def shown(path, out=None):
    with redirect_stdout(out or io.TextIOWrapper(io.BytesIO(), encoding="utf-8")):
        show(path)


def exported(path, out, kind):
    export_run(open_run(path), out / f"table.{kind}", kind)


def reported(path, out, kind):
    write_report([open_run(path)], out / f"report.{kind}", kind)


def recertified(path):
    with redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")):
        recertify(path)


def merged(path, out):
    if open_run(path).plan.selection.shard is not None:
        merge_runs([path], out / "merged")


def opened_to_write(path, out):
    """As certify opens it to go on: it is locked and brought up to date."""
    shutil.copy(path, out / "again")
    RunFile.open_to_write(out / "again").close()


def read_log(folder):
    (folder / "out").mkdir()
    logs = [path for path in sorted((folder / "in").iterdir()) if path.suffix == ".tsv"]
    import_logs(logs, folder / "out" / "run.smoothcert")
    shown(folder / "out" / "run.smoothcert")


def read_rows(data):
    assert data.fingerprint
    for row in range(min(len(data), 100)):
        assert data[row].array.shape == data.shape


def read_data(folder):
    """The one file there is."""
    (path,) = (folder / "in").iterdir()
    read_rows(open_data(path))


def read_image_folder(folder):
    with suppress(InputError):
        read_rows(open_data(folder / "in", resize=4, crop=3))
    read_rows(open_data(folder / "in"))


def read_class_file(folder):
    images = folder / "in" / "images"
    open_data(images if images.exists() else folder / "in", classes=folder / "in" / "classes.txt")


def read_checkpoint(folder):
    (path,) = (folder / "in").iterdir()
    read_configuration(path)
    load_weights(network(), path)


def load_built_in(folder):
    """Weights that do not fit are compared with all architectures."""
    (path,) = (folder / "in").iterdir()
    load_model("digits_cnn", weights=path)


def network():
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))


def read_onnx(folder):
    OnnxFileEngine(folder / "in" / "model.onnx")(torch.zeros(2, 4))
