"""The product of the norms as the paper defines it, and the ratio that its published script takes for a norm."""

import math

import pytest
import torch
from torch import nn

from smoothcert.experiments.paper_product import paper_product, published_ratio
from smoothcert.lipschitz import product


def _network():
    """A convolution, a batch norm of two scales, and a pool whose windows overlap; all norms are known."""
    network = nn.Sequential(
        nn.Conv2d(2, 2, 1, bias=False), nn.BatchNorm2d(2, eps=0.0), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Flatten()
    ).eval()
    with torch.no_grad():
        network[0].weight.copy_(torch.diag(torch.tensor([3.0, 0.5]))[:, :, None, None])
        network[1].weight.copy_(torch.tensor([1.0, -4.0]))
        network[1].running_var.fill_(4.0)
    return network


def test_batch_norm_is_not_folded_and_pools_have_one():
    assert paper_product(_network(), (2, 8, 8)) == pytest.approx(3.0 * 2.0)
    # Folded, the scales meet their own channels; an entry can win four windows of the pool.
    assert product(_network(), (2, 8, 8)).value == pytest.approx(max(3.0 * 0.5, 0.5 * 2.0) * 2.0)


def test_a_residual_block_adds_its_ways():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.way = nn.Linear(3, 3, bias=False)
            nn.init.eye_(self.way.weight)

        def forward(self, x):
            return x + 5 * self.way(x)

    assert paper_product(Residual().eval(), (3,)) == pytest.approx(6.0)


def test_the_published_ratio_knows_nothing_of_the_size_of_a_kernel():
    """It tends to 1 from below, whatever the norm."""
    kernel = torch.randn(16, 16, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ratios = [published_ratio(scale * kernel, 16) for scale in (1, 5, 50)]
    assert ratios == pytest.approx([ratios[0]] * 3, rel=1e-12)
    assert 0.98 < ratios[0] <= 1
    assert ratios[0] < published_ratio(kernel, 16, steps=200) <= 1 + 1e-12
    assert math.isclose(published_ratio(kernel, 16, steps=2000), 1, rel_tol=1e-6)
