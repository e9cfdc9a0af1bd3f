"""Prints tables for people and JSON for programs.

Whatever a service returns is printed as plain text, never as markup or terminal codes, because names of players could
otherwise take over an operator's terminal.
"""

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TextIO

import msgspec
import typer
from rankcurve.answers import ENCODER, Record
from rankcurve.errors import one_line
from rich.console import Console
from rich.table import Table
from rich.text import Text

# A file or a pipe has no width of its own. This width is enough for every owner (128 characters at most).
PIPED_WIDTH = 400
# What a terminal obeys, except tabulators and line ends: control characters, and those that turn the order of letters.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
# Maps the heading of each column to the field of a record to show, or to a function that makes a cell from a record.
Columns = Mapping[str, str | Callable[[Record], object]]


def show_table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, numeric: Sequence[str] = ()) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(Text(heading), justify="right" if heading in numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell_text(cell)) for cell in row))
    Console(width=None if sys.stdout.isatty() else PIPED_WIDTH, highlight=False).print(table)


def show_records(records: Sequence[Record], columns: Columns, *, as_json: bool, numeric: Sequence[str] = ()) -> None:
    if as_json:
        show_json(records)
        return
    rows = [
        [record.get(cell) if isinstance(cell, str) else cell(record) for cell in columns.values()] for record in records
    ]
    show_table(tuple(columns), rows, numeric=numeric)


def cell_text(value: object) -> str:
    """Format a value for people: None as an empty text, and decimals without an exponent."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S.%fZ}"
    return one_line(str(value))


def shown(text: str, stream: TextIO) -> str:
    """Return `text` as `stream` takes it: unchanged or, for a terminal, with control characters escaped as in JSON."""
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text) if stream.isatty() else text


def say(text: str) -> None:
    """Print text that may come from players or from a file."""
    typer.echo(shown(text, sys.stdout))


def show_json(record: object) -> None:
    say(msgspec.json.format(ENCODER.encode(record), indent=2).decode())
