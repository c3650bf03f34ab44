"""What a run proves is read without torch."""

import subprocess
import sys

READ = "import sys; from pathlib import Path; from smoothcert import open_run; run = open_run(sys.argv[1]); "


def imports_torch(code, *arguments):
    """Has torch been imported once the code has run?"""
    code += "; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("True", "False")
    return done.stdout.strip() == "True"


def test_reports_are_written(squares, tmp_path):
    outs = [tmp_path / f"report.{ending}" for ending in ("html", "md", "csv")]
    write = "from smoothcert.report.write import write_report; [write_report([run], Path(out)) for out in sys.argv[2:]]"
    assert not imports_torch(READ + write, squares.path, *outs)
    assert all(out.stat().st_size > 200 for out in outs)


def test_votes_are_certified(squares):
    assert not imports_torch(READ + "[run.certificates(method) for method in run.methods]", squares.path)
