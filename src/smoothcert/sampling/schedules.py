"""Schedules: which blocks are wanted next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from smoothcert.sampling.blocks import Block, Phase, blocks_of


def fixed(
    positions: Iterable[int],
    draws: Mapping[Phase, int],
    stored: Mapping[tuple[int, str], Sequence[tuple[int, int]]],
) -> Iterator[Block]:
    """Every block of every phase of each input in turn, but for those that lie in a stored range."""
    for position in positions:
        for phase, n in draws.items():
            ranges = stored.get((position, phase.value), ())
            for block in blocks_of(position, phase, n):
                if not any(first <= block.index < last for first, last in ranges):
                    yield block
