"""The notebooks run from top to bottom."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.slow] * (path.stem != "quickstart")) for path in NOTEBOOKS],
)
def test_a_notebook_runs_and_shows_what_its_reader_sees(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    shown = [[output.output_type for output in cell.outputs] for cell in notebook.cells if cell.cell_type == "code"]
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    now = [[output.output_type for output in cell.outputs] for cell in notebook.cells if cell.cell_type == "code"]
    assert [set(kinds) for kinds in now] == [set(kinds) for kinds in shown]
    assert any(shown)
