"""`rankcurve board …`: create, list, show and delete leaderboards."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

import typer
from rankcurve import AsyncClient, UnexpectedAnswerError
from rankcurve.answers import Record, decode
from rankcurve.client import board_path

from service.commands.operating.board_moves import split
from service.commands.requests import add_list, add_request, argument, option
from service.commands.tables import show_json
from service.commands.target import BoardArgument, service_command

MERGES = ("sum", "max", "min", "last")
MEMBERS = {**dict.fromkeys(MERGES, "merge"), "high": "best", "low": "best", "text": "type"}  # of a column, by word
COLUMN_WORDS = "NAME:sum|max|min|last[:high|low][:scale=N][:min=N][:max=N][:unsorted][:text]"
CLOSES_IN = timedelta(seconds=5)  # not 0, because the service refuses a closing time that is already past
BOARD_PATH = "/v1/leaderboards/{board}"
BOARD = argument("board", BoardArgument)
READ_ONLY_MEMBERS = ("id", "entries", "created_at", "curves", "closed", "archived")

ColumnsOption = Annotated[
    list[str] | None,
    typer.Option("--column", "-c", metavar="SPEC", help="A column like xp:sum:high, as described above; repeatable."),
]
SpecOption = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="A JSON file with the spec, as `board show` prints it, instead of --column and --ties.",
    ),
]
TiesOption = Annotated[
    Literal["shared", "earliest"] | None,
    typer.Option(help="shared: equal values share a rank. earliest: of equal values, the one reached first is better."),
]
PartitionOption = Annotated[
    int | None,
    typer.Option(min=0, help="The partition of the store in which it is created. Default: the service chooses."),
]

board_app = typer.Typer(
    rich_markup_mode="markdown", no_args_is_help=True, help="Create, list, show and delete leaderboards."
)


def parse_column(text: str) -> dict[str, object]:
    """Return the column of a text such as `xp:sum:high` or `lap:min:low:scale=3`. Raises typer.BadParameter."""
    name, *words = text.split(":")
    spec: dict[str, object] = {"name": name, "sorted": True}
    for word in words:
        option, equals, number = word.partition("=")
        if word in MEMBERS:
            if MEMBERS[word] in spec:
                raise typer.BadParameter(f"{text!r} gives {MEMBERS[word]} twice")
            spec[MEMBERS[word]] = word
        elif word == "unsorted":
            spec["sorted"] = False
        elif equals and option in ("scale", "min", "max"):
            spec[option] = parse_number(option, number)
        else:
            raise typer.BadParameter(f"{word!r} in {text!r} is not part of {COLUMN_WORDS}")
    if spec.get("type") == "text":
        spec["sorted"] = False  # a text column is never ranked
    if not name or "merge" not in spec:
        raise typer.BadParameter(f"{text!r} needs a name and one of {', '.join(MERGES)}: {COLUMN_WORDS}")
    return spec


def parse_number(option: str, text: str) -> object:
    """Return a whole number as an int, and a decimal as the text itself, so that no digit is lost."""
    form = r"[0-9]{1,32}" if option == "scale" else r"-?[0-9]{1,31}(\.[0-9]{1,31})?"
    if not re.fullmatch(form, text):
        raise typer.BadParameter(f"{option}={text} is not a number that {option} accepts")
    return text if "." in text else int(text)


@board_app.command("create")
@service_command()
async def create(
    client: AsyncClient,
    board: BoardArgument,
    column: ColumnsOption = None,
    spec: SpecOption = None,
    ties: TiesOption = None,
    opens_at: Annotated[str | None, typer.Option(help="Posts before this time are rejected.")] = None,
    closes_at: Annotated[
        str | None, typer.Option(help="Posts at or after this time are rejected, like 2026-12-31T23:00:00Z.")
    ] = None,
    grace_seconds: Annotated[
        int | None, typer.Option(min=0, help="For how long after that late posts still count.")
    ] = None,
    keep_seconds: Annotated[
        int | None, typer.Option(min=0, help="For how long it keeps its rows once closed, before it is archived.")
    ] = None,
    partition: PartitionOption = None,
    segments: Annotated[
        int | None, typer.Option(min=1, max=64, help="Over how many parts its owners are spread.")
    ] = None,
) -> None:
    """Create a leaderboard, or confirm that it has this specification.

    Running it again is harmless. New columns can be added to a board in use. A change that would reinterpret stored
    values is refused. A column is written as

        NAME:sum|max|min|last[:high|low][:scale=N][:min=N][:max=N][:unsorted][:text]

    and is ranked unless it is `unsorted` or `text`. `sum` adds up, `max` and `min` keep the greatest or least value,
    `last` keeps the latest. `high` or `low` says which values rank first: by default `low` for `min`, otherwise `high`.
    `scale` is the number of decimals.

    For example:

        rankcurve board create season -c xp:sum:high -c best_lap:min:low:scale=3
        rankcurve board create season --spec season.json
        rankcurve board create spring -c xp:sum --closes-at 2026-05-31T22:00:00Z --keep-seconds 2592000
        rankcurve board show season > season.json
    """
    wanted = read_spec(spec, column)
    if spec is not None and ties is not None:
        raise typer.BadParameter("--ties belongs in the file given with --spec")
    more: Record = {"opens_at": opens_at, "closes_at": closes_at, "ties": ties}
    more |= {"grace_seconds": grace_seconds, "keep_seconds": keep_seconds, "partition": partition, "segments": segments}
    wanted |= {name: value for name, value in more.items() if value is not None}
    show_json(await client.request("PUT", board_path(board), Record, body=wanted))


def read_spec(path: Path | None, columns: list[str] | None) -> Record:
    """Return the specification in a file such as a saved output of `board show`, or one with the columns in words.

    Raises:
        typer.BadParameter: both or none are given, or cannot be read.
    """
    if (path is None) == (not columns):
        raise typer.BadParameter("give either --column (repeatable) or --spec")
    if path is None:
        return {"columns": [parse_column(text) for text in columns or []]}
    try:
        document: Record = decode(path.read_bytes(), Record)
    except (OSError, UnexpectedAnswerError) as cause:
        raise typer.BadParameter(f"{path}: {cause.__cause__ or cause}") from cause
    return writable_members(document)


def writable_members(document: Record) -> Record:
    """Return a board document without null bounds, and without the members that only the service sets."""
    spec = {name: value for name, value in document.items() if name not in READ_ONLY_MEMBERS}
    columns = spec.get("columns")
    if isinstance(columns, list):
        for column in columns:
            for bound in ("min", "max"):
                if isinstance(column, dict) and column.get(bound, 0) is None:
                    del column[bound]
    return spec


def state_text(document: Record) -> str:
    return "archived" if document.get("archived") else "closed" if document.get("closed") else "open"


def columns_text(document: Record) -> str:
    """Return the names of a board's columns such as `xp, lap, (shots)`. Unranked columns are in brackets."""
    columns = document.get("columns") or []
    return ", ".join(str(each.get("name")) if each.get("sorted") else f"({each.get('name')})" for each in columns)


add_list(
    board_app, "list", "/v1/leaderboards", "List leaderboards by id.",
    {"board": "id", "columns": columns_text, "state": state_text, "entries": "entries", "created": "created_at"},
    option("prefix", str, "Show only ids that start with this."), numeric=("entries",),
)  # fmt: skip
add_request(
    board_app, "show", f"GET {BOARD_PATH}",
    "Show a leaderboard's spec, its number of entries and the state of its curves, as JSON.", BOARD,
)  # fmt: skip
add_request(
    board_app, "delete", f"DELETE {BOARD_PATH}",
    "Delete a leaderboard with all its entries. This can't be undone; the command asks first unless --yes is given.",
    BOARD, confirm="Delete {board} with all its entries?",
)  # fmt: skip


@board_app.command("close")
@service_command()
async def close(
    client: AsyncClient,
    board: BoardArgument,
    at: Annotated[
        str | None, typer.Option(help="The time to close, like 2026-12-31T23:00:00Z. Default: in a few seconds.")
    ] = None,
) -> None:
    """Set a leaderboard's closing time and set its grace to 0. Prints its spec as JSON.

    Posts at or after the closing time are rejected, also if the leaderboard was created without one. Once the board is
    closed, this can't be undone. Boards of a family close by themselves.
    """
    when = at or (datetime.now(UTC) + CLOSES_IN).isoformat()
    held = writable_members(await client.request("GET", board_path(board), Record))
    wanted = {**held, "closes_at": when, "grace_seconds": 0}
    show_json(await client.request("PUT", board_path(board), Record, body=wanted))


board_app.command("split")(split)
