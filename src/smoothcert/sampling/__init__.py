"""Everything expensive: noise, forward passes, votes. A schedule wants blocks, an executor returns their votes."""

from smoothcert.sampling.blocks import BLOCK, Block, Input, Phase, Votes, blocks_of, input_digest
from smoothcert.sampling.executor import Executor

__all__ = ["BLOCK", "Block", "Executor", "Input", "Phase", "Votes", "blocks_of", "input_digest"]
