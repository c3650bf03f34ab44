"""Ctrl-C, SIGTERM and SIGHUP are answered at once, whatever the process is at, and nothing that was drawn is lost."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from children import Command
from interruptible import listen_to_interrupts
from smoothcert import open_run
from smoothcert.modules import no_exit

CODE = '''
import hashlib, os, sys, time
import numpy as np, torch

def stuck(where):
    """A call into C that takes minutes, and that no signal interrupts."""
    print(where, flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 300_000_000)

class Counting:
    calls = 0

def drawing():
    def model(batch):
        if len(batch) > 1:
            Counting.calls += 1
            if Counting.calls == 280:
                time.sleep(1.5)  # what is drawn before is committed by the votes after
            if Counting.calls == 300:
                stuck("here")
        return batch.reshape(len(batch), -1)[:, :3]
    return model

def fast():
    return lambda batch: batch.reshape(len(batch), -1)[:, :3]

def leaving():
    def model(batch):
        if len(batch) > 1:
            sys.exit(3)
        return batch.reshape(len(batch), -1)[:, :3]
    return model

class Leaving(torch.nn.Module):
    """Ends the process at one of its calls, some of which are exports."""
    def __init__(self, at):
        super().__init__()
        self.layer, self.at = torch.nn.Linear(16, 3), at
    def forward(self, x):
        Counting.calls += 1
        if Counting.calls >= self.at:
            sys.exit(0)
        return self.layer(x.flatten(1))

def at_1():
    return Leaving(1)

def at_2():
    return Leaving(2)

def at_3():
    return Leaving(3)

class Odd(BaseException):
    pass

class Raising(Leaving):
    """Raises what is no Exception."""
    def __init__(self, at, odd):
        super().__init__(at)
        self.odd = odd
    def forward(self, x):
        try:
            return super().forward(x)
        except SystemExit:
            raise self.odd from None

def odd_2():
    return Raising(2, Odd)

def odd_3():
    return Raising(3, Odd)

def closing():
    return Raising(3, GeneratorExit)

def as_if():
    return Raising(1, KeyboardInterrupt)

class Choosing(torch.nn.Module):
    def forward(self, x):
        if len(x) > 10 and not torch.compiler.is_exporting():
            stuck("here")
        return x.flatten(1)[:, :3]

def odd_factory():
    raise Odd("no model")

class Data:
    def __len__(self):
        return 12
    def __getitem__(self, row):
        return np.full((1, 4, 4), row / 12, dtype=np.float32), row % 3

class Reading(Data):
    def __getitem__(self, row):
        if row == 7:
            stuck("here")
        return super().__getitem__(row)

class Pictures(Data):
    def __getitem__(self, row):
        return np.full((3, 32, 32), row / 12, dtype=np.float32), row % 3

class OddData(Data):
    def __getitem__(self, row):
        if row == 7:
            raise Odd("no row")
        return super().__getitem__(row)

class Lasting:
    """Takes a minute to be taken down at the end of the process."""
    def __del__(self):
        time.sleep(60)

def sleeping():
    sys.modules[__name__].kept = Lasting()
    def model(batch):
        time.sleep(0.1)
        return batch.reshape(len(batch), -1)[:, :3]
    return model

class OnceThere(torch.nn.Module):
    """Stuck from when the run file is there."""
    def forward(self, x):
        if os.path.exists("run.smoothcert"):
            stuck("here")
        return torch.from_numpy(x.numpy().reshape(len(x), -1)[:, :3])

def threaded():
    """Has a thread that Python waits for at its end, and that takes a minute."""
    import threading
    threading.Thread(target=time.sleep, args=(60,)).start()
    def model(batch):
        print("here", flush=True)
        time.sleep(0.1)
        return batch.reshape(len(batch), -1)[:, :3]
    return model

data, odd_data, reading, pictures = Data(), OddData(), Reading(), Pictures()
'''
OPTIONS = ("--sigma", "0.3", "--n", "2000", "--seed", "0", "--out", "run.smoothcert")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.py").write_text(CODE)
    return tmp_path


def start(folder, model, data, *options):
    return Command(folder, "certify", model, data, *OPTIONS, *options)


def await_here(command):
    """Until it is stuck."""
    assert any(line == "here\n" for line in command.said)


def stopped(command, number):
    """How it ended, what it said, and after how many seconds."""
    since = time.monotonic()
    command.signal(number)
    return *command.ended(), time.monotonic() - since


def files(folder):
    return {p.name for p in folder.iterdir()} - {"mine.py", "__pycache__"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_in_the_model(folder, number):
    process = start(folder, "mine:drawing", "mine:data", "--batch", "50")
    await_here(process)
    code, said, seconds = stopped(process, number)
    assert (code, said.count("Traceback")) == (1, 0)
    assert "Stopped. run.smoothcert keeps what was drawn: run the same command to go on." in said
    assert seconds < 30  # two on a machine that is not busy; the call itself takes minutes
    drawn = open_run(folder / "run.smoothcert")
    assert 0 < len(drawn) < 12
    assert drawn.ids == [str(i) for i in range(len(drawn))]


def test_while_the_model_has_a_thread_of_its_own(folder):
    process = start(folder, "mine:threaded", "mine:data", "--batch", "50", "--num-classes", "3")
    await_here(process)
    code, said, seconds = stopped(process, signal.SIGTERM)
    assert (code, said.count("Traceback"), seconds < 30) == (1, 0, True)
    assert "Stopped before anything was drawn" in said
    assert not (folder / "run.smoothcert").exists()


@pytest.mark.parametrize(
    ("model", "data"),
    [("mine:fast", "mine:reading"), ("mine:Choosing", "mine:data"), ("mine:OnceThere", "mine:data")],
    ids=["reading", "choosing", "in the first block"],
)
def test_before_anything_was_drawn(folder, model, data):
    process = start(folder, model, data, "--batch", "100")
    await_here(process)
    code, said, seconds = stopped(process, signal.SIGTERM)
    assert (code, said.count("Traceback")) == (1, 0)
    assert "Stopped before anything was drawn" in said
    assert "keeps" not in said
    assert seconds < 30
    assert not files(folder)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["compile", "onnx"])
def test_while_an_engine_is_built(folder, engine):
    for moment in np.linspace(0.5, 12, 6):
        process = start(folder, "cifar_resnet20", "mine:pictures", "--engine", engine, "--batch", "100")
        time.sleep(moment)
        code, said, seconds = stopped(process, signal.SIGINT)
        assert code in (1, -signal.SIGINT), said
        assert said.count("Traceback") == 0
        assert seconds < 30
        for begun in files(folder):  # by a network with other weights
            (folder / begun).unlink()


def program(folder, model):
    """The command in a process of its own, from its begin to its end."""
    return subprocess.Popen(
        [sys.executable, "-m", "smoothcert", "certify", model, "mine:data", *OPTIONS, "--batch", "50"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=listen_to_interrupts,
    )


def test_what_takes_long_to_be_taken_down_is_not_waited_for(folder):
    process = program(folder, "mine:sleeping")
    while (folder / "run.smoothcert") not in folder.iterdir():
        assert process.poll() is None
        time.sleep(0.1)
    since = time.monotonic()
    process.terminate()
    said = process.communicate(timeout=120)[0]
    assert process.returncode == 1, said
    assert time.monotonic() - since < 30


@pytest.mark.parametrize("moment", [0.3, 1.0, 2.0])
def test_while_it_starts(folder, moment):
    process = program(folder, "mine:drawing")
    time.sleep(moment)
    since = time.monotonic()
    process.terminate()
    said = process.communicate(timeout=60)[0]
    # Before there is a handler it is the signal's own; CPython makes it SIGINT where `exec` of a text was interrupted.
    assert process.returncode in (1, -signal.SIGTERM, -signal.SIGINT)
    assert "Traceback" not in said
    assert time.monotonic() - since < 30


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("import time; time.sleep(0.5)", id="ends"),
        pytest.param("time.sleep(30)", id="does not end", marks=pytest.mark.slow),
    ],
)
def test_signals_after_the_first_and_after_the_end_change_nothing(folder, moment):
    """Of a process that has said how it ended; where it goes on all the same, it is left after a second."""
    (folder / "last.py").write_text(
        "import atexit, os, signal, time\n"
        "from mine import fast, data\n"
        "def late():\n"
        "    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) * 3:\n"
        "        os.kill(os.getpid(), number)\n"
        f"    {moment}\n"
        "atexit.register(late)\n"
        "def leaving():\n"
        "    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGTERM):\n"
        "        os.kill(os.getpid(), number)\n"
    )
    ended = {}
    for model in ("fast", "leaving"):
        command = [sys.executable, "-m", "smoothcert", "certify", f"last:{model}", "last:data", *OPTIONS]
        ended[model] = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, preexec_fn=listen_to_interrupts
        )
    assert ended["fast"].returncode == (0 if "import" in moment else 1)
    assert ended["leaving"].returncode == 1
    assert ended["leaving"].stderr.split() == ["smoothcert:", "stopped."]
    assert "Traceback" not in ended["fast"].stdout + ended["fast"].stderr
    assert open_run(folder / "run.smoothcert").finished


def test_a_model_that_raises_what_ctrl_c_raises_is_told(folder):
    code, said = start(folder, "mine:as_if", "mine:data", "--engine", "torch").ended()
    assert (code, said.count("Traceback")) == (1, 0)
    assert "topped" in said
    assert not Path(folder / "run.smoothcert").exists()


def test_an_interruption_before_the_model_is_called_is_not_its_doing(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    no_exit().__enter__()
    assert not told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_import_is_not_interrupted(folder, number):
    """torch's own code imports modules and aborts on whatever they raise; the process ends beside it."""
    (folder / "slow_import.py").write_text(
        "import os, time\n"
        "try:\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    command = [sys.executable, "-m", "smoothcert", "certify", "slow_import:model", "mine:data", *OPTIONS]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, preexec_fn=listen_to_interrupts
    )
    assert (done.returncode, done.stdout, done.stderr.split()) == (1, "", ["smoothcert:", "stopped."])
    assert files(folder) == {"slow_import.py"}


def test_after_an_import_it_is_answered(folder):
    """It came while modules were imported; what follows is not done."""
    (folder / "slow_import.py").write_text(
        "import os, time\n"
        f"os.kill(os.getpid(), {int(signal.SIGTERM)})\n"
        "time.sleep(0.2)\n"
        "from mine import fast\n"
        "def model():\n"
        "    time.sleep(0.3)\n"
        "    open('went on', 'w').close()\n"
        "    return fast()\n"
    )
    code, said = start(folder, "slow_import:model", "mine:data").ended()
    assert (code, said.split()[-2:]) == (1, ["smoothcert:", "stopped."])
    assert files(folder) == {"slow_import.py"}


def test_what_was_started_to_ignore_a_signal_ignores_it(folder):
    process = subprocess.Popen(
        [sys.executable, "-m", "smoothcert", "certify", "mine:fast", "mine:data", *OPTIONS],
        cwd=folder,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    while not files(folder) and process.poll() is None:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGHUP)
    assert process.wait(120) == 0
    assert open_run(folder / "run.smoothcert").finished


def test_a_model_that_calls_sys_exit_is_an_error(folder):
    code, said = start(folder, "mine:leaving", "mine:data").ended()
    assert code == 1
    assert "smoothcert: the model called sys.exit(3): take that out of it" in said
    assert not Path(folder / "run.smoothcert").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("certify", "mine:at_2", "mine:data", *OPTIONS, "--engine", "torch"),
        ("certify", "mine:at_3", "mine:data", *OPTIONS, "--engine", "torch"),
        ("certify", "mine:at_2", "mine:data", "--no-noise", "--out", "run.smoothcert"),
        ("certify", "mine:at_3", "mine:data", "--no-noise", "--out", "run.smoothcert"),
        ("lipschitz", "mine:at_1", "--shape", "1,4,4"),
    ],
    ids=["exported", "drawing", "without noise, exported", "without noise", "lipschitz"],
)
def test_a_model_that_ends_the_process_anywhere_is_an_error(folder, command):
    """With code 0, which would say that all went well."""
    code, said = Command(folder, *command).ended()
    assert code == 1, said
    assert "called sys.exit(0): take that out of it" in said
    assert not Path(folder / "run.smoothcert").exists()


@pytest.mark.parametrize(("model", "name"), [("odd_2", "Odd"), ("odd_3", "Odd"), ("closing", "GeneratorExit")])
def test_a_model_that_raises_what_is_no_exception_is_an_error(folder, model, name):
    code, said = start(folder, f"mine:{model}", "mine:data", "--engine", "torch").ended()
    assert code == 1
    assert said.splitlines()[-1] == f"smoothcert: the model raised {name}: take that out of it, and start again."
    assert not Path(folder / "run.smoothcert").exists()


@pytest.mark.parametrize(
    ("model", "data", "said_of"),
    [
        ("odd_factory", "data", "the factory mine:odd_factory raised Odd: no model"),
        ("fast", "odd_data", "failed with Odd: no row"),
    ],
)
def test_code_that_raises_what_is_no_exception_is_named(folder, model, data, said_of):
    code, said = start(folder, f"mine:{model}", f"mine:{data}").ended()
    assert code == 2
    assert said_of in said
    assert "Traceback" not in said
    assert not Path(folder / "run.smoothcert").exists()
