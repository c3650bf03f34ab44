"""Lipschitz-margin training (Tsuzuku et al., 2018) of a network that is 1-Lipschitz up to its last layer."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from smoothcert.models.liresnet import LiResNet, NormalizedLinear


class OffsetLoss(nn.Module):
    """Cross entropy of `(f_j + ε ‖w_j − w_y‖) / T`, w the last layer's rows: what a perturbation of length ε may give.

    Unlike the margin loss it grants the whole of ε to all images, and it does not differentiate norms: by design no
    layer before the last is steeper than 1.
    """

    def __init__(self, model: LiResNet, radius: float, temperature: float) -> None:
        super().__init__()
        self.radius, self.temperature = radius, temperature
        # A list: the layer is the model's, and not part of the state of the loss.
        self.last = [layer for layer in model.layers if isinstance(layer, NormalizedLinear)]

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        rows = functional.normalize(self.last[0].weight)
        # 1e-6: the root has no slope at zero, where a row meets itself.
        distances = (2 - 2 * rows @ rows.T).clamp_min(0).add(1e-6).sqrt()
        offsets = self.radius * (distances - distances.diag().diag())
        return functional.cross_entropy((scores + offsets[labels]) / self.temperature, labels)
