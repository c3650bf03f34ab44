"""A hash of a Python object: of its values, and of the code behind it as far as it is the user's own."""

from __future__ import annotations

import copyreg
import dis
import functools
import hashlib
import logging
import os
import random
import struct
import sys
import sysconfig
import threading
from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import islice
from operator import attrgetter
from pathlib import Path, PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

from smoothcert.scripted import parts_of

PLACES = (
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    os.path.dirname(os.__file__),
)
INSTALLED = tuple(Path(place).as_posix() for place in PLACES)
OURS = f"{Path(__file__).parent.as_posix()}/"
BY_NAME = ("LOAD_GLOBAL", "LOAD_NAME")
COMPILER = ("_dynamo", "_torchdynamo", "_is_torch_compile", "_isolate_recompiles", "get_compiler_config", "aot_compile")
"""How the names begin of what torch's compiler notes at tensors and functions."""

COMPILER_MODULES = "torch._dynamo"
ATTRS = "<attrs generated "
COMPILED = "_torchdynamo_orig_callable"
DISPATCH_CACHE = ("dispatch_cache", "cache_token", "_clear_cache")
"""What `functools.singledispatch` holds beside the functions that it chooses from."""

HOOKS = ("forward_hooks", "forward_pre_hooks")
ATOMS = (bool, int, float, complex, str, bytes)
ABOUT = (
    *("__dict__", "__weakref__", "__module__", "__qualname__", "__doc__", "__annotations__", "__parameters__"),
    *("__orig_bases__", "__dataclass_fields__", "__dataclass_params__", "__firstlineno__", "__static_attributes__"),
    *("__slotnames__", "_abc_impl", "__pydantic_core_schema__", "__pydantic_serializer__", "__pydantic_validator__"),
)
"""What a class keeps of how it was written, of what was asked of it, or what was made of the rest of it."""

ELSEWHERE = (
    *(random.Random, np.random.Generator, np.random.BitGenerator, np.random.RandomState, torch.Generator),
    type(os.environ),
)
"""What another process begins with otherwise."""

TOLD_BY: dict[str, Callable[[Any], Any]] = {
    "_struct.Struct": attrgetter("format"),
    "numba.core.dispatcher.Dispatcher": attrgetter("py_func", "targetoptions"),
    "numba.np.ufunc.dufunc.DUFunc": attrgetter("_dispatcher"),
    "numba.np.ufunc.gufunc.GUFunc": attrgetter("gufunc_builder"),
    "numba.np.ufunc.ufuncbuilder.UFuncDispatcher": attrgetter("py_func", "targetoptions"),
    "numba.np.ufunc.ufuncbuilder.GUFuncBuilder": attrgetter("py_func", "targetoptions", "signature"),
    "numpy.vectorize": attrgetter("pyfunc", "signature", "otypes", "excluded"),
    "scipy.interpolate._fitpack2.UnivariateSpline": attrgetter("_eval_args", "ext"),
    "scipy.spatial._ckdtree.cKDTree": attrgetter("data", "indices", "leafsize", "boxsize"),
    "torch.utils.hooks.RemovableHandle": type,
    **{
        f"sklearn.neighbors._{tree}_tree.BinaryTree{bits}": lambda tree: [
            part for place, part in enumerate(tree.__getstate__()) if place not in (7, 8, 9, 10)
        ]
        for tree in ("kd", "ball")
        for bits in (32, 64)
    },
}
"""What tells of objects that hold addresses, or count what was asked of them, beside it."""

LONGEST = 1_000_000
"""How many items an object may give to pickle."""

WRITTEN = (
    *("__init__", "__new__", "__repr__", "__eq__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__"),
    *("__setattr__", "__delattr__", "__getstate__", "__setstate__", "__replace__", "__attrs_init__"),
)
"""What Python writes for data classes and named tuples, and attrs for its classes."""


class Description:
    """Values are added one by one. `opaque` are the types of objects whose inside cannot be seen.

    Code is the bytecode of functions with their defaults, what they close over and the globals that they name. Of
    modules, and of what the standard library or installed packages define, the name stands for the code. What is
    `known` stands by its number.
    """

    def __init__(self, known: Iterable[Any] = ()) -> None:
        self.opaque: set[str] = set()
        self._digest = hashlib.sha256()
        # Objects are held, so that no other one gets the id.
        self._met: dict[int, tuple[int, Any]] = {id(value): (number, value) for number, value in enumerate(known)}
        self._trying = False

    def hexdigest(self) -> str:
        return self._digest.hexdigest()

    def has_met(self, number: int) -> bool:
        """Is the object with this id among what was added, or held by that?"""
        return number in self._met

    def add(self, value: Any) -> None:
        """The value and all that it holds; what was met before stands by its number."""
        if value is None or isinstance(value, ATOMS):
            kind: Any = next((kind for kind in ATOMS if isinstance(value, kind)), type(value))
            self._write(type(value).__name__, kind.__repr__(value))  # a class of the user's may show itself otherwise
            self._add_own(value)
            return
        if id(value) in self._met:
            self._write("again", str(self._met[id(value)][0]))
            return
        if not _is_constant(value):  # which code may hold, too, until it is pickled
            self._met[id(value)] = len(self._met), value
        self._write("a", type(value).__qualname__)
        next((add for kind, add in KINDS if isinstance(value, kind)), Description._add_object)(self, value)
        if isinstance(value, BUILT_IN):
            self._add_own(value)

    def _add_own(self, value: Any) -> None:
        """What the user's own class has beside the built-in one that it is made from."""
        if not is_installed(type(value)):
            self.add(type(value))
            self._add_mapping(_attributes(value, [kind for kind in type(value).__mro__ if not is_installed(kind)]))

    def _write(self, *words: str) -> None:
        self._digest.update("\0".join(words).encode("utf-8", "surrogatepass") + b"\n")

    def _apart(self, value: Any) -> str:
        """What adding the value would be, without adding it."""
        digest, met = self._digest, len(self._met)
        self._digest = hashlib.sha256()
        try:
            self.add(value)
            return self._digest.hexdigest()
        finally:
            self._digest = digest
            while len(self._met) > met:
                self._met.popitem()

    def _add_tensor(self, value: torch.Tensor) -> None:
        for part in tensor_bytes(value):
            self._digest.update(part)
        if not is_installed(type(value)):
            self.add(type(value))
        self._add_held(value)

    def _add_held(self, value: Any, noted: tuple[str, ...] = COMPILER) -> None:
        """What was put on a tensor or a function, but for what is noted there."""
        held = {name: kept for name, kept in vars(value).items() if not name.startswith(noted)}
        if held:
            self._add_mapping(held)

    def _add_array(self, value: Any) -> None:
        self._write(str(value.dtype), str(value.shape))
        if isinstance(value, np.ma.MaskedArray):
            self.add(np.ma.getmaskarray(value))
            self.add(value.fill_value)
            value = value.filled()
        if value.dtype.names:  # without the bytes between
            self._add_mapping({name: value[name] for name in value.dtype.names})
        elif value.dtype.char in "gG":
            self._add_sequence([repr(number) for number in np.ravel(value)])
        elif value.dtype.hasobject:
            self._add_sequence(np.asarray(value).ravel().tolist())
        else:
            self._digest.update(np.ascontiguousarray(value).tobytes())

    def _add_sequence(self, values: Any) -> None:
        self._write(str(len(values)))
        for value in values:
            self.add(value)

    def _add_deque(self, values: deque[Any]) -> None:
        self.add(values.maxlen)
        self._add_sequence(values)

    def _add_buffer(self, value: Any) -> None:
        self._write(getattr(value, "typecode", getattr(value, "format", "")), str(getattr(value, "shape", len(value))))
        self._digest.update(bytes(value))

    def _add_text(self, value: Any) -> None:
        self._write(repr(value))

    def _add_set(self, values: Any) -> None:
        self._add_sequence(sorted(values, key=self._apart))

    def _add_mapping(self, values: Any) -> None:
        self._write(str(len(values)))
        for key, value in values.items():
            self.add(key)
            self.add(value)

    def _add_defaults(self, values: defaultdict[Any, Any]) -> None:
        self.add(values.default_factory)
        self._add_mapping(values)

    def _add_logger(self, value: logging.Logger) -> None:
        """What was logged, and where to, is no part of what is computed."""
        self._write(value.name)

    def _add_name(self, value: Any) -> None:
        self._write(str(getattr(value, "__module__", "")), getattr(value, "__qualname__", value.__name__))

    def _add_builtin(self, value: BuiltinFunctionType) -> None:
        """Of a method, such as that of an array, what it is bound to as well."""
        self._add_name(value)
        if not isinstance(value.__self__, ModuleType | None):
            self.add(value.__self__)

    def _add_code(self, code: CodeType) -> None:
        for content in (code.co_code, getattr(code, "co_exceptiontable", b"")):  # from Python 3.11 on
            self._write(str(len(content)))
            self._digest.update(content)
        self._write(*map(str, (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)))
        for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars):
            self._write(str(len(names)), *names)
        self._add_sequence(code.co_consts)

    def _add_function(self, function: FunctionType) -> None:
        installed = _is_installed_at(function.__code__.co_filename)
        if installed and COMPILED in vars(function):  # it computes what it was compiled from, which it also wraps
            self.add(vars(function)[COMPILED])
            self._add_held(function)
            return
        if installed and is_installed(function):
            self._add_name(function)  # and what it wraps
        else:
            self.add(function.__code__)
            self._add_globals(function)
        self.add(function.__defaults__)
        self.add(function.__kwdefaults__)
        noted = DISPATCH_CACHE if installed else ()
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if name in noted:
                continue
            try:
                held = cell.cell_contents
            except ValueError:
                self._write("empty")
            else:
                self.add(held)
        self._add_held(function, (*COMPILER, *noted))

    def _add_globals(self, function: FunctionType) -> None:
        for name in sorted(set(_global_names(function.__code__))):
            if name in function.__globals__:
                self._write(name)
                self.add(function.__globals__[name])

    def _add_method(self, method: MethodType) -> None:
        self.add(method.__func__)
        self.add(method.__self__)

    def _add_partial(self, partial: functools.partial[Any]) -> None:
        self._add_sequence((partial.func, partial.args, partial.keywords, vars(partial)))

    def _add_wrapped(self, value: Any) -> None:
        self.add(value.__func__)

    def _add_property(self, value: property) -> None:
        self._add_sequence((value.fget, value.fset, value.fdel))

    def _add_slice(self, value: slice) -> None:
        self._add_sequence((value.start, value.stop, value.step))

    def _add_ufunc(self, value: np.ufunc) -> None:
        """By its name; what is made of a user's function hides it."""
        self._write(value.__name__)
        places = [sys.modules.get(name) for name in ("numpy", "scipy.special")]
        if not any(getattr(place, value.__name__, None) is value for place in places):
            self.opaque.add("ufunc")

    def _add_class(self, kind: type) -> None:
        self._add_name(kind)
        if not is_installed(kind):
            self._add_sequence(kind.__bases__)
            if not is_installed(type(kind)):
                self.add(type(kind))
            self._add_mapping({name: value for name, value in vars(kind).items() if not _is_about(kind, name)})

    def _add_module(self, module: torch.nn.Module) -> None:
        """Its hooks without the numbers that torch gives them, what is its own beside torch's, and what was patched."""
        if is_wrapper(module):
            if isinstance(module, torch.jit.ScriptModule):
                self._add_script(module)
            else:  # it computes what it was compiled from
                self.add(module._orig_mod)
            if own := put_on(module):
                self._add_mapping(own)
            return
        self.add(type(module))
        self.add(type(module).forward)
        self._add_mapping({**module._parameters, **module._buffers, **module._modules})
        for name in HOOKS:
            everywhere, named = (
                getattr(torch.nn.modules.module, f"_global_{name}"),
                getattr(module, f"_{name}_with_kwargs"),
            )
            self._add_sequence([*everywhere.values()])
            self._add_sequence([(hook, key in named) for key, hook in getattr(module, f"_{name}").items()])
        noted = ("meta",) if isinstance(module, torch.fx.GraphModule) else ()
        own = {name: value for name, value in vars(module).items() if name not in _PLAIN and name not in noted}
        self._add_mapping(own)

    def _add_graph(self, graph: torch.fx.Graph) -> None:
        """Its operations; what is noted beside them is of this process."""
        number = {node: place for place, node in enumerate(graph.nodes)}
        for node in graph.nodes:
            named = isinstance(node.target, str | torch._ops.OperatorBase | torch._ops.OpOverloadPacket)
            given = torch.fx.map_arg((node.args, node.kwargs), lambda other: f"node {number[other]}")
            self._add_sequence((node.op, str(node.target) if named else node.target, given))

    def _add_script(self, module: torch.jit.ScriptModule) -> None:
        for part in parts_of(module):
            self._write(str(len(part)))
            self._digest.update(part)

    def _add_thread(self, value: threading.Thread) -> None:
        """Who computes is no part of what is computed."""
        self.add(type(value))
        self._add_mapping({name: held for name, held in vars(value).items() if name not in _THREAD})

    def _add_executor(self, value: Executor) -> None:
        self.add(type(value))
        self._add_mapping({name: vars(value).get(name) for name in ("_initializer", "_initargs")})

    def _add_kind(self, value: Any) -> None:
        self.add(type(value))

    def _add_elsewhere(self, value: Any) -> None:
        self.opaque.add(type(value).__qualname__)
        self._add_own(value)

    def _add_object(self, value: Any) -> None:
        self.add(type(value))
        tells = next((TOLD_BY[name] for name in map(_full_name, type(value).__mro__) if name in TOLD_BY), None)
        if tells is not None:
            self.add(tells(value))
            self._add_own(value)
            return
        self._write(str(getattr(value, "__name__", "")))
        self._add_mapping(_attributes(value))
        if not _is_plain(type(value)) and not self._add_reduced(value):
            self.opaque.add(type(value).__qualname__)

    def _add_reduced(self, value: Any) -> bool:
        """What pickle would keep of it, where that is the same when it is asked again; nothing is made of it."""
        try:
            kept = _reduced(value)
        except Exception:
            return False
        if self._trying:
            self.add(kept)
            return True
        self._trying = True
        try:
            if self._apart(kept) != self._apart(_reduced(value)):
                return False
            self.add(kept)
            return True
        except Exception:
            return False
        finally:
            self._trying = False


_PLAIN = frozenset(vars(torch.nn.Module()))
"""What every module keeps of itself."""

_THREAD = frozenset(vars(threading.Thread()))
"""What every thread keeps of itself."""

KINDS: tuple[tuple[Any, Callable[[Description, Any], None]], ...] = (
    (torch.nn.Module, Description._add_module),
    (torch.fx.Graph, Description._add_graph),
    (ELSEWHERE, Description._add_elsewhere),
    (deque, Description._add_deque),
    (torch.Tensor, Description._add_tensor),
    ((np.ndarray, np.generic), Description._add_array),
    ((tuple, list), Description._add_sequence),
    ((bytearray, memoryview, array), Description._add_buffer),
    ((range, Decimal, date, time, timedelta, PurePath), Description._add_text),
    (slice, Description._add_slice),
    (np.ufunc, Description._add_ufunc),
    ((set, frozenset), Description._add_set),
    (defaultdict, Description._add_defaults),
    ((dict, MappingProxyType), Description._add_mapping),
    (logging.Logger, Description._add_logger),
    (threading.Thread, Description._add_thread),
    (Executor, Description._add_executor),
    (torch.device, Description._add_kind),
    (FunctionType, Description._add_function),
    (MethodType, Description._add_method),
    (CodeType, Description._add_code),
    (functools.partial, Description._add_partial),
    ((staticmethod, classmethod), Description._add_wrapped),
    (property, Description._add_property),
    (type, Description._add_class),
    (BuiltinFunctionType, Description._add_builtin),
    (ModuleType, Description._add_name),
)
"""How each kind of object is described; the first that fits."""

BUILT_IN = (
    *(np.ndarray, np.generic, tuple, list, deque, bytearray, array, set, frozenset, dict),
    *(functools.partial, property, staticmethod, classmethod, Decimal, date, time, timedelta, PurePath),
)


def is_wrapper(module: torch.nn.Module) -> bool:
    """Is it torch's own way to run a module, compiled or as TorchScript?"""
    compiled = any(kind.__module__.startswith(COMPILER_MODULES) for kind in type(module).__mro__)
    return compiled or isinstance(module, torch.jit.ScriptModule)


def put_on(module: torch.nn.Module) -> dict[str, Any]:
    """What Python runs in place of a module, or around torch's wrapper, and torch keeps in no copy of it."""
    wrapped = is_wrapper(module)
    names = ("_compiled_call_impl", "forward") if wrapped else ("_compiled_call_impl",)
    own = {name: vars(module)[name] for name in names if not _is_torchs(vars(module).get(name))}
    for name in HOOKS if wrapped else ():
        hooks = [hook for hook in getattr(module, f"_{name}").values() if not _is_torchs(hook)]
        own.update({name: hooks} if hooks else {})
    if wrapped and not is_installed(type(module)):
        own["class"] = type(module)
    return own


def _is_torchs(function: Any) -> bool:
    """Is it what torch runs a module by, or nothing?"""
    if function is None or isinstance(function, torch._C.ScriptMethod | torch._C.ScriptFunction):
        return True
    return _is_installed_at(getattr(getattr(function, "__code__", None), "co_filename", ""))


def _attributes(value: Any, kinds: Iterable[type] | None = None) -> dict[str, Any]:
    """What an object holds by name, in slots of its classes or not."""
    slots = (name for kind in (type(value).__mro__ if kinds is None else kinds) for name in _slots(kind))
    held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    own = getattr(value, "__dict__", None)
    if isinstance(value, Enum) and own:
        own = {name: kept for name, kept in own.items() if name != "_inverted_"}  # computed when it is asked for
    return {**held, **own} if isinstance(own, dict) else held


def _is_about(kind: type, name: str) -> bool:
    """Is it what a class keeps beside what it computes?"""
    if issubclass(kind, Enum) and name in ("_value2member_map_", "_hashable_values_", "_unhashable_values_"):
        return True  # its members by their values, and all combinations of them that were asked for
    file = getattr(getattr(vars(kind)[name], "__code__", None), "co_filename", "")
    salted = name == "__hash__" and file.startswith(ATTRS)  # with a number that another process draws otherwise
    return salted or name in ABOUT


def _is_generated(name: str, method: FunctionType) -> bool:
    """Was a method written by Python or attrs, from what else is in its class?"""
    return name in WRITTEN and method.__code__.co_filename.startswith(("<string>", ATTRS))


def _slots(kind: type) -> Iterator[str]:
    """The names of a class's slots, private ones as Python keeps them."""
    slots = vars(kind).get("__slots__", ())
    for name in (slots,) if isinstance(slots, str) else slots:
        if not name.startswith("__"):
            yield name
        elif not name.endswith("__"):
            yield f"_{kind.__name__.lstrip('_')}{name}"


def _is_plain(kind: type) -> bool:
    """Is all that its objects hold in slots and a `__dict__`? Memory beyond these is that of code in C."""
    words = sum(1 for base in kind.__mro__ for _ in _slots(base))
    words += (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    return kind.__itemsize__ == 0 and kind.__basicsize__ == object.__basicsize__ + words * struct.calcsize("P")


def _reduced(value: Any) -> Any:
    """What pickle would make it of."""
    reduce: Callable[[Any], Any] | None = copyreg.dispatch_table.get(type(value))
    kept = value.__reduce_ex__(4) if reduce is None else reduce(value)
    if isinstance(kept, str):
        return kept
    items = [list(islice(more or (), LONGEST + 1)) for more in kept[3:5]]
    if any(len(more) > LONGEST for more in items):
        raise OverflowError
    return [kept[:3], items, kept[5:]]


def _is_constant(value: Any) -> bool:
    """May it stand in code as it is?"""
    if type(value) in (tuple, frozenset):
        return all(map(_is_constant, value))
    return value is None or value is ... or type(value) in ATOMS


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def tensor_bytes(tensor: torch.Tensor) -> Iterator[bytes]:
    """Type, shape and values, wherever the tensor is and however it lies in memory."""
    dense = tensor.detach().dequantize() if tensor.is_quantized else tensor.detach()
    dense = (
        (dense if dense.layout is torch.strided else dense.to_dense()).resolve_conj().resolve_neg().cpu().contiguous()
    )
    yield f"{dense.dtype} {tuple(dense.shape)} ".encode()
    yield dense.reshape(-1).view(torch.uint8).numpy().tobytes()


def _global_names(code: CodeType) -> Iterator[str]:
    """The globals that code names, that of functions inside it too."""
    yield from (i.argval for i in dis.get_instructions(code) if i.opname in BY_NAME)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


def is_installed(value: Any) -> bool:
    """Is it defined by Python, an installed package, or this one?"""
    if isinstance(value, type) and not all(map(_is_installed_at, _files(value))):
        return False
    top = str(getattr(value, "__module__", None)).partition(".")[0]
    file = getattr(sys.modules.get(top), "__file__", None)
    if top == "__main__":  # also where it was started by an installed module, such as cProfile
        return False
    if top in sys.builtin_module_names or top == "smoothcert":
        return True
    if file is None:
        return top in sys.stdlib_module_names
    return Path(file).as_posix().startswith(INSTALLED)


def _files(kind: type) -> Iterator[str]:
    """Where the methods of a class and of its bases were written, but for those that Python writes itself."""
    for base in kind.__mro__:
        for name, value in vars(base).items():
            if isinstance(value, FunctionType) and not _is_generated(name, value):
                yield value.__code__.co_filename


@functools.cache
def _is_installed_at(file: str) -> bool:
    """Does code come from there? `functools.wraps` gives a function of the user's the name of an installed module."""
    return Path(file).as_posix().startswith((*INSTALLED, OURS)) or file.startswith("<frozen ")
