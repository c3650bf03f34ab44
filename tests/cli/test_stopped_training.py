"""What is said of a training that was stopped is what its folder keeps."""

import numpy as np
import pytest
import typer
from rich.console import Console

from smoothcert.cli.progress import Meter
from smoothcert.cli.train import stopped
from smoothcert.training import train


def told(out, capsys):
    with Meter("training") as meter, pytest.raises(typer.Exit) as left:
        stopped(meter, out, Console(width=1000))
    assert left.value.exit_code == 1
    return capsys.readouterr().out


def test_stopped_in_its_first_epoch_it_does_not_say_that_it_keeps_something(tmp_path, capsys):
    def stop(*_):
        raise KeyboardInterrupt

    data, out = str(tmp_path / "few.npz"), tmp_path / "out"
    np.savez(data, x=np.zeros((20, 1, 8, 8), dtype=np.float32), y=np.arange(20) % 10)
    plan = {"sigma": 0.5, "epochs": 1, "batch": 10, "augment": False, "device": "cpu"}
    with pytest.raises(KeyboardInterrupt):
        train("digits_cnn", data, out=out, on_progress=stop, **plan)
    assert told(out, capsys) == "Stopped before an epoch was done: run the same command to start again.\n"
    train("digits_cnn", data, out=out, **plan)
    assert "out keeps the epochs that are done" in told(out, capsys)
