"""Kinds of noise: what is drawn for a key around an input, and how far it is from what the proof wants."""

from smoothcert.checks import NO_NOISE
from smoothcert.sampling.noise.base import Centre, Noise, Piece
from smoothcert.sampling.noise.first import FirstGaussian, FirstGrid
from smoothcert.sampling.noise.gaussian import Gaussian
from smoothcert.sampling.noise.grid import Grid
from smoothcert.sampling.noise.silence import Silence

__all__ = ["STREAM", "STREAMS", "Centre", "Gaussian", "Grid", "Noise", "Piece", "open_noise"]

STREAMS = (1, 2)
STREAM = STREAMS[-1]
"""The version of what is drawn for a key; a run keeps the one it was started with."""


def open_noise(name: str, sigma: float, levels: int | None, stream: int = STREAM, device: str = "cpu") -> Noise:
    """The noise of that name; `levels`, the steps of the grid per unit (255 unless given), are for the grid alone.

    Streams of version 1 depend on the type of device that draws.
    """
    if name == NO_NOISE:
        return Silence()
    steps = 255 if levels is None else levels
    if stream == 1:
        return FirstGaussian(sigma, device) if name == "gaussian" else FirstGrid(sigma, steps, device)
    return Gaussian(sigma) if name == "gaussian" else Grid(sigma, steps)
