"""The margin loss of LiResNet: EMMA, efficient margin maximisation (Hu et al., 2023, section 4.2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from smoothcert.models.liresnet import LiResNet


class MarginLoss(nn.Module):
    """Cross entropy of `(f_j + ε_j K_j) / T`: each other class j gets what a perturbation of length ε_j may give it.

    `K_j` bounds the slope of `f_j − f_y` for the label y: the norms of all layers but the last, times the distance of
    the last layer's rows y and j. `ε_j` is the radius at which `f_j` would reach `f_y`, at least 0 and at most
    `radius`, and carries no gradient: what is safe within `radius` is left alone beyond it.

    The norms come from power iteration, one step a batch (Miyato et al., 2018), from below: good enough to train by;
    `LiResNet.lipschitz_bound` is what proves. The iterates are the state of the loss, so that a training resumes.
    """

    def __init__(self, model: LiResNet, radius: float, generator: torch.Generator, temperature: float = 1.0) -> None:
        super().__init__()
        self.radius, self.temperature = radius, temperature
        # A list: the layers are the model's, and not part of the state of the loss.
        self.linear = [layer for layer in model.layers if isinstance(layer, nn.Conv2d | nn.Linear)]
        x = torch.zeros(1, *model.input_shape, device=self.linear[0].weight.device)
        with torch.no_grad():
            for layer in model.layers:
                if layer in self.linear[:-1]:
                    start = torch.randn(x.shape, generator=generator).to(x.device)
                    self.register_buffer(f"iterate{self.linear.index(layer)}", start)
                x = layer(x)
        for _ in range(20):
            self.slope()

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        rows = functional.normalize(self.linear[-1].weight)
        # 1e-6: the root has no slope at zero, where a row meets itself.
        distances = (2 - 2 * rows @ rows.T).clamp_min(0).add(1e-6).sqrt()
        reach = self.slope() * distances[labels]
        margins = scores.gather(1, labels[:, None]) - scores
        radii = (margins / reach).detach().clamp(0, self.radius)
        return functional.cross_entropy((scores + radii * reach) / self.temperature, labels)

    def slope(self) -> Tensor:
        """The product of the norms of all layers but the last, after one more step of power iteration."""
        slope = torch.ones((), device=self.linear[0].weight.device)
        for layer, iterate in zip(self.linear[:-1], self.buffers(), strict=True):
            with torch.enable_grad():
                v = (iterate / iterate.norm()).requires_grad_()
                image = functional_call(layer, {"bias": torch.zeros(len(layer.weight), device=v.device)}, v)
                (adjoint,) = torch.autograd.grad(image, v, image.detach(), retain_graph=True)
            iterate.copy_(adjoint)
            slope = slope * image.norm()
        return slope
