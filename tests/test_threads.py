"""A smoothed classifier that is shared, copied or sent elsewhere answers as it would alone, and spares the model."""

import copy
import multiprocessing
import pickle
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert import InputError, SmoothedClassifier
from smoothcert.attacks import pgd
from smoothcert.modules import evaluated, one_thread
from smoothcert.sampling.engines import open_engine

INPUTS = np.random.default_rng(0).random((40, 3, 6, 6)).astype(np.float32)


def network():
    """In training mode it would count its batches and mix their rows."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(128, 4)
    )


def smoothed(model=None, **options):
    given = {"sigma": 0.5, "num_classes": 4, "seed": 0, "engine": "torch", "batch": 100, **options}
    return SmoothedClassifier(network() if model is None else model, **given)


def facts(certificates):
    return [(c.prediction, c.radius) for c in certificates]


def certify(classifier):
    return facts([classifier.certify(x, n0=50, n=300) for x in INPUTS[:5]])


def state_of(module):
    flags = [m.training for m in module.modules()]
    return flags, [t.clone() for t in module.state_dict().values()]


def test_four_threads_with_a_module_in_training_mode():
    model = network().train()
    flags, before = state_of(model)
    shared = smoothed(model)
    with ThreadPoolExecutor(4) as pool:
        found = facts(pool.map(lambda x: shared.certify(x, n0=50, n=300), INPUTS))
    alone = smoothed(network().eval())
    assert found == facts(alone.certify(x, n0=50, n=300) for x in INPUTS)
    after, tensors = state_of(model)
    assert after == flags
    assert all(map(torch.equal, tensors, before))


class Keeping(nn.Module):
    """The usual way to intermediate features: a hook that keeps them until the end of the forward."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head, self.kept = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), nn.Linear(8, 4), {}
        self.body[0].register_forward_hook(self.keep)
        self.head.bias.data -= self(torch.from_numpy(INPUTS)).mean(0).detach()

    def keep(self, module, inputs, output):
        self.kept["middle"] = output

    def forward(self, x):
        self.body(x)
        time.sleep(0.001)  # others may run
        return self.head(self.kept["middle"].mean((2, 3)))


@pytest.mark.parametrize("as_module", [True, False], ids=["module", "callable"])
def test_what_a_model_keeps_while_it_runs_is_not_another_threads(as_module):
    model = Keeping().eval()
    given = model if as_module else lambda batch: model(torch.from_numpy(batch)).detach().numpy()
    shared = smoothed(given, **({} if as_module else {"engine": "auto"}))
    alone = facts(shared.certify(x, n0=50, n=500) for x in INPUTS)
    with ThreadPoolExecutor(8) as pool:
        assert facts(pool.map(lambda x: shared.certify(x, n0=50, n=500), INPUTS)) == alone


def test_the_module_is_in_training_mode_all_the_while():
    """Nobody else who uses it meets it in another mode."""
    model, seen = network().train(), []
    smoothed(model).certify(INPUTS[0], n0=50, n=100)
    outer, watched = nn.Sequential(model), weakref.ref(model)  # a hook that holds the module might call it
    outer.register_forward_pre_hook(lambda *_: seen.append(all(m.training for m in watched().modules())))
    smoothed(outer).certify(INPUTS[0], n0=50, n=100)
    pgd(outer, INPUTS[:1], [0], [0.1], steps=2)
    assert seen
    assert all(seen)


def test_counts_of_threads_are_those_of_further_draws():
    shared, alone = smoothed(), smoothed()
    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(lambda _: shared.count(INPUTS[0], 100), range(8)))
    expected = [alone.count(INPUTS[0], 100) for _ in range(8)]
    assert sorted(c.tolist() for c in counts) == sorted(c.tolist() for c in expected)


def test_a_thread_that_saw_one_thread_does_not_leave_one_behind():
    """torch keeps the number in every thread from when that one first asked."""

    def enter():
        with one_thread():
            return torch.get_num_threads()

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with ThreadPoolExecutor(1) as early:
            with one_thread():
                assert early.submit(torch.get_num_threads).result() == 1
            assert early.submit(enter).result() == 1
        with ThreadPoolExecutor(1) as late:
            assert late.submit(torch.get_num_threads).result() == 2
    finally:
        torch.set_num_threads(before)


def test_threads_share_the_number_of_torch_threads(monkeypatch):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        shared = smoothed(engine="torch+folded+lanes")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda x: shared.certify(x, n0=50, n=300), INPUTS[:12]))
        assert torch.get_num_threads() == 2
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(torch.get_num_threads).result() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))], ids=["copied", "pickled"])
@pytest.mark.parametrize("engine", ["auto", "torch+folded"])
def test_a_copy_answers_the_same_and_counts_on(again, engine):
    original = smoothed(engine=engine)
    first = original.count(INPUTS[0], 100)
    twin = again(original)
    assert certify(twin) == certify(original)
    assert twin.engine.identity == original.engine.identity
    further = twin.count(INPUTS[0], 100)
    np.testing.assert_array_equal(further, original.count(INPUTS[0], 100))
    assert not np.array_equal(first, further)


def test_a_copy_has_a_model_of_its_own():
    original = smoothed()
    twin = copy.deepcopy(original)
    nn.init.zeros_(twin.model[5].weight)
    assert original.model[5].weight.any()


def test_in_a_process_that_was_spawned():
    original = smoothed()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(certify, [original]) == certify(original)


class Uncopied(nn.Module):
    def __init__(self):
        super().__init__()
        self.stream = (i for i in range(3))
        self.layers = network()

    def forward(self, x):
        return self.layers(x)


def test_what_cannot_be_copied_is_taken_in_evaluation_mode_or_refused():
    with pytest.raises(InputError, match=r"in training mode and cannot be copied .* call its eval\(\) first"):
        smoothed(Uncopied()).certify(INPUTS[0], n0=50, n=100)
    assert certify(smoothed(Uncopied().eval())) == certify(smoothed())


class Single(nn.BatchNorm2d):
    def __deepcopy__(self, memo):
        return self


class SingleWhole(nn.Sequential):
    def __deepcopy__(self, memo):
        return self


def by_closure(model):
    before = model.forward
    model.forward = lambda x: before(x)


def by_decorator(model):
    model.forward = torch.no_grad()(model.forward)


def by_attribute(model):
    model.norm = lambda x: model[1](x)


def by_hook(model):
    model[0].register_forward_hook(lambda module, args, output: model[1](output))


def by_part(model):
    model[1] = Single(8)


@pytest.mark.parametrize("change", [by_closure, by_decorator, by_attribute, by_hook, by_part])
@pytest.mark.parametrize("kind", [nn.Sequential, SingleWhole])
def test_a_copy_that_would_run_the_module_itself_in_training_mode_is_refused(kind, change):
    model = kind(*network())
    change(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(InputError, match=r"its copy still calls it.*: call its eval\(\) first"):
        smoothed(model).certify(INPUTS[0], n0=50, n=100)
    assert all(part.training for part in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert evaluated(model.eval())(torch.from_numpy(INPUTS)).shape == (40, 4)


def test_functions_that_do_not_call_the_module_are_no_fault():
    model = network()
    model.activation, model.scaled = nn.functional.relu, lambda x: 2 * x
    model[0].register_forward_hook(lambda module, args, output: 2 * output)
    assert not evaluated(model).training


def test_tensors_are_shared_with_the_copy():
    model = network().train()
    model.scale = torch.ones(3)
    own = evaluated(model)
    assert own[5].weight is model[5].weight
    assert own.scale is model.scale
    assert not own[1].training
    assert model[1].training


class Remembering(nn.Module):
    """A function beside the code of its class reads or writes what a call keeps."""

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.kind, self.kept = nn.Linear(108, 4), kind, {"h": torch.zeros(1, 4)}
        self.register_buffer("shift", torch.zeros(1, 4), persistent=False)
        shift, kept = self.shift, self.kept
        self.act = {
            "a buffer": lambda h: h - 2 * self.shift,
            "an attribute": lambda h: h - 2 * self.last,
            "a tensor": lambda h: h - 2 * shift,
            "a dictionary": lambda h: h - 2 * kept["h"],
        }[kind]
        self.last = torch.zeros(1, 4)

    def forward(self, x):
        h = self.layer(x.flatten(1))
        self.last = self.kept["h"] = h.roll(1, 1)
        self.shift.resize_(h.shape).copy_(h.roll(1, 1))
        return self.act(h)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["a buffer", "an attribute", "a tensor", "a dictionary"])
def test_functions_that_a_module_holds_work_with_what_the_call_has_kept(kind):
    """Those of a copy are the original's, and read what the original had kept."""
    model, (x, *_) = Remembering(kind).eval(), INPUTS
    batch = torch.from_numpy(x).expand(50, -1, -1, -1) + 0.5 * torch.randn(50, 3, 6, 6)
    model(batch)
    engine = open_engine(model, "torch")
    with engine.ready():
        torch.testing.assert_close(engine(batch + 1), model(batch + 1))


@pytest.mark.parametrize("kind", ["a buffer", "an attribute", "a dictionary"])
def test_a_module_in_training_mode_with_such_functions_is_refused(kind):
    with pytest.raises(InputError, match=r"call its eval\(\) first"):
        certify(smoothed(Remembering(kind).train()))


class Stubborn(torch.nn.Sequential):
    """Stays in training mode whatever it is told."""

    def train(self, mode=True):
        return self


def test_a_module_that_stays_in_training_mode_is_refused_before_it_is_run():
    """Running it would change its statistics."""
    norm = torch.nn.BatchNorm1d(4)
    module = Stubborn(torch.nn.Flatten(), norm, torch.nn.Linear(4, 3))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    smoothed = SmoothedClassifier(module, sigma=0.5, num_classes=3, seed=0)
    with pytest.raises(InputError, match="in training mode even after eval"):
        smoothed.certify(np.ones(4, dtype=np.float32), n=100)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_weights_that_are_not_there_yet_are_refused():
    """A copy that shares them would make them in the user's module."""
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(4))
    with pytest.raises(InputError, match="run it on an input first"):
        smoothed(model).certify(INPUTS[0], n=100)
    assert nn.parameter.is_lazy(model[1].weight)
