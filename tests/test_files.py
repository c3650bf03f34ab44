"""Every output is written whole, beside nothing that somebody planted, or not at all."""

import csv
import json
import os
import re
from pathlib import Path

import pytest

import smoothcert
from interruptible import certify
from smoothcert import InputError, open_run
from smoothcert.files import replace_whole, write_text
from smoothcert.report.write import write_report
from smoothcert.store.doctor import diagnose
from smoothcert.store.export import WRITERS, export_run
from smoothcert.store.logs import import_logs

LOG = "idx\tlabel\tpredict\tradius\tcorrect\ttime\n=1+1\t1\t1\t0.5\t1\t0:00:01\n"
FORMULAS = ["=1+1", '"=1+1"', '""=1+1""', "＝1+1", " =1+1", "＠SUM(1)", "-1"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return certify(tmp_path_factory.mktemp("run") / "run.smoothcert", n=100)


def imported(path):
    log = path.with_name("log_sigma_0.5.tsv")
    log.write_text(LOG)
    import_logs([log], path)
    log.unlink()


OUTPUTS = {
    **{f"export {kind}": lambda run, path, kind=kind: export_run(run, path, kind) for kind in WRITERS},
    **{
        f"report {kind}": lambda run, path, kind=kind: write_report([run], path, kind)
        for kind in ("html", "csv", "svg")
    },
    "doctor": lambda run, path: diagnose(run.path, path),
    "import": lambda run, path: imported(path),
    "text": lambda run, path: write_text(path, "text"),
}


@pytest.mark.parametrize("output", OUTPUTS)
def test_planted_links_are_not_written_through(run, tmp_path, output):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for ending in (".part", ".tmp", ".part-wal", ".part-shm", ".part-journal"):
        (tmp_path / f"out{ending}").symlink_to(victim)
    planted = set(tmp_path.iterdir())
    OUTPUTS[output](run, tmp_path / "out")
    assert victim.read_text() == "precious"
    assert set(tmp_path.iterdir()) == planted | {tmp_path / "out"}
    assert not (tmp_path / "out").is_symlink()


@pytest.mark.parametrize("output", [name for name in OUTPUTS if name not in ("doctor", "import")])
def test_a_link_is_replaced_and_not_followed(run, tmp_path, output):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "out").symlink_to(victim)
    OUTPUTS[output](run, tmp_path / "out")
    assert victim.read_text() == "precious"
    assert not (tmp_path / "out").is_symlink()


def test_what_fails_half_way_leaves_what_was_there(tmp_path):
    path = tmp_path / "out"
    path.write_text("before")

    def write(file):
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace_whole(path, write)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_pipes_and_devices_are_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(InputError, match="no plain file"):
            write_text(path, "text")


def test_a_run_is_never_replaced(run):
    with pytest.raises(InputError, match="is a run file"):
        export_run(run, run.path, "csv")
    assert len(open_run(run.path)) == 12


def test_nothing_else_in_the_package_opens_a_file_to_write():
    """SQLite writes runs, and a run made from others takes its name when it is whole."""
    writes = re.compile(r"""\.write_(text|bytes)\(|\bos\.replace\(|open\([^)]*["'][wax]b?["']|savefig\(path""")
    package = Path(smoothcert.__file__).parent
    found = {str(p.relative_to(package)) for p in package.rglob("*.py") if writes.search(p.read_text())}
    assert found <= {"files.py", "store/new_run.py"}


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_formula_is_text_in_every_table(tmp_path, formula):
    log = tmp_path / "log_sigma_0.5.tsv"
    log.write_text(LOG.replace("=1+1", '"' + formula.replace('"', '""') + '"'))
    run = import_logs([log], tmp_path / "run")
    for kind, comma in (("csv", ","), ("tsv", "\t")):
        export_run(run, tmp_path / kind, kind)
        (cell,) = {row[0] for row in list(csv.reader((tmp_path / kind).open(), delimiter=comma))[1:]}
        assert cell == f"'{formula}"


def test_no_reader_parts_a_cell_at_another_separator(tmp_path):
    """Where lists are written with semicolons, a spreadsheet parts the cells of a line there that is not quoted."""
    log = tmp_path / "log_sigma_0.5.tsv"
    log.write_text(LOG.replace("=1+1", "a;=1+1,=2"))
    for kind in ("csv", "tsv"):
        export_run(import_logs([log], tmp_path / f"{kind}.run"), tmp_path / kind, kind)
        assert (tmp_path / kind).read_text().splitlines()[1].startswith('"a;=1+1,=2"')


def test_json_is_json(run, tmp_path):
    export_run(run, tmp_path / "run.json", "json")
    told = json.loads((tmp_path / "run.json").read_text())
    assert told["plan"]["classifier"]["sigma"] == 0.3
    assert [c["selection"] for c in told["certificates"]] == run.tally.selections.tolist()
    assert [c["radius"] for c in told["certificates"]] == [c.radius for c in run.certificates()]
