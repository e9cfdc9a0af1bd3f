"""The command `rankcurve import`, which copies a CSV file or a sorted set of Redis to a leaderboard.

The board must exist already, because only its specification says how values are merged and ranked.
"""

from pathlib import Path
from typing import Annotated

import typer
from rankcurve import AsyncClient, Retries

from service.commands.imports.csv_import import read_family, read_lines, split_facets
from service.commands.imports.redis_import import choose_column, read_members
from service.commands.imports.sending import send_records
from service.commands.target import BoardArgument, service_command

FileArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE.csv", exists=True, dir_okay=False, show_default=False, help="CSV in UTF-8, headings first."
    ),
]
RedisOption = Annotated[
    tuple[str, str] | None,
    typer.Option(
        "--redis",
        metavar="URL KEY",
        show_default=False,
        help="Copy a sorted set of Redis instead of a file: redis://host:6379/0 and the name of the set, before BOARD. "
        "Scores replace what the leaderboard has, so this needs a key with the role ops.",
    ),
]
MergeOption = Annotated[
    bool,
    typer.Option(
        "--merge",
        help="With --redis: merge each score like a post, so that it never replaces a better one. For columns of merge "
        "`max` or `min`, while a game writes to both. Needs the role writer only.",
    ),
]
OwnerOption = Annotated[
    str | None, typer.Option(help="Heading of the column that holds the owner.", show_default=False)
]
AtOption = Annotated[
    str | None,
    typer.Option(
        help="Heading of the column that holds the time of each line, like `reached_at` of an export. It says which of "
        "equal values was reached first. Default: the time of the import.",
        show_default=False,
    ),
]
FamilyOption = Annotated[
    bool,
    typer.Option(
        "--family", help="BOARD is a family: post to all its boards. Columns of the file also feed its facets, by name."
    ),
]
MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        "-c",
        metavar="COLUMN=HEADING",
        help="The column of the leaderboard and the heading of the file that feeds it; repeatable. xp=score posts the "
        "values under `score` as `xp`; xp alone means xp=xp. Default: every column that the file has a heading for. "
        "With --redis, the one column that takes the scores; default: the first ranked one.",
    ),
]
DelimiterOption = Annotated[str, typer.Option(help="Character that separates cells; `tab` for a tab.")]
RoundOption = Annotated[
    bool,
    typer.Option(
        "--round",
        help="Round values with more digits than their column's scale, like 48.682000000000002 from a binary number. "
        "Without this option such a line is rejected.",
    ),
]


@service_command(Retries(attempts_max=21, before_first_answer=False))
async def import_posts(
    client: AsyncClient,
    board: BoardArgument,
    file: FileArgument = None,
    redis: RedisOption = None,
    merge: MergeOption = False,
    owner_column: OwnerOption = None,
    at_column: AtOption = None,
    family: FamilyOption = False,
    column: MapOption = None,
    delimiter: DelimiterOption = ",",
    rounds: RoundOption = False,
) -> None:
    """Post every line of a CSV file to a leaderboard, or copy a sorted set of Redis.

    Each line is one post. Its id is made of the content of the file, the mapping and the line number. If an import was
    stopped, run the same command again: it sends every line, and lines that already counted are duplicates. The service
    remembers post ids for 30 days (its setting post_id_retention_s).

    Rejected lines are listed with their numbers, and the exit code is then 1. All other lines stay applied. To add the
    rejected lines, correct them and put only them into a new file under the same headings. If you edit the imported
    file or change the mapping, that is a new import: all lines count again.

    A sorted set may change while it is copied. Import it again when Redis no longer changes: each score replaces the
    owner's value, so both are then equal. But a member that was removed from Redis stays in the leaderboard.

    The leaderboard or family must exist. A line without a value for a facet reaches the other boards. For example:

        rankcurve board create season --column xp:sum:high
        rankcurve import season players.csv --owner-column id --column xp=score
        rankcurve import game players.csv --family --owner-column id --column xp=score --column country
        rankcurve import --redis redis://localhost:6379 KEY_IN_REDIS season
    """
    delimiter = "\t" if delimiter == "tab" else delimiter
    if len(delimiter) != 1 or delimiter in '"\r\n\0':
        raise typer.BadParameter("--delimiter is one character, or `tab`")
    if redis is not None and not (file or owner_column or at_column or family):
        spec = await client.board(board)
        records = read_members(*redis, choose_column(spec, column or (), merge=merge), merge=merge, rounds=rounds)
        await send_records(client, board, records, "members")
    elif redis is None and file is not None and owner_column is not None and not merge:
        spec, facets = await read_family(client, board) if family else (await client.board(board), {})
        lines = read_lines(file, spec, column or (), (owner_column, at_column), delimiter=delimiter, rounds=rounds)
        await send_records(client, board, split_facets(lines, facets), "lines", family=family)
    else:
        raise typer.BadParameter("give FILE.csv and --owner-column, or --redis URL KEY, which may have --merge")
