"""Einstein sums over one signal and constants, read as blocks of matrices."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from smoothcert.errors import InputError
from smoothcert.lipschitz.signals import Shape, Signal, together
from smoothcert.lipschitz.spectral import require_moderate


@dataclass(frozen=True)
class Contraction:
    """`output[…] = Σ x[…] · constants[…]`, each axis by its letter."""

    x: Signal
    letters: str
    output: str
    constants: tuple[tuple[str, Tensor], ...]

    @classmethod
    def of(cls, equation: str, operands: Sequence[Any]) -> Contraction:
        """Read torch's notation, `...` of the signal included."""
        inputs, arrow, output = equation.replace(" ", "").partition("->")
        parts = inputs.split(",")
        if not arrow:
            once = sorted(c for c in set(inputs) if c.isalpha() and inputs.count(c) == 1)
            output = ("..." if "..." in inputs else "") + "".join(once)
        ((mine, x),) = ((p, o) for p, o in zip(parts, operands, strict=True) if isinstance(o, Signal))
        constants = tuple((p, o.double().cpu()) for p, o in zip(parts, operands, strict=True) if o is not x)
        if "..." in mine:
            free = "".join(c for c in string.ascii_letters if c not in equation)[: len(x.shape) - len(mine) + 3]
            mine, output = mine.replace("...", free), output.replace("...", free)
        sizes: dict[str, int] = {}
        for letters, shape in ((mine, x.shape), *((part, constant.shape) for part, constant in constants)):
            pairs = list(zip(letters, shape, strict=False))
            if not len(set(letters)) == len(letters) == len(shape) or any(
                sizes.setdefault(c, n) != n for c, n in pairs
            ):
                raise InputError(f"{equation!r} repeats a letter or broadcasts an axis, which has no Lipschitz rule.")
        return cls(x, mine, output, constants)

    def rows(self, shape: Shape) -> Tensor:
        """The rows of the output: the axes that vanish are brought together, new ones repeat them."""
        gone = [axis for axis, letter in enumerate(self.letters) if letter not in self.output]
        kept = [letter for letter in self.output if letter in self.letters]
        sizes = dict(zip(self.letters, self.x.shape, strict=True))
        rows = together(gone, tuple(1 if axis in gone else n for axis, n in enumerate(self.x.shape)), self.x)
        rows = rows.permute([*map(self.letters.index, kept), *gone]).reshape(*(sizes[c] for c in kept))
        for axis, letter in enumerate(self.output):
            rows = rows if letter in kept else rows.unsqueeze(axis)
        return rows.expand(shape)

    def matrices(self) -> Tensor:
        """(blocks, rows, columns): axes of all three count the blocks, those that vanish are columns, new ones rows.

        An axis that the signal alone has and that vanishes is summed, which is √n.
        """
        known = "".join(dict.fromkeys("".join(part for part, _ in self.constants)))
        blocks = [c for c in known if c in self.letters and c in self.output]
        new = [c for c in known if c not in self.letters and c in self.output]
        columns = [c for c in known if c in self.letters and c not in self.output]
        sizes = dict(zip(self.letters, self.x.shape, strict=True))
        summed = math.prod(n for c, n in sizes.items() if c not in known and c not in self.output)
        equation = f"{','.join(part for part, _ in self.constants)}->{''.join([*blocks, *new, *columns])}"
        whole = torch.ones((), dtype=torch.float64)
        require_moderate([constant for _, constant in self.constants])
        if self.constants:
            whole = torch.einsum(equation, [constant for _, constant in self.constants])
        count, height = (
            math.prod(sizes[c] for c in blocks),
            math.prod(whole.shape[len(blocks) : len(blocks) + len(new)]),
        )
        return math.sqrt(summed) * whole.reshape(count, height, -1)
