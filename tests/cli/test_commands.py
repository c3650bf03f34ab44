"""The command line as a user meets it: its output and its exit code."""

import contextlib
import io
import os
import pickle
import re
import signal
import sqlite3
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from children import Command
from smoothcert import InputError, RunError, open_run
from smoothcert.bounds import METHODS
from smoothcert.cli import perform
from smoothcert.models import build

FACTORIES = """
import numpy as np, torch, time

def linear():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))

def slow():
    class Slow(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = linear()
        def forward(self, x):
            time.sleep(0.005)
            return self.inner(x)
    return Slow()

def broken():
    raise OSError("no weights here")

def number():
    return 42

def labels():
    return lambda batch: (batch.mean(axis=(1, 2, 3)) > 0.5).astype(int)

def nan():
    return lambda batch: np.full((len(batch), 3), np.nan)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working folder with models, data and a finished run."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "mine.py").write_text(FACTORIES)
    rng = np.random.default_rng(0)
    np.savez(folder / "data.npz", x=rng.random((30, 1, 4, 4)).astype(np.float32), y=np.arange(30) % 3)
    result = smoothcert(folder, *CERTIFY, "--out", "run.smoothcert")
    assert result.returncode == 0, result.stderr
    return folder


CERTIFY = ("certify", "mine:linear", "data.npz", "--sigma", "0.25", "--n", "500", "--batch", "200")


@dataclass(frozen=True)
class Result:
    returncode: int
    stdout: str
    stderr: str


def smoothcert(folder, *arguments):
    """The command as `main` runs it, in this process: importing torch for each would take minutes."""
    stdout, stderr, code = io.StringIO(), io.StringIO(), 0
    handler = signal.getsignal(signal.SIGTERM)
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["smoothcert", *arguments])
        patch.setenv("COLUMNS", "80")
        try:
            perform()
        except SystemExit as exit:
            code = exit.code or 0
        except (InputError, RunError):
            traceback.print_exc()
    signal.signal(signal.SIGTERM, handler)
    return Result(code, stdout.getvalue(), stderr.getvalue())


def test_help_of_every_command_shows_an_example():
    from typer.testing import CliRunner

    from smoothcert.cli import app

    listing = CliRunner().invoke(app, ["--help"]).output
    for command in ("demo", "certify", "predict", "recertify", "show", "export", "import"):
        assert command in listing
        result = CliRunner().invoke(app, [command, "--help"])
        assert result.exit_code == 0
        assert f"smoothcert {command}" in result.output


def test_certify_has_the_options_of_all_nouns_with_their_defaults():
    from typer.testing import CliRunner

    from smoothcert.cli import app

    text = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["certify", "--help"]).output
    _, *parts = re.split(r"--([\w-]+) +<", text)
    shown = dict(zip(parts[::2], parts[1::2], strict=True))
    for flag, default in (("n0", "100"), ("alpha", "0.001"), ("skip", "1"), ("engine", "auto")):
        assert f"[default: {default}]" in shown[flag], flag
    for flag, usual in (("n", "(10 000)"), ("max-n", "(100 000)"), ("futility", "(0.05)"), ("temperature", "(1)")):
        assert usual in shown[flag], flag
    given = {"sigma", "num-classes", "noise", "levels", "votes", "method", "radii", "until-width", "lipschitz"}
    given |= {"batch", "limit"}
    assert shown.keys() >= given | {"shard", "cluster", "workers", "cpus-per-worker", "gpus-per-worker", "out"}
    assert not any("[required]" in shown[flag] for flag in given)


def test_the_table_at_the_end(folder):
    result = smoothcert(folder, *CERTIFY, "--out", "run.smoothcert")
    for words in ("certified accuracy", "average certified radius", "abstained", "30 inputs", "draws/s"):
        assert words in result.stdout
    assert f"{30 * 600:,} draws" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_a_name_is_made_up_for_the_run(folder):
    assert smoothcert(folder, *CERTIFY, "--limit", "2").returncode == 0
    assert len(open_run(folder / "linear-data-sigma0.25.smoothcert")) == 2


def test_skip_and_limit(folder):
    smoothcert(folder, *CERTIFY, "--skip", "7", "--limit", "4", "--out", "skip.smoothcert")
    assert open_run(folder / "skip.smoothcert").ids == ["0", "7", "14", "21"]


def test_recertify_every_method_without_the_model(folder):
    result = smoothcert(folder, "recertify", "run.smoothcert", "--alpha", "0.01")
    assert result.returncode == 0
    for method in METHODS:
        assert method in result.stdout
    assert "α = 0.01" in result.stdout
    assert "spends α more than once" in " ".join(result.stdout.split())
    one = smoothcert(folder, "recertify", "run.smoothcert", "--method", "mono")
    assert "more than once" not in one.stdout


def test_show(folder):
    result = smoothcert(folder, "show", "run.smoothcert")
    assert result.returncode == 0
    for words in (
        "mine:linear",
        "30 of 30 inputs",
        "classifier: sigma",
        "question: n0",
        "setting: engine",
        "selection: skip",
        "torch",
    ):
        assert words in result.stdout


def test_export_and_import(folder):
    assert smoothcert(folder, "export", "run.smoothcert", "--format", "tsv").returncode == 0
    assert (folder / "run.tsv").read_text().startswith("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t0\t")
    result = smoothcert(folder, "import", "run.tsv", "--out", "back.smoothcert", "--sigma", "0.25", "--n", "500")
    assert result.returncode == 0
    assert "radii only" in smoothcert(folder, "show", "back.smoothcert").stdout


def test_predict(folder):
    arguments = ("predict", "mine:labels", "data.npz", "--sigma", "0.25", "--num-classes", "3")
    result = smoothcert(folder, *arguments, "--max-n", "200", "--limit", "5", "--out", "predictions.tsv")
    assert result.returncode == 0, result.stderr
    assert "5 inputs" in result.stdout
    assert re.search(r", seed \d+:", " ".join(result.stdout.split()))
    lines = (folder / "predictions.tsv").read_text().splitlines()
    assert lines[0] == "idx\tlabel\tpredict\tcorrect\ttime"
    assert len(lines) == 6


def test_predict_names_the_class_of_each_of_a_few_inputs(folder):
    (folder / "names.txt").write_text("cat\ndog\n[b]eel[/b]\n")
    arguments = ("predict", "mine:labels", "data.npz", "--sigma", "0.25", "--class-names", "names.txt")
    few = smoothcert(folder, *arguments, "--limit", "3").stdout
    assert "1 input, " in smoothcert(folder, *arguments, "--limit", "1").stdout
    assert re.search(r"│ 2 +│ 2 \[b\]eel\[/b\] +│ (0 cat|1 dog|abstained) +│", few), few
    many = smoothcert(folder, *arguments).stdout
    assert "cat" not in many
    assert "--out FILE writes each" in " ".join(many.split())


def test_accuracy_near_chance_prints_a_hint_beside_the_accuracies(folder):
    images = np.load(folder / "data.npz")["x"]
    np.savez(folder / "wrong.npz", x=images, y=np.full(30, 2))
    arguments = ("mine:labels", "wrong.npz", "--sigma", "0.1", "--num-classes", "3", "--out", "wrong.smoothcert")
    result = smoothcert(folder, "certify", *arguments)
    assert "by chance: is the order of the classes that of the model (--classes)" in result.stderr
    assert "accuracy: the model alone 0.000, under noise 0.000, smoothed 0.000" in result.stdout
    shown = " ".join(smoothcert(folder, "show", "wrong.smoothcert").stdout.split())
    assert "Hint: without noise the model is right as rarely as by chance" in shown


def test_a_dry_run_says_what_it_will_cost_and_leaves_nothing(folder):
    before = sorted(folder.iterdir())
    arguments = ("certify", "mine:linear", "data.npz", "--sigma", "0.25", "--n", "500", "--dry-run")
    said = " ".join(smoothcert(folder, *arguments, "--out", "dry.smoothcert").stdout.split())
    assert re.fullmatch(r"30 inputs: about 18,000 draws, at [\d,]+ a second .+; for a few --radii alone about .+", said)
    assert sorted(folder.iterdir()) == before


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_stopping_and_going_on(folder, stop):
    """Interrupted twice, the run ends with the votes of one that was never stopped, from its first seed."""
    command = ("certify", "mine:slow", "data.npz", "--sigma", "0.25", "--n", "2000", "--batch", "50")
    command += ("--engine", "torch")  # others trace the module, and lose what makes it slow
    out = folder / f"stopped{int(stop)}.smoothcert"
    for _ in range(2):
        running, before = Command(folder, *command, "--out", out.name), drawn(out)
        while drawn(out) <= before and running.process.is_alive():
            time.sleep(0.1)
        running.signal(stop)
        code, said = running.ended()
        assert code == 1
        assert "run the same command to go on" in " ".join(said.split())
        assert "Traceback" not in said
    ended = smoothcert(folder, *command, "--out", out.name)
    assert ended.returncode == 0
    seed = str(open_run(out).plan.setting.seed)
    assert f"; seed {seed}" in ended.stdout
    assert smoothcert(folder, *command, "--out", f"whole{int(stop)}.smoothcert", "--seed", seed).returncode == 0
    stopped, whole = open_run(out), open_run(folder / f"whole{int(stop)}.smoothcert")
    np.testing.assert_array_equal(stopped.tally.estimations, whole.tally.estimations)
    np.testing.assert_array_equal(stopped.tally.selections, whole.tally.selections)


def drawn(path: Path) -> int:
    """Draws stored so far, also of unfinished inputs."""
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
            return db.execute("SELECT coalesce(sum(draws), 0) FROM votes").fetchone()[0]
    except sqlite3.OperationalError:
        return 0


class TestBadInput:
    """One sentence that says what to do, exit code 2 for a wrong call and 1 for a run that failed, nothing written."""

    @pytest.mark.parametrize(
        ("changes", "code", "message"),
        [
            ({1: "mine:nothing"}, 2, "has no 'nothing'"),
            ({1: "nowhere:linear"}, 2, "There is no module nowhere"),
            ({1: "mine:broken"}, 2, "raised OSError: no weights here"),
            ({1: "mine:number"}, 2, "must return a torch module or a callable"),
            ({1: "resnet7"}, 2, "There is no built-in model 'resnet7'"),
            ({1: "mine:nan"}, 1, "NaN or infinite for input 0"),
            ({2: "missing.npz"}, 2, "There is no data at missing.npz"),
            ({2: "mine.py"}, 2, "is of no known kind"),
            ({4: "0"}, 2, "sigma must be a positive number"),
            ({4: "wide"}, 2, "--sigma"),
            ({6: "0"}, 2, "n must be a whole number of at least 1"),
            ({6: "-5"}, 2, "n must be a whole number of at least 1"),
            ({8: "0"}, 2, "batch must be"),
            ({8: "big"}, 2, "batch must be"),
            ({8: "10000000000"}, 2, "GB: choose a smaller --batch"),
        ],
    )
    def test_certify(self, folder, changes, code, message):
        arguments = [changes.get(i, argument) for i, argument in enumerate(CERTIFY)]
        self.refused(folder, (*arguments, "--out", "bad.smoothcert"), code, message)
        assert not (folder / "bad.smoothcert").exists()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--alpha", "0"), "alpha must lie strictly between 0 and 1"),
            (("--alpha", "1"), "alpha must lie strictly between 0 and 1"),
            (("--n0", "0"), "n0 must be a whole number of at least 1"),
            (("--method", "guess"), "unknown method 'guess'"),
            (("--skip", "0"), "skip"),
            (("--limit", "0"), "limit"),
            (("--device", "abacus"), "cannot be used"),
            (("--device", "cuda:9"), "cannot be used"),
            (("--weights", "none.pt"), "none.pt"),
            (("--num-classes", "1"), "num_classes must be a whole number of at least 2"),
            (("--num-classes", "4"), "returned 3 scores for input 0, expected 4"),
            (("--radii", "0.1", "--n", "500"), "--n says nothing with --radii"),
            (("--max-n", "500"), "--max-n says nothing without --radii"),
            (("--radii", "0.1", "--until-width", "0.1"), "ask either for --radii or for --until-width, not both"),
            (("--radii", "0.1;0.2"), "'0.1;0.2' is no list of numbers such as 0.25,0.5"),
            (("--votes", "fuzzy"), "unknown votes 'fuzzy': choose one of duels, labels"),
            (("--temperature", "0.5"), "--temperature says nothing about duels votes"),
            (("--lipschitz", "steep", "--votes", "softmax"), "lipschitz must be a positive number, product or local"),
            (("--gpus-per-worker", "1"), "pass --cluster or --workers"),
            (("--out", "no/folder/run.smoothcert"), "does not exist"),
            (("--out", "/proc/run.smoothcert"), "cannot be opened"),
            (("--out", "data.npz"), "is not a smoothcert run file"),
        ],
    )
    def test_options(self, folder, options, message):
        before = (folder / "data.npz").read_bytes()
        self.refused(folder, (*CERTIFY, "--out", "bad.smoothcert", *options), 2, message)
        assert (folder / "data.npz").read_bytes() == before
        assert not (folder / "bad.smoothcert").exists()

    def test_labels_out_of_range(self, folder):
        np.savez(folder / "labels.npz", x=np.zeros((4, 1, 4, 4), dtype=np.float32), y=[0, 1, 2, 3])
        arguments = ("certify", "mine:linear", "labels.npz", "--sigma", "0.25", "--n", "100")
        self.refused(folder, arguments, 2, "input 3 has label 3, but the model has 3 classes")

    def test_weights_that_do_not_fit(self, folder):
        save_file({"1.weight": torch.zeros(3, 9), "2.bias": torch.zeros(3)}, folder / "other.safetensors")
        result = self.refused(folder, (*CERTIFY, "--weights", "other.safetensors"), 2, "1.weight")
        assert "1.bias" in result.stderr
        assert "2.bias" in result.stderr

    def test_a_malicious_pickle_is_refused_and_not_executed(self, folder):
        class Malice:
            def __reduce__(self):
                return os.mkdir, (str(folder / "executed"),)

        torch.save({"state_dict": Malice()}, folder / "evil.pt")
        (folder / "evil.pkl.pt").write_bytes(pickle.dumps(Malice()))
        for name in ("evil.pt", "evil.pkl.pt"):
            self.refused(folder, (*CERTIFY, "--weights", name), 2, name)
        assert not (folder / "executed").exists()

    def test_a_run_file_that_is_none(self, folder):
        for command in ("show", "recertify", "export"):
            self.refused(folder, (command, "data.npz"), 2, "is not a smoothcert run file")
            self.refused(folder, (command, "none.smoothcert"), 2, "there is no run file")

    def test_debug_shows_the_traceback(self, folder):
        result = smoothcert(folder, "show", "none.smoothcert", "--debug")
        assert "Traceback" in result.stderr

    @staticmethod
    def refused(folder, arguments, code, message):
        result = smoothcert(folder, *arguments)
        said = " ".join(result.stderr.replace("│", " ").split())
        assert message in said
        assert result.returncode == code
        assert "Traceback" not in result.stderr
        return result


def test_built_in_weights_round_trip(folder):
    """A built-in architecture with its weights from a file."""
    torch.manual_seed(0)
    save_file(build("cifar_resnet20").state_dict(), folder / "resnet20.safetensors")
    np.savez(folder / "cifar.npz", x=np.zeros((2, 32, 32, 3), dtype=np.uint8), y=[0, 1])
    arguments = ("certify", "cifar_resnet20", "cifar.npz", "--sigma", "0.5", "--n", "50", "--n0", "10", "--batch", "20")
    result = smoothcert(folder, *arguments, "--weights", "resnet20.safetensors")
    assert result.returncode == 0, result.stderr
    assert "random weights" not in result.stderr
    warned = smoothcert(folder, *arguments, "--out", "random.smoothcert").stderr.splitlines()
    assert "warning: cifar_resnet20 has random weights: none were given." in warned


def test_a_run_is_never_overwritten(folder):
    for arguments in (
        ("export", "run.smoothcert", "--out", "run.smoothcert"),
        ("report", "run.smoothcert", "-o", "run.smoothcert"),
    ):
        result = smoothcert(folder, *arguments, *(("--format", "html") if arguments[0] == "report" else ()))
        assert result.returncode == 2
        assert "is a run file" in result.stderr
    assert len(open_run(folder / "run.smoothcert")) == 30


def test_adaptive_runs_from_the_command_line(folder):
    arguments = (
        "certify",
        "mine:linear",
        "data.npz",
        "--sigma",
        "0.25",
        "--batch",
        "200",
        "--out",
        "adaptive.smoothcert",
    )
    result = smoothcert(folder, *arguments, "--radii", "0.05,0.1", "--max-n", "2000")
    assert result.returncode == 0, result.stderr
    assert "draws an input on average" in result.stdout
    assert {c.radius for c in open_run(folder / "adaptive.smoothcert").certificates()} <= {0.0, 0.05, 0.1}
    assert smoothcert(folder, "recertify", "adaptive.smoothcert").returncode == 0
    refusal = smoothcert(folder, "recertify", "adaptive.smoothcert", "--method", "pairwise")
    assert refusal.returncode == 2
    assert "stopped drawing when its votes said so" in refusal.stderr
    wide = (*arguments[:-1], "wide.smoothcert", "--until-width", "0.2", "--max-n", "2000")
    assert smoothcert(folder, *wide).returncode == 0


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        (["--sigma", "0.1", "--width", "0.3"], "--width says nothing about duels votes"),
        (["--no-noise", "--width", "0.3"], "--width says nothing where --no-noise is asked for"),
        (["--no-noise", "--until-width", "0.3"], "--until-width says nothing where --no-noise is asked for"),
        (["--sigma", "0.1", "--radii", "0.1", "--until-width", "0.3"], "either for --radii or for --until-width"),
        (["--sigma", "0.1", "--votes", "margins", "--until-width", "0.3"], "leave out --radii and --until-width"),
        (["--sigma", "0.1", "--votes", "margins", "--width", "wide"], "width must be a number, got 'wide'"),
    ],
)
def test_the_two_widths_are_told_apart(tmp_path, options, refusal):
    result = smoothcert(tmp_path, "certify", "digits_lipschitz", "digits", *options)
    assert result.returncode == 2
    assert refusal in " ".join(result.stderr.split())


@pytest.mark.parametrize("allocate", [np.empty, torch.empty], ids=["NumPy", "torch"])
def test_too_little_memory_is_a_sentence(tmp_path, monkeypatch, allocate):
    monkeypatch.setattr("smoothcert.cli.show.open_run", lambda *_, **__: allocate(1 << 50))
    ended = smoothcert(tmp_path, "show", "run.smoothcert")
    assert ended.returncode == 1
    assert (
        ended.stderr == "smoothcert: there is not enough memory for that: choose a smaller --batch, or fewer inputs.\n"
    )


SHOW = (sys.executable, "-m", "smoothcert", "show", str(Path(__file__).parents[1] / "data" / "format-1.smoothcert"))


def test_a_reader_that_has_read_enough_is_nobodys_fault():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as output:
        ended = subprocess.run(SHOW, stdout=output, stderr=subprocess.PIPE, text=True)
    assert "the model" not in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is always full")
def test_a_full_disk_behind_the_output_is_a_sentence():
    with open("/dev/full", "wb") as output:
        ended = subprocess.run(SHOW, stdout=output, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 1
    assert ended.stderr == "smoothcert: there is no space left where the output goes: make room, and start again.\n"
