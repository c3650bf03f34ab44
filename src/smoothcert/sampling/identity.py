"""What runs a model."""

from __future__ import annotations

from dataclasses import dataclass

INT8 = "onnx+int8"
"""The engine that runs a quantised network in place of the model."""


@dataclass(frozen=True)
class Identity:
    """Name, versions, device and precision of an engine: the arithmetic that is certified.

    Equal identities give equal votes for equal batches. The precision is empty where nobody can tell. `network` is the
    SHA-256 of the network that an engine runs in place of the model, where that is another one.

    >>> print(Identity("torch+folded", "torch 2.13.0", "cpu", "float32"))
    torch+folded (torch 2.13.0) on cpu in float32
    """

    engine: str
    versions: str
    device: str
    precision: str = ""
    network: str = ""

    def __str__(self) -> str:
        precision = f" in {self.precision}" if self.precision else ""
        network = f", network {self.network[:12]}" if self.network else ""
        return f"{self.engine} ({self.versions}) on {self.device}{precision}{network}"
