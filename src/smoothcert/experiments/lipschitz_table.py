"""Table 1 of the paper: local Lipschitz estimates against product bounds, by training noise."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Literal

import numpy as np
import torch

from smoothcert.data import Dataset, digits, select
from smoothcert.experiments.reproduction import Result, Scale, Stage, digits_network
from smoothcert.lipschitz import local, product
from smoothcert.modules import device_of

SIGMAS = (0.0, 0.12, 0.25, 0.5, 1.0)
INPUTS = {Scale.SMOKE: 20, Scale.CPU: 100, Scale.PAPER: 1_000}
BATCH = 50
METHODS: tuple[Literal["fourier"], Literal["power"]] = ("fourier", "power")


def networks(stage: Stage) -> Iterator[tuple[str, float, torch.nn.Module]]:
    """(name, training noise, network) of each row."""
    if stage.scale is Scale.SMOKE:
        for name in ("digits_cnn", "digits_lipschitz"):
            yield name, 0.25, digits_network(name)
        return
    for arch in ("liresnet", "cifar_small" if stage.scale is Scale.CPU else "cifar_resnet110"):
        for sigma in SIGMAS:
            yield arch, sigma, stage.network(arch, sigma)


def _local(model: torch.nn.Module, inputs: torch.Tensor) -> list[float]:
    values: list[float] = local(model, inputs.to(device_of(model)), radius=0.15).tolist()
    return values


def _product(model: torch.nn.Module, shape: tuple[int, ...], method: Literal["fourier", "power"]) -> float:
    return product(model, shape, method).value


def lipschitz_table(stage: Stage) -> Result:
    """For each network the mean and the largest local estimate of its scores in B(x, 0.15), and its product bounds."""
    data: Dataset = digits(train=False) if stage.scale is Scale.SMOKE else stage.cifar10()
    count = INPUTS[stage.scale]
    chosen = select(data, skip=max(1, len(data) // count), limit=count)
    inputs = torch.from_numpy(np.stack([data[row].array for row in chosen]))
    rows, numbers = [], []
    for name, sigma, model in networks(stage):
        model.eval()
        found: list[float] = []
        for piece in torch.split(inputs, BATCH):
            part = f"lipschitz-table-{name}-{sigma:g}-{len(inputs)}-{len(found)}"
            found += stage.kept(part, model, partial(_local, model, piece))
            stage.progress(f"{name} σ={sigma:g}", len(found), len(found) / len(inputs), "inputs")
        estimates = np.array(found)
        shape = tuple(inputs.shape[1:])
        bounds = {
            m: stage.kept(f"product-{name}-{sigma:g}-{m}", model, partial(_product, model, shape, m)) for m in METHODS
        }
        numbers.append(
            {
                "model": name,
                "sigma": sigma,
                "local_mean": float(estimates.mean()),
                "local_largest": float(estimates.max()),
                "product_proved": bounds["fourier"],
                "product_power_estimated": bounds["power"],
            }
        )
        rows.append(
            (
                name,
                f"{sigma:g}",
                f"{estimates.mean():.3g}",
                f"{estimates.max():.3g}",
                f"{bounds['fourier']:.3g}",
                f"{bounds['power']:.3g}",
            )
        )
    return Result(
        title=f"Lipschitz constants of the scores, {len(inputs)} inputs, local in B(x, 0.15)",
        columns=("network", "σ", "local, mean", "local, max", "product", "power"),
        rows=rows,
        numbers={"inputs": len(inputs), "radius": 0.15, "networks": numbers},
        remarks=[
            "σ is the noise of the training. Local values are estimates from below; the product of the layers' norms "
            "is an upper bound on all of them. By power iteration it is an estimate."
        ],
    )
