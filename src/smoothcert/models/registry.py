"""The built-in architectures by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

from torch import nn

from smoothcert.errors import InputError
from smoothcert.models.cifar_small import cifar_small
from smoothcert.models.digits import digits_cnn
from smoothcert.models.digits_lipschitz import digits_lipschitz
from smoothcert.models.liresnet import liresnet
from smoothcert.models.resnet import resnet50
from smoothcert.models.resnet_cifar import cifar_resnet

_BUILDERS: dict[str, Callable[..., nn.Module]] = {
    "resnet50": resnet50,
    "digits_cnn": digits_cnn,
    "digits_lipschitz": digits_lipschitz,
    "cifar_small": cifar_small,
    "liresnet": liresnet,
    "liresnet_l12w512": partial(liresnet, width=512, depth=12, dense=2048),
}
_CIFAR_DEPTHS = (20, 32, 44, 56, 110)


def names() -> tuple[str, ...]:
    """The names `build` knows; `cifar_resnet` takes any other depth 6k + 2 as well."""
    return (*(f"cifar_resnet{depth}" for depth in _CIFAR_DEPTHS), *_BUILDERS)


def build(name: str, **options: Any) -> nn.Module:
    """A network with random weights; the options (`num_classes`, `mean`, `std`) are those of its builder.

    >>> sum(p.numel() for p in build("cifar_resnet20", num_classes=10).parameters())
    272474
    """
    if match := re.fullmatch(r"cifar_resnet(\d+)", name):
        builder: Callable[..., nn.Module] = partial(cifar_resnet, int(match[1]))
    elif name in _BUILDERS:
        builder = _BUILDERS[name]
    else:
        raise InputError(f"There is no built-in model {name!r}: use one of {', '.join(names())}.")
    known = signature(builder).parameters
    if unknown := sorted(set(options) - set(known)):
        raise InputError(f"The model {name} has no option {unknown[0]!r}: use one of {', '.join(known)}.")
    return builder(**options)
