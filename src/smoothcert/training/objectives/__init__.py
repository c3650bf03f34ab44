"""What a network is trained for; one objective a file."""

from smoothcert.training.objectives.base import Objective, Task
from smoothcert.training.objectives.consistency import Consistency
from smoothcert.training.objectives.gaussian import Gaussian
from smoothcert.training.objectives.macer import Macer
from smoothcert.training.objectives.smoothadv import SmoothAdv

OBJECTIVES = (Gaussian, Consistency, SmoothAdv, Macer)

__all__ = ["OBJECTIVES", "Consistency", "Gaussian", "Macer", "Objective", "SmoothAdv", "Task"]
