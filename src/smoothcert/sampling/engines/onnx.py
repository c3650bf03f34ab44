"""ONNX Runtime on the CPU, for an .onnx file or a torch module that is exported on the way."""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

import numpy as np
import torch

from smoothcert.errors import InputError
from smoothcert.modules import evaluated, one_thread, warm_up
from smoothcert.sampling.engines.module import ModuleEngine, Network
from smoothcert.sampling.identity import Identity


class OnnxEngine(ModuleEngine):
    """A module exported with a free batch size, or for each batch shape where it has none.

    Exporter and runtime fold batch norms and choose layouts. As many batches run at once as there are CPU threads, each
    on one: threads that share a batch wait for each other after every layer.
    """

    family = "onnx"
    options_known: ClassVar[tuple[str, ...]] = ()

    def __init__(self, module: torch.nn.Module, options: tuple[str, ...] = ()) -> None:
        super().__init__(module, options)
        if self.device.type != "cpu":
            raise InputError(f"engine 'onnx' runs on the CPU and the model is on {self.device}: use 'torch'.")

    def one_thread_each(self) -> bool:
        return True

    def versions(self) -> str:
        return f"onnxruntime {import_runtime().__version__}, torch {torch.__version__}"

    def build(self, batch: torch.Tensor) -> Network:
        name = "the exported model"
        if len(batch) > 1:  # torch.export takes a batch of one for a constant
            try:
                return Graph(_export(self._own, batch.shape, {0: torch.export.Dim("batch")}), name)
            except InputError:
                pass
        graphs = {batch.shape: Graph(_export(self._own, batch.shape), name)}

        def by_shape(rows: torch.Tensor) -> torch.Tensor:
            if rows.shape not in graphs:
                graphs[rows.shape] = Graph(_export(self._own, rows.shape), name)
            return graphs[rows.shape](rows)

        return by_shape


class OnnxFileEngine:
    """An .onnx file; one with a fixed batch size runs in pieces of that size."""

    device = torch.device("cpu")

    def __init__(self, path: Path) -> None:
        self.lanes = torch.get_num_threads()
        self.identity = Identity("onnx", f"onnxruntime {import_runtime().__version__}", "cpu")  # its types are its own
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}): check the path.") from None
        if _leans_on_files(content, path):
            raise InputError(
                f"{path} keeps its weights in files beside it, which its fingerprint would not cover: save it as one "
                f"file, with onnx.save_model(model, path, save_as_external_data=False)."
            )
        self.fingerprint = hashlib.sha256(content).hexdigest()
        self._open = partial(Graph, content, str(path))
        self._opening = Lock()
        self._graph: Graph | None = None

    @contextmanager
    def ready(self) -> Iterator[None]:
        with one_thread():
            yield

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        with self._opening:
            self._graph = self._graph or self._open()
        return self._graph(batch)


class Graph:
    """A graph whose one input is the batch and whose first output are scores or labels."""

    def __init__(self, content: bytes, name: str) -> None:
        runtime = import_runtime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"ONNX Runtime cannot open {name} ({reason}): check the file.") from None
        inputs = self._session.get_inputs()
        if len(inputs) != 1:
            raise InputError(f"the ONNX model has {len(inputs)} inputs: give one that takes the batch alone.")
        (batch,) = inputs
        self.name = batch.name
        self._fixed = batch.shape[0] if batch.shape and isinstance(batch.shape[0], int) else None

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        rows = batch.numpy()
        if self._fixed in (None, len(rows)):
            return torch.from_numpy(self._run(rows))
        padded = np.concatenate([rows, np.zeros((-len(rows) % self._fixed, *rows.shape[1:]), dtype=rows.dtype)])
        pieces = np.split(padded, len(padded) // self._fixed)
        return torch.from_numpy(np.concatenate([self._run(piece) for piece in pieces])[: len(rows)])

    def _run(self, rows: Any) -> Any:
        return self._session.run(None, {self.name: rows})[0]


def _leans_on_files(content: bytes, path: Path) -> bool:
    """Does any tensor of a model, wherever it stands in it, say that its values are in another file?"""
    try:
        from onnx import ModelProto, TensorProto
    except ImportError:
        raise InputError("ONNX models need onnx: pip install 'smoothcert[onnx]'.") from None
    try:
        messages: list[Any] = [ModelProto.FromString(content)]
    except Exception:  # protobuf has errors of its own for each way in which it is implemented
        raise InputError(f"ONNX Runtime cannot open {path} (it is no ONNX model): check the file.") from None
    while messages:
        message = messages.pop()
        if isinstance(message, TensorProto) and (message.external_data or message.data_location):
            return True
        for field, value in message.ListFields():
            if field.message_type is not None:
                messages += value if isinstance(value, Sequence) else [value]
    return False


def import_runtime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise InputError("ONNX models need ONNX Runtime: pip install 'smoothcert[onnx]'.") from None
    return onnxruntime


def exported(module: torch.nn.Module, shape: tuple[int, ...]) -> bytes:
    """The graph of a module in evaluation mode with a free batch size, or for batches of the given one alone."""
    try:
        return _export(evaluated(module), torch.Size(shape), {0: torch.export.Dim("batch")})
    except InputError:
        return _export(evaluated(module), torch.Size(shape))


def _export(module: torch.nn.Module, shape: torch.Size, free: dict[int, Any] | None = None) -> bytes:
    """The module's graph for batches of a shape, some dimensions of it left free; called in evaluation mode."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.inference_mode(False), torch.no_grad():
            warnings.simplefilter("ignore")
            warm_up(module, torch.zeros(shape))
            program = torch.onnx.export(
                module,
                (torch.zeros(shape),),
                dynamo=True,
                verbose=False,
                dynamic_shapes=None if free is None else (free,),
                custom_translation_table={torch.ops.aten.log_sigmoid.default: _log_sigmoid},
            )
        assert program is not None
        content: bytes = program.model_proto.SerializeToString()
    except ImportError as error:
        raise InputError(
            f"ONNX Runtime, often the fastest, needs {error.name}: pip install 'smoothcert[onnx]'"
        ) from error
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"the model cannot be exported to ONNX ({reason}): use engine torch.") from error
    finally:
        logger.setLevel(level)
    return content


def _log_sigmoid(x: Any) -> Any:
    """`−log(1 + e^{−x})`; the exporter takes the logarithm of a sigmoid, which in ONNX Runtime is 0 far from 0."""
    from onnxscript import opset18 as op

    return op.Neg(op.Softplus(op.Neg(x)))
