"""The network of integers that a run is drawn with: made before its first draw, kept beside it, and found again."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from smoothcert.certification.fingerprint import fingerprint_of
from smoothcert.data import Dataset, as_dataset
from smoothcert.errors import InputError
from smoothcert.files import create_whole, read_plain
from smoothcert.modules import evaluated, require_module
from smoothcert.plan import Plan, Setting
from smoothcert.sampling.engines import INT8, NO_MODULE, Engines, Quantised
from smoothcert.sampling.engines.int8 import CHANGED
from smoothcert.sampling.engines.module import state_of
from smoothcert.sampling.engines.quantising import INPUTS, Inputs, quantised
from smoothcert.sampling.identity import Identity
from smoothcert.store.export import beside

logger = logging.getLogger(__name__)
LARGEST = 1 << 31
"""Bytes of a network: an ONNX file is one message of Protocol Buffers, which is smaller than 2 GiB."""


def network_path(run: Path) -> Path:
    """Where the network of a run is."""
    return beside(run, ".int8.onnx")


def spread(dataset: Dataset, rows: Sequence[int]) -> Inputs:
    """Inputs enough to calibrate, from all over the rows."""
    return [dataset[row].array for row in rows[:: max(1, len(rows) // INPUTS)][:INPUTS]]


def quantise_once(
    engines: Engines, setting: Setting, sigma: float, inputs: Callable[[], Inputs], model: str | None = None
) -> None:
    """Makes the network that the setting asks for, unless it is there: from the data that are given to calibrate it,
    or else from these inputs. One that is there must be of the model of this fingerprint, where that is known."""
    if setting.engine != INT8:
        return
    if setting.cluster is not None:
        raise InputError(
            f"engine {INT8} makes its network in one process: certify without a cluster, or give workers the .onnx "
            f"file beside such a run as the model."
        )
    if engines.quantised is not None:
        if model not in (None, engines.quantised.model):
            raise InputError(CHANGED)
        return
    module, given = require_module(engines.model, NO_MODULE), None
    if setting.calibration is not None:
        given = as_dataset(setting.calibration, labelled=False)
    xs = inputs() if given is None else spread(given, range(len(given)))
    source, model = state_of(evaluated(module)), model or fingerprint_of(module, xs[0].shape)
    engines.quantised = Quantised(quantised(module, xs, sigma), source, model)


def keep_network(run: Path, plan: Plan, engines: Engines, undo: ExitStack) -> None:
    """Writes the network beside a run that is about to begin, where it has one.

    Over nothing: what lies there may belong to another run. To `undo` it, where no run came of it, removes what was
    written here.
    """
    made = engines.quantised
    if not plan.setting.machine.network or made is None:
        return
    path = network_path(run)
    try:
        remove = create_whole(path, lambda file: file.write(made.content))
        undo.callback(lambda: None if os.path.lexists(run) else remove())
    except FileExistsError:
        if not _is(path, made.content):
            raise InputError(f"{path} exists already: move it away, or choose another `out`.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}): choose another `out`.") from None
    logger.info("the network is kept in %s: as the model of `predict` that file is what was certified", path)


def _is(path: Path, content: bytes) -> bool:
    with suppress(OSError):
        return read_plain(path, LARGEST) == content
    return False


def find_network(run: Path, plan: Plan, engines: Engines) -> None:
    """Takes the network beside a run for the model, where the run has one: that which was certified, or none."""
    engine = plan.setting.engine
    if not isinstance(engine, Identity) or not engine.network or engines.quantised is not None:
        return
    path, module = network_path(run), require_module(engines.model, NO_MODULE)
    try:
        made = Quantised(read_plain(path, LARGEST), state_of(evaluated(module)), plan.classifier.model)
    except OSError as error:
        raise InputError(
            f"{path}, the network of {run}, cannot be read ({error.strerror}): put it back, or start a new run."
        ) from None
    if made.digest != engine.network:
        raise InputError(
            f"{path} is not the network that {run} was started with: put that one back, or start a new run with "
            f"another `out`."
        )
    engines.quantised = made
