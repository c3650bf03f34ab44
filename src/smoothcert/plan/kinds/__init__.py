"""Kinds of votes: what one draw gives to the classes. They decide what the smoothed classifier returns.

Each kind is a file here and its place in `KINDS`.
"""

from smoothcert.plan.kinds.base import ESTIMATED, PROVED, Ends, Kind, Proved, by_claims
from smoothcert.plan.kinds.duels import Duels
from smoothcert.plan.kinds.labels import Labels
from smoothcert.plan.kinds.margins import Margins
from smoothcert.plan.kinds.shares import Hardmax, Softmax, Sparsemax

KINDS = (Duels, Labels, Margins, Softmax, Sparsemax, Hardmax)

__all__ = [
    "ESTIMATED",
    "KINDS",
    "PROVED",
    "Duels",
    "Ends",
    "Hardmax",
    "Kind",
    "Labels",
    "Margins",
    "Proved",
    "Softmax",
    "Sparsemax",
    "by_claims",
]
