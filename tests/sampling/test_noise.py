"""Noise is a pure function of its key and its row, normal, never shared, and the same bits wherever it is drawn."""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch.utils._python_dispatch import TorchDispatchMode

from smoothcert.sampling.blocks import Phase, noise_key
from smoothcert.sampling.noise import Gaussian, Grid, Piece, base, gaussian, grid, open_noise
from smoothcert.sampling.noise.base import lay_out
from smoothcert.sampling.noise.bits import philox
from smoothcert.sampling.noise.first import NormalStream
from smoothcert.sampling.noise.inverse import TAIL, normals, table
from smoothcert.sampling.noise.threefry import threefry

KEYS = [noise_key(0, str(i), Phase.ESTIMATION, b) for i in range(10) for b in range(10)]
KINDS = [Gaussian(0.3), Grid(0.5, 16), Grid(2.0, 255), Grid(100.0, 40)]
PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0, 0x082EFA98, 0xEC4E6C89)


def with_patience(patience, noise, pieces, out):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "PATIENCE", patience)
        noise.draw(pieces, out)


def with_numba(noise, pieces, out):
    pytest.importorskip("numba")
    assert base.compiled_kernels() is not None
    with_patience(-1, noise, pieces, out)


def with_numpy(noise, pieces, out):
    with_patience(2**60, noise, pieces, out)


def with_torch(noise, pieces, out):
    """What an accelerator computes, on the CPU."""
    by_torch, what = (grid.by_torch, noise) if noise.levels else (gaussian.by_torch, noise.sigma)
    by_torch(lay_out(pieces), what, torch.from_numpy(out).flatten(1))


WAYS = [with_numba, with_numpy, with_torch]


def pieces_of(noise, shape):
    """Parts of blocks of different inputs."""
    rng = np.random.default_rng(len(shape))
    centres = [noise.centre((rng.integers(0, 17, shape) / 16).astype(np.float32).round(0)) for _ in range(2)]
    cuts = [(0, 30), (30, 70), (0, 1), (99, 1), (7, 22)]
    return [Piece(KEYS[i // 2], first, rows, centres[i % 2]) for i, (first, rows) in enumerate(cuts)]


def drawn(way, noise, pieces):
    shape = pieces[0].centre.values.shape
    out = np.full((sum(piece.rows for piece in pieces), *shape), np.nan, dtype=np.float32)
    way(noise, pieces, out)
    return out


def standard(way, keys, size):
    """Standard normal values, a row for each key."""
    unit = Gaussian(1.0)
    zero = unit.centre(np.zeros(size, dtype=np.float32))
    return drawn(way, unit, [Piece(key, 0, 1, zero) for key in keys])


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ((0,) * 4, (0,) * 4, (0x9C6CA96A, 0xE17EAE66, 0xFC10ECD4, 0x5256A7D8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 4, (0x2A881696, 0x57012287, 0xF6C7446E, 0xA16A6732)),
        (PI[:4], PI[4:], (0x59CD1DBB, 0xB8879579, 0x86B5D00C, 0xAC8B6D84)),
    ],
)
def test_threefry_gives_the_known_answers_of_random123(counter, key, answer):
    def words(values):
        return tuple(torch.from_numpy(np.array([[v]], dtype=np.uint32).view(np.int32)) for v in values)

    assert tuple(int(w) & 0xFFFFFFFF for w in threefry(words(counter), words(key))) == answer


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (PI[:4], PI[4:6], (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ],
)
@pytest.mark.parametrize("array", [np.array, torch.tensor])
def test_philox_gives_the_known_answers_of_random123(array, counter, key, answer):
    assert tuple(int(w[0]) for w in philox(*(tuple(array([v]) for v in values) for values in (counter, key)))) == answer


@pytest.mark.parametrize("shape", [(1,), (3,), (64,), (3, 32, 32), (5, 1001)], ids=str)
@pytest.mark.parametrize("noise", KINDS, ids=str)
def test_numba_numpy_and_torch_draw_the_same_bits(noise, shape):
    pieces = pieces_of(noise, shape)
    expected = drawn(with_numpy, noise, pieces)
    assert np.isfinite(expected).all()
    for way in WAYS:
        assert drawn(way, noise, pieces).tobytes() == expected.tobytes()


def test_values_of_the_tail_are_the_same_bits_too():
    """Of 2²³ values two on average take more bits; this key has some."""
    values = {way: standard(way, KEYS[:56], 150_528) for way in (with_numba, with_numpy)}
    far = np.abs(values[with_numpy]) > 5.1667  # the least of those that take more bits
    assert far.sum() > 0
    assert np.array_equal(values[with_numba], values[with_numpy])
    row, value = (int(found[0]) for found in far.nonzero())
    assert standard(with_torch, KEYS[row : row + 1], 150_528)[0, value] == values[with_numpy][row, value]


DIGEST = """
import hashlib, numpy as np
from smoothcert.sampling.noise import Gaussian, Grid, Piece
from smoothcert.sampling.noise import base
base.PATIENCE = -1
assert base.kernels(0) is not None
seen = hashlib.sha256()
for noise in (Gaussian(0.3), Grid(2.0, 255)):
    for size in (64, 3072):
        out = np.empty((100, size), dtype=np.float32)
        noise.draw([Piece(bytes(range(16)), 0, 100, noise.centre(np.ones(size, dtype=np.float32)))], out)
        seen.update(out.tobytes())
print(seen.hexdigest())
"""


@pytest.mark.slow
@pytest.mark.parametrize("cpu", ["generic", "haswell"])
def test_every_instruction_set_gives_the_same_bits(cpu, tmp_path):
    pytest.importorskip("numba")
    seen = hashlib.sha256()
    for noise in (Gaussian(0.3), Grid(2.0, 255)):
        for size in (64, 3072):
            piece = Piece(bytes(range(16)), 0, 100, noise.centre(np.ones(size, dtype=np.float32)))
            seen.update(drawn(with_numpy, noise, [piece]).tobytes())
    machine = {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", DIGEST], capture_output=True, text=True, env={**os.environ, **machine}, timeout=300
    )
    assert done.stdout.strip() == seen.hexdigest(), done.stderr


def test_kernels_are_compiled_where_nothing_can_be_kept():
    pytest.importorskip("numba")
    from smoothcert.sampling.noise.kernels import compiled

    space = {}
    exec("def double(x):\n    return 2 * x", space)  # Numba keeps nothing for a function without a file
    assert compiled(space["double"])(21) == 42


class Operations(TorchDispatchMode):
    """Counts what torch is asked to compute."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **kwargs or {})


@pytest.mark.parametrize("noise", KINDS, ids=str)
def test_a_batch_takes_as_many_tensor_operations_as_a_block(noise):
    centre, counts = noise.centre(np.ones((3, 4), dtype=np.float32)), []
    for blocks in (1, 16):
        pieces = [Piece(key, 0, 5, centre) for key in KEYS[:blocks]]
        drawn(with_torch, noise, pieces)  # tables are made once
        with Operations() as operations:
            drawn(with_torch, noise, pieces)
        counts.append(operations.count)
    assert counts[0] == counts[1] <= 320


@pytest.mark.parametrize("noise", KINDS, ids=str)
def test_rows_do_not_depend_on_how_a_block_is_cut(noise):
    centre = noise.centre(np.zeros((3, 5), dtype=np.float32))
    whole = drawn(with_numba, noise, [Piece(KEYS[0], 0, 100, centre)])
    cut = [Piece(KEYS[0], first, rows, centre) for first, rows in ((0, 1), (1, 49), (50, 20), (70, 30))]
    np.testing.assert_array_equal(drawn(with_numba, noise, cut), whole)
    np.testing.assert_array_equal(drawn(with_numba, noise, cut[2:3]), whole[50:70])


@pytest.mark.parametrize("way", WAYS)
def test_values_are_standard_normal(way):
    values = standard(way, KEYS, 10_100).astype(np.float64).ravel()
    assert stats.kstest(values, "norm").pvalue > 1e-4
    tails = [(np.abs(values) > z).mean() / (2 * stats.norm.sf(z)) for z in (3, 4)]
    np.testing.assert_allclose(tails, 1, atol=0.3)


def test_blocks_and_rows_are_uncorrelated():
    unit = Gaussian(1.0)
    zero = unit.centre(np.zeros(1600, dtype=np.float32))
    values = drawn(with_numpy, unit, [Piece(key, 0, 10, zero) for key in KEYS[::10]])
    correlation = np.corrcoef(values) - np.eye(len(values))
    assert np.abs(correlation).max() < 6 / np.sqrt(1600)


class TestInverse:
    """What docs/sound-noise.md and the docstring say of the map from bits to values."""

    starts = table().start[table().start >= TAIL].astype(np.int64)
    rng = np.random.default_rng(0)
    u = np.unique(
        np.concatenate(
            [
                rng.integers(TAIL, 2**30, 200_000),
                (2.0 ** rng.uniform(8, 30, 200_000)).astype(np.int64),
                (starts[:-1, None] + np.arange(-2, 3)).clip(TAIL).ravel(),
                2**30 - 1 - np.arange(1000),
            ]
        )
    )

    def test_a_value_is_the_quantile_to_about_a_unit_in_the_last_place(self):
        values, exact = normals(self.u, 0, table(), np).astype(np.float64), -special.ndtri((self.u + 0.5) / 2**31)
        last_place = np.spacing(exact.astype(np.float32))
        assert (np.abs(values - exact) <= np.maximum(1.5 * last_place, 5e-9)).all()

    def test_the_distribution_function_is_within_3e_8(self):
        at = special.ndtr(-normals(self.u, 0, table(), np).astype(np.float64))
        assert np.abs(at - (self.u + 0.5) / 2**31).max() + 2.0**-32 < 3e-8

    def test_the_tail_goes_on_with_more_bits(self):
        number = np.unique(np.concatenate([np.arange(5000), self.rng.integers(0, TAIL * 2**16, 100_000)]))
        values = normals(number >> 16, number & 0xFFFF, table(), np).astype(np.float64)
        exact = -special.ndtri((number + 0.5) / 2.0**47)
        assert (np.abs(values - exact) <= 1.05 * np.spacing(exact.astype(np.float32))).all()
        assert values.max() == pytest.approx(7.7826, abs=1e-4)
        assert values.min() > normals(np.array([TAIL]), 0, table(), np)[0]

    def test_signs_are_symmetric(self):
        plus, minus = (normals(self.u[::100] + sign, 0, table(), np) for sign in (0, 2**31))
        np.testing.assert_array_equal(plus, -minus)

    def test_the_table_is_the_one_that_every_machine_makes(self):
        digest = hashlib.sha256(b"".join(part.tobytes() for part in table())).hexdigest()
        assert digest.startswith("6202d3270c9bea27")


FIRST = {
    ("gaussian", 0.5, None, "cpu"): ([0.156416, -0.322278, 0.773693, -1.091324], 560164.504),
    ("gaussian", 0.5, None, "cuda"): ([-0.405778, 0.015548, 0.588919, 0.727453], 565365.039),
    ("grid", 0.5, 16, "cpu"): ([0.4375, -0.0625, 0.875, 0.625], 537872.562),
    ("grid", 0.5, 16, "cuda"): ([-0.1875, -0.0625, 0.0625, 0.25], 548889.875),
    ("grid", 40.0, 100, "cpu"): ([15.11, -24.61, 49.0, 30.62], -633658.672),
    ("grid", 40.0, 100, "cuda"): ([-34.93, -26.49, -13.13, -2.2], 202971.501),
}
"""Of 300 copies of seven times ¼: the first values, and the sum of all, each times its number."""


@pytest.mark.parametrize("made", [np.asarray, torch.from_numpy], ids=["array", "tensor"])
@pytest.mark.parametrize("name", FIRST, ids=str)
def test_streams_of_version_1_are_what_they_were(name, made):
    kind, sigma, levels, device = name
    noise = open_noise(kind, sigma, levels, 1, device)
    centre, out = noise.centre(np.full(7, 0.25, dtype=np.float32)), np.empty((300, 7), dtype=np.float32)
    key = bytes(range(16))
    noise.draw([Piece(key, 0, 120, centre), Piece(key, 120, 180, centre)], made(out))
    values = out.astype(np.float64).ravel()
    first, total = FIRST[name]
    np.testing.assert_allclose(values[:4], first, atol=2e-6)
    assert (values * np.arange(1, len(values) + 1)).sum() == pytest.approx(total, abs=1.0)


def test_a_stream_in_order_does_not_depend_on_how_it_is_cut():
    for device in ("cpu", "cuda"):
        stream, whole, pieces = NormalStream(KEYS[0], device), np.empty(700, np.float32), []
        for cut in (3, 4, 250, 443):
            pieces.append(np.empty(cut, dtype=np.float32))
            stream.fill(pieces[-1])
        NormalStream(KEYS[0], device).fill(whole)
        np.testing.assert_array_equal(np.concatenate(pieces), whole)


@pytest.mark.parametrize("x", [0.2, 0.123], ids=["on the grid", "off it"])
@pytest.mark.parametrize("noise", [Gaussian(0.3), Grid(0.3, 255), open_noise("grid", 0.3, 255, 1)], ids=str)
def test_arrays_get_the_noise_that_tensors_get(noise, x):
    centre = noise.centre(np.full((3, 5), x, dtype=np.float32))
    arrays, tensors = np.empty((40, 3, 5), dtype=np.float32), torch.empty(40, 3, 5)
    noise.draw([Piece(KEYS[0], 10, 40, centre)], arrays)
    noise.draw([Piece(KEYS[0], 10, 40, centre.moved(torch.device("cpu")))], tensors)
    np.testing.assert_array_equal(arrays, tensors.numpy())


def test_noise_needs_no_torch():
    code = (
        "import sys; import numpy as np; from smoothcert.sampling.noise import Piece, open_noise\n"
        "x, rows = np.zeros(4, dtype=np.float32), np.empty((9, 4), dtype=np.float32)\n"
        "for noise in (open_noise(name, 0.5, 255, version) for name in ('gaussian', 'grid') for version in (1, 2)):\n"
        "    noise.check(x, ''), noise.draw([Piece(bytes(16), 0, 9, noise.centre(x))], rows), noise.error(9)\n"
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
