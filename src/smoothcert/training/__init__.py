"""Networks that stand noise: training with Gaussian augmentation."""

from smoothcert.training.gaussian import train_with_noise

__all__ = ["train_with_noise"]
