"""A model is known by what it computes: its weights, its constants and its code, and not by names or places."""

import array
import collections
import copy
import ctypes
import datetime
import decimal
import enum
import functools
import importlib.util
import io
import logging
import operator
import os
import pathlib
import pickle
import random
import re
import struct
import subprocess
import sys
import threading
import types

import numba
import numpy as np
import pytest
import torch
from scipy.spatial import KDTree
from torch import nn

from smoothcert.certification.fingerprint import fingerprint_of
from smoothcert.errors import InputError
from smoothcert.models import build
from smoothcert.modules import evaluated

SHAPE = (3, 8, 8)


class Net(nn.Module):
    """Exports."""

    def __init__(self, scale=2.0):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(144, 5)
        self.scale = torch.full((1,), scale)  # a tensor that is no buffer

    def forward(self, x):
        return self.head((self.scale * self.conv(x)).relu().flatten(1))


class Renamed(nn.Module):
    """What `Net` computes, under other names."""

    def __init__(self):
        super().__init__()
        net = Net()
        self.first, self.last, self.factor = net.conv, net.head, net.scale

    def forward(self, picture):
        features = self.first(picture)
        scaled = self.factor * features
        return self.last(scaled.relu().flatten(1))


class Gelu(Net):
    def forward(self, x):
        return self.head(nn.functional.gelu(self.scale * self.conv(x)).flatten(1))


class Branching(Net):
    """Does not export: its code depends on its input."""

    def forward(self, x):
        y = super().forward(x)
        return y if x.sum().item() > 0 else y + 1


class BranchingOtherwise(Branching):
    def forward(self, x):
        y = Net.forward(self, x)
        return y if x.sum().item() > 0 else y + 2


class ByBatch(Net):
    """One graph would not tell of the other branch."""

    def forward(self, x):
        y = super().forward(x)
        return -y if len(x) == 100 else y


def of(model, shape=SHAPE):
    return fingerprint_of(model, shape)


def test_what_exports_is_known_by_its_graph():
    assert of(Net()).startswith("graph-2:")
    assert of(Net()) == of(Net().eval()) == of(Renamed())


def changed(change):
    model = Net()
    with torch.no_grad():
        change(model)
    return model


@pytest.mark.parametrize(
    "other",
    [
        Gelu(),
        Net(scale=2.5),
        changed(lambda m: m.conv.weight[0, 0, 0, 0].add_(1e-6)),
        changed(lambda m: setattr(m.conv, "padding", (1, 1)) or setattr(m, "head", nn.Linear(256, 5))),
        changed(lambda m: m.conv.register_forward_hook(lambda module, args, output: output + 1)),
        changed(lambda m: setattr(m, "forward", types.MethodType(Gelu.forward, m))),
    ],
    ids=["forward", "no buffer", "a weight", "a number", "a hook", "patched"],
)
def test_another_computation_is_another_model(other):
    assert of(other) != of(Net())


@functools.lru_cache
def positions(size):
    return torch.arange(size) / size


class Remembering(nn.Module):
    """Keeps what does not change its answers: in a function's cache, in itself, and by a property."""

    def __init__(self, inside):
        super().__init__()
        self.inside, self.places = inside, None

    @functools.cached_property
    def factor(self):
        return 2.0

    def forward(self, x):
        if self.places is None:
            self.places = torch.arange(8) / 8
        return self.inside(x + self.places + positions(8)) * self.factor


@pytest.mark.parametrize("inside", [Net, Branching], ids=["graph", "code"])
@pytest.mark.parametrize("copied", [True, False], ids=["copied", "as it is"])
def test_what_a_module_remembers_of_a_call_is_no_other_model(inside, copied):
    positions.cache_clear()
    model = Remembering(inside()).eval()
    if not copied:
        model.inside.lock = threading.Lock()
    before = of(model)
    assert type(model(torch.zeros(1, *SHAPE))) is torch.Tensor
    assert of(model) == before
    assert type(positions(8)) is torch.Tensor


@pytest.mark.parametrize("model", [Branching, ByBatch])
def test_what_does_not_export_for_every_batch_is_known_by_its_code(model):
    assert of(model()).startswith("code-1:")
    assert of(model()) == of(model().train())
    assert of(model(scale=2.5)) != of(model())


def test_code_that_changed_under_the_same_weights():
    assert of(BranchingOtherwise()) != of(Branching())


def negated(part):
    """Patches the forward of a part by a function around the one that it has."""
    before = part.forward
    part.forward = lambda x: -before(x)


def test_a_forward_that_was_patched_is_seen_in_code():
    whole, part = Branching().eval(), Branching().eval()
    negated(whole)
    negated(part.head)
    assert len({of(model) for model in (Branching(), whole, part)}) == 3


def test_the_built_in_networks_export():
    for name in ("cifar_resnet8", "digits_cnn", "liresnet"):
        shape = (1, 8, 8) if name == "digits_cnn" else (3, 32, 32)
        torch.manual_seed(0)
        assert fingerprint_of(build(name), shape).startswith("graph-2:")


def test_older_runs_keep_the_older_fingerprint():
    from smoothcert.sampling.engines import open_engine

    older = open_engine(Net()).fingerprint
    assert fingerprint_of(Net(), SHAPE, older) == older
    assert fingerprint_of(np.sum, SHAPE, "numpy.sum") == "numpy.sum"
    for model in (Net, lambda: Elsewhere(torch.compiler.is_compiling, 2)):
        first = fingerprint_of(model(), SHAPE, "graph-1:0")
        assert first.startswith("graph-1:")
        assert first == fingerprint_of(model(), SHAPE, first)


class Elsewhere(Net):
    """Computes something else where it is not exported."""

    def __init__(self, exported, factor):
        super().__init__()
        self.exported, self.factor = exported, factor

    def forward(self, x):
        y = super().forward(x)
        return y if self.exported() else self.factor * y


class ByKind(Net):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        y = super().forward(x)
        return self.factor * y if type(x) is torch.Tensor else y


class OutsideTorch(Net):
    """Leaves torch where it is not exported: by NumPy, or for a number."""

    def __init__(self, factor, by_number):
        super().__init__()
        self.factor, self.by_number = factor, by_number

    def forward(self, x):
        if torch.compiler.is_compiling():
            return super().forward(x)
        if self.by_number:
            return super().forward(x) * (1 + self.factor * x.max().item())
        return super().forward(torch.from_numpy(np.tanh(self.factor * x.numpy())))


@pytest.mark.parametrize(
    "build",
    [
        functools.partial(OutsideTorch, by_number=False),
        functools.partial(OutsideTorch, by_number=True),
        functools.partial(Elsewhere, torch.compiler.is_compiling),
        functools.partial(Elsewhere, torch.compiler.is_exporting),
        functools.partial(Elsewhere, lambda: not torch.is_inference_mode_enabled()),
        ByKind,
    ],
)
def test_what_is_computed_outside_an_export_alone_is_seen(build):
    assert len({of(build(factor)) for factor in (1, 2, -1)}) == 3
    assert of(build(2)) == of(build(2))
    assert fingerprint_of(build(2), SHAPE, of(build(2))) == of(build(2))


def test_of_other_operations_than_the_exported_no_path_is_seen():
    """Attention is exported as several operations, and run as one."""
    found = set()
    for place, scale in (("a", 1.0), ("b", 1.0), ("a", 2.0)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Flatten()).eval()
        model[0].loaded_from = place
        model[0].linear1.weight.data *= scale
        found.add(fingerprint_of(model, (3, 8)))
    assert len(found) == 2


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weights", torch.eye(4).to_sparse_csr())

    def forward(self, x):
        return x @ self.weights.to_dense()


def test_runs_that_were_known_by_a_graph_of_sparse_weights_go_on():
    known = fingerprint_of(Sparse(), (4,), "graph-1:0")
    assert known.startswith("graph-1:")
    assert of(Sparse(), (4,)).startswith("graph-2:")


# ---- callables


def callable_with(weights, sign=1, offset=0.0):
    def model(batch, slope=sign):
        return slope * batch.reshape(len(batch), -1) @ weights + offset

    return model


W = np.arange(6.0).reshape(3, 2)
OFFSET = 1.0


def names_a_global(batch):
    return batch @ W + OFFSET


class Callable:
    def __init__(self, weights):
        self.weights = weights

    def __call__(self, batch):
        return batch @ self.weights


def test_a_callable_is_known_by_its_bytecode_and_what_it_closes_over():
    assert of(callable_with(W)).startswith("callable-1:")
    assert of(callable_with(W)) == of(callable_with(W.copy()))
    assert of(Callable(W)) == of(Callable(W.copy()))
    assert of(functools.partial(callable_with(W), slope=2)) == of(functools.partial(callable_with(W), slope=2))


@pytest.mark.parametrize(
    "other",
    [
        callable_with(W + 1),
        callable_with(W, sign=2),
        callable_with(W, offset=0.5),
        lambda batch: batch.reshape(len(batch), -1) @ W,
        Callable(W),
        functools.partial(callable_with(W), slope=2),
    ],
)
def test_other_values_or_code_are_another_callable(other):
    assert of(other) != of(callable_with(W))


def test_globals_that_it_names_are_seen(monkeypatch):
    before = of(names_a_global)
    assert of(names_a_global) == before
    monkeypatch.setitem(globals(), "OFFSET", 2.0)
    assert of(names_a_global) != before


def test_a_module_inside_a_callable():
    net = Branching()
    before = of(lambda batch: net(torch.from_numpy(batch)).numpy())
    net.scale += 1
    assert of(lambda batch: net(torch.from_numpy(batch)).numpy()) != before


def test_what_cannot_be_seen_is_said(caplog):
    generator = np.random.default_rng(0)
    with caplog.at_level("INFO", logger="smoothcert"):
        of(lambda batch: generator.random(len(batch)))
    assert "what it reads elsewhere (files, servers, other modules, Generator) cannot be seen" in caplog.text


# ---- what is held in other places


class Settings:
    __slots__ = ("__dict__", "factor")

    def __init__(self, factor, offset=0.0):
        self.factor, self.offset = factor, offset


class Kept(list):
    def __init__(self, values, factor):
        super().__init__(values)
        self.factor = factor


class Factor(float):
    def __new__(cls, value, unit):
        made = super().__new__(cls, value)
        made.unit = unit
        return made


class Private:
    __slots__ = ("__factor",)

    def __init__(self, factor):
        self.__factor = factor


def tensor_with(factor):
    made = torch.ones(2)
    made.factor = factor
    return made


class Marked(torch.Tensor):
    mark = 1


class MarkedOtherwise(torch.Tensor):
    mark = 2


MarkedOtherwise.__qualname__ = "Marked"


def made_by(factor):
    class Kind(type):
        scale = factor

    class Made(metaclass=Kind):
        pass

    return Made


def code(end):
    """A function of the same instructions whatever its end, of which one is tried or not."""
    defined = {}
    exec(f"def model(x):\n try:\n  a = x + 1\n{end} return b\n", defined)
    return defined["model"]


class Stamp(datetime.date):
    pass


def stamp(factor):
    made = Stamp(2020, 1, 1)
    made.factor = factor
    return made


def place(factor):
    class Place(type(pathlib.Path())):
        __slots__ = ()

        def scale(self):
            return factor

    return Place("a")


class Doubled(dict):
    scale = 2


class Tripled(dict):
    scale = 3


def holding(value):
    return lambda batch: (batch, value)


def with_attribute(value):
    def model(batch):
        return batch * model.factor

    model.factor = value
    return model


HEAD = b"a\0bytearray\n\n"
"""What stood before the bytes."""


def first(b, low, high):
    return np.where(b < 0.5, b, low)


def second(b, high, low):
    return np.where(b < 0.5, b, high)


def named_as_torchs(sign):
    @functools.wraps(torch.nn.functional.relu)
    def act(batch):
        return sign * batch

    return act


def clipped(sign):
    class Clipped(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return sign * super().__torch_function__(func, types, args, kwargs or {})

    return Clipped


def limited(limit):
    class Limited:
        __limit__ = limit

    return Limited


class Shown(float):
    def __repr__(self):
        return "a number"


def applied(factor):
    class Applied(functools.partial):
        def __call__(self, *given):
            return factor * super().__call__(*given)

    return Applied(abs)


def partial_with(factor):
    made = functools.partial(abs)
    made.factor = factor
    return made


def executed(factor):
    """A class whose module is that of Python's own."""
    defined = {}
    exec(f"class Made:\n    def __call__(self, batch):\n        return {factor} * batch\n", defined)
    return defined["Made"]


def variadic(batch, *rest):
    return rest


def listed(batch, rest):
    return rest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (first, second),
        (variadic, listed),
        (named_as_torchs(1.0), named_as_torchs(-1.0)),
        (holding(clipped(1.0)), holding(clipped(2.0))),
        (holding(limited(1.0)), holding(limited(2.0))),
        (holding(Shown(1.0)), holding(Shown(2.0))),
        (holding(applied(1.0)), holding(applied(2.0))),
        (holding(partial_with(1.0)), holding(partial_with(2.0))),
        (torch.no_grad()(callable_with(W)), torch.no_grad()(callable_with(W + 1))),
        (holding(W.dot), holding((W + 1).dot)),
        (holding(np.add.reduce), holding(np.multiply.reduce)),
        (holding(executed(1.0)), holding(executed(2.0))),
        (holding(slice(torch.zeros(2000))), holding(slice(torch.eye(2000)[1000]))),
    ],
    ids=[
        *("names of parameters", "kinds of parameters", "wraps", "class method", "a class's attribute", "repr"),
        *("kind of partial", "attribute of a partial", "what torch wraps", "method of an array", "of a function"),
        *("class of no file", "slice"),
    ],
)
def test_code_that_hides_behind_the_same_instructions_or_another_name(one, other):
    assert of(one) == of(one)
    assert of(one) != of(other)


MODELS = """
import concurrent.futures, pathlib, random, sys
import attr, numpy as np, pydantic, torch
from scipy.interpolate import UnivariateSpline
from scipy.spatial import KDTree
from smoothcert.certification.fingerprint import fingerprint_of

class Held:
    def __init__(self, value):
        self.value = value

@attr.s(frozen=True)
class Settings:
    scale = attr.ib(default=2.0)

class Checked(pydantic.BaseModel):
    scale: float = 2.0

@torch.compiler.disable
def eager(x):
    return x

class Part(torch.nn.Linear):
    pass

if sys.argv[1:]:
    torch.jit.script(torch.nn.Sequential(Part(4, 4), torch.nn.ReLU()))
    random.seed(int(sys.argv[1]))
torch.manual_seed(0)
layers = [torch.nn.Linear(4, 4) for _ in range(4)]
net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.ReLU(), Part(4, 2), torch.nn.Linear(2, 2))
pool = concurrent.futures.ThreadPoolExecutor(2)
list(pool.map(str, range(len(sys.argv))))
models = {
    "scripted": torch.jit.script(net),
    "compiled": torch.compile(net),
    "compiled function": torch.compile(lambda x: 2 * x, backend="eager"),
    "not compiled function": eager,
    "paths": {pathlib.Path("a"), pathlib.Path("b")},
    "conjugate": torch.ones(2, dtype=torch.complex64).conj(),
    "frozen sets": {frozenset({"a", "b"}), frozenset({"c", "d"}), frozenset({"e", "f"})},
    "objects": {Held(number) for number in range(6)},
    "layers": set(layers),
    "functions": {lambda x: x, lambda x: 2 * x, lambda x: 3 * x},
    "attrs": Settings(),
    "pydantic": Checked(),
    "spline": UnivariateSpline(np.arange(5.0), np.arange(5.0) ** 2),
    "threads": pool,
    "exported": torch.export.export(net, (torch.zeros(2, 4),)).module(),
    "tree": KDTree(np.arange(40.0).reshape(20, 2)),
    "draws": random.random,
}
for name, held in models.items():
    print(name, fingerprint_of(lambda batch: held, (4,)))
"""


def test_another_process_finds_the_same():
    """Sets have another order there, and other code was compiled before."""
    found = [
        subprocess.run(
            [sys.executable, "-c", MODELS, *given],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout.splitlines()
        for seed, given in (("1", []), ("2", ["3"]))
    ]
    assert len(found[0]) == 17
    assert found[0] == found[1]


def test_a_function_that_numpy_hides_is_said(caplog):
    hidden = np.frompyfunc(abs, 1, 1)
    with caplog.at_level("INFO", logger="smoothcert"):
        of(holding(hidden))
        of(holding(np.exp))
    assert ["ufunc" in line for line in caplog.messages] == [True, False]


def test_patched_classes_and_hooks_of_all_modules_are_seen(monkeypatch):
    seen = {of(Branching())}
    monkeypatch.setattr(torch.nn.Linear, "forward", lambda self, x: 2 * torch.nn.functional.linear(x, self.weight))
    seen.add(of(Branching()))
    hook = torch.nn.modules.module.register_module_forward_hook(lambda module, inputs, output: 2 * output)
    seen.add(of(Branching()))
    hook.remove()
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (with_attribute(1.0), with_attribute(2.0)),
        (holding(Settings(1.0)), holding(Settings(2.0))),
        (holding(Settings(1.0)), holding(Settings(1.0, 0.5))),
        (holding(Kept([1], 1.0)), holding(Kept([1], 2.0))),
        (holding(Factor(1.0, "m")), holding(Factor(1.0, "km"))),
        (holding(Doubled()), holding(Tripled())),
        (holding(np.ma.masked_array([1, 2], [0, 1])), holding(np.ma.masked_array([1, 2], [1, 0]))),
        (holding(collections.deque([1])), holding(collections.deque([2]))),
        (holding(array.array("d", [1])), holding(array.array("d", [2]))),
        (holding(bytearray(b"1")), holding(bytearray(b"2"))),
        (holding(range(3)), holding(range(4))),
        (holding(Private(1.0)), holding(Private(2.0))),
        (holding(decimal.Decimal(1)), holding(decimal.Decimal(2))),
        (holding(datetime.timedelta(1)), holding(datetime.timedelta(2))),
        (holding(types.MappingProxyType({1: 1})), holding(types.MappingProxyType({1: 2}))),
        (holding(tensor_with(1.0)), holding(tensor_with(2.0))),
        (holding(Marked([1.0])), holding(torch.tensor([1.0]).as_subclass(MarkedOtherwise))),
        (holding(collections.defaultdict(int)), holding(collections.defaultdict(float))),
        (holding(made_by(1.0)), holding(made_by(2.0))),
        (holding(stamp(1.0)), holding(stamp(2.0))),
        (holding(place(1.0)), holding(place(2.0))),
        (holding(collections.deque([1], 1)), holding(collections.deque([1], 2))),
        (holding(memoryview(np.ones((2, 3)))), holding(memoryview(np.ones((3, 2))))),
        (
            holding([bytearray(b"x"), bytearray(b"p" + HEAD + b"q")]),
            holding([bytearray(b"x" + HEAD + b"p"), bytearray(b"q")]),
        ),
        (
            code("  b = a * 2\n except ValueError: return 0\n"),
            code(" except ValueError: return 0\n else:\n  b = a * 2\n"),
        ),
    ],
    ids=[
        *("function", "slot", "beside slots", "list", "float", "class", "mask", "deque", "array", "bytes", "range"),
        *(
            "private slot",
            "decimal",
            "time",
            "view",
            "tensor",
            "kind of tensor",
            "default",
            "metaclass",
            "date of the user's",
            "path of the user's",
            "longest deque",
            "shape of a view",
            "where bytes end",
            "what is tried",
        ),
    ],
)
def test_what_a_callable_holds_in_other_places(one, other):
    assert of(one) == of(one)
    assert of(one) != of(other)


def packed(bias):
    """What a layer of integers holds in place of weights."""
    weight = torch.quantize_per_tensor(torch.eye(3), 0.1, 0, torch.qint8)
    return torch.ops.quantized.linear_prepack(weight, torch.full((3,), bias))


class Points(KDTree):
    pass


class Unkept(io.BytesIO):
    def __reduce_ex__(self, protocol):
        raise TypeError


class Random(io.BytesIO):
    def __reduce_ex__(self, protocol):
        return type(self), (os.urandom(8),)


class Endless(io.BytesIO):
    def __reduce_ex__(self, protocol):
        return type(self), (Endless(),)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (KDTree(W), KDTree(W + 1)),
        (Points(W), Points(W + 1)),
        (io.BytesIO(b"1"), io.BytesIO(b"2")),
        (io.StringIO("1"), io.StringIO("2")),
        ((ctypes.c_float * 2)(1, 2), (ctypes.c_float * 2)(1, 3)),
        (ValueError(1), ValueError(2)),
        (re.compile("1"), re.compile("2")),
        (operator.itemgetter(1), operator.itemgetter(2)),
        (struct.Struct("f"), struct.Struct("d")),
        (np.dtype("<f4"), np.dtype(">f4")),
        (torch.float32, torch.bfloat16),
        (W.__matmul__, (W + 1).__matmul__),
        (packed(1.0), packed(2.0)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_held_in_c_is_seen(one, other):
    assert of(holding(one)) == of(holding(one))
    assert of(holding(one)) != of(holding(other))


@pytest.mark.parametrize(
    "hidden",
    [random.Random(1), Unkept(), Random(), Endless(), (i for i in ()), os.environ],
    ids=lambda v: type(v).__name__,
)
def test_what_is_held_in_c_and_not_kept_by_pickle_is_said(hidden, caplog):
    with caplog.at_level("INFO", logger="smoothcert"):
        assert of(holding(hidden)) == of(holding(hidden))
    assert f"other modules, {type(hidden).__qualname__})" in caplog.text


class Hiding:
    @property
    def __dict__(self):
        raise ValueError("nothing to see")


def linked(length):
    made = None
    for _ in range(length):
        made = Settings(made)
    return made


@pytest.mark.parametrize(("held", "why"), [(Hiding(), "nothing to see"), (linked(2000), "recursion")])
def test_what_cannot_be_looked_at_is_refused(held, why):
    with pytest.raises(InputError, match=f"cannot be looked at .*{why}"):
        of(holding(held))


def test_padding_is_no_value():
    """Bytes that no field has, such as those of the nodes of scikit-learn's trees, are those of old memory."""
    kind = np.dtype([("small", "i1"), ("large", "f8")], align=True)
    one, other = (np.frombuffer(bytes([byte]) * 32, np.uint8).copy().view(kind) for byte in (1, 2))
    for nodes in (one, other):
        nodes["small"], nodes["large"] = 1, 2.5
    assert one.tobytes() != other.tobytes()
    assert of(holding(one)) == of(holding(other))
    other["large"][1] = 3.5
    assert of(holding(one)) != of(holding(other))


class Kind(enum.Flag):
    A = enum.auto()
    B = enum.auto()


@functools.singledispatch
def kept(value):
    return value


class Shaped:
    def __init__(self):
        self.shape = (-1, (2, 3))  # a constant of this code

    def __call__(self, batch):
        return batch.reshape(self.shape)


def test_what_was_asked_of_a_callable_is_no_other_one():
    vectorized = np.vectorize(lambda number: 2 * number, otypes=[np.float32])
    compiled = torch.compile(lambda x: 2 * x, backend="eager")
    counted = numba.njit(lambda x: 2 * x)
    shaped = Shaped()
    callables = [holding(held) for held in (Kind, Kind.A, kept, vectorized, compiled, counted)]
    before = [of(model) for model in (*callables, shaped)]
    Kind.A | Kind.B, ~Kind.A, kept(1.0), vectorized([1.0]), compiled(torch.ones(1)), counted(1.0)
    assert of(pickle.loads(pickle.dumps(shaped))) == before[-1]
    assert [of(model) for model in (*callables, shaped)] == before


def test_what_numba_compiles_is_seen():
    known = of(holding(numba.njit(lambda x: 2 * x)))
    assert known == of(holding(numba.njit(lambda x: 2 * x)))
    assert known != of(holding(numba.njit(lambda x: 3 * x)))
    assert known != of(holding(numba.njit(fastmath=True)(lambda x: 2 * x)))
    universal = numba.vectorize(lambda x: 2 * x)
    known = of(holding(universal))
    universal(np.ones(2))
    assert of(holding(universal)) == known != of(holding(numba.vectorize(lambda x: 3 * x)))


@pytest.mark.parametrize("tree", ["KDTree", "BallTree"])
def test_what_was_asked_of_a_tree_of_scikit_learn_is_no_other_one(tree):
    made = getattr(pytest.importorskip("sklearn.neighbors"), tree)
    asked = made(W)
    before = of(holding(asked))
    asked.query(W)
    assert of(holding(asked)) == before != of(holding(made(W + 1)))
    assert before != of(holding(made(W, metric="manhattan")))


def test_a_file_that_is_named_like_one_of_the_standard_library_is_the_users_own(tmp_path, monkeypatch):
    found = []
    for sign in (1, -1):
        path = tmp_path / "sched.py"
        path.write_text(f"def model(batch):\n    return {sign} * batch\n")
        spec = importlib.util.spec_from_file_location("sched", path)
        module = importlib.util.module_from_spec(spec)
        exec(path.read_text(), vars(module))
        monkeypatch.setitem(sys.modules, "sched", module)
        found.append(of(module.model))
    assert found[0] != found[1]


logger = logging.getLogger("of the tests")


def logs(batch):
    logger.debug("a batch of %d", len(batch))
    return batch


def test_what_was_logged_is_no_part_of_a_model():
    before = of(logs)
    logs([1])
    logging.getLogger("of the tests").getChild("another")
    assert of(logs) == before


class Scripted(nn.Module):
    def __init__(self, factor: float = 2.0):
        super().__init__()
        self.head, self.factor = nn.Linear(4, 3), factor
        nn.init.ones_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x):
        return self.factor * self.head(x)


class ScriptedOtherwise(Scripted):
    def forward(self, x):
        return self.factor * self.head(x) + 1


def scripted(module):
    """Through a file, as it usually comes."""
    saved = io.BytesIO()
    torch.jit.save(torch.jit.script(module.eval()), saved)
    saved.seek(0)
    return torch.jit.load(saved)


def test_scripted_code_and_its_values_are_seen():
    known = of(scripted(Scripted()), (4,))
    assert known == of(scripted(Scripted()), (4,))
    assert len({known, of(scripted(ScriptedOtherwise()), (4,)), of(scripted(Scripted(3.0)), (4,))}) == 3


def hooked(wrapper):
    wrapper.register_forward_hook(lambda module, inputs, output: -output)


def prehooked(wrapper):
    wrapper.register_forward_pre_hook(lambda module, inputs: (-inputs[0],))


def patched(wrapper):
    before = wrapper.forward
    wrapper.__dict__["forward"] = lambda x: -before(x)


def called(wrapper):
    before = wrapper.forward
    wrapper._compiled_call_impl = lambda x: -before(x)


def subclassed(wrapper):
    class Negative(type(wrapper)):
        def __call__(self, x):
            return -super().__call__(x)

    wrapper.__class__ = Negative


def eager(net):
    return torch.compile(net, backend="eager")


def traced(net):
    return torch.jit.trace(net, torch.zeros(1, 4))


@pytest.mark.parametrize(
    ("wrap", "change"),
    [
        (eager, hooked),
        (eager, prehooked),
        (eager, patched),
        (eager, subclassed),
        (traced, hooked),
        (torch.jit.script, patched),
        (torch.jit.script, subclassed),
        (nn.Sequential, called),
    ],
    ids=lambda value: value.__name__,
)
def test_what_python_runs_around_a_wrapper_is_certified_and_seen(wrap, change):
    net, x = Scripted(), torch.ones(1, 4)
    whole = nn.Sequential(wrap(net.eval())).eval()
    plain = of(whole, (4,))
    expected, before = -whole(x), whole(x)
    change(whole[0])
    assert torch.equal(whole(x), -before)
    assert torch.equal(evaluated(whole)(x), expected)
    assert of(whole, (4,)) != plain
    whole.train()
    with pytest.raises(InputError, match="call its eval"):
        evaluated(whole)


def test_hooks_that_were_scripted_are_copied():
    def hook(self, inputs: tuple[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
        return -output

    net = Scripted()
    net.register_forward_hook(hook)
    assert torch.equal(evaluated(torch.jit.script(net))(torch.ones(1, 4)), -Scripted()(torch.ones(1, 4)))


def exported(net):
    free = ({0: torch.export.Dim("batch")},)
    return torch.export.export(net, (torch.zeros(2, 4),), dynamic_shapes=free).module()


def test_an_exported_program_has_no_modes():
    net = nn.Sequential(nn.Linear(4, 3), nn.Dropout()).eval()
    x = torch.ones(5, 4)
    for model in (exported(net), nn.Sequential(exported(net)), copy.deepcopy(exported(net))):
        assert torch.equal(evaluated(model)(x), net(x))
        assert of(model, (4,)) == of(net, (4,))
    with pytest.raises(InputError, match=r"exported in training mode .*dropout"):
        evaluated(nn.Sequential(exported(net.train())))


@pytest.mark.parametrize("made", [torch.jit.freeze, torch.jit.optimize_for_inference])
def test_a_frozen_module_has_no_modes(made):
    net = Scripted().eval()
    model = made(torch.jit.script(net))
    assert torch.equal(evaluated(model)(torch.ones(1, 4)), net(torch.ones(1, 4)))
    assert of(model, (4,)) == of(made(torch.jit.script(net)), (4,))


class Either(nn.Module):
    """Two parts of one class that torch compiles to two kinds of code."""

    def __init__(self, one, other):
        super().__init__()
        self.one, self.other = Scripted(one), ScriptedOtherwise(other)

    def forward(self, x):
        return self.one(x) - 2 * self.other(x)


def test_scripted_parts_that_were_exchanged_are_seen():
    exchanged = Either(1.0, 2.0)
    exchanged.one, exchanged.other = exchanged.other, exchanged.one
    ScriptedOtherwise.__qualname__ = ScriptedOtherwise.__name__ = "Scripted"
    try:
        assert of(scripted(exchanged), (4,)) != of(scripted(Either(1.0, 2.0)), (4,))
    finally:
        ScriptedOtherwise.__qualname__ = ScriptedOtherwise.__name__ = "ScriptedOtherwise"


def operation(name, function):
    """An operation of the user's own."""
    made = torch.library.custom_op(f"of_the_tests::{name}", function, mutates_args=())
    made.register_fake(lambda x: torch.empty_like(x))
    return made


def twice(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def thrice(x: torch.Tensor) -> torch.Tensor:
    return 3 * x


class Custom(nn.Module):
    def forward(self, x):
        return torch.ops.of_the_tests.times(x)


def test_the_code_of_operations_that_are_not_torchs_is_seen():
    operation("times", twice)
    known = of(Custom(), (4,))
    assert known.startswith("graph-2:")
    assert known == of(Custom(), (4,))
    operation("times", thrice)
    assert of(Custom(), (4,)) != known


def test_an_operation_whose_code_cannot_be_seen_is_said(caplog):
    library = torch.library.Library("of_the_tests_too", "DEF")
    library.define("same(Tensor x) -> Tensor")
    library.impl("same", lambda x: x.clone(), "CompositeExplicitAutograd")

    class Hidden(nn.Module):
        def forward(self, x):
            return torch.ops.of_the_tests_too.same(x)

    with caplog.at_level("INFO", logger="smoothcert"):
        of(Hidden(), (4,))
    assert "knows the operation of_the_tests_too::same by its name alone" in caplog.text


class CustomOutside(nn.Module):
    """Its operation is no part of an export, or there is none."""

    def __init__(self, exports):
        super().__init__()
        self.exports = exports

    def forward(self, x):
        if torch.compiler.is_compiling():
            return x if self.exports else x * float(x.abs().sum() < 1e30)
        return torch.ops.of_the_tests.outside(x)


@pytest.mark.parametrize(("exports", "way"), [(True, "graph-2:"), (False, "code-1:")])
def test_the_code_of_operations_that_run_outside_an_export_is_seen(exports, way):
    operation("outside", twice)
    known = of(CustomOutside(exports), (4,))
    assert known.startswith(way)
    assert known == of(CustomOutside(exports), (4,))
    operation("outside", thrice)
    assert of(CustomOutside(exports), (4,)) != known


class Packed(nn.Module):
    """An object of C's is an argument before the operation."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        linear = nn.Sequential(nn.Linear(4, 4))
        self.layer = torch.ao.quantization.quantize_dynamic(linear, {nn.Linear}, torch.qint8)

    def forward(self, x):
        h = self.layer(x)
        return h if h.sum().item() > 1e9 else torch.ops.of_the_tests.behind(h)


def test_operations_behind_an_object_in_c_are_seen():
    operation("behind", twice)
    known = of(Packed(), (4,))
    assert known.startswith("code-1:")
    operation("behind", thrice)
    assert of(Packed(), (4,)) != known
