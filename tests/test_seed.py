"""The seed: fresh unless it is given, because a model that knows it knows the noise of its own certificate."""

import numpy as np
import pytest

from interruptible import certify, votes
from smoothcert import InputError, SmoothedClassifier
from smoothcert.sampling.blocks import BLOCK, Phase, input_digest, noise_key
from smoothcert.sampling.noise import Piece, open_noise
from smoothcert.store import open_run

SIGMA = 0.25
X = (np.arange(16).reshape(1, 4, 4) / 16).astype(np.float32)


def recognises_its_draws(seed):
    """A stateless classifier: class 1 on the very rows that this seed draws around X, class 0 on all others."""
    noise, known = open_noise("grid", SIGMA, 16), set()
    for phase, blocks in ((Phase.SELECTION, 1), (Phase.ESTIMATION, 10), (Phase.PREDICT, 10)):
        for index in range(blocks):
            rows = np.empty((BLOCK, *X.shape), dtype=np.float32)
            key = noise_key(seed, input_digest(X), phase, index)
            noise.draw([Piece(key, 0, BLOCK, noise.centre(X))], rows)
            known |= {row.tobytes() for row in rows}
    return lambda batch: np.array([row.tobytes() in known for row in batch], dtype=np.int64)


@pytest.mark.parametrize("seed", [None, 0])
def test_a_model_that_knows_a_seed_does_not_know_the_fresh_one(seed):
    """Given the seed that it knows, it certifies what it likes: what a given seed asks for is told in the docs."""
    model = recognises_its_draws(0)
    smoothed = SmoothedClassifier(model, sigma=SIGMA, num_classes=2, noise="grid", levels=16, batch=100, seed=seed)
    told = smoothed.certify(X, n=1000)
    assert (told.prediction, smoothed.predict(X, max_n=1000)) == ((0, 0) if seed is None else (1, 1))


def linear(batch):
    return batch.reshape(len(batch), -1)[:, :3]


def test_a_fresh_seed_is_kept_and_draws_the_same_again():
    options = {"sigma": SIGMA, "num_classes": 3, "batch": 100}
    one, other = (SmoothedClassifier(linear, **options) for _ in range(2))
    assert one.seed != other.seed
    again = SmoothedClassifier(linear, **options, seed=one.seed)
    assert again.certify(X, n=1000) == one.certify(X, n=1000)


def test_a_run_keeps_its_fresh_seed_and_goes_on_with_it(tmp_path):
    path, copy = tmp_path / "run.smoothcert", tmp_path / "copy.smoothcert"

    def stopped(draws, done):
        if done > 0.3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        certify(path, seed=None, on_progress=stopped)
    seed = open_run(path).plan.setting.seed
    assert isinstance(seed, int)
    with pytest.raises(InputError, match=f"seed = {seed}, not 5"):
        certify(path, seed=5)
    run = certify(path, seed=None)
    assert run.finished
    assert run.plan.setting.seed == seed
    assert votes(run) == votes(certify(copy, seed=seed))
    assert votes(run) != votes(certify(tmp_path / "other.smoothcert", seed=None))


def test_shards_need_one_seed(tmp_path):
    with pytest.raises(InputError, match=r"drawn from one seed .*: pass `seed`"):
        certify(tmp_path / "1.smoothcert", seed=None, shard=(1, 2))
    assert not any(tmp_path.iterdir())
