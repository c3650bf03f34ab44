"""Noise is a pure function of its key, normal, and never shared."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import stats

from smoothcert.sampling.blocks import Phase, noise_key
from smoothcert.sampling.noise import Gaussian, Grid
from smoothcert.sampling.noise.gaussian import NormalStream
from smoothcert.sampling.noise.threefry import normals, threefry

KEYS = [noise_key(0, str(i), Phase.ESTIMATION, b) for i in range(10) for b in range(10)]


def words(*values: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.from_numpy(np.array([[v]], dtype=np.uint32).view(np.int32)) for v in values)


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ((0,) * 4, (0,) * 4, (0x9C6CA96A, 0xE17EAE66, 0xFC10ECD4, 0x5256A7D8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 4, (0x2A881696, 0x57012287, 0xF6C7446E, 0xA16A6732)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0, 0x082EFA98, 0xEC4E6C89),
            (0x59CD1DBB, 0xB8879579, 0x86B5D00C, 0xAC8B6D84),
        ),
    ],
)
def test_threefry_gives_the_known_answers_of_random123(counter, key, answer):
    assert tuple(int(w) & 0xFFFFFFFF for w in threefry(words(*counter), words(*key))) == answer


def philox(keys, size):
    out = torch.empty(len(keys), size)
    for key, row in zip(keys, out, strict=True):
        NormalStream(key, torch.device("cpu")).fill(row)
    return out


def accelerator(keys, size):
    """What an accelerator computes, on the CPU."""
    return torch.stack([normals(key, 0, size, torch.device("cpu")) for key in keys])


@pytest.mark.parametrize("generate", [philox, accelerator])
class TestBothGenerators:
    def test_values_are_standard_normal(self, generate):
        values = generate(KEYS, 10_100).double().numpy().ravel()
        assert np.isfinite(values).all()
        assert stats.kstest(values, "norm").pvalue > 1e-4
        tails = [(np.abs(values) > z).mean() / (2 * stats.norm.sf(z)) for z in (3, 4)]
        np.testing.assert_allclose(tails, 1, atol=0.3)

    def test_blocks_are_uncorrelated(self, generate):
        values = generate(KEYS, 1600).double()
        correlation = torch.corrcoef(values) - torch.eye(len(KEYS))
        assert correlation.abs().max() < 6 / np.sqrt(values.shape[1])


@pytest.mark.parametrize("cuts", [(700,), (1, 699), (350, 350), (3, 4, 250, 443)])
def test_a_stream_does_not_depend_on_how_it_is_cut(cuts):
    stream, pieces = NormalStream(KEYS[0], torch.device("cpu")), [torch.empty(cut) for cut in cuts]
    for piece in pieces:
        stream.fill(piece)
    assert torch.equal(torch.cat(pieces), philox(KEYS[:1], 700)[0])
    starts = np.cumsum((0, *cuts[:-1]))
    pieces = [normals(KEYS[0], int(a), n, torch.device("cpu")) for a, n in zip(starts, cuts, strict=True)]
    assert torch.equal(torch.cat(pieces), accelerator(KEYS[:1], 700)[0])


@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
@pytest.mark.parametrize("noise", [Gaussian(0.3), Grid(0.3, 255), Grid(2.0, 255)])
@pytest.mark.parametrize("x", [np.float32(0.2), np.float32(0.123)], ids=["on the grid", "off it"])
def test_arrays_get_the_noise_that_tensors_get(noise, device, x):
    x, arrays = np.full((3, 5), x), np.empty((40, 3, 5), dtype=np.float32)
    tensors = torch.empty(arrays.shape)
    noise.streams(x, device)(KEYS[0]).fill(arrays)
    noise.streams(torch.from_numpy(x), torch.device(device))(KEYS[0]).fill(tensors)
    np.testing.assert_array_equal(arrays, tensors.numpy())
    noise.add(x, arrays)
    noise.add(torch.from_numpy(x), tensors)
    np.testing.assert_allclose(arrays, tensors.numpy(), rtol=0, atol=1e-7 if noise.name == "gaussian" else 0)


def test_noise_of_the_cpu_needs_no_torch():
    code = (
        "import sys; import numpy as np; from smoothcert.sampling.noise import Gaussian, Grid;"
        "x = np.zeros(4, dtype=np.float32); rows = np.empty((9, 4), dtype=np.float32);"
        "[(n.check(x, ''), n.streams(x, 'cpu')(bytes(16)).fill(rows), n.add(x, rows), n.error(9))"
        " for n in (Gaussian(0.5), Grid(0.5, 255))];"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_every_part_of_the_name_changes_the_key():
    names = [
        (seed, input_id, phase, index)
        for seed in (0, 1, -1)
        for input_id in ("0", "1", "11", "a\0selection")
        for phase in Phase
        for index in (0, 1, 11)
    ]
    keys = {noise_key(*name) for name in names}
    assert len(keys) == len(names)
    assert all(len(key) == 16 for key in keys)
