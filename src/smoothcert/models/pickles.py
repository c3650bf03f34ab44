"""What the pickle of a checkpoint says, found out without unpickling it: it calls nothing, and hashes text alone."""

from __future__ import annotations

import pickle
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

import torch
from torch import Tensor

_WEIGHTS = {
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
}
"""The numbers that weights may be, by the names of their storages."""

_TYPES = _WEIGHTS | {
    "ComplexFloat": torch.complex64,
    "ComplexDouble": torch.complex128,
    "QInt8": torch.qint8,
    "QUInt8": torch.quint8,
    "QInt32": torch.qint32,
    "QUInt4x2": torch.quint4x2,
    "QUInt2x4": torch.quint2x4,
}
_STORAGES = {f"{where}.{name}Storage": kind for where in ("torch", "torch.cuda") for name, kind in _TYPES.items()}
_STORAGES["torch.storage.UntypedStorage"] = torch.uint8

_PLAIN = frozenset(
    [
        *("collections.OrderedDict", "collections.Counter", "builtins.set", "builtins.complex"),
        *("builtins.bytearray", "_codecs.encode"),
        *("torch.Size", "torch.device", "torch.Tensor", "torch.nn.parameter.Parameter"),
        *("torch.serialization._get_layout", "torch._tensor._rebuild_from_type_v2"),
        *("torch.storage.TypedStorage", "torch.storage.UntypedStorage"),
        *(f"torch._utils._rebuild_{what}" for what in ("parameter", "parameter_with_state", "tensor", "tensor_v2")),
        *(f"torch._utils._rebuild_{what}" for what in ("tensor_v3", "sparse_tensor", "qtensor")),
        "torch._utils._rebuild_meta_tensor_no_storage",
        *(str(value) for value in vars(torch).values() if isinstance(value, torch.dtype | torch.qscheme)),
        *(f"torch.{where}{name}" for name in vars(torch) if name.endswith("Storage") for where in ("", "cuda.")),
    ]
)
"""The names of what tensors and plain values are made with; a pickle with another is refused."""

_PROTOCOL = 2
_STEPS = 300_000
"""Thousands of tensors' worth; a larger file may have one more for 3 bytes, which is more than a tensor takes."""

_FREE, _AXES = 8, 64
"""Axes of a tensor that cost nothing, and at most."""

_LONGEST = 1_000
"""Characters of a name: two that are equal are compared each time that one is looked for."""


@dataclass(frozen=True)
class Storage:
    """Numbers that lie together in the file, under a name."""

    key: str
    dtype: torch.dtype
    count: int

    @property
    def bytes(self) -> int:
        return self.count * self.dtype.itemsize


@dataclass(frozen=True)
class Strided:
    """A tensor: which of a storage's numbers it shows, in which order."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def of(self, numbers: Tensor) -> Tensor:
        """The tensor, of the numbers in its storage."""
        return numbers.as_strided(self.shape, self.strides, self.offset)


@dataclass(frozen=True)
class _Name:
    """A class or function, which is not looked up."""

    name: str


class _Other:
    """A value that is no part of the weights."""


_OTHER = _Other()


def read_pickle(file: BinaryIO, size: int, storages: dict[str, Storage]) -> Any:
    """The value of the pickle at a file's position: numbers, text, lists, tuples, dictionaries and tensors.

    What is no text stands as None among the keys of a dictionary; of all else there is a mark. `storages` takes in what
    the tensors lie in. A step takes no longer than what it puts there is long, and there are as many steps as go with
    the `size` of the file.
    """
    machine = _Machine(_STEPS + size // 3, storages)
    for code, value, at in pickletools.genops(file):
        try:
            machine.step(code.name, value)
        except pickle.UnpicklingError as error:
            raise pickle.UnpicklingError(f"{error} at byte {at}") from None
    return machine.stack[-1]


class _Machine:
    """Pickle's, with a stack and a memo."""

    def __init__(self, most: int, storages: dict[str, Storage]) -> None:
        self.left, self.storages = most, storages
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def step(self, code: str, value: Any) -> None:
        self._count(1)
        if code == "PROTO" and value > _PROTOCOL:
            raise pickle.UnpicklingError(f"protocol {value}")
        if code in _VALUES:
            self.stack.append(_VALUES[code](value))
        elif code == "GLOBAL":
            self.stack.append(_Name(_allowed(value)))
        elif code == "MARK":
            self.marks.append(len(self.stack))
        elif code in ("BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[value])
        elif code in ("BINPUT", "LONG_BINPUT"):
            self.memo[value] = self.stack[-1]
        elif code == "TUPLE":
            self.stack.append(tuple(self._marked()))
        elif code in ("TUPLE1", "TUPLE2", "TUPLE3"):
            self.stack.append(tuple(self._taken(int(code[-1]))))
        elif code in ("APPEND", "APPENDS"):
            self._append(self._marked() if code == "APPENDS" else self._taken(1))
        elif code in ("SETITEM", "SETITEMS"):
            self._set(self._marked() if code == "SETITEMS" else self._taken(2))
        elif code in ("BUILD", "POP"):  # attributes are no part of a value
            self._taken(1)
        elif code in ("REDUCE", "NEWOBJ"):
            self.stack.append(self._call(*self._taken(2)))
        elif code == "BINPERSID":
            self.stack.append(self._storage(*self._taken(1)))
        elif code not in ("PROTO", "STOP"):
            raise pickle.UnpicklingError(code)

    def _count(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise OverflowError

    def _taken(self, count: int) -> list[Any]:
        taken = self.stack[-count:]
        del self.stack[-count:]
        if len(taken) < count:
            raise ValueError("the pickle takes what is not there")
        return taken

    def _marked(self) -> list[Any]:
        start = self.marks.pop()
        taken = self.stack[start:]
        del self.stack[start:]
        return taken

    def _append(self, values: list[Any]) -> None:
        if isinstance(self.stack[-1], list):
            self.stack[-1].extend(values)

    def _set(self, pairs: list[Any]) -> None:
        if isinstance(self.stack[-1], dict):
            _fill(self.stack[-1], pairs[::2], pairs[1::2])

    def _call(self, what: Any, given: Any) -> Any:
        """What a call would give, where that is a tensor or a dictionary."""
        if not isinstance(what, _Name) or not isinstance(given, tuple):
            raise ValueError("the pickle calls what cannot be called")
        match what.name, given:
            case "collections.OrderedDict", ():
                return {}
            case "collections.OrderedDict", (list(pairs),):  # from Python 2
                self._count(len(pairs))
                return _fill({}, [pair[0] for pair in pairs], [pair[1] for pair in pairs])
            case "torch.Size", (tuple(size),):
                return size
            case "torch._utils._rebuild_tensor", (Storage() as storage, offset, shape, strides):
                return self._strided(storage, offset, shape, strides)
            case "torch._utils._rebuild_tensor_v2", (Storage() as storage, offset, shape, strides, _, _):
                return self._strided(storage, offset, shape, strides)
            case "torch._utils._rebuild_parameter", (Strided() as tensor, _, _):
                return tensor
            case "torch._utils._rebuild_parameter_with_state", (Strided() as tensor, _, _, _):
                return tensor
            case "torch._tensor._rebuild_from_type_v2", (_Name() as rebuilt, _, tuple(inner), _):
                self._count(1)
                return self._call(rebuilt, inner)
        return _OTHER

    def _strided(self, storage: Storage, offset: Any, shape: Any, strides: Any) -> Any:
        """A tensor that lies within its storage."""
        if not isinstance(shape, tuple) or not isinstance(strides, tuple) or not len(shape) == len(strides) <= _AXES:
            raise ValueError("a tensor has no shape")
        self._count(max(len(shape) - _FREE, 0))
        if not all(type(n) is int and 0 <= n < 1 << 62 for n in (offset, *shape, *strides)):
            raise ValueError("a tensor has no shape")
        end = offset + 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
        if 0 not in shape and end > storage.count:
            raise ValueError("a tensor leaves its storage")
        return Strided(storage, offset, shape, strides) if storage.dtype in _WEIGHTS.values() else _OTHER

    def _storage(self, about: Any) -> Any:
        match about:
            case ("storage", _Name(name), str(key), _, int(count), *view) if (
                view in ([], [None]) and count >= 0 and len(key) <= _LONGEST
            ):
                storage = Storage(key, _STORAGES[name], count)
                if self.storages.setdefault(key, storage) != storage:
                    raise ValueError(f"storage {key[:20]!r} is two")
                return storage
        raise ValueError("the pickle names a storage otherwise than torch.save does")


_VALUES: dict[str, Callable[[Any], Any]] = {
    "NONE": lambda _: None,
    "NEWTRUE": lambda _: True,
    "NEWFALSE": lambda _: False,
    "EMPTY_TUPLE": lambda _: (),
    "EMPTY_LIST": lambda _: [],
    "EMPTY_DICT": lambda _: {},
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"), lambda value: value),
    **dict.fromkeys(("BINUNICODE", "SHORT_BINSTRING", "BINSTRING"), lambda value: value),
}
"""The steps that put down a value."""


def _allowed(name: str) -> str:
    """A name as Python 3 has it; torch.save writes that of Python 2."""
    today = ".".join(name.split(" ")).replace("__builtin__.", "builtins.")
    if today not in _PLAIN:
        raise pickle.UnpicklingError(name)
    return today


def _fill(made: dict[str | None, Any], keys: list[Any], values: list[Any]) -> dict[str | None, Any]:
    """No key but text is hashed: numbers can be chosen that have one hash, and tuples that are endlessly deep."""
    names = (key if isinstance(key, str) and len(key) <= _LONGEST else None for key in keys)
    made.update(zip(names, values, strict=True))
    return made
