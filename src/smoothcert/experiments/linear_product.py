"""The paper's appendix: 110 linear layers whose product bound says nothing about their product."""

from __future__ import annotations

import math

import torch
from torch import nn

from smoothcert.experiments.reproduction import Result, Stage
from smoothcert.lipschitz import product

DEPTH, WIDTH, OUTPUT = 110, 100, 10


def linear_network() -> nn.Sequential:
    """Linear layers of width 100, built first, then drawn Kaiming uniform with a = √5 from torch seed 0."""
    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH - 1)] + [nn.Linear(WIDTH, OUTPUT)]
    torch.manual_seed(0)
    for layer in layers:
        nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5))
    return nn.Sequential(*layers)


def true_constant(network: nn.Sequential) -> float:
    """The largest singular value of the one matrix that the layers multiply to."""
    matrix = torch.eye(WIDTH, dtype=torch.float64)
    for layer in network:
        assert isinstance(layer, nn.Linear)
        matrix = layer.weight.detach().double() @ matrix
    return float(torch.linalg.matrix_norm(matrix, 2))


def linear_product(stage: Stage) -> Result:
    """The product of the layers' norms by each method, against the true constant."""
    network = linear_network()
    bounds = {method: product(network, (WIDTH,), method) for method in ("fourier", "gram", "power")}
    truth = true_constant(network)
    rows = [(f"product, {m}", b.basis, f"{b.value:.4g}") for m, b in bounds.items()]
    return Result(
        title=f"Lipschitz constant of {DEPTH} linear layers",
        columns=("", "basis", "constant"),
        rows=[*rows, ("true", "", f"{truth:.4g}")],
        numbers={"true": truth, "product": {m: b.value for m, b in bounds.items()}},
    )
