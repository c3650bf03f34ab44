"""How steep shares of a vote are where the scores' differences are known."""

import numpy as np
import pytest
import torch

from smoothcert import InputError, SmoothedClassifier, Softmax, Sparsemax
from smoothcert.lipschitz.constant import steepness
from smoothcert.plan import Slopes
from smoothcert.plan.slopes import MOST_CLASSES, between, kept
from smoothcert.sampling.simplex import MAPS


def linear(seed, classes=5):
    layer = torch.nn.Linear(3, classes)
    torch.nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        layer.bias.zero_()
        layer.weight[1:] = (
            layer.weight[0] + 0.2 * layer.weight[1:]
        )  # rows that are alike, of which the product knows nothing
    return layer


@pytest.mark.parametrize("kind", [Softmax(0.5), Sparsemax(2.0)])
@pytest.mark.parametrize("seed", range(3))
def test_no_gradient_of_a_share_is_above_its_constant_and_rows_make_that_smaller(kind, seed):
    layer = linear(seed).double()
    proved = steepness(layer, (3,))
    slopes = Slopes(np.array([proved.scores]), proved.pairs)
    bound = kind.share_slopes(slopes, 5)[0]
    x = torch.randn(2_000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 9))

    def shares(z):
        return MAPS[kind.name](layer(z) / kind.temperature).sum(dim=0)

    steepest = torch.autograd.functional.jacobian(shares, x).norm(dim=2).max(dim=1).values.numpy()
    assert (steepest <= bound * (1 + 1e-9)).all()
    assert (steepest > 0.3 * bound).any()
    without = kind.share_slopes(Slopes(slopes.scores), 5)[0]
    assert (bound <= without).all()
    assert bound.max() < 0.5 * without.max()


def test_a_certificate_with_rows_has_the_larger_radius():
    smoothed = SmoothedClassifier(linear(1), sigma=0.5, num_classes=5, votes=Softmax(0.5), seed=0, engine="torch")
    weights = linear(1).weight.detach()
    x = (10 * (weights[1] - weights[0])).numpy()
    proved = steepness(linear(1), (3,))
    rows, product = (smoothed.certify(x, n=1_000, lipschitz=known) for known in ("product", proved.scores))
    assert rows.lipschitz < product.lipschitz
    assert rows.radius > product.radius > 0


def test_of_many_classes_the_largest_constant_of_each_is_kept():
    c = MOST_CLASSES + 1
    pairs = np.abs(np.subtract.outer(np.arange(c), np.arange(c))).astype(float)
    row = between(kept(pairs), c)
    slopes = Slopes(np.ones(3), row)
    assert row.shape == (1, c)
    assert (slopes.against(np.arange(c), c) >= pairs).all()
    assert np.array_equal(slopes.widest(c), np.repeat(pairs.max(axis=1)[None], 3, axis=0))
    assert np.array_equal(between(kept(pairs[:9, :9]), 9), pairs[:9, :9])
    assert between((), c) is None


@pytest.mark.parametrize("rows", [((1.0, 2.0),), ((1.0,), (2.0, 3.0)), ((-1.0, 1.0, 1.0),)])
def test_constants_that_cannot_be_are_refused(rows):
    with pytest.raises(InputError, match="kept for all classes"):
        between(rows, 3)
