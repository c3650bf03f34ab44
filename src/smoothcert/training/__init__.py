"""Networks that stand noise: training with Gaussian augmentation."""

from smoothcert.training.configuration import Configuration, Epoch
from smoothcert.training.denoise import train_denoiser
from smoothcert.training.trainer import open_training_data, train

__all__ = ["Configuration", "Epoch", "open_training_data", "train", "train_denoiser"]
