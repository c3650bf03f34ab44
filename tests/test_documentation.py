"""Every Python block of the README and the documentation runs."""

import re
from pathlib import Path

import pytest

import smoothcert

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


def test_every_public_name_is_in_the_python_reference_with_an_example():
    sections = re.split(r"^## (\w+)$", (ROOT / "docs" / "python.md").read_text(), flags=re.M)[1:]
    told = dict(zip(sections[::2], sections[1::2], strict=True))
    assert set(told) == set(smoothcert.__all__)
    for name, text in told.items():
        examples = "".join(re.findall(r"```python\n(.*?)```", text, re.S))
        assert examples, name
        inner = getattr(getattr(smoothcert, name), "__all__", ())
        assert [word for word in inner if not re.search(rf"\b{word}\b", examples)] == []
