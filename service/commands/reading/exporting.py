"""`rankcurve export`: write a whole ranking as CSV, NDJSON or commands of Redis, with only one page in memory.

An archived board returns only its best rows in rank order. The command therefore reads all its entries by owner into a
temporary file, and keeps in memory only each entry's rank and its place in the file.

`rankcurve journal` and `rankcurve stream` print accepted posts or ranking changes, one JSON object on each line. To
continue the journal later, pass the `seq` of the last line as --after.
"""

import csv
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext
from decimal import Decimal
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Literal, NamedTuple, TextIO

import typer
from msgspec import structs
from msgspec.json import Decoder
from rankcurve import AsyncClient, Retries
from rankcurve.answers import ENCODER, Board, RankedEntry, Record, decode
from rankcurve.client import PAGE_ENTRIES

from service.commands.reading.ranks import ColumnOption
from service.commands.tables import cell_text, say, shown
from service.commands.target import BoardArgument, fail, service_command


class _Stream(NamedTuple):
    """Writes to a file, or to a terminal with control characters escaped, because texts of players may contain them."""

    target: TextIO

    def write(self, text: str) -> None:
        self.target.write(shown(text, self.target))


Parts = AsyncIterator[Sequence[RankedEntry]]
_decode = Decoder(RankedEntry, float_hook=Decimal).decode

OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", dir_okay=False, help="File to write. Default: standard output.")
]
FormatOption = Annotated[
    Literal["csv", "ndjson", "redis"],
    typer.Option(
        "--format",
        help="csv: rank, owner, all columns, updated_at, reached_at if ties end with earliest. ndjson: the entries "
        "as the service sends them. redis: commands for `redis-cli --pipe` that add owners and values to a sorted set.",
    ),
]
KeyNameOption = Annotated[
    str | None,
    typer.Option("--redis-key", help="Name of the sorted set, with --format redis. Default: the leaderboard's id."),
]
RoundOption = Annotated[
    bool,
    typer.Option("--round", help="With --format redis: exit with 0 although Redis can't hold each value exactly."),
]
PageOption = Annotated[int, typer.Option(min=1, max=PAGE_ENTRIES, help="Entries in each request.")]


@service_command(Retries(attempts_max=8, before_first_answer=False))
async def export(
    client: AsyncClient,
    board: BoardArgument,
    column: ColumnOption = None,
    output: OutputOption = None,
    file_format: FormatOption = "csv",
    page: PageOption = PAGE_ENTRIES,
    redis_key: KeyNameOption = None,
    rounds: RoundOption = False,
) -> None:
    """Write every entry that is ranked in one column, best to worst.

    Entries without a value in that column are not ranked and not exported. Redis keeps scores as binary numbers of
    about 16 digits; if a value has more, the command warns and exits with 1, unless --round is given.
    """
    if (redis_key is not None or rounds) and file_format != "redis":
        raise typer.BadParameter(f"{'--round' if rounds else '--redis-key'} goes with --format redis")
    held = await client.board(board)
    name = column or (await client.page(board, limit=1)).column
    parts = _read_parts(client, board, name, page, archived=held.archived)
    try:
        # `nullcontext` does not close standard output at the end of the block.
        with nullcontext(sys.stdout) if output is None else output.open("w", encoding="utf-8", newline="") as target:
            if file_format == "redis":
                written, inexact = await write_redis(_Stream(target), parts, redis_key or board, name)
            else:
                writing = write_csv if file_format == "csv" else write_ndjson
                written, inexact = await writing(_Stream(target), parts, held), 0
    except BrokenPipeError:
        raise
    except OSError as cause:
        fail(f"cannot write {output}: {cause.strerror}")
    typer.echo(f"{written:,} entries of {board}, ranked by {name}", err=True)
    if inexact:
        typer.echo(f"warning: {name}: Redis rounds {inexact:,} values that a binary number can't hold", err=True)
        raise typer.Exit(0 if rounds else 1)


async def write_csv(stream: _Stream, parts: Parts, board: Board) -> int:
    stats, times = [each.name for each in board.columns], ["reached_at"] if "earliest" in board.ties else []
    rows, written = csv.writer(stream, lineterminator="\n"), 0
    rows.writerow(("rank", "owner", *stats, "updated_at", *times))
    async for entries in parts:
        for entry in entries:
            values = (raw_text(entry.stats.get(stat)) for stat in stats)
            rows.writerow((entry.rank, entry.owner, *values, entry.updated_at, *(entry.reached_at for _ in times)))
        written += len(entries)
    return written


async def write_ndjson(stream: _Stream, parts: Parts, board: Board) -> int:
    written = 0
    async for entries in parts:
        stream.write("".join(ENCODER.encode(entry).decode() + "\n" for entry in entries))
        written += len(entries)
    return written


async def write_redis(stream: _Stream, parts: Parts, key: str, column: str) -> tuple[int, int]:
    """Write commands that add all entries to a sorted set. Return how many, and how many values Redis will round."""
    written = inexact = 0
    async for entries in parts:
        scores = [(raw_text(entry.stats[column]), entry.owner) for entry in entries]
        inexact += sum(not is_binary(score) for score, _ in scores)
        written += len(entries)
        if scores:
            stream.write(redis_command("ZADD", key, *chain.from_iterable(scores)))
    return written, inexact


async def _read_parts(client: AsyncClient, board: str, column: str, size: int, *, archived: bool) -> Parts:
    """Yield all entries of a ranking, best to worst, in lists of `size`. If the board is archived, rank them here."""
    if not archived:
        async for page in client.pages(board, column, limit=size):
            yield page.entries
        return
    places: list[tuple[int, int]] = []  # for each entry: its rank in the answer, and where it begins in the file
    with TemporaryFile() as kept:
        async for page in client.pages(board, column, limit=size, order="owner"):
            for entry in page.entries:
                places.append((entry.rank, kept.tell()))
                kept.write(ENCODER.encode(entry) + b"\n")
        places.sort()  # entries with equal ranks stay in the order of their owners
        rank = recorded = 0
        for start in range(0, len(places), size):
            part = []
            for number, (at, offset) in enumerate(places[start : start + size], start + 1):
                rank, recorded = (rank if at == recorded else number), at
                kept.seek(offset)
                part.append(structs.replace(_decode(kept.readline()), rank=rank))
            yield part


def redis_command(*words: str) -> str:
    """Encode a command for Redis (RESP): the number of words, and each word after its length in bytes."""
    return f"*{len(words)}\r\n" + "".join(f"${len(word.encode())}\r\n{word}\r\n" for word in words)


def is_binary(number: str) -> bool:
    """Return whether Redis, which keeps a score as a binary number, gives back this number with the same digits."""
    return Decimal(repr(float(number))) == Decimal(number)


def raw_text(value: object) -> str:
    """Format a value for a file: text unchanged, even control characters, and numbers with all digits."""
    return value if isinstance(value, str) else cell_text(value)


JOURNAL_LINES_MAX = 1_000  # lines in the response to one request
STREAM_ATTEMPTS_MAX = 3  # after this many failures in a row, the command gives up; a break counts as one
ColumnArgument = Annotated[
    str | None, typer.Argument(metavar="COLUMN", help="Ranked column. Default: the only one.", show_default=False)
]


@service_command()
async def journal(
    client: AsyncClient,
    after: Annotated[
        str, typer.Option(metavar="SEQ", help="The `seq` of the last line seen. 0: start at the beginning.")
    ] = "0",
) -> None:
    """Print the journal of accepted posts up to now (role `writer`)."""
    seen = after
    while True:
        query = {"after": seen, "limit": JOURNAL_LINES_MAX}
        lines = (await client.request("GET", "/v1/journal", bytes, query=query)).splitlines()
        if not lines:
            return
        for line in lines:
            say(line.decode())
        seen = str(decode(lines[-1], Record)["seq"])


@service_command()
async def stream(
    client: AsyncClient,
    board: BoardArgument,
    column: ColumnArgument = None,
    top: Annotated[int | None, typer.Option("--top", "-n", min=1, help="Number of the best rows.")] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="Show this owner's position instead.")] = None,
) -> None:
    """Print the top of a ranking, or an owner's position, whenever it changes. Stop it with Ctrl-C."""
    events = client.stream(board, column, top=top, owner=owner or None, attempts_max=STREAM_ATTEMPTS_MAX)
    async for event in events:
        number = int(event.id) if event.id.isdecimal() else event.id
        line: Record = {"id": number, "event": event.event, "data": {} if event.data is None else event.data}
        say(ENCODER.encode(line).decode())
