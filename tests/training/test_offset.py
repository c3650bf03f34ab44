"""The offset loss against its definition, class by class."""

import math

import pytest
import torch

from smoothcert import models
from smoothcert.training.offset import OffsetLoss


def test_each_other_class_gets_what_the_radius_is_worth():
    torch.manual_seed(0)
    shape = (3, 16, 16)
    model = models.build("liresnet", width=8, depth=1, dense=12, num_classes=4, input_shape=shape, orthogonal=True)
    loss = OffsetLoss(model, radius=0.3, temperature=0.2)
    scores, labels = torch.randn(20, 4), torch.arange(20) % 4
    rows, total = torch.nn.functional.normalize(model.layers[-1].weight).detach(), 0.0
    for f, y in zip(scores.tolist(), labels.tolist(), strict=True):
        granted = [f[j] + 0.3 * (rows[y] - rows[j]).norm().item() for j in range(4)]
        total += math.log(sum(math.exp(g / 0.2) for g in granted)) - f[y] / 0.2
    assert loss(scores, labels).item() == pytest.approx(total / 20, rel=1e-4)
    assert not list(loss.parameters())
    assert not loss.state_dict()
