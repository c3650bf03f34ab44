"""A network that is certified without noise."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert import ABSTAIN, InputError, LipschitzClassifier, SmoothedClassifier, open_run
from smoothcert.attacks import search_run
from smoothcert.certification import bare
from smoothcert.data import digits
from smoothcert.lipschitz.constant import steepness
from smoothcert.models import load_model
from smoothcert.plan import Classifier, Question
from smoothcert.radii import margins
from smoothcert.store.doctor import diagnose
from smoothcert.store.export import export_run
from smoothcert.store.shards import merge_runs


@pytest.fixture(scope="module")
def network():
    return load_model("digits_lipschitz")


@pytest.fixture(scope="module")
def run(network, tmp_path_factory):
    path = tmp_path_factory.mktemp("bare") / "run.smoothcert"
    return LipschitzClassifier(network, num_classes=10).certify_dataset(digits(train=False), out=path, limit=40)


def linear(rows, bias=None):
    layer = nn.Linear(len(rows[0]), len(rows))
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(rows))
        layer.bias.copy_(torch.zeros(len(rows)) if bias is None else torch.tensor(bias))
    return nn.Sequential(nn.Flatten(), layer)


def test_of_a_linear_network_the_radius_is_the_distance_to_the_nearest_boundary():
    """Up to the allowance for rounding, with the rows of the last layer; with √2 ‖W‖ it would be far less."""
    rows, x = [[3.0, 0.0], [2.0, 1.0], [-4.0, 0.0]], np.array([2.0, 0.5], dtype=np.float32)
    certificate = LipschitzClassifier(linear(rows), num_classes=3).certify(x)
    w = np.array(rows)
    distance = min((w[0] - w[j]) @ x / np.linalg.norm(w[0] - w[j]) for j in (1, 2))
    assert certificate.prediction == 0
    assert (1 - 1e-4) * distance < certificate.radius <= distance
    by_product = ((w[0] - w[1]) @ x) / (np.sqrt(2) * np.linalg.norm(w, 2))
    assert by_product < distance / 4


def test_it_states_what_is_certain():
    certificate = LipschitzClassifier(linear([[1.0, 0.0], [0.0, 1.0]]), num_classes=2).certify([1.0, 0.0])
    assert (certificate.alpha, certificate.n0, certificate.n, certificate.sigma) == (0, 0, 0, 0)
    assert (certificate.basis, certificate.noise, certificate.level) == ("proved", "none", 0)


def test_margins_within_the_allowance_prove_nothing():
    twice = linear([[1.0, 0.0], [1.0 + 2**-22, 0.0]])
    certificate = LipschitzClassifier(twice, num_classes=2).certify([1.0, 0.0])
    assert (certificate.prediction, certificate.radius) == (ABSTAIN, 0.0)


def test_the_allowance_grows_with_the_rounding_that_is_measured():
    """Large terms that cancel: float32 errs by more than ε times the scores."""
    cancelling = linear([[2.0**20, -(2.0**20)], [0.0, 0.0]], [1.0, 0.0])
    x = np.array([1 / 3, 1 / 3 - 2e-8], dtype=np.float32)
    made = bare.Bare.of(LipschitzClassifier(cancelling, num_classes=2)._engines, (2,), np.ones((2, 2)))
    answers = made([x])
    batch = torch.from_numpy(x)[None]
    exact = made.twin(batch.double()).detach().numpy()
    error = np.abs(cancelling(batch).detach().numpy() - exact).max()
    margin = abs(exact[0, 0] - exact[0, 1])
    assert answers.radii[0] <= max(margin - 2 * bare.ROUNDING * error, 0)


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


def test_a_run_holds_what_certify_says(run, network):
    direct = LipschitzClassifier(network, num_classes=10).certify_batch(
        [digits(train=False)[i].array for i in range(40)]
    )
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


def test_it_goes_on_where_it_was_stopped(run, network, tmp_path):
    path, classifier = tmp_path / "stopped.smoothcert", LipschitzClassifier(network, num_classes=10)

    def stop(inputs, done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        classifier.certify_dataset(digits(train=False), out=path, limit=40, on_progress=stop)
    assert 0 < len(open_run(path)) < 40
    again = classifier.certify_dataset(digits(train=False), out=path, limit=40)
    assert [c.radius for c in again.certificates()] == [c.radius for c in run.certificates()]
    other = LipschitzClassifier(linear([[1.0] * 64] * 10), num_classes=10)
    with pytest.raises(InputError, match="another model"):
        other.certify_dataset(digits(train=False), out=path, limit=40)


def test_shards_are_merged_into_the_run(run, network, tmp_path):
    classifier, parts = LipschitzClassifier(network, num_classes=10), []
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
        (nn.Sequential(nn.Flatten(), _Halves(), nn.Linear(4, 3)), "coarser than float32"),
        (nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.LayerNorm(3)), "divides by a statistic of its own input"),
        (nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).bfloat16(), "bfloat16|coarser"),
    ],
)
def test_what_has_no_product_is_refused_in_a_sentence(model, said):
    with pytest.raises(InputError, match=said):
        LipschitzClassifier(model, num_classes=3).certify(np.zeros((1, 2, 2), dtype=np.float32))


def test_a_wrong_number_of_classes_is_refused():
    with pytest.raises(InputError, match="pass `num_classes` 2"):
        LipschitzClassifier(linear([[1.0], [2.0]]), num_classes=3).certify([1.0])


def test_without_noise_is_said_of_both_nouns_or_of_neither():
    with pytest.raises(InputError, match="without noise there are no draws"):
        Question.without_noise().about(Classifier(sigma=0.5, num_classes=3))
    with pytest.raises(InputError, match="without noise there are no draws"):
        Question().about(Classifier.bare(3))
    with pytest.raises(InputError, match="leave out `n0`"):
        dataclasses.replace(Question.without_noise(), alpha=0.001)
    with pytest.raises(InputError, match="LipschitzClassifier"):
        SmoothedClassifier(linear([[1.0], [2.0]]), sigma=0.0, noise="none", num_classes=2)
