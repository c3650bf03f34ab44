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
from smoothcert.data import Dataset
from smoothcert.errors import InputError, RunError
from smoothcert.leaving import before_leaving
from smoothcert.options import make, options_of
from smoothcert.plan import Classifier, Cluster, Question, Selection, Setting
from smoothcert.plan.setting import ENGINE
from smoothcert.store.file import RunFile
from smoothcert.store.opening import Unused
from smoothcert.store.run import Run

FILE = "Run file"


def certify_command(question_type: type[Question] = Question) -> Callable[..., None]:
    """The command that asks this type of question."""

    @derived(
        found=("num_classes", "noise", "sigma"),
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
        context: typer.Context,
        no_noise: Annotated[
            bool,
            typer.Option("--no-noise", help="Instead of --sigma: prove what a Lipschitz network does without noise."),
        ] = False,
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

        With soft votes: `smoothcert certify digits_lipschitz digits --sigma 0.12 --votes margins --lipschitz product`

        Without noise, for networks with a small Lipschitz constant: `smoothcert certify digits_lipschitz digits
        --no-noise`
        """
        console = Console()
        if no_noise:
            _refuse_noise(context)
            opened = Opened(model, data, loading)
            bare = opened.bare(classifier.get("num_classes"))
            path = out or Path(f"{_name(opened.name, data, 'no-noise', selection)}.smoothcert")
            into = partial(bare.certify_dataset, out=path, images=images, model_name=opened.name, **selection)
            _certify(into, opened.dataset, path, console, estimated)
            return
        if "sigma" not in classifier:
            raise InputError("`sigma` is missing: pass it, or `no_noise` to certify the network itself.")
        asked = question_type.of(**question)
        machines = make(Cluster, cluster) if cluster else None
        opened = Opened(model, data, loading)
        smoothed = opened.smoothed(classifier, setting, real_noise="lipschitz" in question)
        if dry_run:
            cost = smoothed.cost(opened.dataset, asked, **selection)
            console.print(translated(str(cost), "certify"), highlight=False, markup=False)
            return
        path = out or Path(f"{_name(opened.name, data, f'sigma{smoothed.sigma:g}', selection)}.smoothcert")
        into = partial(
            smoothed.certify_dataset,
            question=asked,
            out=path,
            cluster=machines,
            images=images,
            model_name=opened.name,
            check_determinism=check_determinism,
            verify_engine=verify_engine,
            **selection,
        )
        _certify(into, opened.dataset, path, console, estimated)

    return certify


def _certify(into: Callable[..., Run], dataset: Dataset, path: Path, console: Console, estimated: bool) -> None:
    """Certifies with a meter that moves, and says what came of it."""
    with Meters() as meters, before_leaving(partial(_stopped, path)):
        try:
            run = into(
                dataset,
                on_progress=partial(meters, "certifying"),
                on_read=partial(meters, "reading inputs", unit="inputs"),
            )
        except KeyboardInterrupt:
            meters.stop()
            console.print(_stopped(path), highlight=False, markup=False, soft_wrap=True)
            raise typer.Exit(1) from None
    print_run(run, console, estimated)
    kept = "Radii" if run.voteless else "Votes"
    console.print(f"{kept} are in {path}: smoothcert show {path}", highlight=False, markup=False, soft_wrap=True)


def _refuse_noise(context: typer.Context) -> None:
    """Refuses what is about noise, draws or how they are made."""
    known = {"model", "data", "num_classes", "no_noise", "out", "images", *options_of(Selection), *options_of(Loading)}
    for name in context.params.keys() - known:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise InputError(f"`{name}` says nothing where `no_noise` is asked for: leave one of them out.")


def _stopped(path: Path) -> str:
    """What there is to say when it is stopped."""
    try:
        with suppress(Unused), RunFile.open_to_read(path) as file:
            if file.drawn:
                return f"Stopped. {path} keeps what was drawn: run the same command to go on."
    except (InputError, RunError) as error:
        if path.exists():
            return f"Stopped. {error}"
    return "Stopped before anything was drawn: the same command begins again."


def _name(model: str, data: str, noise: str, selection: Given) -> str:
    i, k = selection.get("shard", (0, 0))
    return f"{_stem(model)}-{_stem(data)}-{noise}" + (f"-{i}of{k}" if k else "")


def _stem(spec: str) -> str:
    return spec.split(":")[-1] if ":" in spec else Path(spec.rstrip("/")).stem


certify = certify_command()
