"""smoothcert predict"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from smoothcert.bounds.prediction import ABSTAIN
from smoothcert.cli import arguments as arg
from smoothcert.cli.nouns import Given, derived
from smoothcert.cli.opened import Loading, Opened
from smoothcert.cli.progress import Meter
from smoothcert.cli.tables import called
from smoothcert.files import write_text
from smoothcert.options import make
from smoothcert.plan import Classifier, Question, Selection, Setting
from smoothcert.sampling.blocks import Input
from smoothcert.text import counted, tsv_line

CHUNK = 50
FEW = 20


@derived(
    found=("num_classes", "noise"),
    without=("shard", "skip_broken"),
    classifier=Classifier,
    setting=Setting,
    selection=Selection,
    loading=Loading,
)
def predict(
    model: arg.Model,
    data: arg.Data,
    classifier: Given,
    setting: Given,
    selection: Given,
    loading: Given,
    max_n: Annotated[int, typer.Option(help="Most draws an input.")] = 1_000,
    alpha: Annotated[float, typer.Option(help="Risk that a class is wrong, per input.")] = Question.alpha,
    out: Annotated[Path | None, typer.Option(help="Write idx, label, predict, correct, time here (TSV).")] = None,
) -> None:
    """Predict the smoothed classifier's class of each input, or abstain; a class is wrong with risk α at most.

    Duels are drawn until the class is known, other votes max-n times.

    Example: `smoothcert predict digits_cnn digits --sigma 0.25 --limit 20`
    """
    opened = Opened(model, data, loading)
    smoothed, dataset = opened.smoothed(classifier, setting), opened.dataset
    rows = make(Selection, selection).rows(dataset)
    lines, right, abstained = ["idx\tlabel\tpredict\tcorrect\ttime"], 0, 0
    table = Table("input", "label", "predicted")
    with Meter("predicting") as meter:
        for start in range(0, len(rows), CHUNK):
            examples = [dataset[row] for row in rows[start : start + CHUNK]]
            before = perf_counter()
            predictions = smoothed.predict_batch([Input(e.id, e.array) for e in examples], alpha=alpha, max_n=max_n)
            time = timedelta(seconds=(perf_counter() - before) / len(examples))
            for e, k in zip(examples, predictions, strict=True):
                lines.append(tsv_line([e.id, e.label, k, int(k == e.label), time]))
                table.add_row(e.id, called(e.label, dataset.classes), called(k, dataset.classes))
                right, abstained = right + (k == e.label), abstained + (k == ABSTAIN)
            meter(smoothed.drawn, (start + len(examples)) / len(rows))
    if out is not None:
        write_text(out, "\n".join(lines) + "\n")
    console = Console()
    if len(rows) <= FEW:
        console.print(table)
    console.print(
        f"{counted(len(rows), 'input')}, {smoothed.classifier.votes} under {smoothed.classifier.noise} noise σ = "
        f"{smoothed.sigma:g}, n ≤ {max_n:,}, α = {alpha:g}, seed {smoothed.seed}: {right / len(rows):.3f} right, "
        f"{abstained / len(rows):.3f} abstained, {smoothed.drawn / len(rows):,.0f} draws an input on average"
        + (f"; written to {out}" if out else "" if len(rows) <= FEW else "; --out FILE writes each of them"),
        highlight=False,
    )
