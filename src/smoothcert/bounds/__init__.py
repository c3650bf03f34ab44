"""Counts or means to confidence statements; one method a file, every bound one-sided.

A new method is one file here and its line in `METHODS`: the command line, the report and the tests of validity
pick it up.
"""

from smoothcert.bounds.binomial import clopper_pearson_lower, clopper_pearson_upper
from smoothcert.bounds.bonferroni import bonferroni
from smoothcert.bounds.means import (
    betting_lower,
    betting_moments_lower,
    betting_moments_upper,
    betting_upper,
    empirical_bernstein_lower,
    empirical_bernstein_upper,
    hoeffding_lower,
    hoeffding_upper,
)
from smoothcert.bounds.method import MarginBound, Method
from smoothcert.bounds.mono import mono
from smoothcert.bounds.pairwise import pairwise, pairwise_margin
from smoothcert.bounds.partition import cpm, partition_classes
from smoothcert.bounds.soft import SoftVotes
from smoothcert.bounds.union import union

METHODS: dict[str, Method] = {
    "mono": mono,
    "bonferroni": bonferroni,
    "cpm": cpm,
    "union": union,
    "pairwise": pairwise,
}
__all__ = [
    "METHODS",
    "MarginBound",
    "Method",
    "SoftVotes",
    "betting_lower",
    "betting_moments_lower",
    "betting_moments_upper",
    "betting_upper",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "empirical_bernstein_lower",
    "empirical_bernstein_upper",
    "hoeffding_lower",
    "hoeffding_upper",
    "pairwise_margin",
    "partition_classes",
]
