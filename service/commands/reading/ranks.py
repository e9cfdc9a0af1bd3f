"""`rankcurve top` and `rankcurve rank`: read a ranking from a terminal."""

from enum import StrEnum
from typing import Annotated

import typer

from service.client.client import PAGE_ENTRIES_MAX, ServiceClient, board_path, quote_segment, ranking_path
from service.client.client_answers import Board, Page, Position
from service.commands.tables import show_json, show_table
from service.commands.target import BoardArgument, JsonOption, fail, service_command


class Mode(StrEnum):
    """The ways in which a rank may be found."""

    auto = "auto"
    exact = "exact"
    estimate = "estimate"


ColumnOption = Annotated[
    str | None, typer.Option("--column", "-c", help="Ranked column. Default: the board's first.", show_default=False)
]
# Older versions had `top BOARD COLUMN` instead of --column. Scripts may still use that form.
ColumnArgument = Annotated[str | None, typer.Argument(metavar="COLUMN", hidden=True)]
OwnerArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="OWNER",
        help="Owner whose positions are shown, even one like `-5`; not with --value.",
        show_default=False,
    ),
]
ColumnsOption = Annotated[
    list[str] | None, typer.Option("--column", "-c", help="Ranked column, repeatable. Default: all.")
]
ValuesOption = Annotated[
    list[str] | None, typer.Option("--value", help="Show the rank of this value instead of an owner's; repeatable.")
]


def named_column(argument: str | None, option: str | None) -> str | None:
    """Return the column, which may be named in one of two ways. Raises typer.BadParameter if both are used."""
    if argument and option:
        raise typer.BadParameter("name the column once, with --column")
    return option or argument


async def ranked_column(client: ServiceClient, board: str, column: str | None) -> str:
    """Return `column`, or the board's first ranked one. End the command if there is none."""
    return column or first_ranked(board, await client.get_board(board))


def first_ranked(name: str, board: Board) -> str:
    ranked = board.ranked_columns()
    if not ranked:
        fail(f"{name} has no ranked column")
    return ranked[0]


@service_command()
async def top(
    client: ServiceClient,
    board: BoardArgument,
    column_argument: ColumnArgument = None,
    column: ColumnOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=PAGE_ENTRIES_MAX, help="Number of rows.")] = 10,
    from_rank: Annotated[int, typer.Option(min=1, help="Start at this row instead of the first.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Show the top of a ranking, or any other part of it. A rank like ~12345 is an estimate."""
    column = named_column(column_argument, column)
    name = await ranked_column(client, board, column)
    query = {"limit": limit, "from_rank": from_rank if from_rank > 1 else None}
    page = await client.request_answer("GET", ranking_path(board, name), Page, query=query)
    if as_json:
        show_json(page)
        return
    show_table(
        ("rank", "owner", name, "updated"),
        [(f"{'' if e.exact else '~'}{e.rank}", e.owner, e.value, e.updated_at) for e in page.entries],
        numeric=("rank", name),
    )
    if not all(entry.exact for entry in page.entries):
        typer.echo(
            f"~ marks an estimate from the curve; rankcurve rank {board} OWNER -c {name} shows its bounds", err=True
        )


@service_command()
async def rank(
    client: ServiceClient,
    board: BoardArgument,
    owner: OwnerArgument = None,
    column: ColumnsOption = None,
    value: ValuesOption = None,
    with_next: Annotated[
        bool, typer.Option("--next", help="Also show what is missing to the next better place.")
    ] = False,
    with_previous: Annotated[
        bool, typer.Option("--previous", help="On a family's board, also show the period before and who moved since.")
    ] = False,
    mode: Annotated[Mode, typer.Option(help="auto: count near the top, and use the curve elsewhere.")] = Mode.auto,
    as_json: JsonOption = False,
) -> None:
    """Show the rank of an owner, or the rank that a value would have, and the bracket that contains the true rank."""
    if (owner is None) == (not value):
        raise typer.BadParameter("give either an OWNER or --value")
    if value and column and len(column) > 1:
        raise typer.BadParameter("--value goes with one --column")
    if (with_next or with_previous) and owner is None:
        raise typer.BadParameter("--next and --previous go with an OWNER")
    if any("," in text for text in [*(value or []), *(column or [])]):
        raise typer.BadParameter("repeat the option; commas do not separate values")
    if owner is not None:
        path = f"{board_path(board)}/entries/{quote_segment(owner)}/positions"
        query: dict[str, object] = {"rank": mode.value, "columns": ",".join(column) if column else None}
        query |= {"next": "true" if with_next else None, "compare": "previous" if with_previous else None}
    else:
        path = f"{ranking_path(board, await ranked_column(client, board, column[0] if column else None))}/positions"
        query = {"values": ",".join(value or []), "rank": mode.value}
    positions = await client.list_records(path, "positions", list[Position], query=query)
    if as_json:
        show_json(positions)
    else:
        show_positions(positions)
        if with_next:
            show_next(positions)
        if with_previous:
            show_previous(positions)


def show_positions(positions: list[Position]) -> None:
    """Print one line for each position, with both bounds of the bracket if the rank is an estimate."""
    headings = ("column", "value", "rank", "between", "of", "better than %", "method", "as of")
    rows = [
        (each.column, each.value, each.rank, bracket_text(each), each.total, each.percentile, each.method, each.as_of)
        for each in positions
    ]
    show_table(headings, rows, numeric=("value", "rank", "of", "better than %"))


def show_next(positions: list[Position]) -> None:
    """For each position with a next better rank, print that rank, its value and the missing points."""
    rows = [(each.column, each.next.rank, each.next.value, each.next.points) for each in positions if each.next]
    typer.echo()
    show_table(("column", "next rank", "held with", "points missing"), rows, numeric=("next rank", "points missing"))


def show_previous(positions: list[Position]) -> None:
    """Print one line for each position that has an earlier period.

    The line shows how many ranks the owner gained by the owner's own value, and how many by the values of others.
    """
    rows = [
        (
            each.column,
            each.previous.board,
            each.previous.position and each.previous.position.rank,
            each.previous.value_position and each.previous.value_position.rank,
            each.previous.moved,
            each.previous.field_moved,
        )
        for each in positions
        if each.previous
    ]
    headings = ("column", "before", "rank then", "today's value then", "moved", "field moved")
    typer.echo()
    show_table(headings, rows, numeric=headings[2:])


def bracket_text(position: Position) -> str:
    """Return `exact`, or bounds such as `12301..12390`, or `no value`."""
    if position.rank is None:
        return "no value"
    return "exact" if position.exact else f"{position.low}..{position.high}"
