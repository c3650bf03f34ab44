"""A network that is certified without noise."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert import ABSTAIN, InputError, LipschitzClassifier, SmoothedClassifier, open_run
from smoothcert.attacks import search_run
from smoothcert.certification import bare
from smoothcert.data import digits
from smoothcert.lipschitz.constant import Steepness, steepness
from smoothcert.lipschitz.product import product
from smoothcert.models import load_model
from smoothcert.plan import Classifier, Question
from smoothcert.radii import margins
from smoothcert.sampling.engines import Engines
from smoothcert.store.doctor import diagnose
from smoothcert.store.export import export_run
from smoothcert.store.shards import merge_runs


@pytest.fixture(scope="module")
def network():
    return load_model("digits_lipschitz")


@pytest.fixture(scope="module")
def classifier(network):
    return LipschitzClassifier(network, input_shape=(1, 8, 8), num_classes=10)


@pytest.fixture(scope="module")
def run(classifier, tmp_path_factory):
    path = tmp_path_factory.mktemp("bare") / "run.smoothcert"
    return classifier.certify_dataset(digits(train=False), out=path, limit=40)


def linear(rows, bias=None):
    layer = nn.Linear(len(rows[0]), len(rows))
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(rows))
        layer.bias.copy_(torch.zeros(len(rows)) if bias is None else torch.tensor(bias))
    return nn.Sequential(nn.Flatten(), layer)


def test_of_a_linear_network_the_radius_is_the_distance_to_the_nearest_boundary():
    """Up to the allowance for rounding, with the rows of the last layer; with √2 ‖W‖ it would be far less."""
    rows, x = [[3.0, 0.0], [2.0, 1.0], [-4.0, 0.0]], np.array([2.0, 0.5], dtype=np.float32)
    certificate = LipschitzClassifier(linear(rows), input_shape=(2,), num_classes=3).certify(x)
    w = np.array(rows)
    distance = min((w[0] - w[j]) @ x / np.linalg.norm(w[0] - w[j]) for j in (1, 2))
    assert certificate.prediction == 0
    assert (1 - 1e-4) * distance < certificate.radius <= distance
    by_product = ((w[0] - w[1]) @ x) / (np.sqrt(2) * np.linalg.norm(w, 2))
    assert by_product < distance / 4


def test_it_states_what_is_certain():
    certificate = LipschitzClassifier(linear([[1.0, 0.0], [0.0, 1.0]]), input_shape=(2,), num_classes=2).certify(
        [1.0, 0.0]
    )
    assert (certificate.alpha, certificate.n0, certificate.n, certificate.sigma) == (0, 0, 0, 0)
    assert (certificate.basis, certificate.noise, certificate.level) == ("proved", "none", 0)


def test_margins_within_the_allowance_prove_nothing():
    twice = linear([[1.0, 0.0], [1.0 + 2**-22, 0.0]])
    certificate = LipschitzClassifier(twice, input_shape=(2,), num_classes=2).certify([1.0, 0.0])
    assert (certificate.prediction, certificate.radius) == (ABSTAIN, 0.0)


def test_the_allowance_grows_with_the_rounding_that_is_measured():
    """Large terms that cancel: float32 errs by more than ε times the scores."""
    cancelling = linear([[2.0**20, -(2.0**20)], [0.0, 0.0]], [1.0, 0.0])
    x = np.array([1 / 3, 1 / 3 - 2e-8], dtype=np.float32)
    made = bare.Bare.of(Engines(cancelling), (2,), Steepness(1.0, np.ones((2, 2))))
    batch = torch.from_numpy(x)[None]
    exact = made.twin(batch.double()).detach().numpy()
    error = np.abs(cancelling(batch).detach().numpy() - exact).max()
    margin = abs(exact[0, 0] - exact[0, 1])
    assert made([x]).radii[0] <= max(margin - 2 * bare.ROUNDING * error, 0)


def flipped(classifier, xs):
    """How many points just inside the radius, straight towards the boundary of a linear network, are of another
    class."""
    rows = classifier.model[-1].weight.detach().double().numpy()
    flips = 0
    for x, c in zip(xs, classifier.certify_batch(xs), strict=True):
        if c.prediction == ABSTAIN:
            continue
        way = rows[1 - c.prediction] - rows[c.prediction]
        inside = x.astype(np.float64) + c.radius * (1 - 1e-9) * way.reshape(x.shape) / np.linalg.norm(way)
        flips += np.linalg.norm(inside - x) < c.radius and classifier.predict(inside) != c.prediction
    return flips


def test_rounding_flips_no_linear_network_inside():
    """In float32 some of these would flip: their boundary is met to the last digit."""
    torch.manual_seed(0)
    xs = np.random.default_rng(0).integers(0, 256, (100, 3072)).astype(np.float32) / np.float32(255)
    network = nn.Sequential(nn.Flatten(), nn.Linear(3072, 2))
    assert flipped(LipschitzClassifier(network, input_shape=(3072,), num_classes=2), list(xs)) == 0


def test_rounding_flips_no_standardised_network_inside():
    """A mean far above the deviation loses most digits of float32."""

    class Standardise(nn.Module):
        def forward(self, x):
            return x * 0.01 + -41_000.0

    torch.manual_seed(1)
    xs = np.random.default_rng(1).normal(4.1e6, 100.0, (200, 6)).astype(np.float32)
    network = nn.Sequential(nn.Flatten(), Standardise(), nn.Linear(6, 2))
    assert flipped(LipschitzClassifier(network, input_shape=(6,), num_classes=2), list(xs)) == 0


@pytest.mark.parametrize("apart", [0.0, 1e-5, 1e-3])
def test_rows_that_are_nearly_equal_have_a_radius_that_holds(apart):
    """A bias that float32 would lose far away decides."""
    rows = np.random.default_rng(2).normal(size=(2, 16))
    rows[1] = rows[0] + apart * rows[1]
    network = LipschitzClassifier(linear(rows.tolist(), [0.0, 0.1]), input_shape=(16,), num_classes=2)
    x = np.zeros(16)
    radius = network.certify(x).radius
    away = np.random.default_rng(3).normal(size=(2000, 16))
    away *= (radius * (1 - 1e-12) / np.linalg.norm(away, axis=1))[:, None]
    assert set(network.predict_batch(list(away))) == {1}


class _HeldBeside(nn.Module):
    """A tensor that is neither a parameter nor a buffer."""

    def __init__(self):
        super().__init__()
        self.layer, self.tiny = nn.Linear(2, 2).double(), torch.tensor(1e-200, dtype=torch.float64)

    def forward(self, x):
        return self.layer(x) * self.tiny


def test_constants_that_are_no_weights_are_looked_at_too():
    with pytest.raises(InputError, match="rescale them"):
        LipschitzClassifier(_HeldBeside(), input_shape=(2,), num_classes=2).certify(np.array([1.0, 0.5]))


class _Cancelling(nn.Module):
    """Two layers whose large biases cancel: what is computed is a staircase with steps of 2^(p − 52)."""

    def __init__(self, power):
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
        self.step = 2.0 ** (power - 52)
        self.register_buffer("bias", torch.tensor([0.0, -0.95 * self.step]))
        with torch.no_grad():
            for layer, sign in ((self.first, 1.0), (self.second, -1.0)):
                layer.weight.copy_(torch.eye(2))
                layer.bias.fill_(sign * 2.0**power)

    def forward(self, x):
        return self.second(self.first(x.clamp(min=100) - 100)) + self.bias


@pytest.mark.parametrize("power", [30, 40, 50])
def test_rounding_that_does_nothing_at_the_input_is_seen(power):
    """At x no operation rounds, in float32 neither; half a step beside it the class is another one."""
    network = _Cancelling(power)
    classifier = LipschitzClassifier(network, input_shape=(2,), num_classes=2)
    x, beside = np.array([100.0, 100.0]), np.array([100.0, 100.0 + 0.52 * network.step])
    assert classifier.predict(x) != classifier.predict(beside)
    assert classifier.certify(x).radius == 0


class _FeaturesFirst(nn.Module):
    """Biases that cancel, in a network that has the batch last: what is computed is a staircase with steps of 256."""

    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
        self.second = nn.Parameter(torch.tensor([[-1.0, 1.0], [0.0, 0.0]]))
        self.large, self.last = nn.Parameter(torch.full((2, 1), 2.0**60)), nn.Parameter(torch.tensor([0.0, -50.0]))

    def forward(self, x):
        return (self.second @ (self.first @ x.T + self.large)).T + self.last


def test_rounding_is_seen_wherever_the_batch_is():
    classifier = LipschitzClassifier(_FeaturesFirst(), input_shape=(2,), num_classes=2)
    x, beside = np.array([120.0, 0.0]), np.array([130.0, 0.0])
    assert classifier.predict(x) != classifier.predict(beside)
    assert classifier.certify(x).radius == 0


class _LargestOfMany(nn.Module):
    """The smaller of x₁ and 0, by many channels with a bias that is taken away again: a staircase with steps of 256.

    What is moved at random is hardly ever lowered in all channels, and what is raised is cut off.
    """

    def __init__(self):
        super().__init__()
        self.first, self.scale = nn.Linear(2, 48), nn.Parameter(torch.tensor([1.0, 0.0]))
        self.minus, self.last = (
            nn.Parameter(torch.full((48,), -1.5 * 2.0**60)),
            nn.Parameter(torch.tensor([0.0, -50.0])),
        )
        with torch.no_grad():
            self.first.weight.copy_(torch.tensor([[1.0, 0.0]]).expand(48, 2))
            self.first.bias.fill_(1.5 * 2.0**60)

    def forward(self, x):
        return (self.first(x) + self.minus).amax(1, keepdim=True).clamp(max=0.0) * self.scale + self.last


def test_rounding_is_seen_behind_a_maximum_of_many():
    classifier = LipschitzClassifier(_LargestOfMany(), input_shape=(2,), num_classes=2)
    x, beside = np.array([-127.9, 0.0]), np.array([-128.1, 0.0])
    assert classifier.predict(x) != classifier.predict(beside)
    assert classifier.certify(x).radius == 0


def test_a_function_that_jumps_is_refused():
    """torch's softplus at its usual threshold jumps by log(1 + e^−20) / β, here by 2."""

    class Jumping(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.tensor([2e10, 2e10]))

        def forward(self, x):
            return nn.functional.softplus(x + self.bias, beta=1e-9) - self.bias

    network = Jumping().double()
    with pytest.raises(InputError, match="jumps at its threshold of 20"):
        LipschitzClassifier(network, input_shape=(2,), num_classes=2).certify(np.zeros(2))
    with pytest.raises(InputError, match="use a threshold from 37 to 80"):
        product(network, (2,))


@pytest.mark.parametrize("size", [1e170, 1e-170, math.nan])
def test_weights_whose_squares_leave_float64_are_refused(size):
    """The norms of their rows would be 0, or infinite."""
    network = nn.Sequential(*(nn.Linear(2, 2, bias=False).double() for _ in range(2)))
    with torch.no_grad():
        network[0].weight.copy_(torch.eye(2).double() / size)
        network[1].weight.copy_(torch.eye(2).double() * size)
    with pytest.raises(InputError, match=r"rescale them|not finite"):
        LipschitzClassifier(network, input_shape=(2,), num_classes=2).certify(np.array([1.0, 0.5]))


def test_weights_that_the_module_computes_are_of_a_usual_size_too():
    """The squares of these are 0, and so would be their norms."""

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Parameter(1e45 * torch.eye(2).double()), nn.Parameter(torch.eye(2).double())

        def forward(self, x):
            return nn.functional.linear(nn.functional.linear(x, self.first), 1e-165 * self.second)

    with pytest.raises(InputError, match=r"values beyond 1e\+60 or within 1e-60 of 0"):
        LipschitzClassifier(Scaled(), input_shape=(2,), num_classes=2).certify(np.array([2.0, 0.0]))


class _ManyFactors(nn.Module):
    """x, through factors whose product is 1; the first of them leave nothing of it, or more than a float holds."""

    def __init__(self, sizes):
        super().__init__()
        self.factors = nn.ParameterList(torch.full((2,), size).double() for size in sizes)

    def forward(self, x):
        return torch.einsum(f"bi{',i' * len(self.factors)}->bi", x, *self.factors) + 1e-3 * x


class _ManyNorms(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.layer, self.norms = nn.Linear(2, 2, bias=False), nn.ModuleList(nn.BatchNorm1d(2, eps=0) for _ in sizes)
        with torch.no_grad():
            self.layer.weight.copy_(1e-30 * torch.eye(2))
            for norm, size in zip(self.norms, sizes, strict=True):
                norm.weight.fill_(size)

    def forward(self, x):
        y = self.layer(x)
        for norm in self.norms:
            y = norm(y)
        return y + 1e-3 * x


@pytest.mark.parametrize(
    "network",
    [
        _ManyFactors([1e-30] * 12 + [1e30] * 12),
        _ManyFactors([1e30] * 12 + [1e-30] * 12),
        _ManyNorms([1e-30] * 11 + [1e30] * 12),
    ],
    ids=["factors that vanish", "factors that grow", "batch norms"],
)
def test_products_of_weights_that_leave_float64_on_the_way_are_refused(network):
    with pytest.raises(InputError, match="products of its weights are beyond 1e150 or within 1e-150 of 0"):
        LipschitzClassifier(network.double().eval(), input_shape=(2,), num_classes=2).certify(np.array([2.0, 0.0]))


def test_where_rounding_has_no_bound_the_radius_is_0():
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = nn.Parameter(torch.tensor([[1.0], [-1.0]]))

        def forward(self, x):
            return nn.functional.linear(torch.linalg.vector_norm(x, 3, dim=1, keepdim=True), self.rows)

    certificate = LipschitzClassifier(Norm(), input_shape=(2,), num_classes=2).certify(np.array([2.0, 0.0]))
    assert (certificate.prediction, certificate.radius) == (ABSTAIN, 0.0)


def test_what_is_done_to_the_module_later_changes_nothing():
    """A plain number in a module is no weight, and none that a fingerprint of weights would see."""

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.steep = nn.Linear(2, 2), 1.0
            self.flat = torch.ones(2)

        def forward(self, x):
            return self.first(x) + self.steep * self.flat * torch.relu(x - 1)

    torch.manual_seed(0)
    module = Scaled()
    network = LipschitzClassifier(module, input_shape=(2,), num_classes=2)
    xs = [np.zeros(2), np.array([0.3, -2.0])]
    before, classes = network.certify_batch(xs), network.predict_batch([x + 2 for x in xs])
    module.steep, module.flat = 200.0, -torch.ones(2)
    with torch.no_grad():
        module.first.weight.mul_(-3)
    assert network.certify_batch(xs) == before
    assert network.predict_batch([x + 2 for x in xs]) == classes
    anew = LipschitzClassifier(module, input_shape=(2,), num_classes=2)
    assert (anew.pair_constants.max() > 10 * network.pair_constants.max()).all()


class _Derived(nn.Module):
    """Rows that the forward computes, which float32 and float64 do differently."""

    def __init__(self):
        super().__init__()
        self.plus, self.minus = nn.Parameter(torch.zeros(3, 2)), nn.Parameter(torch.zeros(3, 2))
        with torch.no_grad():
            self.plus[0, 0], self.plus[2] = 0.001, 6.0
            self.plus[1, 1], self.minus[1, 1] = 5.00001, 5.0

    def forward(self, x):
        return nn.functional.linear(x, self.plus.exp() - self.minus.exp())


def test_constants_are_those_of_the_copy_that_runs():
    network = LipschitzClassifier(_Derived(), input_shape=(2,), num_classes=3)
    twin = _Derived().double()
    rows = (twin.plus.exp() - twin.minus.exp()).detach().numpy()
    true = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    assert (network.pair_constants >= true).all()
    assert network.pair_constants == pytest.approx(true, rel=1e-6)


class _AsksForItsType(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(1, 2)

    def forward(self, x):
        return self.last(torch.clamp(x / torch.finfo(x.dtype).eps - 1, -1, 1))


def test_the_type_is_that_of_the_copy_that_runs():
    """In float64 it is steeper by 2²⁹ than in float32."""
    network = LipschitzClassifier(_AsksForItsType(), input_shape=(1,), num_classes=2)
    rows = network.model.last.weight.detach().double().numpy()
    assert network.pair_constants[0, 1] >= abs(rows[0, 0] - rows[1, 0]) * 2.0**52


@pytest.mark.parametrize("kind", [np.float64, ">f8", np.longdouble])
def test_no_input_is_rounded(kind):
    """In float32 1000 is told apart from its neighbours by 6e-5 only."""
    network = LipschitzClassifier(linear([[1.0], [0.0]], [-1000.0, 0.0]), input_shape=(1,), num_classes=2)
    assert network.predict(np.array([1000 + 1e-7], dtype=kind)) == 0
    assert network.predict(np.array([1000 - 1e-7], dtype=kind)) == 1


def test_what_a_hook_reads_is_recorded():
    original = nn.Sequential(nn.Linear(2, 2))
    original.gain = nn.Parameter(torch.tensor(1.0))
    original.register_forward_hook(lambda module, inputs, found: found * original.gain)
    network, x = LipschitzClassifier(original.eval(), input_shape=(2,), num_classes=2), np.array([3.0, -1.0])
    before, constants = network.certify(x), network.pair_constants
    with torch.no_grad():
        original.gain.fill_(-100.0)
        network.model[0].weight.mul_(10)
    assert network.predict(x) == before.prediction
    assert network.certify(x).radius <= before.radius
    assert (network.pair_constants == constants).all()


class _HeadInFloat32(nn.Linear):
    def forward(self, x):
        return nn.functional.linear(x.float(), self.weight.float(), self.bias.float()).to(x.dtype)


def test_a_network_that_leaves_float64_on_the_way_is_refused():
    network = LipschitzClassifier(_HeadInFloat32(784, 2), input_shape=(784,), num_classes=2)
    for ask in (network.certify, network.predict):
        with pytest.raises(InputError, match="does not run in float64"):
            ask(np.zeros(784))


def test_torch_set_to_shorter_products_is_refused_each_time():
    network = LipschitzClassifier(linear([[1.0, 0.0], [0.0, 1.0]]), input_shape=(2,), num_classes=2)
    network.certify([1.0, 0.0])
    before = torch.backends.mkldnn.matmul.fp32_precision
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    try:
        with pytest.raises(InputError, match="whose steps no Lipschitz constant bounds"):
            network.certify([1.0, 0.0])
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = before


def test_a_module_in_float64_is_certified_too():
    certificate = LipschitzClassifier(linear([[1.0], [0.0]]).double(), input_shape=(1,), num_classes=2).certify([0.5])
    assert certificate.radius == pytest.approx(0.5, rel=1e-4)


def test_an_input_of_another_shape_is_refused():
    network = LipschitzClassifier(linear([[1.0], [2.0]]), input_shape=(1,), num_classes=2)
    with pytest.raises(InputError, match="an input has shape"):
        network.certify(np.zeros((1, 1)))


def test_the_least_over_all_rivals_not_the_runner_up():
    """The class with the second largest score may be the farther one."""
    radii = margins(np.array([[2.0, 1.0, 0.5]]), np.array([0]), np.array([[0.0, 1.0, 10.0]] * 3))
    assert radii == pytest.approx(0.15)


def test_pair_constants_are_never_above_those_of_the_product(network):
    proved = steepness(network, (1, 8, 8))
    assert (proved.pairs <= np.sqrt(2) * proved.scores * (1 + 1e-9)).all()
    assert np.array_equal(proved.pairs, proved.pairs.T)
    assert (proved.pairs.diagonal() == 0).all()


def test_no_difference_of_scores_is_steeper_than_its_constant(network):
    """Between digits, and between points near them."""
    pairs = steepness(network, (1, 8, 8)).pairs
    x = torch.from_numpy(np.stack([digits(train=False)[i].array for i in range(40)])).double()
    y = torch.cat([x.roll(1, 0), x + 1e-3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))])
    x = x.repeat(2, 1, 1, 1)
    twin = load_model("digits_lipschitz").double()
    with torch.no_grad():
        change = (twin(y) - twin(x)).numpy()
    slopes = np.abs(change[:, :, None] - change[:, None, :]) / (y - x).flatten(1).norm(dim=1).numpy()[:, None, None]
    assert (slopes.max(axis=0) <= pairs + 1e-6).all()


def test_what_is_proved_of_an_input_does_not_depend_on_the_others(classifier):
    xs = [digits(train=False)[i].array for i in range(40)]
    together = [c.radius for c in classifier.certify_batch(xs)]
    assert [classifier.certify(xs[i]).radius for i in (0, 7, 31, 39)] == [together[i] for i in (0, 7, 31, 39)]


def test_a_run_holds_what_certify_says(run, classifier):
    direct = classifier.certify_batch([digits(train=False)[i].array for i in range(40)])
    stored = run.certificates()
    assert [(c.prediction, c.radius) for c in stored] == [(c.prediction, c.radius) for c in direct]
    assert (run.clean == [c.prediction for c in stored]).all()
    assert run.finished
    assert run.draws == 0
    assert run.plan.question == Question.without_noise()
    assert open_run(run.path).plan == run.plan


def test_no_attack_succeeds_inside(run, network):
    found = search_run(network, digits(train=False), run, steps=10)
    assert (found.searched, found.violations, found.false_alarms) == (40, [], 0)


def test_it_goes_on_where_it_was_stopped(run, classifier, tmp_path):
    path = tmp_path / "stopped.smoothcert"

    def stop(inputs, done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        classifier.certify_dataset(digits(train=False), out=path, limit=40, on_progress=stop)
    assert 0 < len(open_run(path)) < 40
    again = classifier.certify_dataset(digits(train=False), out=path, limit=40)
    assert [c.radius for c in again.certificates()] == [c.radius for c in run.certificates()]
    other = LipschitzClassifier(linear([[1.0] * 64] * 10), input_shape=(1, 8, 8), num_classes=10)
    with pytest.raises(InputError, match="another model"):
        other.certify_dataset(digits(train=False), out=path, limit=40)


def test_shards_are_merged_into_the_run(run, classifier, tmp_path):
    parts = []
    for i in (1, 2):
        parts.append(tmp_path / f"{i}.smoothcert")
        classifier.certify_dataset(digits(train=False), out=parts[-1], limit=40, shard=(i, 2))
    merged = merge_runs(parts, tmp_path / "merged.smoothcert")
    assert [c.radius for c in merged.certificates()] == pytest.approx([c.radius for c in run.certificates()], rel=1e-4)


def test_nothing_can_be_certified_again(run):
    for asked in ({"method": "mono"}, {"alpha": 0.01}):
        with pytest.raises(InputError, match="without noise and has no votes, so certify again"):
            run.certificates(**asked)


def test_it_is_healthy_and_exported(run, tmp_path):
    assert diagnose(run.path).healthy
    for kind in ("tsv", "csv", "json", "parquet"):
        assert export_run(run, tmp_path / f"run.{kind}", kind) == 40
    assert "no noise" in run._repr_html_()


class _Halves(nn.Module):
    def forward(self, x):
        return x.flatten(1).half().float()


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (lambda batch: batch.argmax(axis=1), "layers of a torch module"),
        (nn.Sequential(nn.Flatten(), _Halves(), nn.Linear(4, 3)), "does not run in float64"),
        (nn.Flatten(), "has no weights"),
        (nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.LayerNorm(3)), "divides by a statistic of its own input"),
        (nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).bfloat16(), "bfloat16|coarser"),
    ],
)
def test_what_has_no_product_is_refused_in_a_sentence(model, said):
    with pytest.raises(InputError, match=said):
        LipschitzClassifier(model, input_shape=(1, 2, 2), num_classes=3).certify(np.zeros((1, 2, 2), dtype=np.float32))


def test_a_wrong_number_of_classes_is_refused():
    with pytest.raises(InputError, match="pass `num_classes` 2"):
        LipschitzClassifier(linear([[1.0], [2.0]]), input_shape=(1,), num_classes=3).certify([1.0])


def test_without_noise_is_said_of_both_nouns_or_of_neither():
    with pytest.raises(InputError, match="without noise there are no draws"):
        Question.without_noise().about(Classifier(sigma=0.5, num_classes=3))
    with pytest.raises(InputError, match="without noise there are no draws"):
        Question().about(Classifier.bare(3))
    with pytest.raises(InputError, match="leave out `n0`"):
        dataclasses.replace(Question.without_noise(), alpha=0.001)
    with pytest.raises(InputError, match="LipschitzClassifier"):
        SmoothedClassifier(linear([[1.0], [2.0]]), sigma=0.0, noise="none", num_classes=2)
