"""smoothcert certify"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from smoothcert.cli import arguments as arg
from smoothcert.cli import translated
from smoothcert.cli.nouns import Given, derived
from smoothcert.cli.opened import Loading, Opened
from smoothcert.cli.progress import Meters
from smoothcert.cli.tables import print_run
from smoothcert.errors import InputError, RunError
from smoothcert.leaving import before_leaving
from smoothcert.options import make
from smoothcert.plan import Classifier, Cluster, Question, Selection, Setting
from smoothcert.plan.setting import ENGINE
from smoothcert.store.file import RunFile

FILE = "Run file"


def certify_command(question_type: type[Question] = Question) -> Callable[..., None]:
    """The command that asks this type of question."""

    @derived(
        found=("num_classes", "noise"),
        maybe=("cluster",),
        classifier=Classifier,
        question=question_type,
        setting=Setting,
        selection=Selection,
        cluster=Cluster,
        loading=Loading,
    )
    def certify(
        model: arg.Model,
        data: arg.Data,
        classifier: Given,
        question: Given,
        setting: Given,
        selection: Given,
        cluster: Given,
        loading: Given,
        estimated: arg.Estimated = False,
        out: Annotated[
            Path | None, typer.Option(help="The run file; a name is made up unless given.", rich_help_panel=FILE)
        ] = None,
        images: Annotated[
            bool,
            typer.Option("--images/--no-images", help="Keep thumbnails in the run file.", rich_help_panel=FILE),
        ] = True,
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="Say what it will cost, and stop there.", rich_help_panel=FILE)
        ] = False,
        verify_engine: Annotated[
            bool,
            typer.Option(
                "--verify-engine",
                help="First count how many of 10 000 labels differ from eager PyTorch.",
                rich_help_panel=ENGINE,
            ),
        ] = False,
        check_determinism: Annotated[
            bool,
            typer.Option(
                "--check-determinism",
                help="Draw some votes again at the end: finds random models, and rows that see each other.",
                rich_help_panel=ENGINE,
            ),
        ] = False,
    ) -> None:
        """Certify inputs and keep the votes. Stopped at any moment, the same command goes on.

        Example: `smoothcert certify cifar_resnet110 cifar10/test.parquet --weights model.pth.tar --sigma 0.5 --skip 20`

        With soft votes: `smoothcert certify digits_lipschitz digits --sigma 0.25 --votes softmax --temperature 0.1
        --lipschitz product`
        """
        console = Console()
        asked = question_type.of(**question)
        machines = make(Cluster, cluster) if cluster else None
        opened = Opened(model, data, loading)
        smoothed = opened.smoothed(classifier, setting, real_noise="lipschitz" in question)
        if dry_run:
            cost = smoothed.cost(opened.dataset, asked, **selection)
            console.print(translated(str(cost), "certify"), highlight=False, markup=False)
            return
        path = out or Path(f"{_name(opened.name, data, smoothed.sigma, selection)}.smoothcert")
        with Meters() as meters, before_leaving(partial(_stopped, path)):
            try:
                run = smoothed.certify_dataset(
                    opened.dataset,
                    asked,
                    out=path,
                    cluster=machines,
                    images=images,
                    model_name=opened.name,
                    check_determinism=check_determinism,
                    verify_engine=verify_engine,
                    on_progress=partial(meters, "certifying"),
                    on_read=partial(meters, "reading inputs", unit="inputs"),
                    **selection,
                )
            except KeyboardInterrupt:
                meters.stop()
                console.print(_stopped(path), highlight=False, markup=False, soft_wrap=True)
                raise typer.Exit(1) from None
        print_run(run, console, estimated)
        console.print(f"Votes are in {path}: smoothcert show {path}", highlight=False, markup=False, soft_wrap=True)

    return certify


def _stopped(path: Path) -> str:
    """What there is to say when it is stopped."""
    with suppress(InputError, RunError), RunFile.open_to_read(path) as file:
        if file.drawn:
            return f"Stopped. {path} keeps what was drawn: run the same command to go on."
    return "Stopped before anything was drawn: the same command begins again."


def _name(model: str, data: str, sigma: float, selection: Given) -> str:
    i, k = selection.get("shard", (0, 0))
    return f"{_stem(model)}-{_stem(data)}-sigma{sigma:g}" + (f"-{i}of{k}" if k else "")


def _stem(spec: str) -> str:
    return spec.split(":")[-1] if ":" in spec else Path(spec.rstrip("/")).stem


certify = certify_command()
