"""The activation of 1-Lipschitz networks."""

from __future__ import annotations

from torch import Tensor, nn

from smoothcert.errors import InputError


class GroupSort(nn.Module):
    """Sorts the channels of (n, channels, …) within groups (Anil, Lucas and Grosse, 2019); groups of two are MinMax.

    A sort brings two vectors no further apart, and each output is one of the inputs: the constant is 1 and the
    gradient keeps its norm.
    """

    def __init__(self, group_size: int = 2) -> None:
        super().__init__()
        if group_size < 1:
            raise InputError("group_size must be at least 1.")
        self.group_size = group_size

    def forward(self, x: Tensor) -> Tensor:
        groups = x.reshape(x.shape[0], -1, self.group_size, *x.shape[2:])
        return groups.sort(2).values.reshape(x.shape)

    def lipschitz_bound(self) -> float:
        return 1.0
