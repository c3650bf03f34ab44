"""The margin loss against its definition, class by class, and its slope against the proved bound."""

import math

import pytest
import torch

from smoothcert import lipschitz, models
from smoothcert.training.margin import MarginLoss


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    model = models.build("liresnet", width=8, depth=2, dense=12, num_classes=4, input_shape=(3, 16, 16))
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    loss = MarginLoss(model.eval(), 0.3, torch.Generator().manual_seed(0))
    for _ in range(300):
        loss.slope()
    return model, loss


def test_the_slope_is_the_proved_bound_of_all_layers_but_the_last_from_below(trained):
    model, loss = trained
    bound = lipschitz.product(model.layers[:-1], (3, 16, 16)).value
    assert 0.95 * bound < loss.slope().item() <= bound


@pytest.mark.parametrize("temperature", [0.2, 1.0])
def test_each_other_class_gets_what_its_radius_is_worth(trained, temperature, monkeypatch):
    model, loss = trained
    monkeypatch.setattr(loss, "temperature", temperature)
    scores, labels = 3 * torch.randn(20, 4), torch.arange(20) % 4
    rows = torch.nn.functional.normalize(model.layers[-1].weight)
    slope, total = loss.slope().item(), 0.0
    for f, y in zip(scores.tolist(), labels.tolist(), strict=True):
        granted = []
        for j in range(4):
            reach = slope * (rows[y] - rows[j]).norm().item()
            granted.append(f[j] if j == y else f[j] + min(max((f[y] - f[j]) / reach, 0), 0.3) * reach)
        total += math.log(sum(math.exp(g / temperature) for g in granted)) - f[y] / temperature
    assert loss(scores, labels).item() == pytest.approx(total / 20, rel=1e-3)


def test_its_gradient_lowers_the_slope_where_margins_are_within_the_radius(trained):
    model, loss = trained
    scores = torch.tensor([[0.1, 0.0, 0.0, 0.0]])
    model.zero_grad()
    loss(scores, torch.tensor([0])).backward()
    before = loss.slope().item()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= 0.1 * parameter.grad
    for _ in range(50):
        loss.slope()
    assert loss.slope().item() < before
