"""Batch norms in evaluation mode are affine: folded into the convolution before them they cost nothing."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy

from torch import nn
from torch.fx import GraphModule, symbolic_trace
from torch.nn.utils.fusion import fuse_conv_bn_eval

from smoothcert.errors import InputError

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def fold_batch_norms(module: nn.Module) -> GraphModule:
    """A copy in evaluation mode, each batch norm folded where it follows a convolution that nothing else uses.

    `γ (W x + b − μ)/√(v + ε) + β = (s W) x + s (b − μ) + β` with `s = γ/√(v + ε)`. A linear layer is left alone: its
    outputs are the last axis, and need not be the channels, which are the second. Raises where torch.fx cannot trace
    the module, because its code depends on its input, or because more than the `forward` of its class runs in a call.
    """
    copied = deepcopy(module).eval()
    if not _is_plain(copied):
        raise InputError("a model with a hook or a `forward` or `__call__` of its own is not folded: use engine torch.")
    traced = symbolic_trace(copied)
    layers = dict(traced.named_modules())
    uses = Counter(node.target for node in traced.graph.nodes if node.op == "call_module")
    read = {node.target.rpartition(".")[0] for node in traced.graph.nodes if node.op == "get_attr"}
    for norm in list(traced.graph.nodes):
        if norm.op != "call_module" or type(layers[norm.target]) not in NORMS:
            continue
        before = norm.all_input_nodes[0]
        if before.op != "call_module" or len(before.users) > 1 or uses[before.target] > 1 or uses[norm.target] > 1:
            continue
        layer, batch_norm = layers[before.target], layers[norm.target]
        if type(layer) not in CONVOLUTIONS or before.target in read or batch_norm.running_mean is None:
            continue
        if not _is_plain(layer) or not _is_plain(batch_norm):
            continue
        traced.set_submodule(before.target, fuse_conv_bn_eval(layer, batch_norm))
        norm.replace_all_uses_with(before)
        traced.graph.erase_node(norm)
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced


def _is_plain(module: nn.Module) -> bool:
    """Is the `forward` of its class all that runs when it is called?"""
    hooks = module._forward_hooks or module._forward_pre_hooks
    return not hooks and "forward" not in vars(module) and type(module).__call__ is nn.Module.__call__
