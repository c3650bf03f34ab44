"""Which inputs are certified."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from smoothcert.checks import check_whole
from smoothcert.data import Dataset, select
from smoothcert.errors import InputError
from smoothcert.options import keep, option

INPUTS = "Which inputs"
MOST_INPUTS = 1 << 31


def shard_of(text: str) -> tuple[int, int]:
    """i/k as two numbers."""
    i, slash, k = text.partition("/")
    if not (slash and i.isascii() and i.isdigit() and k.isascii() and k.isdigit()):
        raise InputError(f"{text!r} is no shard such as 2/8: write its number, a slash, and how many there are.")
    return int(i), int(k)


@dataclass(frozen=True)
class Selection:
    """Every `skip`-th input of a data set, at most `limit`, of these the i-th of k parts: every k-th from the i-th on.

    The rest says what was found there: `data` is the fingerprint of the data set, `inputs` that of the inputs
    themselves and their labels, read before the first draw; `broken` are the rows that are left out, and `total` says
    how many inputs there are without them.
    """

    skip: int = option(1, help="Take every k-th input.", panel=INPUTS)
    limit: int | None = option(None, help="Take at most this many inputs.", panel=INPUTS)
    shard: tuple[int, int] | None = option(
        None,
        help="Certify the i-th of k parts, as 2/8, into a file of its own for merge.",
        panel="Many machines",
        parse=shard_of,
    )
    skip_broken: bool = option(
        False, help="Go on without inputs that cannot be read or certified, and keep their list.", panel=INPUTS
    )
    data: str = ""
    preprocessing: str = ""
    inputs: str = ""
    broken: tuple[int, ...] = ()
    total: int = 0

    def __post_init__(self) -> None:
        keep(
            self,
            skip=check_whole("skip", self.skip, 1),
            limit=None if self.limit is None else check_whole("limit", self.limit, 1),
            total=check_whole("total", self.total, 0, MOST_INPUTS),
        )
        if self.shard is None:
            return
        numbers = self.shard if isinstance(self.shard, tuple) and len(self.shard) == 2 else (0, 0)
        i, k = (n if isinstance(n, int) and not isinstance(n, bool) else 0 for n in numbers)
        if not 1 <= i <= k:
            raise InputError(f"a shard is i/k with 1 ≤ i ≤ k, such as 2/8, got {self.shard!r}.")
        if self.skip_broken:
            raise InputError("shards are parts of one selection: mend broken inputs, and leave out `skip_broken`.")

    def rows(self, dataset: Dataset) -> Sequence[int]:
        """The rows of the data set that are selected.

        >>> from smoothcert.data import digits
        >>> list(Selection(skip=30, shard=(2, 4)).rows(digits(train=False)))
        [30, 150, 270]
        """
        rows = select(dataset, self.skip, self.limit)
        if not rows:
            raise InputError("the data set has no inputs to certify: check the path, `skip` and `limit`.")
        if self.shard is None:
            left_out = frozenset(self.broken)
            return [row for row in rows if row not in left_out] if left_out else rows
        i, k = self.shard
        if k > len(rows):
            raise InputError(f"there are {len(rows)} inputs: split them into at most as many shards, not {k}.")
        return rows[i - 1 :: k]

    def as_in(self, earlier: Selection) -> Selection:
        """With what an earlier first pass found: what is left out, and the inputs to compare with."""
        return dataclasses.replace(
            self, inputs=earlier.inputs, broken=earlier.broken, total=self.total - len(earlier.broken)
        )

    def of(self, dataset: Dataset) -> Selection:
        """With what is found in the data set."""
        return dataclasses.replace(
            self, data=dataset.fingerprint, preprocessing=dataset.preprocessing, total=len(self.rows(dataset))
        )
