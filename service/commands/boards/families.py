"""`rankcurve family …`: manage families, find the board of a period, list facet values, and show an owner's history."""

from typing import Annotated

import typer
from rankcurve import AsyncClient
from rankcurve.answers import Position, Record
from rankcurve.client import family_path

from service.commands.boards.boards import (
    ColumnsOption,
    PartitionOption,
    SpecOption,
    TiesOption,
    parse_number,
    read_spec,
)
from service.commands.reading.ranks import bracket_text
from service.commands.requests import add_request, argument
from service.commands.tables import show_json, show_records, show_table
from service.commands.target import JsonOption, NumbersAreArguments, fail, service_command, take

READ_ONLY_MEMBERS = ("id", "boards", "created_at")
FamilyArgument = Annotated[str, typer.Argument(metavar="FAMILY", help="Id of the family.", show_default=False)]
FAMILY_PATH = "/v1/families/{family}"
FAMILY = argument("family", FamilyArgument)
PeriodOption = Annotated[
    str | None,
    typer.Option(help="all, year, month, week or day. Default: all, or the first that the family has instead."),
]
AtOption = Annotated[str | None, typer.Option(help="A time in the period, like 2026-12-05T00:00:00Z. Default: now.")]
WithinArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[FACET=VALUE]…", help="Values of facets.", show_default=False)
]

family_app = typer.Typer(
    rich_markup_mode="markdown",
    no_args_is_help=True,
    help="Families: boards by period and by facet that one post reaches together.",
)


def parse_pairs(texts: list[str] | None, what: str) -> dict[str, str]:
    """Return texts of the form `name=value` as a dict. Raises typer.BadParameter."""
    found: dict[str, str] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not name or not equals or name in found:
            raise typer.BadParameter(f"{text!r} is not {what}, each name once")
        found[name] = value
    return found


@family_app.command("create")
@service_command()
async def create(
    client: AsyncClient,
    family: FamilyArgument,
    column: ColumnsOption = None,
    period: Annotated[
        list[str] | None, typer.Option("--period", help="all, year, month, week or day; repeatable.")
    ] = None,
    facets: Annotated[
        list[str] | None,
        typer.Option(
            help="Facets by which boards are split, like org or location,org; repeatable. There is always a board for "
            "everybody, too."
        ),
    ] = None,
    time_zone: Annotated[str, typer.Option(help="Time zone in which periods begin and end.")] = "UTC",
    grace_seconds: Annotated[
        int | None, typer.Option(min=0, help="For how long after a period late posts still count.")
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="Number of closed periods that keep their rows, like day=30; repeatable.")
    ] = None,
    ties: TiesOption = None,
    spec: SpecOption = None,
    partition: PartitionOption = None,
) -> None:
    """Create a family, confirm that it has this specification, add columns to it, or shorten its grace.

    Columns are written as for `rankcurve board create`.

    For example:

        rankcurve family create game -c xp:sum:high --period all --period week --facets org --time-zone Europe/Berlin
        rankcurve family create game --spec game.json
    """
    wanted = {name: value for name, value in read_spec(spec, column).items() if name not in READ_ONLY_MEMBERS}
    if spec is None:
        wanted |= {
            "periods": period or ["all"],
            "facets": [[], *([name for name in text.split(",") if name] for text in facets or [])],
            "time_zone": time_zone,
            "keep": {name: parse_number(name, count) for name, count in parse_pairs(keep, "like day=30").items()},
        }
        wanted |= {"ties": ties} if ties else {}
        wanted |= {} if grace_seconds is None else {"grace_seconds": grace_seconds}
    wanted |= {} if partition is None else {"partition": partition}
    show_json(await client.request("PUT", family_path(family), Record, body=wanted))


add_request(
    family_app, "show", f"GET {FAMILY_PATH}",
    "Show a family's spec and the number of its boards that have received posts, as JSON.", FAMILY,
)  # fmt: skip
add_request(
    family_app, "delete", f"DELETE {FAMILY_PATH}",
    "Delete a family with all its boards. This can't be undone; the command asks first unless --yes is given.",
    FAMILY, confirm="Delete {family} with all its boards?",
)  # fmt: skip


async def choose_period(client: AsyncClient, family: str, *, closing: bool = False) -> str:
    """Return the period of a family that a command shows if none is named. `closing`: leave out `all`, as it stays."""
    periods: list[str] = (await client.request("GET", family_path(family), Record))["periods"]
    found = [name for name in periods if name != "all"] if closing else sorted(periods, key="all".__ne__)
    if not found:
        fail(f"{family} has no period that closes")
    return found[0]


@family_app.command("board")
@service_command()
async def board(
    client: AsyncClient,
    family: FamilyArgument,
    within: WithinArgument = None,
    period: PeriodOption = None,
    at: AtOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the id of a family's board for a period and facet values. Commands such as `rankcurve top` take this id.

    For example:

        rankcurve top "$(rankcurve family board game --period week org=7)" -c xp
    """
    facets = parse_pairs(within, "FACET=VALUE")
    query = {**facets, "period": period or await choose_period(client, family), "at": at or None}
    found = await client.request("GET", f"{family_path(family)}/boards", Record, query=query)
    if as_json:
        show_json(found)
    else:
        typer.echo(found["board"])


@family_app.command("facets")
@service_command()
async def list_values(
    client: AsyncClient,
    family: FamilyArgument,
    facet: Annotated[str, typer.Argument(help="The facet whose values are listed.", show_default=False)],
    within: WithinArgument = None,
    period: PeriodOption = None,
    at: AtOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the values of a facet in a period, each with the id of its board and that board's number of entries."""
    facets = parse_pairs(within, "FACET=VALUE")
    query = {**facets, "period": period or await choose_period(client, family), "facet": facet, "at": at or None}
    found = await take(client.list_records(f"{family_path(family)}/facets", "values", Record, query))
    columns = {facet: "value", "entries": "entries", "board": "board"}
    show_records(found, columns, as_json=as_json, numeric=("entries",))


@family_app.command("history", cls=NumbersAreArguments)
@service_command()
async def history(
    client: AsyncClient,
    family: FamilyArgument,
    owner: Annotated[str, typer.Argument(metavar="OWNER", help="Whose positions.", show_default=False)],
    column: Annotated[str, typer.Argument(metavar="COLUMN", help="Ranked column.", show_default=False)],
    within: WithinArgument = None,
    period: Annotated[
        str | None, typer.Option(help="year, month, week or day. Default: the first that the family has.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Number of periods.")] = 30,
    as_json: JsonOption = False,
) -> None:
    """Show an owner's final positions in the closed periods, newest first."""
    facets = parse_pairs(within, "FACET=VALUE")
    period = period or await choose_period(client, family, closing=True)
    found = await take(client.history(family, owner, column, period=period, facets=facets), limit)
    if as_json:
        show_json(found)
        return
    rows = [(each.board, *position_cells(each.position)) for each in found]
    show_table(("board", "value", "rank", "between", "of"), rows, numeric=("value", "rank", "of"))


def position_cells(position: Position | None) -> tuple[object, ...]:
    """Return value, rank, bracket and total of a position. Without a position, the bracket is `no value`."""
    if position is None:
        return None, None, "no value", None
    return position.value, position.rank, bracket_text(position), position.total
