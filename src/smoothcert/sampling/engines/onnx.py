"""ONNX Runtime on the CPU, for an .onnx file or a torch module that is exported on the way."""

from __future__ import annotations

import hashlib
import logging
import warnings
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from smoothcert.errors import InputError
from smoothcert.sampling.engines.pytorch import TorchEngine


class OnnxEngine:
    """Runs a graph whose one input is the batch and whose first output are scores or labels.

    A module is exported for each batch shape it meets, with batch norms folded by the exporter and the runtime; a file
    with a fixed batch size runs in pieces of that size.
    """

    device = torch.device("cpu")

    def __init__(self, model: torch.nn.Module | Path) -> None:
        self._runtime = _import_runtime()
        self._torch: TorchEngine | None = None
        if isinstance(model, Path):
            try:
                content = model.read_bytes()
            except OSError as error:
                raise InputError(f"{model} cannot be read ({error.strerror}): check the path.") from None
            self.fingerprint = hashlib.sha256(content).hexdigest()
            self._session = cache(lambda shape: self._open(content, str(model)))
        else:
            self._torch = TorchEngine(model)
            if self._torch.device.type != "cpu":
                raise InputError(
                    f"engine 'onnx' runs on the CPU and the model is on {self._torch.device}: use 'torch'."
                )
            self.fingerprint = self._torch.fingerprint
            self._session = cache(lambda shape: self._open(_export(model, shape), "the exported model"))
        self.identity = f"onnxruntime {self._runtime.__version__} on cpu"

    def ready(self) -> AbstractContextManager[object]:
        return nullcontext() if self._torch is None else self._torch.ready()

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        session = self._session(tuple(batch.shape))
        (graph_input, *others) = session.get_inputs()
        if others:
            raise InputError(f"the ONNX model has {1 + len(others)} inputs: give one that takes the batch alone.")
        rows, fixed = batch.numpy(), graph_input.shape[0] if graph_input.shape else None
        if not isinstance(fixed, int) or fixed == len(rows):
            return torch.from_numpy(session.run(None, {graph_input.name: rows})[0])
        padded = np.concatenate([rows, np.zeros((-len(rows) % fixed, *rows.shape[1:]), dtype=rows.dtype)])
        pieces = np.split(padded, len(padded) // fixed)
        outputs = [session.run(None, {graph_input.name: piece})[0] for piece in pieces]
        return torch.from_numpy(np.concatenate(outputs)[: len(rows)])

    def _open(self, content: bytes, name: str) -> Any:
        options = self._runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        try:
            return self._runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"ONNX Runtime cannot open {name} ({reason}): check the file.") from None


def _import_runtime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise InputError("ONNX models need ONNX Runtime: pip install 'smoothcert[onnx]'.") from None
    return onnxruntime


def _export(module: torch.nn.Module, shape: tuple[int, ...]) -> bytes:
    """The module's graph for one batch shape; called in evaluation mode and without gradients."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.inference_mode(False), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(module, (torch.zeros(shape),), dynamo=True, verbose=False)
        assert program is not None
        content: bytes = program.model_proto.SerializeToString()
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"the model cannot be exported to ONNX ({reason}): use --engine torch.") from error
    finally:
        logger.setLevel(level)
    return content
