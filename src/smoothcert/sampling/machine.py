"""Where blocks are drawn: an engine in this process, or workers elsewhere. Both answer to one protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from smoothcert.sampling.blocks import Block, Input, Votes
from smoothcert.sampling.identity import Identity

if TYPE_CHECKING:
    from smoothcert.sampling.executor import Job


class Draws(Protocol):
    """Blocks in, votes out."""

    def run(self, blocks: Iterable[Block | None]) -> Iterator[Votes]:
        """The votes of the blocks; None among them asks for votes before more is wanted."""


class Machine(Protocol):
    """What draws: which engine it has and how many rows it takes at a time. It is opened by a `with` statement."""

    @property
    def identity(self) -> Identity: ...

    @property
    def batch(self) -> int: ...

    @property
    def reason(self) -> str:
        """Why this engine and this batch, in a sentence."""

    def executor(self, inputs: Callable[[int], Input], job: Job) -> Draws: ...

    def fault(self, source: Input, job: Job) -> str | None:
        """What `separation.fault` finds of the model."""

    def __enter__(self) -> Machine: ...

    def __exit__(self, *_: object) -> None: ...
