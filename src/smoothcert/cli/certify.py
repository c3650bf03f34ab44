"""smoothcert certify"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from smoothcert.bounds import DEFAULT_INTERVAL, DEFAULT_METHOD, SOFT_METHODS
from smoothcert.certification import certify_dataset
from smoothcert.cli import arguments as arg
from smoothcert.cli.progress import Meter
from smoothcert.cli.tables import print_run
from smoothcert.data import open_data
from smoothcert.errors import InputError
from smoothcert.models import load_model
from smoothcert.sampling.simplex import HARD

FILE, ADAPTIVE, SOFT, MACHINES = (
    "Run file",
    "Adaptive sampling",
    "Soft votes and Lipschitz constants",
    "Many machines",
)


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
    estimated: arg.Estimated = False,
    out: Annotated[
        Path | None, typer.Option(help="The run file; a name is made up unless given.", rich_help_panel=FILE)
    ] = None,
    images: Annotated[
        bool,
        typer.Option("--images/--no-images", help="Keep thumbnails in the run file.", rich_help_panel=FILE),
    ] = True,
    limit: arg.Limit = None,
    skip: arg.Skip = 1,
    classes: arg.Classes = None,
    resize: arg.Resize = None,
    crop: arg.Crop = None,
    weights: arg.Weights = None,
    num_classes: arg.NumClasses = None,
    engine: arg.Engine = "auto",
    verify_engine: Annotated[
        bool,
        typer.Option(
            "--verify-engine",
            help="First count how many of 10 000 labels differ from eager PyTorch.",
            rich_help_panel=arg.ENGINE,
        ),
    ] = False,
    check_determinism: Annotated[
        bool,
        typer.Option(
            "--check-determinism",
            help="Draw some votes again at the end: they must be the same.",
            rich_help_panel=arg.ENGINE,
        ),
    ] = False,
    device: arg.Device = "auto",
    batch: arg.Batch = "auto",
    noise: arg.Noise = None,
    levels: arg.Levels = None,
    seed: arg.Seed = 0,
    radii: Annotated[
        str | None,
        typer.Option(help="Radii to test, as 0.25,0.5: draw only until they are decided.", rich_help_panel=ADAPTIVE),
    ] = None,
    until_width: Annotated[
        float | None,
        typer.Option(
            help="Draw until the radius is within this share of what max-n draws would prove.", rich_help_panel=ADAPTIVE
        ),
    ] = None,
    max_n: Annotated[
        int | None,
        typer.Option(help="Most draws an input, with --radii or --until-width (100 000).", rich_help_panel=ADAPTIVE),
    ] = None,
    futility: Annotated[
        float | None,
        typer.Option(
            help="Chance of giving up an input that max-n draws would certify (0.05); never a false claim.",
            rich_help_panel=ADAPTIVE,
        ),
    ] = None,
    votes: Annotated[
        str,
        typer.Option(help="hard, or shares of a vote: softmax or sparsemax of the scores.", rich_help_panel=SOFT),
    ] = HARD,
    temperature: Annotated[
        float | None,
        typer.Option(help="What the scores are divided by before softmax or sparsemax (1).", rich_help_panel=SOFT),
    ] = None,
    interval: Annotated[
        str | None,
        typer.Option(help=f"Confidence method of soft votes: {', '.join(SOFT_METHODS)}.", rich_help_panel=SOFT),
    ] = None,
    lipschitz: Annotated[
        str | None,
        typer.Option(
            help="The ℓ2 constant of the scores, for larger radii from soft votes: a number you vouch for, product "
            "(proved from the layers) or local (an estimate).",
            rich_help_panel=SOFT,
        ),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            help="Certify the i-th of k parts, as 2/8, into a file of its own for merge.", rich_help_panel=MACHINES
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Draw on a Ray cluster: auto, ray://host:port or host:port.",
            rich_help_panel=MACHINES,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Worker processes, on this machine unless --cluster is given.", rich_help_panel=MACHINES),
    ] = None,
    cpus_per_worker: Annotated[
        int, typer.Option(help="CPUs of a worker, and its threads.", rich_help_panel=MACHINES)
    ] = 1,
    gpus_per_worker: Annotated[
        float, typer.Option(help="GPUs of a worker; 0.5 puts two workers on one.", rich_help_panel=MACHINES)
    ] = 0.0,
) -> None:
    """Certify inputs and keep the votes. Stopped at any moment, the same command goes on.

    Example: `smoothcert certify cifar_resnet110 cifar10/test.parquet --weights model.pth.tar --sigma 0.5 --skip 20`

    With soft votes: `smoothcert certify digits_lipschitz digits --sigma 0.25 --votes softmax --temperature 0.1
    --lipschitz product`
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
    soft = votes != HARD
    for name, value in ({"method": method} if soft else {"temperature": temperature, "interval": interval}).items():
        if value is not None:
            raise InputError(f"--{name} says nothing about {votes} votes: leave it out{_soft_hint(soft)}.")
    part = None if shard is None else arg.shard(shard)
    name = f"{_stem(model)}-{_stem(data)}-sigma{sigma:g}" + (f"-{part[0]}of{part[1]}" if part else "")
    path = out or Path(f"{name}.smoothcert")
    dataset = open_data(data, classes=classes, resize=resize, crop=crop)
    kind, steps = arg.noise_of(noise or ("gaussian" if lipschitz else None), levels, dataset)
    machines = arg.cluster_of(cluster, workers, cpus_per_worker, gpus_per_worker)
    with Meter("certifying") as meter:
        try:
            run = certify_dataset(
                load_model(model, weights=weights, num_classes=num_classes, device=device),
                dataset,
                sigma=sigma,
                out=path,
                n0=n0,
                n=10_000 if n is None else n,
                alpha=alpha,
                method=method or DEFAULT_METHOD,
                votes=votes,
                temperature=1.0 if temperature is None else temperature,
                interval=interval or DEFAULT_INTERVAL,
                lipschitz=None if lipschitz is None else arg.constant(lipschitz),
                radii=None if radii is None else arg.numbers(radii),
                width=until_width,
                max_n=100_000 if max_n is None else max_n,
                futility=0.05 if futility is None else futility,
                noise=kind,
                levels=steps,
                seed=seed,
                engine=engine,
                batch=arg.batch_size(batch),
                num_classes=num_classes,
                skip=skip,
                limit=limit,
                shard=part,
                check_determinism=check_determinism,
                cluster=machines,
                images=images,
                model_name=model,
                verify_engine=verify_engine,
                on_progress=meter,
                on_note=meter.note,
            )
        except KeyboardInterrupt:
            meter.bar.stop()
            console.print(
                f"Stopped. {path} keeps what was drawn: run the same command to go on.", highlight=False, markup=False
            )
            raise typer.Exit(1) from None
    print_run(run, console, estimated)
    console.print(f"Votes are in {path}: smoothcert show {path}", highlight=False, markup=False, soft_wrap=True)


def _soft_hint(soft: bool) -> str:
    return ", or name the --interval" if soft else ", or pass --votes softmax"


def _stem(spec: str) -> str:
    return spec.split(":")[-1] if ":" in spec else Path(spec.rstrip("/")).stem
