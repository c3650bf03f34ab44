"""A network in integers of eight bits, calibrated on noisy inputs: an ONNX file that is a classifier of its own."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.errors import InputError
from smoothcert.files import write_whole
from smoothcert.sampling.engines.agreement import labels_of
from smoothcert.sampling.engines.onnx import Graph, exported

logger = logging.getLogger(__name__)
Inputs = Sequence[NDArray[np.float32]]

INPUTS = 100
"""How many inputs are enough to calibrate and to judge."""

CALIBRATING, JUDGING, ROWS = 100, 1_000, 10
"""Noisy copies that calibrate, others that judge, and how many run at once."""

ENOUGH = 0.99
"""The share of equal labels at which no other recipe is tried."""

FEW = 3
"""Layers of which none is left in float32."""

LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@dataclass(frozen=True)
class Recipe:
    """How ranges are taken from noisy inputs, and whether the layers at both ends of the network stay in float32."""

    method: str
    ends: bool = False

    def __str__(self) -> str:
        ends = ", the first and last layers in float32" if self.ends else ""
        return f"{self.method.lower()} calibration{ends}"

    def left(self, layers: Sequence[str]) -> list[str]:
        """The layers that stay in float32: the last one, and one in sixteen at the beginning.

        >>> Recipe("MinMax", ends=True).left("abcdef")
        ['a', 'f']
        """
        return [*layers[: max(1, len(layers) // 16)], layers[-1]] if self.ends and len(layers) > FEW else []


RECIPES = (Recipe("MinMax"), Recipe("MinMax", True), Recipe("Percentile", True), Recipe("Entropy", True))
"""In the order in which they are tried: the quick ones first."""


@dataclass(frozen=True)
class Quantised:
    """The content of an .onnx file, and what it was made from: the state of a module, and the fingerprint of that model
    as a run has it."""

    content: bytes
    source: str
    model: str

    @property
    def digest(self) -> str:
        """SHA-256 of the content: the fingerprint that the file has as a model."""
        return hashlib.sha256(self.content).hexdigest()


def quantised(module: torch.nn.Module, xs: Inputs, sigma: float) -> bytes:
    """The network whose labels under noise are those of float32 most often, by the recipes above.

    Every other input calibrates; the share of equal labels is that of noisy copies of the others, and is told. The
    noise is none that a run draws, so that the network is fixed before the first draw.
    """
    content = exported(module, (ROWS, *xs[0].shape))
    calibrating, judging = xs[::2], xs[1::2] or xs
    rows = list(_noisy(calibrating, sigma, CALIBRATING, seed=0))
    float32 = _labels(content, judging, sigma)
    best, share, how = b"", -1.0, RECIPES[0]
    for recipe in RECIPES:
        made = make(content, rows, recipe)
        equal = float((_labels(made, judging, sigma) == float32).float().mean())
        logger.debug("%s: %.1f %% of the labels stay", recipe, 100 * equal)
        if equal > share:
            best, share, how = made, equal, recipe
        if share >= ENOUGH:
            break
    logger.info(
        "onnx+int8: %.1f %% of %s labels under noise are those of float32 (%s)", 100 * share, f"{JUDGING:,}", how
    )
    return best


def make(content: bytes, batches: Sequence[torch.Tensor], recipe: Recipe) -> bytes:
    """The network `content` with activations of 8 and weights of 7 bits, a scale a channel.

    With weights of 8 bits CPUs without VNNI instructions saturate the sum of two products, which holds 16 bits, and are
    another classifier; 2 · 255 · 64 < 2¹⁵.
    """
    quantization = _import_quantization()
    name = Graph(content, "the exported model").name
    try:
        with TemporaryDirectory() as folder, _quiet():
            whole, simple, made = (Path(folder) / f"{step}.onnx" for step in ("whole", "simple", "made"))
            write_whole(whole, lambda file: file.write(content))
            quantization.quant_pre_process(str(whole), str(simple), skip_symbolic_shape=True)
            quantization.quantize_static(
                str(simple),
                str(made),
                _Reader(name, batches),
                quant_format=quantization.QuantFormat.QDQ,
                per_channel=True,
                reduce_range=True,
                activation_type=quantization.QuantType.QUInt8,
                weight_type=quantization.QuantType.QInt8,
                nodes_to_exclude=recipe.left(_layers(simple.read_bytes())),
                calibrate_method=quantization.CalibrationMethod[recipe.method],
                extra_options={"CalibStridedMinMax": 1},  # a batch at a time, by whatever method: it saves memory
            )
            return made.read_bytes()
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"the model cannot be quantised ({reason}): use engine onnx.") from error


class _Reader:
    """Batches as ONNX Runtime's calibrators ask for them: for so many, one by one."""

    def __init__(self, name: str, batches: Sequence[torch.Tensor]) -> None:
        self._name, self._batches = name, batches
        self._asked: Iterator[torch.Tensor] = iter(())

    def __len__(self) -> int:
        return len(self._batches)

    def set_range(self, start_index: int, end_index: int) -> None:
        self._asked = iter(self._batches[start_index:end_index])

    def get_next(self) -> dict[str, Any] | None:
        return next(({self._name: batch.numpy()} for batch in self._asked), None)


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing that ONNX Runtime's tools print, or log where that would set up logging for the whole process."""
    root, silent = logging.getLogger(), logging.NullHandler()
    root.addHandler(silent)
    try:
        with redirect_stdout(StringIO()):
            yield
    finally:
        root.removeHandler(silent)


def _noisy(xs: Inputs, sigma: float, rows: int, seed: int) -> Iterator[torch.Tensor]:
    """So many noisy copies of xs, all with as many, in batches."""
    generator, inputs = torch.Generator().manual_seed(seed), torch.from_numpy(np.stack(xs))
    for start in range(0, rows, ROWS):
        clean = inputs[torch.arange(start, start + ROWS) % len(inputs)]
        yield clean + sigma * torch.randn(clean.shape, generator=generator)


def _labels(content: bytes, xs: Inputs, sigma: float) -> torch.Tensor:
    """What a network says of the noisy copies that judge."""
    graph = Graph(content, "the quantised model")
    return torch.cat([labels_of(graph(batch)) for batch in _noisy(xs, sigma, JUDGING, seed=1)])


def _layers(content: bytes) -> list[str]:
    """The names of the layers that weigh, in their order."""
    from onnx import ModelProto

    return [node.name for node in ModelProto.FromString(content).graph.node if node.op_type in LAYERS]


def _import_quantization() -> Any:
    try:
        from onnxruntime import quantization
        from onnxruntime.quantization.shape_inference import quant_pre_process
    except ImportError:
        raise InputError("engine onnx+int8 needs ONNX Runtime: pip install 'smoothcert[onnx]'.") from None
    quantization.quant_pre_process = quant_pre_process
    return quantization
