"""smoothcert predict"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer
from rich.console import Console

from smoothcert.bounds.prediction import ABSTAIN
from smoothcert.certification import count_classes
from smoothcert.classifier import SmoothedClassifier
from smoothcert.cli import arguments as arg
from smoothcert.cli.progress import Meter
from smoothcert.data import open_data, select
from smoothcert.models import load_model
from smoothcert.sampling.blocks import Input
from smoothcert.store.export import write_whole

CHUNK = 50


def predict(
    model: arg.Model,
    data: arg.Data,
    sigma: arg.Sigma,
    n: Annotated[int, typer.Option(help="Draws an input.")] = 1_000,
    alpha: arg.Alpha = 0.001,
    limit: arg.Limit = None,
    skip: arg.Skip = 1,
    noise: arg.Noise = None,
    levels: arg.Levels = None,
    seed: arg.Seed = 0,
    batch: arg.Batch = "auto",
    device: arg.Device = "auto",
    engine: arg.Engine = "auto",
    out: Annotated[Path | None, typer.Option(help="Write idx, label, predict, correct, time here (TSV).")] = None,
    weights: arg.Weights = None,
    num_classes: arg.NumClasses = None,
    classes: arg.Classes = None,
    resize: arg.Resize = None,
    crop: arg.Crop = None,
) -> None:
    """Predict the smoothed classifier's class of each input, or abstain; a class is wrong with risk α at most.

    Example: `smoothcert predict digits_cnn digits --sigma 0.25 --limit 20`
    """
    dataset = open_data(data, classes=classes, resize=resize, crop=crop)
    kind, steps = arg.noise_of(noise, levels, dataset)
    rows = select(dataset, skip=skip, limit=limit)
    loaded = load_model(model, weights=weights, num_classes=num_classes, device=device)
    smoothed = SmoothedClassifier(
        loaded,
        sigma=sigma,
        num_classes=num_classes or count_classes(loaded, dataset),
        engine=engine,
        noise=kind,
        levels=steps,
        seed=seed,
        batch=arg.batch_size(batch),
    )
    lines, right, abstained = ["idx\tlabel\tpredict\tcorrect\ttime"], 0, 0
    with Meter("predicting") as meter:
        for start in range(0, len(rows), CHUNK):
            examples = [dataset[row] for row in rows[start : start + CHUNK]]
            before = perf_counter()
            predictions = smoothed.predict_batch([Input(e.id, e.array) for e in examples], n=n, alpha=alpha)
            time = timedelta(seconds=(perf_counter() - before) / len(examples))
            for e, k in zip(examples, predictions, strict=True):
                lines.append(f"{e.id}\t{e.label}\t{k}\t{int(k == e.label)}\t{time}")
                right, abstained = right + (k == e.label), abstained + (k == ABSTAIN)
            meter(n * (start + len(examples)), (start + len(examples)) / len(rows))
    if out is not None:
        write_whole(out, lambda path: path.write_text("\n".join(lines) + "\n"))
    Console().print(
        f"{len(rows)} inputs, {kind} noise σ = {sigma:g}, n = {n:,}, α = {alpha:g}: {right / len(rows):.3f} right, "
        f"{abstained / len(rows):.3f} abstained" + (f"; written to {out}" if out else ""),
        highlight=False,
    )
