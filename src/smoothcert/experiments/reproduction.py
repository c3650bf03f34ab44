"""What the reproduced claims have in common: a stage to run on, and numbers, a table and a figure to show."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.certification.planning import count_classes
from smoothcert.checks import check_whole
from smoothcert.classifier import SmoothedClassifier
from smoothcert.data import Dataset, open_data
from smoothcert.errors import InputError
from smoothcert.experiments.sources import Sources, find_weights, imagenet_validation
from smoothcert.files import write_text, write_whole
from smoothcert.models import load_model
from smoothcert.modules import require_module
from smoothcert.options import option
from smoothcert.plan import Kind, Setting
from smoothcert.report.figure import STYLE
from smoothcert.sampling.engines import Engines, open_engine

SEED, BATCH = 0, 200
METADATA: dict[str, dict[str, None]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""Of each kind of figure; no date, so that the same figure is the same file."""

COLUMN = 3.3
"""The width of a column of a paper, in inches."""

BUILT_IN = "the claims are about torch modules: name a built-in network."


class Scale(str, Enum):
    """How large: digits in a minute, CIFAR-10 on a CPU, or the paper's own setting on a GPU."""

    SMOKE = "smoke"
    CPU = "cpu"
    PAPER = "paper"


class Pub(str, Enum):
    """Which products of the layers' norms the table of constants has: proved, or the paper's beside them."""

    PROVED = "proved"
    PAPER = "paper"


@dataclass(frozen=True)
class Size:
    """Less than the scale asks for, to try a claim out."""

    limit: int | None = option(None, help="At most so many inputs of each data set, to try it out.")
    n: int | None = option(None, help="At most so many draws for each of them, to try it out.")

    def __post_init__(self) -> None:
        for name in ("limit", "n"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 1)

    def inputs(self, wanted: int) -> int:
        """So many inputs, or fewer."""
        return min(wanted, self.limit or wanted)

    def draws(self, wanted: int) -> int:
        """So many draws, or fewer."""
        return min(wanted, self.n or wanted)

    def numbers(self, wanted: Sequence[int]) -> tuple[int, ...]:
        """Several such numbers, each once."""
        return tuple(sorted({self.draws(n) for n in wanted}))


@dataclass(frozen=True)
class Stage:
    """Where a claim is computed again: its run files and results go to `out`."""

    scale: Scale
    out: Path
    sources: Sources
    setting: Setting
    size: Size
    pub: Pub
    progress: Callable[[str, int, float, str], None] = lambda what, count, done, unit: None

    def smoothed(self, model: torch.nn.Module, data: Dataset, sigma: float, votes: str | Kind) -> SmoothedClassifier:
        """The model smoothed. Engine, batch and seed are fixed: the same claim draws the same votes."""
        engines = Engines(model)
        classes = count_classes(engines, data)
        if data.classes is not None and len(data.classes) != classes:
            raise InputError(
                f"the network scores {classes:,} classes and {data.description} has {len(data.classes):,}: give the "
                "data set that it was trained for, whole."
            )
        setting = {"engine": self.setting.engine, "batch": self.setting.batch, "seed": self.setting.seed}
        return SmoothedClassifier(engines, sigma=sigma, num_classes=classes, votes=votes, **setting)

    def meter(self, what: str) -> Callable[[int, float], None]:
        """Progress of one part, by its name."""
        return lambda draws, done: self.progress(what, draws, done, "draws")

    def kept(self, what: str, model: torch.nn.Module, compute: Callable[[], Any]) -> Any:
        """What was computed of the model under this name before, or is now: JSON values, kept in `out`."""
        path = self._place(f"{what}.json", model)
        if not path.exists():
            write_text(path, json.dumps(compute()))
        return json.loads(path.read_text())

    def kept_array(self, what: str, model: torch.nn.Module, compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """The same of an array."""
        path = self._place(f"{what}.npy", model)
        if not path.exists():
            write_whole(path, partial(np.save, arr=compute()))
        return np.asarray(np.load(path))

    def _place(self, what: str, model: torch.nn.Module) -> Path:
        """The file of what is kept, named after the scale and the model's weights, too."""
        name = Path(what)
        folder = self.out / "kept"
        folder.mkdir(exist_ok=True)
        return folder / f"{self.scale.value}-{name.stem}-{open_engine(model).fingerprint[:16]}{name.suffix}"

    def cifar10(self) -> Dataset:
        """The test images."""
        if self.sources.data is None:
            raise InputError(f"the {self.scale.value} scale needs CIFAR-10: pass `data`, the folder of test.parquet.")
        whole = self.sources.data / "test.parquet"
        return open_data(str(whole if whole.exists() else self.sources.data))

    def imagenet(self) -> Dataset:
        """The validation images."""
        if self.sources.imagenet is None:
            raise InputError(
                f"the {self.scale.value} scale needs ImageNet: pass `imagenet`, its validation images, or none to "
                "leave its figures out."
            )
        return imagenet_validation(self.sources.imagenet, self.sources.imagenet_labels)

    def networks(self, arch: str, sigmas: Sequence[float]) -> list[torch.nn.Module]:
        """Networks trained under noise, one for each σ: ours by name, Cohen's, or what `smoothcert train` wrote."""
        folders = self.sources.folders
        found = [(sigma, find_weights(arch, sigma, folders)) for sigma in sigmas]
        if missing := [f"{sigma:.2f}" for sigma, weights in found if weights is None]:
            raise InputError(
                f"there are no weights of {arch} for σ = {', '.join(missing)} in {', '.join(map(str, folders))}: pass "
                f"`checkpoints`, or train them into {arch}-noise{missing[0]}.safetensors there."
            )
        loaded = (
            load_model(weights[0], weights=weights[1], device=self.sources.device) for _, weights in found if weights
        )
        return [require_module(network, BUILT_IN) for network in loaded]

    def network(self, arch: str, sigma: float) -> torch.nn.Module:
        """The network trained under noise σ."""
        return self.networks(arch, (sigma,))[0]


def digits_network(name: str) -> torch.nn.Module:
    """A network for the digits, with the weights that come with it."""
    return require_module(load_model(name, device="cpu"), BUILT_IN)


@dataclass(frozen=True)
class Part:
    """What a claim has to do, of which it is known before the first draw how long it takes: so many units of one kind,
    and the seconds of one, measured."""

    kind: str
    units: int
    measure: Callable[[], float]


@dataclass(frozen=True)
class Claim:
    """`parts` opens all that `compute` needs, or says what is missing."""

    compute: Callable[[Stage], Result]
    parts: Callable[[Stage], Sequence[Part]] = lambda stage: ()


def draws_of(kind: str, units: int, smoothed: SmoothedClassifier, data: Dataset) -> Part:
    """So many draws of a smoothed classifier; one takes its share of a forward pass of a full batch."""
    engine, rows = smoothed.engine, smoothed.setting.batch

    def measure() -> float:
        batch = torch.zeros(rows if isinstance(rows, int) else BATCH, *data.shape, device=engine.device)
        with engine.ready():
            engine(batch)
            start = perf_counter()
            engine(batch).sum().item()
            return (perf_counter() - start) / len(batch)

    return Part(kind, units, measure)


def estimate(parts: Sequence[Part]) -> float:
    """Seconds that the parts take; each kind is measured once."""
    kinds = {part.kind: part.measure for part in parts}
    seconds = {kind: measure() for kind, measure in kinds.items()}
    return sum(part.units * seconds[part.kind] for part in parts)


@dataclass(frozen=True)
class Sheet:
    """A table."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Result(Sheet):
    """What was found. The table goes to the terminal, and then those `beside` it; `numbers` go to a JSON file, the
    figure to PNG and SVG, and those for one column of a paper, by name, to PDF."""

    numbers: dict[str, Any]
    figure: Any = None
    pdfs: Mapping[str, Any] = field(default_factory=dict)
    remarks: Sequence[str] = field(default=())
    beside: Sequence[Sheet] = field(default=())


@contextmanager
def canvas(rows: int, columns: int, width: float = COLUMN, height: float = 2.4) -> Iterator[tuple[Any, Any]]:
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
    """NAME.json, NAME.png, NAME.svg and the PDFs in the output folder; returns what was written."""
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
    figures = [] if result.figure is None else [(name, result.figure, kind) for kind in METADATA if kind != "pdf"]
    figures += [(part, figure, "pdf") for part, figure in result.pdfs.items()]
    for stem, figure, kind in figures:
        paths.append(stage.out / f"{stem}.{kind}")
        write_whole(paths[-1], partial(figure.savefig, format=kind, dpi=160, metadata=METADATA[kind]))
    return paths
