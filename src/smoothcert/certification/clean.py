"""What the model says of each input without noise, for comparison; nothing is certified by it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from itertools import islice

from smoothcert.plan import Labels
from smoothcert.sampling.blocks import Block, Input, Phase
from smoothcert.sampling.executor import Job
from smoothcert.sampling.machine import Machine
from smoothcert.sampling.noise.silence import Silence
from smoothcert.store.file import RunFile

AT_ONCE = 1000
"""Inputs whose classes are kept together."""


def classify_clean(file: RunFile, machine: Machine, inputs: Callable[[int], Input], job: Job, total: int) -> None:
    """Keeps the class of each input that has none yet: a draw without noise, wherever draws are made."""
    known = file.clean()
    blocks = (Block(position, Phase.CLEAN, 0, 1) for position in range(total) if position not in known)
    silent = dataclasses.replace(job, noise=Silence(), votes=Labels())
    answers: Iterator[tuple[int, int]] = (
        (votes.position, int(votes.classes[0])) for votes in machine.executor(inputs, silent).run(blocks)
    )
    while chunk := dict(islice(answers, AT_ONCE)):
        file.add_clean(chunk)
