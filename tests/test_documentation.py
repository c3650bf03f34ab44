"""Every Python block of the README and the documentation runs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCKS = [
    (page.name, i, code)
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for i, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))
]


@pytest.mark.parametrize(("page", "number", "code"), BLOCKS, ids=[f"{page}-{i}" for page, i, _ in BLOCKS])
def test_block_runs(page, number, code, capsys):
    exec(compile(code, f"{page} block {number}", "exec"), {})
    assert capsys.readouterr().out


def test_links_between_pages_lead_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+\.(?:md|png|svg))\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
