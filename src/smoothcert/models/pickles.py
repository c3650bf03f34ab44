"""What the pickle of a checkpoint asks for, told by its opcodes before any of it is loaded."""

from __future__ import annotations

import math
import pickle
import pickletools
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import torch

_CHANGES = frozenset(["APPEND", "APPENDS", "SETITEM", "SETITEMS", "BUILD"])
"""What changes the object below, in the memo as well."""

_KEYS = {"DICT": slice(0, None, 2), "SETITEM": slice(1, 2), "SETITEMS": slice(1, None, 2)}
"""Where the keys are among what a step takes."""

_GLOBALS = frozenset(
    [
        "collections.OrderedDict",
        "collections.Counter",
        "builtins.set",
        "builtins.complex",
        "torch.Size",
        "torch.device",
        "torch.Tensor",
        "torch.nn.parameter.Parameter",
        "torch.serialization._get_layout",
        "torch._tensor._rebuild_from_type_v2",
        "torch.storage.TypedStorage",
        "torch.storage.UntypedStorage",
        *(
            f"torch._utils._rebuild_{what}"
            for what in (
                "parameter",
                "parameter_with_state",
                "tensor",
                "tensor_v2",
                "tensor_v3",
                "sparse_tensor",
                "qtensor",
                "meta_tensor_no_storage",
            )
        ),
        *(str(value) for value in vars(torch).values() if isinstance(value, torch.dtype | torch.qscheme)),
        *(f"torch.{where}{name}" for name in vars(torch) if name.endswith("Storage") for where in ("", "cuda.")),
    ]
)
"""What tensors and plain values are made with: torch's own list, less what makes much of a number (`bytearray`) or of
little text (`_codecs.encode`)."""

_LEGACY = 5
"""Pickles at the start of a file from before PyTorch 1.6: mark, version, machine, content, keys of the numbers."""
_PROTOCOL = 2
_STEPS = 300_000
"""A hundred thousand tensors' worth; a larger file may have one more for 4 bytes, as one that holds numbers has."""
_SHARE = 10
_LONG = 8
"""Bytes of a whole number that may be a key; larger ones can be made to have one hash."""


def check_pickles(path: Path) -> None:
    """Refuses, with `pickle.UnpicklingError`, a checkpoint that asks for more than tensors and plain values, or for
    more work than goes with its size; nothing of it is loaded."""
    most = _STEPS + path.stat().st_size // 4
    with path.open("rb") as file:
        if file.read(4) != b"PK\3\4":  # by which torch.load knows a file of today
            file.seek(0)
            steps = 0
            for _ in range(_LEGACY):
                steps = _check(file, most, steps)
            return
    reader = torch._C.PyTorchFileReader(str(path))  # what torch itself will read, however the file is packed
    if "constants.pkl" in reader.get_all_records():
        raise ValueError("it is TorchScript")
    _check(BytesIO(reader.get_record("data.pkl")), most)


def _check(file: BinaryIO, most: int, steps: int = 0) -> int:
    """How many steps there are, one pickle further.

    It is the machine of a pickle, of whose values only the weights are known: how much each would be if it were copied,
    or hashed (a text once for all), also what it takes from the memo. Keys are hashed, and what calls are given is
    copied. What the pickle's length does not bear out was made to take long: a tuple of tuples of tuples as a key, or
    one that is copied again and again.
    """
    stack: list[list[float]] = []  # how much to copy, to hash
    marks: list[int] = []
    memo: dict[int, list[float]] = {}
    start, work = file.tell(), 0.0
    code: Any
    value: Any
    for code, value, at in pickletools.genops(file):
        steps += 1
        if code.proto > _PROTOCOL or steps > most or work > _SHARE * ((at or 0) - start) + 10_000:
            raise pickle.UnpicklingError(f"{code.name} at byte {at}")
        if code.name == "GLOBAL" and _today(value) not in _GLOBALS:
            raise pickle.UnpicklingError(f"{value} at byte {at}")
        if code.name == "MARK":
            marks.append(len(stack))
        elif code.name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[value])
        elif code.name in ("BINPUT", "LONG_BINPUT"):
            memo[value] = stack[-1]
        else:
            before = code.stack_before
            marked = pickletools.markobject in before
            kept = marks.pop() if marked else len(stack)
            kept -= before.index(pickletools.markobject) if marked else len(before)
            taken = stack[kept:]
            del stack[kept:]
            if code.name in _KEYS:
                work += sum(key[1] for key in taken[_KEYS[code.name]])
            if code.name == "REDUCE":
                work += sum(taken[1])
            changed = taken[0] if code.name in _CHANGES else []
            changed[:] = map(sum, zip(*taken, _weight(value), strict=True))
            stack += [changed] * len(code.stack_after)
    return steps


def _weight(value: Any) -> tuple[float, float]:
    if isinstance(value, int) and value.bit_length() > 8 * _LONG:
        return 1.0, math.inf
    return 1.0 + (len(value) if isinstance(value, str | bytes) else 0), 1.0


def _today(name: str) -> str:
    """A name as Python 3 has it; torch.save writes that of Python 2."""
    return ".".join(name.split(" ")).replace("__builtin__.", "builtins.")
