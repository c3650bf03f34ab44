"""Networks by name, and weights from files."""

from smoothcert.models.checkpoints import load_weights
from smoothcert.models.denoiser import denoised
from smoothcert.models.loading import load_model
from smoothcert.models.normalize import Normalize
from smoothcert.models.registry import build, names

__all__ = ["Normalize", "build", "denoised", "load_model", "load_weights", "names"]
