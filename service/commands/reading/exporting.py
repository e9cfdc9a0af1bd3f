"""`rankcurve export`: a whole ranking as CSV or NDJSON, best to worst. The command holds one page in memory."""

import csv
import sys
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rankcurve import AsyncClient, Retries
from rankcurve.answers import ENCODER
from rankcurve.client import PAGE_ENTRIES

from service.commands.reading.ranks import ColumnOption, first_ranked
from service.commands.tables import cell_text
from service.commands.target import BoardArgument, fail, service_command


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
PageOption = Annotated[int, typer.Option(min=1, max=PAGE_ENTRIES, help="Entries in each request.")]


@service_command(Retries(attempts_max=8, before_first_answer=False))
async def export(
    client: AsyncClient,
    board: BoardArgument,
    column: ColumnOption = None,
    output: OutputOption = None,
    file_format: FormatOption = Format.csv,
    page: PageOption = PAGE_ENTRIES,
) -> None:
    """Write every entry that is ranked in one column, best to worst.

    Entries without a value in that column are not in its ranking and not in the export.
    """
    held = await client.board(board)
    name = column or first_ranked(board, held)
    stats = [each.name for each in held.columns]
    written = 0
    try:
        # Standard output stays open at the end.
        with nullcontext(sys.stdout) if output is None else output.open("w", encoding="utf-8", newline="") as stream:
            rows = csv.writer(stream, lineterminator="\n")
            if file_format is Format.csv:
                rows.writerow(("rank", "owner", *stats, "updated_at"))
            async for answer in client.pages(board, name, limit=page):
                for entry in answer.entries:
                    if file_format is Format.csv:
                        values = (raw_text(entry.stats.get(stat)) for stat in stats)
                        rows.writerow((entry.rank, entry.owner, *values, entry.updated_at))
                    else:
                        stream.write(ENCODER.encode(entry).decode() + "\n")
                written += len(answer.entries)
    except BrokenPipeError:
        raise
    except OSError as cause:
        fail(f"cannot write {output}: {cause.strerror}")
    typer.echo(f"{written:,} entries of {board}, ranked by {name}", err=True)


def raw_text(value: object) -> str:
    """Return a value as CSV text: stored text with its control characters, and numbers with every digit."""
    return value if isinstance(value, str) else cell_text(value)
