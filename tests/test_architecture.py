"""Rooms import in one direction, and what needs no torch does not wait for it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "smoothcert"


def drawn_order():
    """The rooms in the order of docs/architecture.md, a list a line."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("## Who may import whom")[2].partition("\n## ")[0]
    return [room for line in section.splitlines() if line.startswith("    ") for room in line.split()]


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path):
    """The rooms that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            whole = node.module == "smoothcert"
            names = [f"smoothcert.{alias.name}" for alias in node.names] if whole else [node.module]
        else:
            continue
        yield from (name.split(".")[1] for name in names if name.startswith("smoothcert."))


FILES = sorted(path for path in PACKAGE.rglob("*.py") if room_of(path) not in ("__init__", "__main__"))


def test_every_room_is_drawn():
    assert {room_of(path) for path in FILES} == set(drawn_order())


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_room_imports_against_the_order(path):
    order = {room: place for place, room in enumerate(drawn_order())}
    against = [room for room in imported_rooms(path) if order[room] > order[room_of(path)]]
    assert not against


def test_what_reads_and_computes_does_not_import_torch():
    rooms = ("bounds", "radii", "plan", "certificate", "summary", "store", "report.write")
    code = "import sys\n" + "".join(f"import smoothcert.{room}; print('torch' in sys.modules)\n" for room in rooms)
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split()
    assert dict(zip(rooms, said, strict=True)) == dict.fromkeys(rooms, "False")


COMMANDS = """
import sys
from smoothcert.cli import perform
for command in (["--help"], ["show", run], ["recertify", run], ["export", run, "--out", f"{out}.tsv"],
                ["report", run, "--out", f"{out}.html"]):
    sys.argv[1:] = command
    try:
        perform()
    except SystemExit as end:
        assert not end.code, (command, end.code)
    assert "torch" not in sys.modules, command
"""


def test_a_command_that_only_reads_does_not_import_torch(tmp_path):
    run = Path(__file__).parent / "data" / "format-1.smoothcert"
    code = f"run, out = {str(run)!r}, {str(tmp_path / 'out')!r}\n{COMMANDS}"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_the_library_says_no_words_of_the_command_line():
    """Texts of the library name arguments, which a user of Python has, and not options."""
    found = []
    for path in FILES:
        if room_of(path) in ("cli", "experiments"):
            continue
        tree = ast.parse(path.read_text())
        documentation = {
            ast.get_docstring(node, clean=False)
            for node in ast.walk(tree)
            if hasattr(node, "body") and isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        }
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            if (
                any(word.startswith("--") and word[2:3].isalpha() for word in text.split())
                and text not in documentation
            ):
                found.append(f"{path.relative_to(PACKAGE)}: {text}")
    assert not found
