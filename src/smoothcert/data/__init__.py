"""Data sets: opened by name, read row by row, checked once, here."""

from smoothcert.data.dataset import Dataset, Example
from smoothcert.data.digits import digits
from smoothcert.data.registry import as_dataset, open_data, select

__all__ = ["Dataset", "Example", "as_dataset", "digits", "open_data", "select"]
