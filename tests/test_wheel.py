"""The wheel in an environment of its own, as a user gets it."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*command, cwd):
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_installs_into_a_fresh_environment_and_runs_the_demo(tmp_path):
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("smoothcert-*.whl")
    venv.create(tmp_path / "fresh", with_pip=True)
    python = tmp_path / "fresh" / "bin" / "python"
    install = (python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt")
    run(*install, "torch", cwd=tmp_path)
    run(*install, f"{wheel}[demo]", cwd=tmp_path)
    where = run(python, "-c", "import smoothcert; print(smoothcert.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(tmp_path / "fresh")
    assert "200 inputs" in run(python.with_name("smoothcert"), "demo", cwd=tmp_path)
    assert (tmp_path / "demo.html").stat().st_size > 10_000
