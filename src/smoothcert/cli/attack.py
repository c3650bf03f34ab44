"""smoothcert attack"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from smoothcert.attacks import Attack, Search, pgd, search_run, smoothed_pgd, write_attack, write_violations
from smoothcert.attacks.gradients import require_module
from smoothcert.attacks.records import check_format
from smoothcert.certification import count_classes
from smoothcert.classifier import SmoothedClassifier
from smoothcert.cli import arguments as arg
from smoothcert.cli.progress import Meter
from smoothcert.data import Example, open_data, select
from smoothcert.errors import InputError
from smoothcert.models import load_model
from smoothcert.store import Run, open_run
from smoothcert.store.export import beside

CHUNK = 50


def attack(
    model: arg.Model,
    data: arg.Data,
    eps: Annotated[str | None, typer.Option(help="Radii to search, as 0.25,0.5.")] = None,
    sigma: Annotated[
        float | None, typer.Option(help="Attack the smoothed classifier with this noise, not the model itself.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Search inside the certified radii of this run.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of an ascent (40; smoothed 20).")] = None,
    step: Annotated[float | None, typer.Option(help="Length of a step (0.2; smoothed 2ε / steps).")] = None,
    draws: Annotated[int, typer.Option(help="Draws of noise behind a gradient, smoothed.")] = 16,
    n: Annotated[int, typer.Option(help="Draws behind a prediction, smoothed.")] = 1_000,
    alpha: Annotated[float, typer.Option(help="Risk that a prediction is wrong, smoothed.")] = 0.001,
    box: Annotated[bool, typer.Option("--box", help="Keep perturbed inputs in [0, 1].")] = False,
    limit: arg.Limit = None,
    skip: arg.Skip = 1,
    noise: arg.Noise = None,
    levels: arg.Levels = None,
    seed: arg.Seed = 0,
    batch: Annotated[int, typer.Option(help="Rows a forward pass of an ascent.")] = 256,
    device: arg.Device = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Each input's smallest perturbation (.json, .csv); what broke a run (.npz).")
    ] = None,
    weights: arg.Weights = None,
    num_classes: arg.NumClasses = None,
    classes: arg.Classes = None,
    resize: arg.Resize = None,
    crop: arg.Crop = None,
) -> None:
    """Search for small perturbations that change the class of the model or, with --sigma, of the smoothed classifier.

    Example: `smoothcert attack digits_cnn digits --eps 0.25,0.5,1 --sigma 0.25 --limit 50 --out attack.json`

    With --against it searches inside the certified radii of a run; exit code 1 says that a certificate was broken.

    Example: `smoothcert attack digits_cnn digits --against digits_cnn-digits-sigma0.25.smoothcert`
    """
    if (eps is None) == (against is None):
        raise InputError("say where to search: --eps 0.25,0.5 for these radii, or --against RUN for those of a run.")
    if against is not None and (box or skip != 1 or any(o is not None for o in (sigma, step, noise, levels))):
        raise InputError("--against takes inputs, noise and radii from the run: leave out what says otherwise.")
    if against is None and out is not None:
        check_format(out)
    module = require_module(load_model(model, weights=weights, num_classes=num_classes, device=device))
    dataset = open_data(data, classes=classes, resize=resize, crop=crop)
    if steps is None:
        steps = 40 if sigma is None and against is None else 20
    options: dict[str, Any] = {"steps": steps, "batch": batch}
    judging: dict[str, Any] = {"draws": draws, "n": n, "alpha": alpha}
    console = Console()
    with Meter("attacking") as meter:
        try:
            if against is not None:
                run = open_run(against)
                search = search_run(
                    module, dataset, run, limit=limit, seed=seed, on_progress=meter, **judging, **options
                )
            else:
                radii = arg.numbers(eps or "")
                options |= {"eps": radii, "bounds": (0.0, 1.0) if box else None}
                options |= {} if step is None else {"step": step}
                strike: Callable[..., Attack] = partial(pgd, module, seed=seed, **options)
                passes = steps
                if sigma is not None:
                    kind, grid = arg.noise_of(noise, levels, dataset)
                    c = num_classes or count_classes(module, dataset)
                    smoothed = SmoothedClassifier(
                        module, sigma=sigma, num_classes=c, noise=kind, levels=grid, seed=seed
                    )
                    strike = partial(smoothed_pgd, smoothed, **judging, **options)
                    passes = steps * draws + n
                examples = [dataset[row] for row in select(dataset, skip=skip, limit=limit)]
                found = _in_chunks(strike, examples, passes * len(radii), meter)
        except KeyboardInterrupt:
            meter.bar.stop()
            console.print("Stopped. Nothing was written.")
            raise typer.Exit(1) from None
    if against is not None:
        _print_search(search, run, n, out or beside(against, ".violations.npz"), console)
        return
    what = "the model" if sigma is None else f"the smoothed classifier, {kind} noise σ = {sigma:g}"
    _print_attack(found, what, console)
    if out is not None:
        settings = {"model": model, "data": data, "sigma": sigma, "seed": seed, **options}
        settings |= {} if sigma is None else {"noise": kind, "levels": grid, **judging}
        write_attack(out, found, [e.id for e in examples], [e.label for e in examples], settings)
        console.print(f"Each input's smallest perturbation is in {out}", highlight=False, markup=False, soft_wrap=True)


def _in_chunks(strike: Callable[..., Attack], examples: list[Example], draws: int, meter: Meter) -> Attack:
    """The attack on all examples, some at a time, so that there is progress to show."""
    found = []
    for first in range(0, len(examples), CHUNK):
        chunk = examples[first : first + CHUNK]
        found.append(strike([e.array for e in chunk], [e.label for e in chunk]))
        done = first + len(chunk)
        meter(done * draws, done / len(examples))
    norms, deltas = (np.concatenate([getattr(part, name) for part in found]) for name in ("norms", "deltas"))
    return Attack(found[0].eps, norms, deltas)


def _print_attack(found: Attack, what: str, console: Console) -> None:
    table = Table(title=f"{len(found.norms)} inputs, {what}", title_justify="left", min_width=40)
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
    judged = (
        f"{search.searched} certified inputs were searched. Each certificate is false with risk {run.plan.alpha:g} at "
        f"most, and of {search.searched} true ones at most {search.false_alarms:.2g} would be called broken by chance "
        f"(predict at α = {search.alpha:g}, n = {n:,})."
    )
    if not search.violations:
        console.print(f"None was broken. {judged}", highlight=False, markup=False)
        console.print("This is a search, not a proof.")
        return
    write_violations(path, search)
    console.print(f"BROKEN: {len(search.violations)} of {search.searched} certificates", style="bold red")
    for v in search.violations:
        console.print(
            f"  input {v.id}: class {v.certified} was certified within {v.radius:.4f}, but at distance {v.norm:.4f} it "
            f"is class {v.found}",
            highlight=False,
            markup=False,
        )
    console.print(f"{judged} The perturbations are in {path}", highlight=False, markup=False)
    raise typer.Exit(1)
