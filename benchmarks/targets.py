"""A line for each figure that has a target: benchmarks print them, and `make bench` lists them at the end."""

from __future__ import annotations

MARK = "target:"


def told(name: str, value: float, *, least: float | None = None, most: float | None = None) -> None:
    """Prints a figure beside what is wanted of it."""
    wanted = f"at least {least:g}" if least is not None else f"at most {most:g}"
    met = value >= least if least is not None else most is not None and value <= most
    print(f"{MARK} {name:56} {value:8.3g}  {wanted:14} {'met' if met else 'missed'}", flush=True)
