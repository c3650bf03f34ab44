"""smoothcert certify"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from smoothcert.bounds import DEFAULT_METHOD
from smoothcert.certification import certify_dataset
from smoothcert.cli import arguments as arg
from smoothcert.cli.progress import Meter
from smoothcert.cli.tables import print_run
from smoothcert.data import open_data
from smoothcert.errors import InputError
from smoothcert.models import load_model


def certify(
    model: arg.Model,
    data: arg.Data,
    sigma: arg.Sigma,
    n0: Annotated[int, typer.Option(help="Draws that select the class.")] = 100,
    n: Annotated[int | None, typer.Option(help="Draws that prove the radius (10 000).")] = None,
    alpha: arg.Alpha = 0.001,
    method: Annotated[
        str | None, typer.Option(help=f"Confidence method, declared before the first draw ({DEFAULT_METHOD}).")
    ] = None,
    radii: Annotated[
        str | None, typer.Option(help="Radii to test, as 0.25,0.5: draw only until they are decided.")
    ] = None,
    until_width: Annotated[
        float | None, typer.Option(help="Draw until the radius is within this share of what max-n draws would prove.")
    ] = None,
    max_n: Annotated[
        int | None, typer.Option(help="Most draws an input, with --radii or --until-width (100 000).")
    ] = None,
    futility: Annotated[
        float | None,
        typer.Option(help="Chance of giving up an input that max-n draws would certify (0.05); never a false claim."),
    ] = None,
    limit: arg.Limit = None,
    skip: arg.Skip = 1,
    seed: arg.Seed = 0,
    batch: arg.Batch = "auto",
    device: arg.Device = "auto",
    engine: arg.Engine = "auto",
    out: Annotated[Path | None, typer.Option(help="The run file; a name is made up unless given.")] = None,
    weights: arg.Weights = None,
    num_classes: arg.NumClasses = None,
    classes: arg.Classes = None,
    resize: arg.Resize = None,
    crop: arg.Crop = None,
    images: Annotated[bool, typer.Option("--images/--no-images", help="Keep thumbnails in the run file.")] = True,
) -> None:
    """Certify inputs and keep the votes. Stopped at any moment, the same command goes on.

    Example: `smoothcert certify cifar_resnet110 cifar10/test.parquet --weights model.pth.tar --sigma 0.5 --skip 20`
    """
    console = Console()
    adaptive = radii is not None or until_width is not None
    given = {"n": n, "method": method} if adaptive else {"max_n": max_n, "futility": futility}
    for name, value in given.items():
        if value is not None:
            raise InputError(
                f"--{name.replace('_', '-')} says nothing {'with' if adaptive else 'without'} --radii or "
                f"--until-width: leave it out."
            )
    path = out or Path(f"{_stem(model)}-{_stem(data)}-sigma{sigma:g}.smoothcert")
    with Meter("certifying") as meter:
        try:
            run = certify_dataset(
                load_model(model, weights=weights, num_classes=num_classes, device=device),
                open_data(data, classes=classes, resize=resize, crop=crop),
                sigma=sigma,
                out=path,
                n0=n0,
                n=10_000 if n is None else n,
                alpha=alpha,
                method=method or DEFAULT_METHOD,
                radii=None if radii is None else arg.numbers(radii),
                width=until_width,
                max_n=100_000 if max_n is None else max_n,
                futility=0.05 if futility is None else futility,
                seed=seed,
                engine=engine,
                batch=arg.batch_size(batch),
                num_classes=num_classes,
                skip=skip,
                limit=limit,
                images=images,
                model_name=model,
                on_progress=meter,
            )
        except KeyboardInterrupt:
            meter.bar.stop()
            console.print(
                f"Stopped. {path} keeps what was drawn: run the same command to go on.", highlight=False, markup=False
            )
            raise typer.Exit(1) from None
    print_run(run, console)
    console.print(f"Votes are in {path}: smoothcert show {path}", highlight=False, markup=False, soft_wrap=True)


def _stem(spec: str) -> str:
    return spec.split(":")[-1] if ":" in spec else Path(spec.rstrip("/")).stem
