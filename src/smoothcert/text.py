"""Text as it is shown: what came from outside made fit for it, and radii rounded down."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from decimal import ROUND_DOWN, Context
from html import escape
from itertools import islice

UNSHOWABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
"""Control characters, marks that turn the direction of writing, and halves of characters."""

FORMULA = re.compile('["\\s]*[=+\\-@\uff1d\uff0b\uff0d\uff20]|[\t\r]')
"""What a spreadsheet takes for a formula, also in quotes, behind spaces, or in letters of full width."""

QUOTED = frozenset('",;\t\r\n')
"""What a cell is quoted for."""


def printable(text: str) -> str:
    """The text with what cannot be shown, or would disguise it, made visible as U+FFFD.

    >>> printable("cat\\x00\\u202egpj")
    'cat��gpj'
    """
    return UNSHOWABLE.sub("\ufffd", text)


def csv_line(row: Iterable[object]) -> str:
    """A row of a table for spreadsheets, with commas between and the end of a line: numbers as they are, text with an
    apostrophe in front where it would be taken for a formula, and None as nothing.

    >>> print(csv_line([-1, "=1+1", "a;b", None]).rstrip())
    -1,'=1+1,"a;b",
    """
    return _separated(row, ",") + "\r\n"


def tsv_line(row: Iterable[object]) -> str:
    """Such a row with tabs between.

    >>> tsv_line(["cat", 3, 'an "a" is']).split("\\t")
    ['cat', '3', '"an ""a"" is"']
    """
    return _separated(row, "\t")


def _separated(row: Iterable[object], by: str) -> str:
    """Quoted as by the csv module: readers take a cell that begins with a quote to go on until the next one, over as
    many lines as that takes. Also where another separator is in a cell: which one it is depends on the reader."""
    shown = (f"'{v}" if isinstance(v, str) and FORMULA.match(v) else "" if v is None else str(v) for v in row)
    return by.join('"' + cell.replace('"', '""') + '"' if set(cell) & QUOTED else cell for cell in shown)


def html_table(fields: dict[str, str]) -> str:
    """A table of one row under its heads.

    >>> html_table({"σ": "0.5"})
    '<table><tr><th>σ</th></tr><tr><td>0.5</td></tr></table>'
    """
    rows = (("th", list(fields)), ("td", list(fields.values())))
    cells = [f"<tr>{''.join(f'<{tag}>{escape(text)}</{tag}>' for text in texts)}</tr>" for tag, texts in rows]
    return f"<table>{''.join(cells)}</table>"


def radius_text(radius: float, digits: int = 3) -> str:
    """A radius to so many significant digits, rounded down: what is printed is proved, too.

    >>> radius_text(0.29999)
    '0.299'
    """
    return f"{float(Context(prec=digits, rounding=ROUND_DOWN).create_decimal(radius)):.{digits}}"


def listed(count: int, names: Sequence[str] | None) -> str:
    """How many there are, and the first ten by name where they have names.

    >>> listed(3, ("cat", "dog", "eel")), listed(10, None)
    ('3: cat, dog, eel', '10')
    """
    return str(count) if names is None else f"{count}: {', '.join(names[:10])}{' …' if len(names) > 10 else ''}"


def first_ten(things: Collection[object]) -> str:
    """The first ten, and how many more there are.

    >>> first_ten(range(10)), first_ten(range(2010))
    ('0, 1, 2, 3, 4, 5, 6, 7, 8, 9', '0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2,000 more')
    """
    more = f" and {len(things) - 10:,} more" if len(things) > 10 else ""
    return ", ".join(map(str, islice(things, 10))) + more


def counted(count: int, noun: str) -> str:
    """So many of them.

    >>> counted(1, "input"), counted(2_000, "input")
    ('1 input', '2,000 inputs')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
