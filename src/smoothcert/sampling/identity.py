"""What runs a model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Identity:
    """Name, versions, device and precision of an engine: the arithmetic that is certified.

    Equal identities give equal votes for equal batches. The precision is empty where nobody can tell.

    >>> print(Identity("torch+folded", "torch 2.13.0", "cpu", "float32"))
    torch+folded (torch 2.13.0) on cpu in float32
    """

    engine: str
    versions: str
    device: str
    precision: str = ""

    def __str__(self) -> str:
        return f"{self.engine} ({self.versions}) on {self.device}" + (f" in {self.precision}" if self.precision else "")
