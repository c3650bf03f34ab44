"""The scores of a model as a function that can be differentiated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert.errors import InputError, RunError
from smoothcert.modules import evaluated, no_exit, require_module

Scores = Callable[[Tensor], Tensor]


def require_gradients(model: Any) -> nn.Module:
    """The model, where it is a torch module: nothing else has gradients here."""
    return require_module(
        model, "an attack follows gradients, which only a torch module gives: pass one that returns scores."
    )


@contextmanager
def differentiable(module: nn.Module) -> Iterator[Scores]:
    """The module's scores (N, c) in evaluation mode, from a copy; the module is never switched or written to."""
    own = evaluated(module)
    with torch.inference_mode(False), torch.no_grad():
        yield lambda x: _scores(own, x)


def _scores(module: nn.Module, x: Tensor) -> Tensor:
    try:
        with no_exit():
            output = module(x)
    except (InputError, RunError):
        raise
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(
            f"the model does not take a batch of shape {tuple(x.shape)} ({reason}): check the model and the "
            f"preprocessing of the data."
        ) from error
    if not isinstance(output, Tensor) or output.ndim != 2 or not output.is_floating_point():
        raise InputError("the model returns labels, which have no gradient: attack the module that returns scores.")
    if torch.is_grad_enabled() and not output.requires_grad:
        raise InputError("the model's scores have no gradient: remove no_grad, detach or rounding from its forward.")
    if not bool(output.isfinite().all()):
        raise RunError("the model returned scores that are NaN or infinite: repair the model first.")
    return output
