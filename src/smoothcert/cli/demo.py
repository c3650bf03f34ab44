"""smoothcert demo"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from smoothcert.cli.opened import Opened
from smoothcert.cli.progress import Meter
from smoothcert.cli.tables import columns_of, print_methods
from smoothcert.report.write import write_report
from smoothcert.store.export import beside


def demo(
    out: Annotated[Path, typer.Option(help="The run file.")] = Path("demo.smoothcert"),
) -> None:
    """Certify 200 handwritten digits with a small network: a minute from nothing to proved radii.

    Example: `smoothcert demo`
    """
    console = Console()
    console.print(
        "200 held-out digits (8 × 8 pixels in [0, 1]), a small convolutional network trained under noise σ = 0.25. "
        "100 noisy copies of each digit select a class, 10,000 more prove a radius: no perturbation shorter than it, "
        "in ℓ2 norm, changes the smoothed classifier's answer. The risk that this is wrong is α = 0.001 per digit.\n",
        highlight=False,
    )
    opened = Opened("digits_cnn", "digits", {"device": "cpu"})
    smoothed = opened.smoothed({"sigma": 0.25}, {"seed": 0})
    with Meter("certifying") as meter:
        run = smoothed.certify_dataset(opened.dataset, out=out, limit=200, model_name="digits_cnn", on_progress=meter)
    print_methods(columns_of(run, run.compared), run, console)
    page, _ = write_report([run], beside(out, ".html"))
    console.print(
        f"\n{run.draws:,} votes are kept in {out}, and {page} shows what they prove: open it in a browser.\n"
        f"Next:\n\n"
        f"  smoothcert show {out}\n"
        f"  smoothcert recertify {out} --method {run.plan.question.method} --alpha 0.00001",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
