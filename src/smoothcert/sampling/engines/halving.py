"""A batch that does not fit the device's memory runs in halves."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager

import torch

from smoothcert.sampling.engines.base import Engine
from smoothcert.sampling.identity import Identity

logger = logging.getLogger(__name__)


class HalvingEngine:
    """Halves the rows that run at once whenever the device is out of memory, and goes on.

    The run's batch is chosen while its device has memory, and recorded; this is for memory that is taken away later.
    Smaller pieces may round differently, so a vote at a tie may differ from that of a whole batch. Resuming draws a
    stored block again and refuses where it does.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.device, self.lanes = engine.device, engine.lanes
        self.at_most: int | None = None

    @property
    def identity(self) -> Identity:
        return self.engine.identity

    @property
    def fingerprint(self) -> str:
        return self.engine.fingerprint

    def ready(self) -> AbstractContextManager[object]:
        return self.engine.ready()

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        rows = min(len(batch), self.at_most or len(batch))
        while True:
            try:
                return torch.cat([self.engine(piece) for piece in torch.split(batch, rows)])
            except torch.cuda.OutOfMemoryError:
                if rows == 1:
                    raise
            rows = self.at_most = (rows + 1) // 2
            torch.cuda.empty_cache()
            logger.warning("the device is out of memory: going on with %d rows at once.", rows)
