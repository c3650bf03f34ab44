"""The graph is what ran: modules that once got a bound below the truth, and what torch.export itself can be told."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from smoothcert.errors import InputError
from smoothcert.lipschitz import GroupSort, product
from smoothcert.models.liresnet import MinMax
from some import some

torch.set_num_threads(1)


class Net(nn.Module):
    """A module whose forward is the given function of the input."""

    def __init__(self, run, weight=None):
        super().__init__()
        self.weight = None if weight is None else nn.Parameter(weight)
        self.run = run

    def forward(self, x):
        return self.run(x) if self.weight is None else self.run(x, self.weight)


def steepest(module, shape, draws=6):
    """The largest norm of a Jacobian at some inputs, of a batch of one, in float64."""
    generator = torch.Generator().manual_seed(0)
    module = module.double()
    inputs = torch.randn(draws, *shape, generator=generator, dtype=torch.float64)
    norms = []
    for x in (*inputs, torch.zeros(shape, dtype=torch.float64)):
        columns = torch.autograd.functional.jacobian(lambda v: module(v[None])[0], x)
        norms.append(float(torch.linalg.matrix_norm(columns.reshape(-1, x.numel()), 2)))
    return max(norms)


class OtherConvolution(nn.Conv2d):
    def _conv_forward(self, x, weight, bias):
        return 100 * super()._conv_forward(x, weight, bias)


class OtherSort(GroupSort):
    def forward(self, x):
        return 100 * x


def replaced(layer):
    """An instance whose forward is not that of its class."""
    layer.forward = lambda x, forward=layer.forward: 100 * forward(x)
    return layer


def in_place(x):
    h = 1 * x
    functional.elu(h.view(-1), 100.0, inplace=True)
    return h


def variance(value):
    """A batch normalisation of this variance, and no ε."""
    layer = nn.BatchNorm1d(4, eps=0.0).eval()
    layer.running_var.fill_(value)
    return layer


def far(x, steeper):
    """x, where it is steeper with more of it far out, where no random input comes."""
    return x + 50 * functional.relu(x - 1000) if steeper else x * 1


MERGED = Net(lambda x: functional.max_pool2d(x.flatten(0, 1), 3, 1).unflatten(0, (len(x), -1)))
BOUNDED = {
    "max pool without channels": (nn.MaxPool1d(3, 1), (16,), math.sqrt(3)),
    "max pool without channels, 2-D": (nn.MaxPool2d(3, 1), (6, 6), 3.0),
    "max pool, batch and channels merged": (MERGED, (2, 6, 6), 3.0),
    "sum pool without channels": (nn.AvgPool2d(3, 1, divisor_override=1), (6, 6), 7.16),
    "adaptive pool without channels": (nn.AdaptiveAvgPool1d(32), (16,), math.sqrt(2)),
    "a wide max pool before a linear layer": (nn.Sequential(nn.MaxPool1d(33, 1), nn.Linear(32, 2)), (64,), None),
    "a tuple of signals": (Net(lambda x: torch.cat((*x.chunk(2, 1), 10 * x), 1)), (4,), math.sqrt(101)),
    "overridden helper": (OtherConvolution(1, 2, 1), (1, 3, 3), None),
    "replaced forward": (replaced(nn.Linear(4, 4)).eval(), (4,), None),
    "replaced forward of a design": (nn.Sequential(replaced(GroupSort()), nn.Flatten()).eval(), (4,), 100.0),
    "a branch on the type": (Net(lambda x: 100 * x if isinstance(x, Tensor) else x), (4,), 100.0),
    "an inherited bound": (nn.Sequential(OtherSort(), nn.Flatten()), (4,), 100.0),
    "in place through a view": (Net(in_place), (4,), 100.0),
    "a signal as bias": (
        Net(lambda x, w: functional.linear(torch.ones(len(x), 4).to(x), w, bias=x), torch.ones(4, 4)),
        (4,),
        1.0,
    ),
    "in place, and used again": (Net(lambda x: (lambda y: functional.silu(y, inplace=True) + y)(2 * x)), (4,), None),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nearest_entries_are_those_of_the_type_that_ran(dtype):
    """Of 2 entries to 82, float32 takes 42 copies of the first and float64 41."""
    module = Net(lambda x: functional.interpolate(functional.relu(x - 500), size=82))
    copies = functional.interpolate(torch.arange(2, dtype=dtype)[None, None], size=82).long().flatten().bincount()
    assert product(module.to(dtype), (1, 2)).value >= math.sqrt(int(copies.max()))


@pytest.mark.parametrize("name", some(BOUNDED))
def test_no_bound_is_below_the_truth(name):
    module, shape, known = BOUNDED[name]
    bound = product(module, shape).value
    truth = steepest(module, shape)
    assert truth <= bound * (1 + 1e-6)
    if known is not None:
        assert known <= bound * (1 + 2e-3)
        assert bound <= known * 1.01  # and the bound is the right one


def test_the_bound_is_that_of_the_module_in_evaluation_mode():
    class Branches(nn.Module):
        def forward(self, x):
            return x * 1 if self.training else x + 50 * functional.relu(x - 1000)

    module = nn.Sequential(Branches(), nn.Flatten())
    module[1].eval()
    assert product(module, (4,)).value == 51
    assert [part.training for part in module.modules()] == [True, True, False]


def test_a_bound_too_small_for_a_float_is_not_zero():
    assert 0 < product(Net(lambda x, w: x * 1e-200 * 1e-200, torch.ones(1).double()), (4,)).value < 1e-300


@pytest.mark.parametrize("method", ["fourier", "gram", "power"])
def test_a_convolution_that_reads_padding_alone_has_a_bound(method):
    assert 0 <= product(nn.Conv1d(1, 1, 2, stride=9, padding=3), (1, 2), method=method).value < 10
    layer = nn.ConvTranspose2d(2, 2, (3, 1), (3, 5), (5, 2), (0, 4), dilation=(3, 4))
    assert product(layer, (2, 5, 1), method=method).value < 10


def test_a_tensor_that_is_written_to_with_out_counts():
    assert product(Net(lambda x: torch.mul(x, 100, out=torch.empty_like(x))), (4,)).value == 100


REFUSED = {
    "a jump at the threshold": (nn.Softplus(threshold=0), (4,), "it jumps at its threshold"),
    "an odd number of channels": (nn.Sequential(nn.Linear(3, 3), MinMax()), (3,), r"MinMax \(1\).* 3 is odd"),
    "other bits": (Net(lambda x, w: x.view(torch.float32), torch.ones(1).double()), (4,), "aten.view.dtype"),
    "random": (Net(lambda x: x * torch.rand(1)), (4,), "aten.rand is random"),
    "random in the shape of the input": (Net(lambda x: x * torch.rand_like(x)), (4,), "aten.rand_like is random"),
    "memory as it was found": (Net(lambda x: x * torch.empty(4)), (4,), "memory as it was found"),
    "topk in any order": (Net(lambda x: x.topk(3, sorted=False).values), (4,), "the order of its values jumps"),
    "a variance of 0": (variance(0.0), (4,), "a variance plus eps is not positive"),
    "a negative variance": (variance(-1.0), (4,), "a variance plus eps is not positive"),
    "a value of the input": (Net(lambda x: torch.full_like(x, x[0, 0].item())), (4,), "torch.export|_local_scalar"),
    # what export does not see
    "type(x) is Tensor": (Net(lambda x: 100 * x if type(x) is Tensor else x), (4,), "torch.export records"),
    "is_compiling": (Net(lambda x: x if torch.compiler.is_compiling() else 100 * x), (4,), "torch.export records"),
    "is_exporting": (Net(lambda x: x if torch.compiler.is_exporting() else 100 * x), (4,), "torch.export records"),
    "is_compiling, far out": (Net(lambda x: far(x, not torch.compiler.is_compiling())), (4,), "torch.export records"),
    "type(x) is Tensor, far out": (Net(lambda x: far(x, type(x) is Tensor)), (4,), "torch.export records"),
    "with gradients, far out": (Net(lambda x: far(x, torch.is_grad_enabled())), (4,), "torch.export records"),
    "in inference, far out": (Net(lambda x: far(x, torch.is_inference_mode_enabled())), (4,), "torch.export records"),
    "other limits": (Net(lambda x: x.clamp(max=1e2 if torch.compiler.is_compiling() else 1e9)), (4,), "torch.export"),
    "a look at the values": (
        Net(lambda x: far(x, type(x) is Tensor and float(x.max()) > 900)),
        (4,),
        "torch.export records",
    ),
    # batches
    "a batch of one": (Net(lambda x: x if len(x) == 1 else 100 * x), (4,), "a batch of one"),
    "a batch of three": (Net(lambda x: x if len(x) == 3 else 100 * x), (4,), "a batch of one"),
    "small batches": (Net(lambda x: x if len(x) <= 3 else 100 * x), (4,), "in another batch"),
    "a factor of the size": (Net(lambda x: x * len(x)), (4,), "a batch of one"),
    "as many columns as rows": (Net(lambda x: x[:, : len(x)]), (4,), "a batch of one"),
    "a factor for each row": (Net(lambda x: x * torch.arange(1, len(x) + 1)[:, None]), (4,), "a batch of one"),
    "the mean of the batch": (Net(lambda x: x - x.mean(0)), (4,), "mixes the rows"),
    "the first row": (Net(lambda x: x + x[:1]), (4,), "mixes the rows"),
    "another order": (Net(lambda x: x.flip(0)), (4,), "mixes the rows"),
    "sums down the batch": (Net(lambda x: x.cumsum(0)), (4,), "mixes the rows"),
    "a matrix on the batch": (Net(lambda x: torch.einsum("bi,bc->ci", x, torch.ones(len(x), len(x)))), (4,), "mixes"),
    "the batch as channels": (nn.MaxPool3d(2, 1), (4, 4, 4, 4, 1), "does not fit|mixes"),
    "sorted along the batch": (Net(lambda x: x.sort(0).values), (4,), "mixes the rows"),
    "pooled over the batch": (Net(lambda x: nn.MaxPool1d(2, 1, 1)(x.T).T[:-1]), (4,), "mixes the rows"),
    "merged and not taken apart": (Net(lambda x: x.flatten(0, 1).cumsum(0).view_as(x)), (4,), "mixes the rows"),
}


@pytest.mark.parametrize("name", some(REFUSED))
def test_what_is_not_one_function_of_one_input_is_refused(name):
    module, shape, says = REFUSED[name]
    with pytest.raises(InputError, match=says) as error:
        product(module, shape)
    assert "\n" not in str(error.value)


def test_whatever_is_around_forward_counts():
    class Call(nn.Module):
        def __call__(self, x):
            return 100 * super().__call__(x)

        def forward(self, x):
            return x

    class Backward(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return 100 * x

        @staticmethod
        def backward(context, gradient):
            return gradient

    def written(x):
        y = torch.zeros(len(x), 8)
        y[:, ::2] = 60 * x
        y[:, 1::2] = 80 * x
        return y

    hook = nn.modules.module.register_module_forward_hook(lambda m, i, o: 100 * o if isinstance(m, GroupSort) else None)
    try:
        assert product(nn.Sequential(GroupSort(), nn.Flatten()), (4,)).value == 100
    finally:
        hook.remove()
    for module in (Call(), nn.Sequential(Call()), Net(Backward.apply), Net(written), Net(lambda x: x.mul_(100))):
        assert product(module, (4,)).value == pytest.approx(100)


class Answers(nn.Module):
    """A layer that vouches for itself."""

    def __init__(self):
        super().__init__()
        self.part = nn.Linear(4, 4, bias=False)
        nn.init.eye_(self.part.weight)

    def forward(self, x):
        return self.part(x)

    def lipschitz_bound(self):
        return 1.0


@pytest.mark.parametrize("around", [lambda design: design, nn.Sequential])
def test_a_part_that_was_altered_is_not_what_its_design_vouches_for(around):
    """50 relu(y − 100) more, where random inputs do not come."""

    def steeper(y):
        return y + 50 * functional.relu(y - 100)

    hooked, before, replaced = Answers(), Answers(), Answers()
    hooked.part.register_forward_hook(lambda module, inputs, output: steeper(output))
    before.part.register_forward_pre_hook(lambda module, inputs: steeper(inputs[0]))
    replaced.part.forward = steeper
    assert product(around(Answers()), (4,)).value == 1
    for design in (hooked, before, replaced):
        assert product(around(design), (4,)).value == pytest.approx(51)


def test_a_design_vouches_for_the_one_tensor_that_it_returns():
    class Stores(nn.Module):
        def forward(self, x):
            self.features = 100 * functional.relu(x - 1000)
            return x

        def lipschitz_bound(self):
            return 1.0

    class Two(nn.Module):
        def forward(self, x):
            return x * 1.0, 100 * functional.relu(x - 1000)

        def lipschitz_bound(self):
            return 1.0

    class Around(nn.Module):
        def __init__(self, design, take):
            super().__init__()
            self.design, self.take = design, take

        def forward(self, x):
            return self.take(self.design, x)

    stored = Around(Stores(), lambda design, x: (design(x), design.features)[1])
    second = Around(Two(), lambda design, x: design(x)[1])
    assert [product(module, (4,)).value for module in (stored, second)] == [100, 100]


def test_a_design_that_writes_to_its_input_does_not_deceive():
    class Writes(nn.Module):
        def forward(self, x):
            x.mul_(100)
            return x.relu()

        def lipschitz_bound(self):
            return 1.0

    class Uses(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = Writes()

        def forward(self, x):
            h = 1 * x
            self.part(h)
            return h

    assert product(Uses(), (4,)).value == 100


def test_rounding_within_the_network_does_not_trip_the_wire():
    assert product(Net(lambda x: (x * 100).half().float()), (4,)).value == 100
    for dtype in (torch.float16, torch.bfloat16):
        torch.manual_seed(3)
        layer = nn.Linear(30, 20).to(dtype)
        assert product(layer, (30,)).value >= float(torch.linalg.matrix_norm(layer.weight.detach().double(), 2))


def test_the_random_state_and_the_module_are_left_alone():
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    torch.manual_seed(5)
    state = torch.get_rng_state()
    product(module, (4,))
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_a_module_that_changes_its_buffers_is_refused():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    with pytest.raises(InputError, match="changes its buffer calls"):
        product(Counting(), (4,))


LINEAR = {
    "interpolate": (lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"), (2, 4, 5)),
    "nearest": (lambda x: functional.interpolate(x, size=(7, 3)), (2, 4, 5)),
    "bicubic": (lambda x: functional.interpolate(x, size=(7, 3), mode="bicubic"), (1, 4, 5)),
    "antialiased": (lambda x: functional.interpolate(x, size=(3, 3), mode="bilinear", antialias=True), (1, 5, 6)),
    "linear": (lambda x: functional.interpolate(x, scale_factor=2.5, mode="linear", align_corners=True), (2, 5)),
    "cumsum": (lambda x: x.cumsum(1), (7,)),
    "index_select": (lambda x: x.index_select(1, torch.tensor([0, 0, 3])), (4,)),
    "repeat_interleave": (lambda x: x.repeat_interleave(3, 1), (4,)),
    "repeat_interleave by a tensor": (lambda x: 2 * x.repeat_interleave(torch.tensor([1, 2, 5, 0]), 1), (4,)),
    "unary plus": (lambda x: +x, (4,)),
    "fancy": (lambda x: x[:, [0, 2, 2], 1:], (4, 3)),
    "option A": (lambda x: functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 2, 2)), (2, 5, 5)),
    "masked": (lambda x: torch.where(torch.tensor([True, False, True]), 2 * x, 3 * x), (3,)),
    "unfold": (lambda x: x.unfold(1, 3, 1), (6,)),
}
WEIGHTED = {
    "einsum": (lambda x, w: torch.einsum("bij,kj->bik", x, w), (2, 4), (3, 4)),
    "einsum by blocks": (lambda x, w: torch.einsum("bij,ijk->bik", x, w), (2, 4), (2, 4, 3)),
    "einsum with an ellipsis": (lambda x, w: torch.einsum("...j,kj->...k", x, w), (2, 4), (3, 4)),
    "einsum that repeats": (lambda x, w: torch.einsum("bi,kij->bkj", x, w), (4,), (2, 4, 3)),
    "constant @ x": (lambda x, w: w @ x, (4, 2), (3, 4)),
    "constants @ x": (lambda x, w: w @ x, (2, 4, 2), (2, 3, 4)),
    "x @ vector": (lambda x, w: x @ w, (3, 4), (4,)),
    "bmm": (lambda x, w: torch.bmm(w.expand(len(x), 3, 4), x), (4, 2), (3, 4)),
    "addmm": (lambda x, w: torch.addmm(torch.ones(3).to(x), x, w, alpha=2), (4,), (4, 3)),
}


@pytest.mark.parametrize("name", some([*LINEAR, *WEIGHTED]))
def test_what_is_linear_has_its_norm(name):
    torch.manual_seed(0)
    run, shape, *size = (LINEAR | WEIGHTED)[name]
    module = Net(run, torch.randn(size[0], dtype=torch.float64) if size else None)
    bound, truth = product(module, shape).value, steepest(module, shape, draws=1)
    slack = math.sqrt(2) if name == "masked" else 1 + 1e-6
    assert truth * (1 - 1e-9) <= bound <= truth * slack


# Networks that others publish.


class Shortcut(nn.Module):
    """He's option A, as published CIFAR ResNets write it."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != width:
            self.shortcut = Net(lambda x: functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, width // 4, width // 4)))

    def forward(self, x):
        out = functional.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return functional.relu(out)


class Published(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.layers = nn.Sequential(Shortcut(4, 4, 1), Shortcut(4, 8, 2), Shortcut(8, 16, 2))
        self.linear = nn.Linear(16, 5)

    def forward(self, x):
        out = self.layers(functional.relu(self.bn1(self.conv1(x))))
        out = functional.avg_pool2d(out, out.size()[3])
        return self.linear(out.view(out.size(0), -1))


def test_published_cifar_resnets_have_a_bound():
    torch.manual_seed(1)
    network = Published().eval()
    bound = product(network, (3, 8, 8))
    assert steepest(network, (3, 8, 8), draws=3) <= bound.value < 1e4
    assert bound.last.weight.shape == (5, 16)


def test_hugging_faces_resnet_has_a_bound():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(2)
    config = transformers.ResNetConfig(
        embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], layer_type="basic", num_labels=3
    )
    network = transformers.ResNetForImageClassification(config).eval()
    bound = product(network, (3, 16, 16))  # it returns its scores in a structure
    x = torch.randn(3, 16, 16, dtype=torch.float64)
    columns = torch.autograd.functional.jacobian(lambda v: network.double()(v[None]).logits[0], x)
    assert float(torch.linalg.matrix_norm(columns.reshape(3, -1), 2)) <= bound.value < 1e4
    assert bound.last.weight.shape == (3, 8)
