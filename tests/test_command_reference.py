"""The command reference: all that a user can type is on it, and nothing on it turns into markup."""

import re
from enum import Enum
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from command_reference import command_reference, on_page_markdown
from smoothcert.cli import app

ROOT = Path(__file__).parents[1]
COMMANDS = [command.name for command in app.registered_commands if not command.hidden]


class Size(str, Enum):
    SMALL, LARGE = "small", "large"


def sections(reference):
    return dict(re.findall(r"^## smoothcert (\S+)\n(.*?)(?=^## |\Z)", reference, re.S | re.M))


@pytest.mark.parametrize("name", COMMANDS)
def test_says_what_help_says(name):
    """Every option and argument that --help shows, and an example that begins with the command."""
    shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "300", "TERMINAL_WIDTH": "300"}).output
    section = sections(command_reference(app))[name]
    options = set(re.findall(r"^[│ ]+(?:\*\s+)?(?:-\w[, ]+)?(--[\w-]+)", shown, re.M)) - {"--help"}
    assert options == set(re.findall(r"^\| `(?:-\w, )?(--[\w-]+)", section, re.M))
    usage = re.search(rf"Usage:.* {name} (.*)", shown)[1].replace("[OPTIONS]", "")
    for argument in re.findall(r"[^\s{}\[\]]*\w[^\s{}\[\]]*", usage):
        assert re.search(rf"^\| `\[?{re.escape(argument)}\]? <", section, re.M)
    assert f"\n\n    smoothcert {name}" in section


def test_defaults_are_told():
    assert "| `--n0 <int>` | Draws that select the class. | 100 |" in sections(command_reference(app))["certify"]


def test_the_site_puts_it_in_its_place():
    assert "hooks: [tools/command_reference.py]" in (ROOT / "mkdocs.yml").read_text()
    page = (ROOT / "docs" / "commands.md").read_text()
    assert all(f"## smoothcert {name}\n" in on_page_markdown(page, page=None) for name in COMMANDS)
    other = (ROOT / "docs" / "guide.md").read_text()
    assert on_page_markdown(other, page=None) == other


def test_text_stays_text():
    """Markup in a help text, or in a default such as a class name, is shown and not obeyed."""
    markdown = pytest.importorskip("markdown", reason="markdown comes with the docs extra")
    hostile = "<b>x</b> a|b __c__ *d* [e](f) & `g_h`"
    made = typer.Typer(name="made")

    @made.command("one", help=hostile)
    def one(
        first: Annotated[str, typer.Option(help=hostile)] = "<i>|_k_",
        second: Annotated[Size, typer.Option(help="Second.", rich_help_panel="more")] = Size.SMALL,
    ) -> None: ...

    @made.command("two")
    def two() -> None: ...

    html = markdown.markdown(command_reference(made), extensions=["tables"])
    shown = "&lt;b&gt;x&lt;/b&gt; a|b __c__ *d* [e](f) &amp; <code>g_h</code>"
    assert f"<p>{shown}</p>" in html
    assert f"<td>{shown}</td>\n<td>&lt;i&gt;|_k_</td>" in html
    assert "<th>more</th>" in html
    assert "<td><code>--second &lt;small|large&gt;</code></td>\n<td>Second.</td>\n<td>small</td>" in html
    assert not re.search(r"<(b|i|em|strong|a)[ >]", html)
