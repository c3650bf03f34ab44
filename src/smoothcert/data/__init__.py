"""Data sets: opened by name, read row by row, checked once, here."""

from smoothcert.data.dataset import Dataset, Example, as_floats, raw_array
from smoothcert.data.digits import digits
from smoothcert.data.registry import as_dataset, open_data, select

__all__ = ["Dataset", "Example", "as_dataset", "as_floats", "digits", "open_data", "raw_array", "select"]
