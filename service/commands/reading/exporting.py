"""`rankcurve export`: a whole ranking as CSV or NDJSON, best to worst. The command holds one page in memory."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TextIO

import typer

from service.client.client import ENCODER, PAGE_ENTRIES_MAX, Patience, ServiceClient
from service.client.client_answers import RankedEntry
from service.commands.reading.ranks import ColumnOption, ranked_column
from service.commands.tables import cell_text
from service.commands.target import DEFAULT_URL, BoardArgument, KeyOption, Target, UrlOption, call_service, fail


class Format(StrEnum):
    csv = "csv"
    ndjson = "ndjson"


OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", dir_okay=False, help="File to write. Default: standard output.")
]
FormatOption = Annotated[
    Format,
    typer.Option(
        "--format", help="csv: rank, owner, all columns, updated_at. ndjson: the entries as the service sends them."
    ),
]
PageOption = Annotated[int, typer.Option(min=1, max=PAGE_ENTRIES_MAX, help="Entries in each request.")]


def export(
    board: BoardArgument,
    column: ColumnOption = None,
    output: OutputOption = None,
    file_format: FormatOption = Format.csv,
    page: PageOption = PAGE_ENTRIES_MAX,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Write every entry that is ranked in one column, best to worst.

    Entries without a value in that column are not in its ranking and not in the export.
    """

    async def action(client: ServiceClient) -> None:
        name = await ranked_column(client, board, column)
        stats = [each.name for each in (await client.get_board(board)).columns]
        written = 0
        try:
            with open_output(output) as stream:
                write = make_csv_writer(stream, stats) if file_format is Format.csv else make_ndjson_writer(stream)
                async for answer in client.walk_pages(board, name, limit=page):
                    for entry in answer.entries:
                        write(entry)
                    written += len(answer.entries)
        except BrokenPipeError:
            raise
        except OSError as cause:
            fail(f"cannot write {output}: {cause.strerror}")
        typer.echo(f"{written:,} entries of {board}, ranked by {name}", err=True)

    call_service(Target(url, key), action, Patience(attempts_max=8, reconnects=True))


def open_output(path: Path | None) -> TextIO | nullcontext[TextIO]:
    """Open the file to write, or standard output in a context that does not close it."""
    return nullcontext(sys.stdout) if path is None else path.open("w", encoding="utf-8", newline="")


def make_csv_writer(stream: TextIO, stats: list[str]) -> Callable[[RankedEntry], None]:
    """Write the heading, and return a function that writes one row."""
    rows = csv.writer(stream, lineterminator="\n")
    rows.writerow(("rank", "owner", *stats, "updated_at"))

    def write(entry: RankedEntry) -> None:
        values = (raw_text(entry.stats.get(name)) for name in stats)
        rows.writerow((entry.rank, entry.owner, *values, entry.updated_at))

    return write


def raw_text(value: object) -> str:
    """Return a value as CSV text: stored text with its control characters, and numbers with every digit."""
    return value if isinstance(value, str) else cell_text(value)


def make_ndjson_writer(stream: TextIO) -> Callable[[RankedEntry], None]:
    def write(entry: RankedEntry) -> None:
        stream.write(ENCODER.encode(entry).decode() + "\n")

    return write
