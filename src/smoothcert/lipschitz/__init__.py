"""Lipschitz constants of networks: bounds that are bounds, and estimates that are called estimates."""

from smoothcert.lipschitz.groupsort import GroupSort
from smoothcert.lipschitz.local import local
from smoothcert.lipschitz.product import Layer, LipschitzBound, product
from smoothcert.lipschitz.rules import Join, register
from smoothcert.lipschitz.signals import Signal
from smoothcert.lipschitz.spectral import Convolution
from smoothcert.lipschitz.walk import LastLayer

__all__ = [
    "Convolution",
    "GroupSort",
    "Join",
    "LastLayer",
    "Layer",
    "LipschitzBound",
    "Signal",
    "local",
    "product",
    "register",
]
