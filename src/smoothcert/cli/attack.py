"""smoothcert attack"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from smoothcert.attacks import DatasetAttack, Search, attack_dataset, search_run, write_attack, write_violations
from smoothcert.attacks.gradients import require_gradients
from smoothcert.attacks.records import check_format
from smoothcert.cli import arguments as arg
from smoothcert.cli.nouns import Given, derived
from smoothcert.cli.opened import Loading, Opened
from smoothcert.cli.progress import Meter
from smoothcert.errors import InputError
from smoothcert.plan import Classifier, Labels, Question, Selection
from smoothcert.plan.draws import numbers
from smoothcert.store import Run, open_run
from smoothcert.store.export import beside
from smoothcert.text import counted, radius_text


@derived(
    found=("num_classes", "noise"),
    without=("shard", "skip_broken"),
    maybe=("classifier",),
    classifier=Classifier,
    selection=Selection,
    loading=Loading,
)
def attack(
    model: arg.Model,
    data: arg.Data,
    classifier: Given,
    selection: Given,
    loading: Given,
    eps: Annotated[str | None, typer.Option(help="Radii to search, as 0.25,0.5.")] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Search inside the certified radii of this run.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of an ascent (40; smoothed 20).")] = None,
    step: Annotated[float | None, typer.Option(help="Length of a step (0.2; smoothed 2ε / steps).")] = None,
    draws: Annotated[int, typer.Option(help="Draws of noise behind a gradient, smoothed.")] = 16,
    n: Annotated[int, typer.Option(help="Draws behind a prediction, smoothed.")] = 1_000,
    alpha: Annotated[float, typer.Option(help="Risk that a prediction is wrong, smoothed.")] = Question.alpha,
    box: Annotated[bool, typer.Option("--box", help="Keep perturbed inputs in [0, 1].")] = False,
    batch: Annotated[int, typer.Option(help="Rows a forward pass of an ascent.")] = 256,
    seed: Annotated[int, typer.Option(help="Names the noise and the starts of ascents.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Each input's smallest perturbation (.json, .csv); what broke a run (.npz).")
    ] = None,
) -> None:
    """Search for small perturbations that change the class of the model or, with --sigma, of the smoothed classifier.

    Example: `smoothcert attack digits_cnn digits --eps 0.25,0.5,1 --sigma 0.25 --limit 50 --out attack.json`

    With --against it searches inside the certified radii of a run; exit code 1 says that a certificate was broken.

    Example: `smoothcert attack digits_cnn digits --against digits_cnn-digits-sigma0.25.smoothcert`
    """
    if (eps is None) == (against is None):
        raise InputError("say where to search: --eps 0.25,0.5 for these radii, or --against RUN for those of a run.")
    smoothing, radii = classifier.keys() - {"num_classes"}, () if eps is None else numbers(eps)
    if against is not None and (smoothing or box or step is not None or selection["skip"] != 1):
        raise InputError("--against takes inputs, noise and radii from the run: leave out what says otherwise.")
    if smoothing and "sigma" not in smoothing:
        raise InputError(f"`{min(smoothing)}` says nothing of the model itself: leave it out, or give `sigma` as well.")
    if against is None and out is not None:
        check_format(out)
    opened, console = Opened(model, data, loading), Console()
    asked = {"steps": steps, "step": step, "bounds": (0.0, 1.0) if box else None, "batch": batch}
    options: Given = {name: value for name, value in asked.items() if value is not None}
    judging: Given = {"draws": draws, "n": n, "alpha": alpha}
    try:
        with Meter("attacking") as meter:
            options["on_progress"] = meter
            if smoothing:
                smoothed = opened.smoothed(classifier, {"seed": seed})
                found = attack_dataset(smoothed, opened.dataset, radii, **selection, **judging, **options)
            else:
                module = require_gradients(opened.engines(classifier.get("num_classes")).model)
                options["seed"] = seed
                if against is None:
                    found = attack_dataset(module, opened.dataset, radii, **selection, **options)
                else:
                    run, limit = open_run(against, patience=math.inf), selection.get("limit")
                    search = search_run(module, opened.dataset, run, limit=limit, **judging, **options)
    except KeyboardInterrupt:
        console.print("Stopped. Nothing was written.")
        raise typer.Exit(1) from None
    if against is not None:
        _print_search(search, run, n, out or beside(against, ".violations.npz"), console)
        return
    _print_attack(found, console)
    if out is not None:
        write_attack(out, found, {"model": model, "data": data})
        console.print(f"Each input's smallest perturbation is in {out}", highlight=False, markup=False, soft_wrap=True)


def _print_attack(found: DatasetAttack, console: Console) -> None:
    about, what = found.settings, "the model"
    if about["sigma"] is not None:
        what = f"the smoothed classifier, {about['noise']} noise σ = {about['sigma']:g}"
        what += "" if about["votes"] == Labels.name else f", {about['votes']} votes"
    table = Table(title=f"{counted(len(found.norms), 'input')}, {what}", title_justify="left", min_width=40)
    table.add_column("perturbations up to")
    table.add_column("robust accuracy", justify="right")
    table.add_row("none", f"{np.mean(found.norms > 0):.3f}")
    for radius, accuracy in zip(found.eps, found.robust_accuracy, strict=True):
        table.add_row(f"{radius:g}", f"{accuracy:.3f}")
    console.print(table)
    reached = found.norms[(found.norms > 0) & np.isfinite(found.norms)]
    if len(reached):
        console.print(f"Smallest perturbations found: median {np.median(reached):.3f}, least {reached.min():.3f}.")
    console.print("This is a search, not a proof: a better attack may leave less.")


def _print_search(search: Search, run: Run, n: int, path: Path, console: Console) -> None:
    risk, count = run.plan.question.alpha, search.searched
    judged = f"{count} certified inputs were searched; without noise nothing is left to chance."
    if risk:
        judged = (
            f"{count} certified inputs were searched. Each certificate is false with risk {risk:g} at most, and of "
            f"{count} true ones at most {search.false_alarms:.2g} would be called broken by chance (predict at "
            f"α = {search.alpha:g}, n = {n:,})."
        )
    if not search.violations:
        console.print(f"None was broken. {judged}", highlight=False, markup=False)
        console.print("This is a search, not a proof.")
        return
    write_violations(path, search)
    console.print(f"BROKEN: {len(search.violations)} of {search.searched} certificates", style="bold red")
    for v in search.violations:
        console.print(
            f"  input {v.id}: class {v.certified} was certified within {radius_text(v.radius, 4)}, but at distance "
            f"{v.norm:.4f} it is class {v.found}",
            highlight=False,
            markup=False,
        )
    console.print(f"{judged} The perturbations are in {path}", highlight=False, markup=False)
    raise typer.Exit(1)
