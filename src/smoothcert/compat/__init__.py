"""Interfaces of other programs on top of smoothcert."""
