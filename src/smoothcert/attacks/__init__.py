"""Attacks: the search for a small perturbation that changes the class.

What they find is an upper bound on the distance to another class; what they do not find proves nothing.
"""

from smoothcert.attacks.audit import Search, Violation, search_balls, search_run
from smoothcert.attacks.dataset import DatasetAttack, attack_dataset
from smoothcert.attacks.pgd import pgd
from smoothcert.attacks.records import write_attack, write_violations
from smoothcert.attacks.smallest import Attack
from smoothcert.attacks.smoothed import smoothed_pgd

__all__ = [
    "Attack",
    "DatasetAttack",
    "Search",
    "Violation",
    "attack_dataset",
    "pgd",
    "search_balls",
    "search_run",
    "smoothed_pgd",
    "write_attack",
    "write_violations",
]
