"""Kinds of noise: what is drawn for a key, how it is added to an input, and how far it is from what the proof wants."""

from smoothcert.sampling.noise.base import Noise, Stream
from smoothcert.sampling.noise.gaussian import Gaussian
from smoothcert.sampling.noise.grid import Grid

__all__ = ["Gaussian", "Grid", "Noise", "Stream", "open_noise"]


def open_noise(name: str, sigma: float, levels: int | None) -> Noise:
    """The noise of that name; `levels`, the steps of the grid per unit (255 unless given), are for the grid alone."""
    return Gaussian(sigma) if name == "gaussian" else Grid(sigma, 255 if levels is None else levels)
