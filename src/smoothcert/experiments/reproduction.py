"""What the reproduced claims have in common: a stage to run on, and numbers, a table and a figure to show."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import torch

from smoothcert.certification.planning import count_classes
from smoothcert.classifier import SmoothedClassifier
from smoothcert.data import Dataset, open_data
from smoothcert.errors import InputError
from smoothcert.files import write_text, write_whole
from smoothcert.models import load_model
from smoothcert.modules import require_module
from smoothcert.plan import Kind
from smoothcert.report.figure import STYLE
from smoothcert.sampling.engines import Engines, open_engine

SEED = 0
BUILT_IN = "the claims are about torch modules: name a built-in network."


class Scale(str, Enum):
    """How large: digits in a minute, CIFAR-10 on a CPU, or the paper's own setting on a GPU."""

    SMOKE = "smoke"
    CPU = "cpu"
    PAPER = "paper"


@dataclass(frozen=True)
class Stage:
    """Where a claim is computed again: its run files and results go to `out`."""

    scale: Scale
    out: Path
    data: Path | None = None
    imagenet: Path | None = None
    checkpoints: Path | None = None
    progress: Callable[[str, int, float, str], None] = lambda what, count, done, unit: None

    def smoothed(self, model: torch.nn.Module, data: Dataset, sigma: float, votes: str | Kind) -> SmoothedClassifier:
        """The model smoothed. Engine, batch and seed are fixed: the same claim draws the same votes."""
        engines, engine = Engines(model), "onnx" if self.scale is Scale.CPU else "torch"
        classes = count_classes(engines, data)
        return SmoothedClassifier(
            engines, sigma=sigma, num_classes=classes, votes=votes, engine=engine, batch=200, seed=SEED
        )

    def meter(self, what: str) -> Callable[[int, float], None]:
        """Progress of one part, by its name."""
        return lambda draws, done: self.progress(what, draws, done, "draws")

    def kept(self, what: str, model: torch.nn.Module, compute: Callable[[], Any]) -> Any:
        """What was computed of the model under this name before, or is now: JSON values, kept in `out`."""
        weights = open_engine(model).fingerprint
        path = self.out / "kept" / f"{self.scale.value}-{what}-{weights[:16]}.json"
        if not path.exists():
            value = compute()
            path.parent.mkdir(exist_ok=True)
            write_text(path, json.dumps(value))
        return json.loads(path.read_text())

    def cifar10(self) -> Dataset:
        """The test images."""
        if self.data is None:
            raise InputError(f"the {self.scale.value} scale needs CIFAR-10: pass `data`, the folder of test.parquet.")
        whole = self.data / "test.parquet"
        return open_data(str(whole if whole.exists() else self.data))

    def network(self, arch: str, sigma: float) -> torch.nn.Module:
        """A network trained under noise σ: ours by its name, or Cohen's in the folders of his archive."""
        folder = self.checkpoints or Path("experiments/models")
        places = [
            folder / f"{arch}-noise{sigma:.2f}.safetensors",
            folder / "cifar10" / arch.removeprefix("cifar_") / f"noise_{sigma:.2f}" / "checkpoint.pth.tar",
            folder / "imagenet" / arch / f"noise_{sigma:.2f}" / "checkpoint.pth.tar",
        ]
        found = next((p for p in places if p.exists()), None)
        if found is None:
            raise InputError(
                f"{folder} has no weights of {arch} for σ = {sigma:.2f}: pass `checkpoints`, or train them into "
                f"{places[0].name} there."
            )
        return require_module(load_model(arch, weights=found), BUILT_IN)


def digits_network(name: str) -> torch.nn.Module:
    """A network for the digits, with the weights that come with it."""
    return require_module(load_model(name, device="cpu"), BUILT_IN)


@dataclass(frozen=True)
class Result:
    """What was found. `numbers` go to a JSON file, `columns` and `rows` to the terminal, the figure to PNG and SVG."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: dict[str, Any]
    figure: Any = None
    remarks: Sequence[str] = field(default=())


@contextmanager
def canvas(rows: int, columns: int, width: float = 3.3, height: float = 2.4) -> Iterator[tuple[Any, Any]]:
    """An empty figure and its axes, an array (rows, columns), with the house style while it is drawn."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("the figures need Matplotlib: pip install 'smoothcert[report]'.") from None
    with matplotlib.rc_context({**STYLE, "axes.titlesize": 8}):
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
        for axis in axes.flat:
            axis.grid(linewidth=0.3, alpha=0.5)
        yield figure, axes


def write(name: str, result: Result, stage: Stage) -> list[Path]:
    """NAME.json, NAME.png and NAME.svg in the output folder; returns what was written."""
    record = {
        "claim": name,
        "scale": stage.scale.value,
        "seed": SEED,
        "date": date.today().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}",
        **result.numbers,
    }
    paths = [stage.out / f"{name}.json"]
    write_text(paths[0], json.dumps(record, indent=1, allow_nan=False) + "\n")
    if result.figure is not None:
        for kind, metadata in (("png", {}), ("svg", {"Date": None})):
            paths.append(stage.out / f"{name}.{kind}")
            write_whole(paths[-1], partial(result.figure.savefig, format=kind, dpi=160, metadata=metadata))
    return paths
