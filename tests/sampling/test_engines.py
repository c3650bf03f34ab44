"""Engines compute what eager PyTorch computes, and the fastest that works is taken, never one that does not."""

import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from interruptible import certify, certify_dataset
from smoothcert import InputError, SmoothedClassifier, Softmax
from smoothcert.models import build
from smoothcert.sampling import batches, choice
from smoothcert.sampling.batches import choose_batch
from smoothcert.sampling.choice import choose_engine
from smoothcert.sampling.engines import Engines, HalvingEngine, name_of, open_engine
from smoothcert.sampling.engines.agreement import agree, count_differences
from smoothcert.sampling.engines.folding import fold_batch_norms
from smoothcert.sampling.engines.module import shortened, tf32
from smoothcert.store.file import RunFile
from smoothcert.store.shards import merge_runs
from some import some

X = np.random.default_rng(0).random((3, 8, 8)).astype(np.float32)
ROWS = torch.from_numpy(X) + 0.5 * torch.randn((40, *X.shape), generator=torch.Generator().manual_seed(0))


class Items:
    def __len__(self):
        return 3

    def __getitem__(self, row):
        return (X + row / 10).astype(np.float32), row


class Branching(nn.Module):
    """Code that depends on its input: nothing can trace, export or compile it whole."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(192, 4)

    def forward(self, x):
        y = self.layer(x.flatten(1))
        return y if x.sum().item() > 0 else y + 1


@pytest.fixture
def module():
    """A network whose batch norms are far from the identity."""
    torch.manual_seed(0)
    network = build("cifar_resnet8", num_classes=4)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
            nn.init.uniform_(layer.weight, 0.5, 2)
            nn.init.normal_(layer.bias)
    return network.eval()


def scores(model, name):
    engine = open_engine(model, name)
    with engine.ready():
        return engine(ROWS)


@pytest.mark.parametrize("options", ["folded", "channels-last", "folded+channels-last", "folded+channels-last+lanes"])
def test_variants_of_eager_pytorch_compute_the_same(module, options):
    torch.testing.assert_close(scores(module, f"torch+{options}"), scores(module, "torch"), rtol=1e-4, atol=1e-4)


def test_no_batch_norm_is_left_and_the_module_keeps_its_own(module):
    folded = fold_batch_norms(module)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in folded.modules())
    assert sum(isinstance(m, nn.BatchNorm2d) for m in module.modules()) == 9


def test_batch_norms_that_cannot_be_folded_stay():
    class Shared(nn.Module):
        """One convolution before two batch norms; its output is used beside a norm; a norm that follows nothing."""

        def __init__(self):
            super().__init__()
            self.first, self.conv = nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1)
            self.norms = nn.ModuleList(nn.BatchNorm2d(3) for _ in range(2))
            for i, norm in enumerate([self.first, *self.norms]):
                norm.running_mean.fill_(i + 1)

        def forward(self, x):
            a = self.conv(self.first(x))
            return (self.norms[0](a) + self.norms[1](self.conv(a)) + a).mean((2, 3))

    torch.manual_seed(0)
    module = Shared().eval()
    torch.testing.assert_close(fold_batch_norms(module)(ROWS), module(ROWS))


class _Tokens(nn.Module):
    """The outputs of the linear layer are the last axis, what is normalised is the second."""

    def __init__(self):
        super().__init__()
        self.before, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

    def forward(self, x):
        return self.norm(self.before(x[:, 0])).flatten(1)


class _Tied(nn.Module):
    """The weights of the convolution are read once more, on their own."""

    def __init__(self):
        super().__init__()
        self.before, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

    def forward(self, x):
        return nn.functional.conv2d(self.norm(self.before(x)), self.before.weight).flatten(1)


@pytest.mark.parametrize("kind", [_Tokens, _Tied])
def test_a_layer_that_is_more_than_what_its_batch_norm_sees(kind):
    torch.manual_seed(0)
    module = kind().eval()
    module.norm.running_mean.normal_()
    module.norm.running_var.uniform_(0.01, 100)
    torch.testing.assert_close(fold_batch_norms(module)(ROWS), module(ROWS))


class _Asks(nn.Module):
    """Clamps its input where a question is answered as it is for tensors; what is traced is none."""

    def __init__(self, asked, low):
        super().__init__()
        self.before, self.norm, self.asked, self.low = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), asked, low

    def forward(self, x):
        y = self.norm(input=self.before(x.clamp(self.low, 3) if self.asked(x) else x))
        return y.mean((2, 3))


@pytest.mark.parametrize("asked", [torch.is_tensor, lambda x: torch.is_inference_mode_enabled()])
@pytest.mark.parametrize("low", [-3, -30])
def test_code_that_asks_where_it_runs_is_not_folded(asked, low):
    with pytest.raises(InputError, match="traced, the model computes something else: use engine torch"):
        scores(_Asks(asked, low).eval(), "torch+folded")


def patched(part):
    before = part.forward
    part.forward = lambda x: before(x).relu()


BESIDE = {
    "hook": lambda part: part.register_forward_hook(lambda module, args, output: output.relu()),
    "hook before": lambda part: part.register_forward_pre_hook(lambda module, args: (args[0].relu(),)),
    "forward": patched,
}


@pytest.mark.parametrize("change", BESIDE.values(), ids=BESIDE)
def test_what_runs_beside_the_code_of_a_class_is_not_folded_away(module, change):
    for part in (module[1].layer1[0].conv1, module[1].layer1[0].bn1):
        change(part)
        torch.testing.assert_close(scores(module, "torch+folded"), scores(module, "torch"), rtol=1e-4, atol=1e-4)
    change(module)
    with pytest.raises(InputError, match="is not folded: use engine torch"):
        scores(module, "torch+folded")


@pytest.mark.parametrize("name", ["torch+folded", "onnx"])
def test_weights_that_change_are_seen(module, name):
    if name == "onnx":
        pytest.importorskip("onnxruntime")
    engine = open_engine(module, name)
    with engine.ready():
        engine(ROWS)
    module[1].fc.bias.data[0] += 100
    with engine.ready():
        assert (engine(ROWS).argmax(1) == 0).all()


class Signed(nn.Module):
    """Scores by a number and a tensor that are neither parameters nor buffers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.head, self.sign, self.scales = nn.Linear(192, 4), 1.0, torch.ones(4)

    def forward(self, x):
        return self.sign * self.scales * self.head(x.flatten(1))


CHANGES = {
    "a number": lambda m: setattr(m, "sign", -1.0),
    "a tensor": lambda m: m.scales.mul_(-1),
    "a hook of a part": lambda m: m.head.register_forward_hook(lambda module, args, output: -output),
    "the forward of a part": lambda m: setattr(m.head, "forward", lambda x: -nn.functional.linear(x, m.head.weight)),
}


@pytest.mark.parametrize("change", some(CHANGES))
@pytest.mark.parametrize("name", ["torch+folded", "torch+channels-last", "onnx"])
def test_any_change_of_the_module_is_seen(name, change):
    if name == "onnx":
        pytest.importorskip("onnxruntime")
    model = Signed().eval()
    engine = open_engine(model, name)
    with engine.ready():
        engine(ROWS)
    CHANGES[change](model)
    with engine.ready():
        torch.testing.assert_close(engine(ROWS), model(ROWS))


@pytest.mark.parametrize("name", ["auto", "torch", "torch+folded"])
def test_a_batch_beyond_all_memory_is_a_sentence(module, name):
    with pytest.raises(InputError, match=r"batches of 100,000,000 inputs take [\d.,]+ GB .* choose a smaller `batch`"):
        choose_engine(Engines(module), name, 100_000_000, X, sigma=0.5, draws=10**6)


def test_autocast_is_asked_for_by_name(module):
    half = scores(module, "torch+bf16")
    assert half.dtype == torch.bfloat16
    assert (half.argmax(1) == scores(module, "torch").argmax(1)).float().mean() > 0.8
    assert open_engine(module, "torch+bf16").identity != open_engine(module, "torch").identity


@pytest.fixture
def settings():
    """torch's settings of float32, put back afterwards."""
    kinds = [torch.backends.mkldnn.conv, torch.backends.mkldnn.matmul, torch.backends.cudnn.conv]
    kinds.append(torch.backends.cuda.matmul)
    before = [kind.fp32_precision for kind in kinds]
    yield
    for kind, precision in zip(kinds, before, strict=True):
        kind.fp32_precision = precision


def test_the_identity_says_where_float32_is_shortened(settings):
    """Whichever way torch was told so; on CUDA convolutions are unless told otherwise."""
    layer = nn.Linear(2, 2)
    engine = open_engine(layer)
    assert (engine.identity.precision, shortened("cuda")) == ("float32", " with tf32 convolutions")
    torch.backends.cuda.matmul.allow_tf32 = True
    assert shortened("cuda") == " with tf32 convolutions and tf32 products"
    torch.backends.cudnn.conv.fp32_precision = torch.backends.cuda.matmul.fp32_precision = "ieee"
    assert shortened("cuda") == ""
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    assert engine.identity.precision == "float32 with bf16 products"
    assert open_engine(nn.Sequential(layer, nn.Linear(2, 2).double())).identity.precision.startswith("float32+float64")
    assert open_engine(layer.double()).identity.precision == "float64"


def test_runs_in_another_arithmetic_are_not_parts_of_one(settings, tmp_path):
    """Neither resumed nor merged, and their certificates are not equal."""
    torch.manual_seed(0)
    model, parts = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), [tmp_path / "1", tmp_path / "2"]
    asked = {"engine": "torch", "n": 200}
    first = certify(parts[0], model, shard=(1, 2), **asked)
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    with pytest.raises(InputError, match=r"started with engine = .* in float32, not .* in float32 with bf16 products"):
        certify(parts[0], model, shard=(1, 2), **asked)
    certify(parts[1], model, shard=(2, 2), **asked)
    with pytest.raises(InputError, match=r"shards of different runs .*float32 with bf16 products"):
        merge_runs(parts, tmp_path / "whole")
    other = certify(tmp_path / "other", model, shard=(1, 2), **asked)
    assert [c.radius for c in other.certificates()] == [c.radius for c in first.certificates()]
    assert other.certificates() != first.certificates()


def test_in_lanes_each_batch_has_one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        engine = open_engine(nn.Identity(), "torch+folded+lanes")
        assert engine.lanes == 3
        with engine.ready(), ThreadPoolExecutor(3) as pool:
            assert list(pool.map(lambda _: torch.get_num_threads(), range(6))) == [1] * 6
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_a_module_that_may_remember_is_not_called_from_two_threads():
    with pytest.raises(InputError, match="several threads: use torch\\+folded\\+lanes"):
        open_engine(nn.Identity(), "torch+lanes")


def test_an_identity_opens_its_engine_again(module):
    for name in ("torch", "torch+folded+channels-last", "compile+bf16"):
        assert name_of(open_engine(module, name).identity) == name
    assert name_of(open_engine(lambda x: x).identity) == "torch"


def test_names_that_are_none(module):
    with pytest.raises(InputError, match="unknown engine 'tensorrt'"):
        open_engine(module, "tensorrt")
    with pytest.raises(InputError, match="engine 'onnx' has no option 'folded'"):
        open_engine(module, "onnx+folded")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="the compiler of torch needs g++")
def test_compiled(module):
    torch.testing.assert_close(scores(module, "compile"), scores(module, "torch"), rtol=1e-4, atol=1e-4)


def test_what_cannot_be_built_is_one_sentence(module, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no compiler\nhere")

    monkeypatch.setattr(torch, "compile", lambda *_, **__: broken)
    for model, name in ((module, "compile"), (Branching(), "torch+folded")):
        with pytest.raises(InputError, match="use engine torch") as refusal:
            choose_engine(Engines(model), name, 10, X, sigma=0.5, draws=1000)
        assert "\n" not in str(refusal.value)


# ---- auto


FOR_DAYS = 10**9


def choose(model, draws=FOR_DAYS, batch=40):
    return choose_engine(Engines(model), "auto", batch, X, sigma=0.5, draws=draws)


def test_a_short_run_goes_to_eager_pytorch_as_it_is(module):
    assert choose(module, draws=100).engine.identity == open_engine(module, "torch").identity


@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.slow), 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_auto_takes_the_fastest_and_says_how_fast_each_is(module, caplog, monkeypatch, threads):
    monkeypatch.setattr(choice, "TURNS", 0)
    caplog.set_level("INFO", "smoothcert")
    chosen = choose(module, batch="auto")
    said = [
        re.fullmatch(r"choosing an engine: (\S+) makes ([\d,]+) draws a second in batches of (\d+)", m)
        for m in caplog.messages
    ]
    rates = {name: (float(rate.replace(",", "")), int(batch)) for name, rate, batch in (m.groups() for m in said)}
    variants = ["torch+folded", "torch+folded+channels-last"]
    lanes = "+lanes" if threads > 1 else ""
    assert rates.keys() == {"torch", *(f"{name}{lanes}" for name in variants), "onnx"}
    best = name_of(chosen.engine.identity)
    assert rates[best] == max(rates.values())
    assert chosen.batch == rates[best][1]


class Slow(nn.Module):
    """Ten milliseconds a row, and how many rows that were."""

    rows = 0

    def forward(self, x):
        Slow.rows += len(x)
        time.sleep(0.01 * len(x))
        return x.flatten(1)[:, :3]


@pytest.mark.parametrize("engine", ["auto", "torch"])
@pytest.mark.parametrize("draws", [100, 600, 6_000])
def test_choosing_takes_a_sixth_of_the_run(engine, draws):
    """But for the first measurement, which is of four rows twice, and a slip of the clock."""
    Slow.rows = 0
    choose_engine(Engines(Slow()), engine, "auto", X, sigma=0.5, draws=draws)
    assert 0 < Slow.rows < draws / 6 + 60


def test_choosing_takes_no_more_than_a_minute(monkeypatch):
    clock = iter([0.0, 10.0, 61.0])
    monkeypatch.setattr(batches, "perf_counter", lambda: next(clock))
    patience = batches.Patience(draws=10**12)
    patience.rate = 1.0
    assert (patience.left, patience.left) == (50.0, -1.0)


def test_auto_passes_over_what_cannot_be_built():
    chosen = choose(Branching())
    assert name_of(chosen.engine.identity).split("+")[0] == "torch"
    for name in ("torch\\+folded\\S*", "onnx"):
        assert re.search(f"{name} was passed over", chosen.reason)
    assert "\n" not in chosen.reason


class InPlace(nn.Module):
    """Brings its inputs to mean 0 where they lie."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3))

    def forward(self, x):
        return self.body(x.sub_(0.5))


def test_a_model_that_writes_into_its_batch_is_not_taken_for_another():
    x = np.full((1, 8, 8), 0.5, dtype=np.float32)
    chosen = choose_engine(Engines(InPlace().eval()), "torch+folded", 10, x, sigma=0.25, draws=100)
    assert chosen.engine.identity.engine == "torch+folded"


def test_auto_passes_over_what_computes_something_else():
    class Traceable(nn.Module):
        """Traced, it keeps the answer it gave while it was traced."""

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(192, 4)

        def forward(self, x):
            y = self.layer(x.flatten(1))
            return y * (1 if torch.jit.is_tracing() or isinstance(x, torch.fx.Proxy) else 2)

    torch.manual_seed(0)
    chosen = choose(Traceable())
    assert re.search(r"torch\+folded\S* was passed over \(traced, the model computes something else", chosen.reason)
    assert "folded" not in name_of(chosen.engine.identity)


@pytest.mark.slow
def test_integers_are_never_taken_and_told_where_they_would_be_far_faster(module, monkeypatch):
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(choice, "FASTER", 0.0)
    chosen = choose(module)
    assert re.search(r"; onnx\+int8 would be [\d.]+ times as fast, as a network of its own$", chosen.reason)
    assert "int8" not in name_of(chosen.engine.identity)
    monkeypatch.setattr(choice, "FASTER", float("inf"))
    assert "int8" not in choose(module).reason


@pytest.mark.parametrize(("exact", "coarse"), [(False, ["tf32", "bf16"]), (True, [])])
def test_on_cuda_coarser_arithmetic_is_tried_unless_it_has_to_be_exact(module, exact, coarse):
    """By its name alone: there is no such device here."""
    contest = choice._Contest(Engines(module), X, 40, 0.5, batches.Patience(), exact)
    contest.entries = {"torch": choice._Entry(1.0, 40), "torch+folded": choice._Entry(2.0, 40)}
    names = list(contest._candidates(SimpleNamespace(device=torch.device("cuda"))))
    assert names[3:] == [f"torch+folded+{option}" for option in coarse]
    assert not any("16" in name or "tf32" in name for name in contest._candidates(open_engine(module)))


def test_tf32_is_a_setting_of_cuda_that_is_put_back(module):
    with tf32():
        assert shortened("cuda") == " with tf32 convolutions and tf32 products"
    assert shortened("cuda") == " with tf32 convolutions"
    with pytest.raises(InputError, match="'tf32' is for CUDA, and the model is on cpu"):
        open_engine(module, "torch+tf32")


def test_with_a_lipschitz_constant_an_engine_is_chosen_that_computes_in_float32(module):
    smoothed = SmoothedClassifier(module, sigma=0.5, num_classes=4, votes=Softmax(1.0), batch=20, seed=0)
    smoothed.count(X, 100)
    smoothed._machine = choice.here(smoothed._engines, "torch+bf16", 20, "as auto may take on CUDA")
    smoothed.certify(X, n=100)
    assert smoothed.engine.identity.precision == "bf16"
    smoothed.certify(X, n=100, lipschitz=1.0)
    assert smoothed.engine.identity.precision == "float32"


def test_what_agrees():
    reference = torch.eye(4) * 10
    assert agree(reference + 1e-4, reference)
    assert not agree(reference + 0.1, reference)
    assert agree(reference + 0.1, reference, tolerance=0.03)
    assert not agree(reference * torch.nan, reference)
    assert not agree(reference[:3], reference)
    labels = torch.arange(200)
    assert agree(labels, labels)
    assert not agree(labels.flip(0), labels)


def test_differences_are_counted(module):
    class Other(nn.Module):
        """Another class whenever the first pixel is above 1."""

        def forward(self, x):
            y = module(x)
            return torch.where((x[:, 0, 0, 0] > 1)[:, None], y.roll(1, 1), y)

    eager, xs = open_engine(module), [X, X]
    assert count_differences(open_engine(module), eager, xs, sigma=0.5, batch=64, draws=1000) == 0
    differ = count_differences(open_engine(Other()), eager, xs, sigma=0.5, batch=64, draws=1000)
    p = 0.5 * (1 + torch.erf(torch.tensor((X[0, 0, 0] - 1) / 0.5 / 2**0.5))).item()
    assert abs(differ - 1000 * p) < 5 * (1000 * p) ** 0.5


# ---- in a run


def test_a_resumed_run_keeps_its_engine(module, tmp_path, caplog):
    path, settings = tmp_path / "run.smoothcert", {"sigma": 0.5, "n0": 50, "n": 200, "num_classes": 4, "batch": 50}
    certify_dataset(module, Items(), out=path, engine="torch+folded", **settings)
    caplog.clear()
    caplog.set_level("INFO", "smoothcert")
    again = certify_dataset(module, Items(), out=path, verify_engine=True, **settings)
    assert again.finished
    assert again.plan.setting.engine == open_engine(module, "torch+folded").identity
    assert caplog.messages[0] == "engine torch+folded"
    assert "0 of 10,000 labels differ" in caplog.messages[1]
    with pytest.raises(InputError, match=r"was started with engine = torch\+folded"):
        certify_dataset(module, Items(), out=path, engine="torch", **settings)


def test_the_engine_is_recorded(module, tmp_path):
    path = tmp_path / "run.smoothcert"
    certify_dataset(module, Items(), out=path, sigma=0.5, n0=10, n=20, num_classes=4)
    assert str(RunFile.plan_of(path).setting.engine) == f"torch (torch {torch.__version__}) on cpu in float32"


def test_verification_needs_a_module(tmp_path):
    with pytest.raises(InputError, match="torch modules only"):
        certify_dataset(
            lambda b: b.reshape(len(b), -1)[:, :3], Items(), out=tmp_path / "run", sigma=0.5, n=20, verify_engine=True
        )


def test_the_classifier_looks_for_another_engine_when_far_more_is_wanted(module, monkeypatch):
    smoothed = SmoothedClassifier(module, sigma=0.5, num_classes=4, batch=20, seed=0)
    smoothed.count(X, 100)
    assert name_of(smoothed.engine.identity) == "torch"
    asked = []

    def spy(*arguments, draws, **settings):
        asked.append(draws)
        return choose_engine(*arguments, draws=draws, **settings)

    monkeypatch.setattr("smoothcert.certification.planning.choose_engine", spy)
    smoothed.count(X, 500)
    smoothed.count(X, 1000)
    smoothed.count(X, 1000)
    assert asked == [1000]


@pytest.mark.parametrize(("draws", "most"), [(100_000, 1_600), (10**9, 6_400)])
def test_the_largest_batch_is_for_long_runs(draws, most):
    """How far a short run gets depends on the clock; the engine takes as long for one row as for thousands."""

    class Calling(Small):
        def __call__(self, batch):
            time.sleep(0.001)
            return batch.flatten(1)[:, :4]

    assert batches.sizes_for(draws)[-1] == most
    assert choose_batch("auto", Calling(0), X, batches.Patience(draws)) <= most


# ---- memory: what only a CUDA device does is done by a stand-in


class Small:
    """An engine on a device that holds so many rows."""

    device, lanes, identity, fingerprint = torch.device("cpu"), 1, "small", "none"

    def __init__(self, fits):
        self.fits, self.sizes = fits, []

    def ready(self):
        return torch.inference_mode()

    def __call__(self, batch):
        self.sizes.append(len(batch))
        if len(batch) > self.fits:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return batch.flatten(1)[:, :4]


def test_a_batch_is_halved_until_it_fits_and_stays_so():
    small = Small(fits=13)
    engine = HalvingEngine(small)
    torch.testing.assert_close(engine(ROWS), ROWS.flatten(1)[:, :4])
    torch.testing.assert_close(engine(ROWS), ROWS.flatten(1)[:, :4])
    assert small.sizes == [40, 20, 10, 10, 10, 10, 10, 10, 10, 10]
    with pytest.raises(torch.cuda.OutOfMemoryError):
        HalvingEngine(Small(fits=0))(ROWS)


def test_the_chosen_batch_fits_the_memory():
    for fits in (1, 5, 24, 130):
        assert 1 <= choose_batch("auto", Small(fits), X) <= fits
    with pytest.raises(InputError, match="takes more memory than"):
        choose_batch("auto", Small(0), X)
