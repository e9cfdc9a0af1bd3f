"""`rankcurve board …`: create, list, show and delete leaderboards."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from service.client.client import NotTheContractError, ServiceClient, board_path, decode_answer
from service.commands.tables import show_json, show_table
from service.commands.target import (
    DEFAULT_URL,
    BoardArgument,
    JsonOption,
    KeyOption,
    LimitOption,
    Target,
    UrlOption,
    YesOption,
    call_service,
    delete_if_confirmed,
)

MERGES = ("sum", "max", "min", "last")
BESTS = ("high", "low")
COLUMN_WORDS = "NAME:sum|max|min|last[:high|low][:scale=N][:min=N][:max=N][:unsorted][:text]"
CLOSES_IN = timedelta(seconds=5)  # not 0, because the service refuses a closing time that is already past
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
    str | None,
    typer.Option(help="shared: equal values share a rank. earliest: of equal values, the one reached first is better."),
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
        if word in MERGES:
            field, value = "merge", word
        elif word in BESTS:
            field, value = "best", word
        elif word == "text":
            field, value = "type", word
        elif word == "unsorted":
            spec["sorted"] = False
            continue
        elif equals and option in ("scale", "min", "max"):
            spec[option] = parse_number(option, number)
            continue
        else:
            raise typer.BadParameter(f"{word!r} in {text!r} is not part of {COLUMN_WORDS}")
        if field in spec:
            raise typer.BadParameter(f"{text!r} gives {field} twice")
        spec[field] = value
    if spec.get("type") == "text":
        spec["sorted"] = False  # a text column is never ranked
    if not name or "merge" not in spec:
        raise typer.BadParameter(f"{text!r} needs a name and one of {', '.join(MERGES)}: {COLUMN_WORDS}")
    return spec


def parse_number(option: str, text: str) -> object:
    """Return a whole number as an int, and a decimal as the text itself, so that no digit is lost."""
    sign, digits = text[:1] == "-", text.removeprefix("-")
    whole, _, fraction = digits.partition(".")
    whole_number = "." not in digits
    well_formed = len(text) <= 32 and digits.isascii() and whole.isdecimal() and (whole_number or fraction.isdecimal())
    if not well_formed or (option == "scale" and (sign or not whole_number)):
        raise typer.BadParameter(f"{option}={text} is not a number that {option} accepts")
    return int(text) if whole_number else text


@board_app.command(
    "create",
)
def create(
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
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Create a leaderboard, or confirm that it has this specification.

    Running it again is harmless. New columns can be added to a board in use. A change that would reinterpret stored
    values is refused. A column is written as

        NAME:sum|max|min|last[:high|low][:scale=N][:min=N][:max=N][:unsorted][:text]

    and is ranked unless it is `unsorted` or `text`. `sum` adds up, `max` and `min` keep the greatest or least value,
    `last` keeps the latest. `high` (default) or `low` says which values rank first. `scale` is the number of decimals.

    Examples:
        rankcurve board create season -c xp:sum:high -c best_lap:min:low:scale=3
        rankcurve board create season --spec season.json
        rankcurve board create spring -c xp:sum --closes-at 2026-05-31T22:00:00Z --keep-seconds 2592000
        rankcurve board show season > season.json
    """
    if (spec is None) == (not column):
        raise typer.BadParameter("give either --column (repeatable) or --spec")
    if ties not in (None, "shared", "earliest"):
        raise typer.BadParameter("--ties is shared or earliest")
    if spec is not None and ties is not None:
        raise typer.BadParameter("--ties belongs in the file given with --spec")
    wanted: dict[str, object] = read_spec(spec) if spec else {"columns": parse_columns(column)}
    times: dict[str, object] = {"opens_at": opens_at, "closes_at": closes_at}
    times |= {"grace_seconds": grace_seconds, "keep_seconds": keep_seconds}
    wanted |= {name: value for name, value in times.items() if value is not None}
    if ties:
        wanted["ties"] = ties

    async def action(client: ServiceClient) -> None:
        show_json(await client.put_board(board, wanted))

    call_service(Target(url, key), action)


def parse_columns(texts: list[str] | None) -> list[dict[str, object]]:
    return [parse_column(text) for text in texts or []]


def read_spec(path: Path) -> dict[str, Any]:
    """Return the specification in the file `path`, or in a saved output of `board show`. Raises typer.BadParameter."""
    try:
        document: dict[str, Any] = decode_answer(path.read_bytes(), dict[str, Any])
    except (OSError, NotTheContractError) as cause:
        raise typer.BadParameter(f"{path}: {cause.__cause__ or cause}") from cause
    return writable_members(document)


def writable_members(document: dict[str, Any]) -> dict[str, Any]:
    """Return a board document without null bounds, and without the members that only the service sets."""
    spec = {name: value for name, value in document.items() if name not in READ_ONLY_MEMBERS}
    columns = spec.get("columns")
    if isinstance(columns, list):
        spec["columns"] = [without_nulls(column) if isinstance(column, dict) else column for column in columns]
    return spec


def without_nulls(column: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in column.items() if value is not None or name not in ("min", "max")}


@board_app.command("list")
def list_boards(
    prefix: Annotated[str, typer.Option(help="Show only ids that start with this.")] = "",
    limit: LimitOption = 1000,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """List leaderboards by id."""

    async def action(client: ServiceClient) -> None:
        documents = await client.list_boards(prefix, limit=limit)
        if as_json:
            show_json(documents)
            return
        show_table(
            ("board", "columns", "state", "entries", "created"),
            [
                (doc.get("id"), columns_text(doc), state_text(doc), doc.get("entries"), doc.get("created_at"))
                for doc in documents
            ],
            numeric=("entries",),
        )

    call_service(Target(url, key), action)


def state_text(document: dict[str, Any]) -> str:
    return "archived" if document.get("archived") else "closed" if document.get("closed") else "open"


def columns_text(document: dict[str, Any]) -> str:
    """Return the names of a board's columns such as `xp, lap, (shots)`. Unranked columns are in brackets."""
    columns = document.get("columns") or []
    return ", ".join(str(each.get("name")) if each.get("sorted") else f"({each.get('name')})" for each in columns)


@board_app.command("show")
def show(board: BoardArgument, url: UrlOption = DEFAULT_URL, key: KeyOption = None) -> None:
    """Show a leaderboard's spec, its number of entries and the state of its curves, as JSON."""

    async def action(client: ServiceClient) -> None:
        show_json(await client.get_board_document(board))

    call_service(Target(url, key), action)


@board_app.command("close")
def close(
    board: BoardArgument,
    at: Annotated[
        str | None, typer.Option(help="The time to close, like 2026-12-31T23:00:00Z. Default: in a few seconds.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Set a leaderboard's closing time and set its grace to 0. Prints its spec as JSON.

    The leaderboard must already have an opening or a closing time. Posts at or after the new closing time are rejected.
    Once the board is closed, this can't be undone. Boards of a family close by themselves.
    """
    when = at or (datetime.now(UTC) + CLOSES_IN).isoformat()

    async def action(client: ServiceClient) -> None:
        wanted = writable_members(await client.get_board_document(board))
        show_json(await client.put_board(board, {**wanted, "closes_at": when, "grace_seconds": 0}))

    call_service(Target(url, key), action)


@board_app.command("delete")
def delete(
    board: BoardArgument,
    yes: YesOption = False,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Delete a leaderboard with all its entries. This can't be undone; the command asks first unless --yes is given."""
    delete_if_confirmed(Target(url, key), board_path(board), board, f"Delete {board} with all its entries?", yes=yes)
