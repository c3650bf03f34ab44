"""Names that try to be something else: escapes, markup, formulas. No output lets them."""

import csv
import io
import json
import os
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

import interruptible
from hostile.fuzzing import is_harmless
from hostile.readers import shown
from smoothcert import InputError, open_run
from smoothcert.cli import perform
from smoothcert.data import Dataset
from smoothcert.report.write import write_report
from smoothcert.store.export import export_run
from smoothcert.store.logs import import_logs

NAMES = (
    "\x1b[2J\x1b]0;owned\x07",
    "two\nlines\r\n\u2028three\x85four",
    "\u202egpj.exe\u2066\u200f",
    "[bold red]x[/] [link=https://example.org]y[/link] \\",
    "</script><img src=x onerror=alert(1)>",
    "$x^2$ \\input{/etc/passwd} & % # _ {} ~ |",
    "=HYPERLINK(1)",
    "half \ud800",
    "nul \x00",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """For each name a run whose model, data and classes have it."""
    folder = tmp_path_factory.mktemp("names")

    def certified(number, name):
        class Data(Dataset):
            description, classes, fingerprint = name, (name, *NAMES), "names"

            def __len__(self):
                return 4

            def stored(self, row):
                return interruptible.IMAGES[row], row % 3

        path = folder / f"{number}.smoothcert"
        plan = {**interruptible.PLAN, "n": 200}
        return interruptible.certify_dataset(
            interruptible.classify, Data(), out=path, num_classes=3, model_name=name, **plan
        )

    return [open_run(certified(number, name).path) for number, name in enumerate(NAMES)]


def test_the_terminal_shows_text_and_nothing_else(runs):
    for run in runs:
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        shown(run.path, out)
        out.flush()
        assert is_harmless(out.buffer.getvalue().decode().replace("\n", ""))


def test_markup_is_shown_as_it_is(runs):
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    shown(runs[3].path, out)
    out.flush()
    assert "[bold red]x[/]" in " ".join(out.buffer.getvalue().decode().split())


@pytest.mark.parametrize("kind", ["markdown", "latex", "csv", "svg", "html"])
def test_reports_hold_their_form(runs, tmp_path, kind):
    path = write_report(runs, tmp_path / "report", kind, methods=["cpm"])[0]
    text = path.read_text(encoding="utf-8")
    assert is_harmless(text.translate({ord("\n"): None, ord("\r"): None, ord("\t"): None}))
    CHECKS[kind](text)


def check_markdown(text):
    table = [line for line in text.splitlines() if line.startswith("|")]
    columns = {line.replace("\\\\", "").replace("\\|", "").count("|") for line in table[: 2 + len(NAMES)]}
    assert len(columns) == 1
    assert "</script>" not in text.replace("\\<", "")


def check_latex(text):
    rows = [line for line in text.splitlines() if line.endswith("\\\\") and "toprule" not in line]
    assert len({line.replace("\\&", "").count("&") for line in rows}) == 1
    assert "\\input" not in text
    assert "$x" not in text.replace("\\$", "")


def check_csv(text):
    rows = list(csv.reader(io.StringIO(text)))
    assert len(rows) == 1 + len(NAMES)
    assert not any(row[0].startswith(("=", "+", "-", "@", "\t", "\r")) for row in rows)


def check_svg(text):
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(text).iter()}
    assert not tags & {"script", "img", "foreignObject"}


def check_html(text):
    tags = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: tags.append(tag)
    parser.feed(text)
    assert tags.count("script") == 2
    assert "img" not in tags


CHECKS = {
    "markdown": check_markdown,
    "latex": check_latex,
    "csv": check_csv,
    "svg": check_svg,
    "html": check_html,
}


def test_exports_and_notebooks(runs, tmp_path):
    for run in runs:
        assert is_harmless(run._repr_html_())
        export_run(run, tmp_path / "run.json", "json")
        record = json.loads((tmp_path / "run.json").read_text())
        assert all(map(is_harmless, (record["info"]["model"], record["info"]["data"], *record["info"]["classes"])))


def test_an_index_that_is_a_formula_is_text_in_a_spreadsheet(tmp_path):
    log = tmp_path / "log_sigma_0.5.tsv"
    log.write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n=1+1\t1\t1\t0.5\t1\t0:00:01\n")
    export_run(import_logs([log], tmp_path / "run"), tmp_path / "run.csv", "csv")
    assert list(csv.reader((tmp_path / "run.csv").open()))[1][0] == "'=1+1"


def test_messages_quote_names_harmlessly(tmp_path, monkeypatch, capsys):
    folder = os.fsencode(tmp_path) + b"/\x1b[2J\n\xff"
    os.mkdir(folder)
    monkeypatch.setattr("signal.signal", lambda *_: None)  # the handlers of the tests stay
    monkeypatch.setattr("sys.argv", ["smoothcert", "show", os.fsdecode(folder) + "/none"])
    with pytest.raises(SystemExit):
        perform()
    assert is_harmless(capsys.readouterr().err.rstrip("\n"))
    assert is_harmless(str(InputError("\x1b" * 9)))
    assert len(str(InputError("x" * 10**6))) <= 1000
