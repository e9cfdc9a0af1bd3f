"""`rankcurve export`: a whole ranking as CSV, NDJSON or commands of Redis. It holds one page in memory."""

import csv
import sys
from contextlib import nullcontext
from enum import StrEnum
from itertools import chain
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
    redis = "redis"


OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", dir_okay=False, help="File to write. Default: standard output.")
]
FormatOption = Annotated[
    Format,
    typer.Option(
        "--format",
        help="csv: rank, owner, all columns, updated_at. ndjson: the entries as the service sends them. redis: "
        "commands for `redis-cli --pipe` that add owners and values to a sorted set.",
    ),
]
KeyNameOption = Annotated[
    str | None,
    typer.Option("--redis-key", help="Name of the sorted set, with --format redis. Default: the leaderboard's id."),
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
    redis_key: KeyNameOption = None,
) -> None:
    """Write every entry that is ranked in one column, best to worst.

    Entries without a value in that column are not in its ranking and not in the export. Redis keeps scores as binary
    numbers of about 16 digits; further digits are lost there.
    """
    if redis_key is not None and file_format is not Format.redis:
        raise typer.BadParameter("--redis-key goes with --format redis")
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
                match file_format:
                    case Format.csv:
                        for entry in answer.entries:
                            values = (raw_text(entry.stats.get(stat)) for stat in stats)
                            rows.writerow((entry.rank, entry.owner, *values, entry.updated_at))
                    case Format.ndjson:
                        stream.writelines(ENCODER.encode(entry).decode() + "\n" for entry in answer.entries)
                    case Format.redis if answer.entries:
                        scores = ((raw_text(entry.stats[name]), entry.owner) for entry in answer.entries)
                        stream.write(redis_command("ZADD", redis_key or board, *chain.from_iterable(scores)))
                written += len(answer.entries)
    except BrokenPipeError:
        raise
    except OSError as cause:
        fail(f"cannot write {output}: {cause.strerror}")
    typer.echo(f"{written:,} entries of {board}, ranked by {name}", err=True)


def redis_command(*words: str) -> str:
    """Return a command as Redis reads it (RESP): the number of words, and each word after its length in bytes."""
    return f"*{len(words)}\r\n" + "".join(f"${len(word.encode())}\r\n{word}\r\n" for word in words)


def raw_text(value: object) -> str:
    """Return a value as CSV text: stored text with its control characters, and numbers with every digit."""
    return value if isinstance(value, str) else cell_text(value)
