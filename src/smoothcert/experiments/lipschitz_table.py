"""Table 1 of the paper: local Lipschitz estimates against product bounds, by training noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import numpy as np
import torch

from smoothcert.data import Dataset, digits, select
from smoothcert.experiments.confidence import CIFAR_NETWORKS
from smoothcert.experiments.paper_product import paper_product
from smoothcert.experiments.reproduction import Part, Pub, Result, Scale, Stage, digits_network
from smoothcert.experiments.sources import together
from smoothcert.lipschitz import local, product
from smoothcert.modules import device_of

SIGMAS = (0.0, 0.12, 0.25, 0.5, 1.0)
PRINTED: dict[str, dict[float, tuple[float, float]]] = {
    "liresnet": {0.0: (22, 37), 0.12: (11, 13), 0.25: (7.9, 9), 0.5: (4.8, 6)},
    "cifar_resnet110": {
        0.0: (235, 2.34e10), 0.12: (27, 1.03e12), 0.25: (25, 3.19e12), 0.5: (19, 9.71e9), 1.0: (3.8, 1.32e11),
    },
}  # fmt: skip
"""The table as the paper prints it: local constant and product at each training noise."""

INPUTS = {Scale.SMOKE: 20, Scale.CPU: 100, Scale.PAPER: 1_000}
BATCH, RADIUS = 50, 0.15


@dataclass(frozen=True)
class Network:
    """A row of the table."""

    name: str
    sigma: float
    model: torch.nn.Module


def opened(stage: Stage) -> tuple[list[Network], torch.Tensor]:
    """The networks, in evaluation mode, and the inputs; or one error that says what is missing."""
    if stage.scale is Scale.SMOKE:
        names = ("digits_cnn", "digits_lipschitz")
        return [Network(name, 0.25, digits_network(name).eval()) for name in names], _inputs(stage, digits(train=False))
    rows: dict[str, Sequence[float]] = {"liresnet": SIGMAS, CIFAR_NETWORKS[stage.scale]: SIGMAS}
    if stage.scale is Scale.PAPER:
        rows["liresnet"] = tuple(PRINTED["liresnet"])
    *networks, data = together(*(partial(stage.networks, a, s) for a, s in rows.items()), stage.cifar10)
    found = [
        Network(arch, sigma, model.eval())
        for (arch, sigmas), models in zip(rows.items(), networks, strict=True)
        for sigma, model in zip(sigmas, models, strict=True)
    ]
    return found, _inputs(stage, data)


def _inputs(stage: Stage, data: Dataset) -> torch.Tensor:
    count = stage.size.inputs(INPUTS[stage.scale])
    chosen = select(data, skip=max(1, len(data) // count), limit=count)
    return torch.from_numpy(np.stack([data[row].array for row in chosen]))


def table_parts(stage: Stage) -> list[Part]:
    """The searches near each input."""
    networks, inputs = opened(stage)
    return [Part(f"local {n.name}", len(inputs), partial(_seconds, n.model, inputs[:2])) for n in networks]


def _seconds(model: torch.nn.Module, few: torch.Tensor) -> float:
    start = perf_counter()
    _local(model, few)
    return (perf_counter() - start) / len(few)


def _local(model: torch.nn.Module, inputs: torch.Tensor) -> list[float]:
    values: list[float] = local(model, inputs.to(device_of(model)), radius=RADIUS).tolist()
    return values


def _products(stage: Stage, model: torch.nn.Module, shape: tuple[int, ...]) -> dict[str, float]:
    """The product of the norms in each of the ways that are asked for."""
    ways: dict[str, Callable[[], float]] = {
        "product_proved": lambda: product(model, shape).value,
        "product_power_estimated": lambda: product(model, shape, "power").value,
    }
    if stage.pub is Pub.PAPER:
        ways["product_of_the_paper_estimated"] = lambda: paper_product(model, shape)
    return {way: stage.kept(way, model, compute) for way, compute in ways.items()}


def lipschitz_table(stage: Stage) -> Result:
    """For each network the mean and the largest local estimate of its scores in B(x, 0.15), and its product bounds;
    beside them what the paper prints for its network at that noise."""
    networks, inputs = opened(stage)
    estimated = "product_power_estimated" if stage.pub is Pub.PROVED else "product_of_the_paper_estimated"
    shown = ("local_mean", "local_largest", "product_proved", estimated)
    rows, numbers = [], []
    for network in networks:
        found: list[float] = []
        for piece in torch.split(inputs, BATCH):
            part = f"local-{len(inputs)}-{len(found)}"
            found += stage.kept(part, network.model, partial(_local, network.model, piece))
            stage.progress(f"{network.name} σ={network.sigma:g}", len(found), len(found) / len(inputs), "inputs")
        values = {"local_mean": float(np.mean(found)), "local_largest": float(np.max(found))}
        values |= _products(stage, network.model, tuple(inputs.shape[1:]))
        family = "liresnet" if network.name == "liresnet" else "cifar_resnet110"
        printed = () if stage.scale is Scale.SMOKE else PRINTED[family].get(network.sigma, (None, None))
        numbers.append({"model": network.name, "sigma": network.sigma, **values, "paper": printed})
        beside = ("–" if value is None else f"{value:.3g}" for value in printed)
        rows.append((network.name, f"{network.sigma:g}", *(f"{values[k]:.3g}" for k in shown), *beside))
    ours = ("network", "σ", "local", "max", "product", "power" if stage.pub is Pub.PROVED else "paper's")
    theirs = () if stage.scale is Scale.SMOKE else ("local*", "PUB*")
    return Result(
        title=f"Lipschitz constants of the scores, {len(inputs)} inputs, local in B(x, {RADIUS:g})",
        columns=(*ours, *theirs),
        rows=rows,
        numbers={"inputs": len(inputs), "radius": RADIUS, "networks": numbers},
        remarks=[
            "σ is the noise of the training. Local values, their mean and the largest, are estimates from below; the "
            "product of the layers' norms is an upper bound on all of them. By power iteration it is an estimate.",
            *(["The paper's product (batch norm apart, pools 1) is an estimate."] if stage.pub is Pub.PAPER else []),
            *(["* As the paper prints them; its ordinary network is ResNet-110."] if theirs else []),
        ],
    )
