"""What torch saves of a scripted module, the same in every process: names and order of its code depend on what else was
scripted before."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator

import torch

NAME = re.compile(rb"__torch__(?:\.\w+)*(?:\n\w+(?=\n))?")
"""A qualified name, as code and pickles write it."""

MANGLED = re.compile(rb"\.?___torch_mangle_\d+")
"""What torch puts into a name that it meets again."""

DEFINED = re.compile(rb"^(?=class |def )", re.MULTILINE)
CONSTANT = re.compile(rb"^  \w+ : Final\[.*\n", re.MULTILINE)
PLACES = (".debug_pkl", "serialization_id")
"""Where code came from, and when."""


def parts_of(module: torch.jit.ScriptModule) -> Iterator[bytes]:
    """Values first, then the classes and functions that they name, each by the number with which it was named first."""
    saved = io.BytesIO()
    torch.jit.save(module, saved)
    with zipfile.ZipFile(saved) as archive:
        files = {name.partition("/")[2]: archive.read(name) for name in archive.namelist() if not name.endswith(PLACES)}
    code = {name: files.pop(name) for name in list(files) if name.startswith("code/") and name.endswith(".py")}
    defined = {name: body for file, content in code.items() for name, body in _definitions(file, content)}
    numbers: dict[bytes, int] = {}

    def numbered(match: re.Match[bytes]) -> bytes:
        name, rest = match[0].replace(b"\n", b"."), b""
        while name not in defined:
            name, dot, last = name.rpartition(b".")
            if not dot:
                return MANGLED.sub(b"", match[0])
            rest = dot + last + rest
        return b"%s %d%s" % (MANGLED.sub(b"", name), numbers.setdefault(name, len(numbers)), rest)

    for name in sorted(files, key=lambda name: (name != "data.pkl", name)):
        yield name.encode()
        yield NAME.sub(numbered, files[name])
    done = 0
    while done < len(numbers):
        body = defined[list(numbers)[done]]
        yield NAME.sub(numbered, b"".join(sorted(CONSTANT.findall(body))) + CONSTANT.sub(b"", body))
        done += 1


def _definitions(file: str, content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The classes and functions of a file of code by their qualified names."""
    module = file.removeprefix("code/").removesuffix(".py").replace("/", ".").encode()
    for body in DEFINED.split(content):
        if found := re.match(rb"(?:class|def) (\w+)", body):
            yield module + b"." + found[1], body
