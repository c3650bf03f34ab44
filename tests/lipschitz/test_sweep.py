"""Hundreds of small networks against their dense Jacobians: operations × shapes × what is around them."""

import itertools
import math
import random

import pytest
import torch
from torch import nn
from torch.nn import functional

from smoothcert.errors import InputError
from smoothcert.lipschitz import GroupSort, product
from smoothcert.models.liresnet import MinMax

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self, run, part=None):
        super().__init__()
        self.part = part
        self.run = run

    def forward(self, x):
        return self.run(x, self.part) if self.part is not None else self.run(x)


def in_place(x):
    h = 2 * x
    h.view(-1).mul_(3.5)
    h[:, 0] *= 3
    return h


def made(run):
    return lambda shape: Net(run)


def norm2d(shape):
    layer = nn.BatchNorm2d(shape[0])
    layer.running_var.uniform_(0.1, 2)
    return nn.Sequential(nn.Conv2d(shape[0], shape[0], 3, padding=1), layer)


# Each for the shape of one input, without the batch: most run on shapes with and without an axis for channels.
OPERATIONS = {
    "max pool 1d": lambda s: nn.MaxPool1d(3, 1),
    "max pool 1d, strided": lambda s: nn.MaxPool1d(3, 2, 1, ceil_mode=True),
    "max pool 2d": lambda s: nn.MaxPool2d(3, 1),
    "max pool 2d, dilated": lambda s: nn.MaxPool2d(2, 1, dilation=2),
    "average pool 1d": lambda s: nn.AvgPool1d(3, 1, 1),
    "average pool 2d": lambda s: nn.AvgPool2d(2, 1, 1, count_include_pad=False),
    "sum pool 2d": lambda s: nn.AvgPool2d(3, 1, divisor_override=1),
    "adaptive average 1d": lambda s: nn.AdaptiveAvgPool1d(9),
    "adaptive average 2d": lambda s: nn.AdaptiveAvgPool2d((7, 3)),
    "adaptive max 1d": lambda s: nn.AdaptiveMaxPool1d(9),
    "adaptive max 2d": lambda s: nn.AdaptiveMaxPool2d((4, 7)),
    "conv 1d": lambda s: nn.Conv1d(s[0], 3, 3, 2, 1),
    "conv 2d": lambda s: nn.Conv2d(s[0], 2, 3, padding=1, padding_mode="reflect"),
    "conv 2d, same": lambda s: nn.Conv2d(s[0], 2, (2, 3), padding="same"),
    "conv 2d, circular": lambda s: nn.Conv2d(s[0], s[0], 3, padding=2, padding_mode="circular", groups=s[0]),
    "conv transposed": lambda s: nn.ConvTranspose2d(s[0], 2, 3, 2, 1, output_padding=1),
    "conv and batch norm": norm2d,
    "linear": lambda s: nn.Linear(s[-1], 5),
    "replicated": lambda s: nn.ReplicationPad1d((2, 1)),
    "nearest": made(lambda x: functional.interpolate(x, scale_factor=2)),
    "bilinear": made(lambda x: functional.interpolate(x, size=(5, 9), mode="bilinear")),
    "padded": made(lambda x: functional.pad(x, (2, -1), value=3.0)),
    "softmax": lambda s: nn.Softmax(-1),
    "log softmax": made(lambda x: x.log_softmax(1)),
    "logsumexp": made(lambda x: x.logsumexp(-1)),
    "sorted": made(lambda x: x.sort(1).values),
    "top two": made(lambda x: x.topk(2, -1).values),
    "largest": made(lambda x: x.amax(1)),
    "median": made(lambda x: x.median(-1).values),
    "cumsum": made(lambda x: x.cumsum(1)),
    "mean": made(lambda x: x.mean(-1)),
    "centred": made(lambda x: x - x.mean(1, keepdim=True)),
    "sum": made(lambda x: x.sum(1)),
    "norm": made(lambda x: x.norm(dim=-1)),
    "chunks": made(lambda x: torch.cat((*x.chunk(2, 1), 10 * x), 1)),
    "stacked": made(lambda x: torch.stack([x, 2 * x.flip(1), torch.zeros_like(x)], -1)),
    "repeated": made(lambda x: x.repeat_interleave(2, 1)),
    "indexed": made(lambda x: x[:, [0, 1, 1, 0, 0]]),
    "rolled": made(lambda x: x.roll(1, -1) - x),
    "unfolded": made(lambda x: x.unfold(1, 2, 1)),
    "triangle": made(lambda x: x.tril()),
    "outer sum": made(lambda x: x[:, :, None] + x[:, None]),
    "clamped": made(lambda x: 2 * x.clamp(-0.5, 0.5) + torch.maximum(x, -x)),
    "masked": made(lambda x: x.masked_fill(torch.eye(x.shape[-1], dtype=torch.bool)[0], 0.0) + x),
    "in place": made(in_place),
    "activations": made(lambda x: functional.gelu(functional.elu(x, 1.5)) + functional.mish(x)),
    "softplus": lambda s: nn.Softplus(2.0, 40),
    "prelu": lambda s: nn.PReLU(init=-1.7),
    "group sort": lambda s: GroupSort(),
    "min max": lambda s: MinMax(),
    "einsum": lambda s: Net(lambda x, w: torch.einsum("b...i,ij->b...j", x, w.weight), nn.Linear(4, s[-1])),
    "constant @ x": lambda s: Net(lambda x, w: w.weight @ x, nn.Linear(s[0], 3)),
    "layer norm": lambda s: nn.LayerNorm(s[-1]),
    "attention": made(lambda x: functional.scaled_dot_product_attention(x, x, x)),
    "batch mean": made(lambda x: x + x.mean(0)),
    "a jump": made(lambda x: x.round() + x),
}  # fmt: skip

SHAPES = [(6,), (16,), (4, 6), (6, 6), (1, 9), (2, 6, 6), (4, 5, 4), (1, 4, 7)]

WRAPPERS = {
    "itself": lambda x, part: part(x),
    "a residual": lambda x, part: torch.cat([part(x).flatten(1), 2 * x.flatten(1)], 1),
    "the batch merged": lambda x, part: (lambda y: y.reshape(len(x), -1))(part(x.flatten(0, 1))),
    "axes exchanged": lambda x, part: part(x.transpose(1, -1)) * 3,
    "an axis more": lambda x, part: part(x.unsqueeze(1)).squeeze(1),
    "twice": lambda x, part: part(functional.relu(part(x))),
    "the batch last": lambda x, part: part(x.movedim(0, -1)).movedim(-1, 0),
}


def networks(count):
    """As many (name, module, shape) that run, drawn from all combinations, every operation in its turn."""
    rng = random.Random(0)
    cases = {name: list(itertools.product(SHAPES, WRAPPERS)) for name in OPERATIONS}
    for listed in cases.values():
        rng.shuffle(listed)
    found = 0
    for turn in range(len(SHAPES) * len(WRAPPERS)):
        for name, listed in cases.items():
            shape, wrapper = listed[turn]
            torch.manual_seed(turn)
            try:
                module = Net(WRAPPERS[wrapper], OPERATIONS[name](shape)).double().eval()
                with torch.no_grad():
                    scores = module(torch.randn(2, *shape, dtype=torch.float64))
            except Exception:  # an operation that is not for this shape
                continue
            if scores.ndim and len(scores) == 2 and scores.isfinite().all():
                yield f"{name}, {wrapper}, {shape}", module, shape
                found += 1
            if found == count:
                return


def steepest(module, shape):
    norms = []
    for scale in (0.1, 1.0, 1.0, 5.0):
        x = scale * torch.randn(shape, dtype=torch.float64)
        columns = torch.autograd.functional.jacobian(lambda v: module(v[None])[0], x)
        norms.append(float(torch.linalg.matrix_norm(columns.reshape(-1, math.prod(shape)), 2)))
    return max(norms)


def sweep(count):
    """What became of so many networks."""
    bounded, refused, exceeded = 0, 0, []
    for name, module, shape in networks(count):
        try:
            bound = product(module, shape).value
        except InputError:
            refused += 1
            continue
        bounded += 1
        truth = steepest(module, shape)
        if truth > bound * (1 + 1e-9):
            exceeded.append(f"{name}: {truth:.6g} > {bound:.6g}")
    print(f"{bounded + refused} networks: {bounded} bounded, {refused} refused, {len(exceeded)} exceeded")
    return bounded, refused, exceeded


def test_no_jacobian_of_eight_networks_exceeds_its_bound():
    bounded, refused, exceeded = sweep(8)
    assert not exceeded
    assert bounded + refused == 8
    assert bounded >= 3


@pytest.mark.slow
def test_no_jacobian_of_four_hundred_networks_exceeds_its_bound():
    bounded, refused, exceeded = sweep(400)
    assert not exceeded
    assert bounded + refused == 400
    assert bounded >= 200
