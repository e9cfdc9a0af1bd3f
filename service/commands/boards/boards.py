"""`rankcurve board …`: create, list, show and delete leaderboards. `rankcurve family …`: likewise families."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rankcurve import AsyncClient, UnexpectedAnswerError
from rankcurve.answers import Record, decode
from rankcurve.client import board_path
from rankcurve.column_words import whole_spec

from service.commands.operating.partitions import split
from service.commands.request_commands import REASON, add_list, add_request, argument, option
from service.commands.tables import show_json
from service.commands.target import BoardArgument, service_command

CLOSES_IN = timedelta(seconds=5)  # not 0, because the service refuses a closing time that is already past
BOARD_PATH = "/v1/leaderboards/{board}"
BOARD = argument("board", "BOARD", "Id of the leaderboard.")
READ_ONLY_MEMBERS = ("id", "entries", "owners", "changes", "created_at", "curves", "closed", "archived", "boards")

COLUMNS = option(
    "column", list[str], "A column like xp:sum:high, as described above; repeatable.", "--column", "-c", metavar="SPEC"
)
SPEC = option(
    "spec",
    Path,
    "A JSON file with the spec, as `show` prints it, instead of --column. Other options overwrite its members.",
    exists=True,
    dir_okay=False,
)
TIES = option(
    "ties",
    str,
    "shared: equal values share a rank. earliest: of equal values, the one reached first is better. Or the columns "
    "that order equal values, and perhaps earliest: time,earliest",
)
PARTITION = option("partition", int, "The partition of the store in which it is created. Default: the service chooses.")

RULES = (
    option("join", bool, "Only owners who have joined may post: `rankcurve join`.", "--join/--no-join"),
    option("posts_max", int, "Maximum number of posts per owner.", min=1),
    option("owners_max", int, "Maximum number of owners.", min=1),
)

board_app = typer.Typer(
    rich_markup_mode="markdown", no_args_is_help=True, help="Create, list, show and delete leaderboards."
)


def make_spec(given: dict[str, Any]) -> Record:
    """Turn the options of `create` that the user gave into a board's specification as JSON.

    Columns come from `column` or from the file `spec`. Raises typer.BadParameter unless exactly one is given and valid.
    """
    path, columns = given.pop("spec", None), given.pop("column", None)
    if (path is None) == (not columns):
        raise typer.BadParameter("give either --column (repeatable) or --spec")
    try:
        spec = {} if path is None else writable_members(decode(path.read_bytes(), Record))
        if rules := {name: given.pop(name) for name in [*given] if name in ("join", "posts_max", "owners_max")}:
            given["entry"] = {**spec.get("entry", {}), **rules}
        return whole_spec(spec, columns or (), given.pop("ties", None), given)
    except ValueError as cause:
        raise typer.BadParameter(str(cause)) from cause
    except (OSError, UnexpectedAnswerError, RecursionError) as cause:
        raise typer.BadParameter(f"{path}: {cause.__cause__ or cause}") from cause


def writable_members(document: Record) -> Record:
    """Drop from a board's JSON the fields that only the service sets, and every `min` or `max` that is null."""
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
    """List a board's columns as a text such as `xp, lap, (shots)`, with unranked ones in brackets."""
    columns = document.get("columns") or []
    return ", ".join(str(each.get("name")) if each.get("sorted") else f"({each.get('name')})" for each in columns)


# fmt: off
add_request(
    board_app, "create", f"PUT {BOARD_PATH}",
    """Create a leaderboard, or confirm that it has this specification.

    Running it again is harmless. New columns can be added to a board in use. A change that would reinterpret stored
    values is refused. A column is written as

        NAME:sum|max|min|last|with=COLUMN|quotient=COLUMN/COLUMN[:from=N][:high|low][:scale=N][:min=N][:max=N]
            [:unsorted][:text]

    and is ranked unless it is `unsorted` or `text`. `sum` adds up, `max` and `min` keep the greatest or least value,
    `last` keeps the latest. `with=score` keeps the value of the post that brought the `score` (unranked).
    `quotient=hits/shots:from=100` is computed where `shots` are 100 or more, and never posted. `high` or `low` says
    which values rank first: by default `low` for `min`, otherwise `high`. `scale` is the number of decimals; `min.3`
    and `low.3` have three.

    For example:

        rankcurve board create season -c xp:sum -c best_lap:min.3
        rankcurve board create runs -c score:max -c time:with=score:low.3 --ties time,earliest
        rankcurve board create season --spec season.json
        rankcurve board create spring -c xp:sum --closes-at 2026-05-31T22:00:00Z --keep-seconds 2592000
        rankcurve board show season > season.json
    """,
    BOARD, COLUMNS, SPEC, TIES,
    option("opens_at", str, "Posts before this time are rejected."),
    option("closes_at", str, "Posts at or after this time are rejected, like 2026-12-31T23:00:00Z."),
    option("grace_seconds", int, "How long late posts still count after that.", min=0),
    option("keep_seconds", int, "How long its rows are kept after it closes, before it is archived.", min=0),
    PARTITION, option("segments", int, "Number of parts to spread its owners over.", min=1, max=64), *RULES,
    convert=make_spec,
)
add_list(
    board_app, "list", "/v1/leaderboards", "List leaderboards by id.",
    {"board": "id", "columns": columns_text, "state": state_text, "entries": "entries", "created": "created_at"},
    option("prefix", str, "Show only ids that start with this."), numeric=("entries",),
)
add_request(
    board_app, "show", f"GET {BOARD_PATH}",
    "Show a leaderboard's spec, its number of entries and the state of its curves, as JSON.", BOARD,
)
add_request(
    board_app, "reset", f"POST {BOARD_PATH}/reset",
    "Empty a leaderboard and keep its spec. Later posts whose `at` is before that are rejected. The "
    "command asks first unless --yes is given.",
    BOARD, REASON, confirm="Remove all entries of {board}?",
)
add_request(
    board_app, "delete", f"DELETE {BOARD_PATH}",
    "Delete a leaderboard with all its entries. This can't be undone; the command asks first unless --yes is given.",
    BOARD, REASON, confirm="Delete {board} with all its entries?",
)
# fmt: on


@board_app.command("close")
@service_command()
async def close(
    client: AsyncClient,
    board: BoardArgument,
    at: Annotated[
        str | None, typer.Option(help="The time to close, like 2026-12-31T23:00:00Z. Default: in a few seconds.")
    ] = None,
) -> None:
    """Set when a leaderboard closes, and drop its grace period for late posts. Prints its spec as JSON.

    Posts at or after the closing time are rejected, even if the leaderboard was created without a closing time. A
    closed board can't be reopened. Boards of a family close by themselves.
    """
    when = at or (datetime.now(UTC) + CLOSES_IN).isoformat()
    held = writable_members(await client.request("GET", board_path(board), Record))
    wanted = {**held, "closes_at": when, "grace_seconds": 0}
    show_json(await client.request("PUT", board_path(board), Record, body=wanted))


board_app.command("split")(split)


FAMILY_PATH = "/v1/families/{family}"
FAMILY = argument("family", "FAMILY", "Id of the family.")
PERIOD = option("period", str, "all, year, month, week or day, as far as the family has it.", default=...)
AT = option("at", str, "A time in the period, like 2026-12-05T00:00:00Z. Default: now.")
WITHIN = argument("within", "[FACET=VALUE]…", "Values of facets.", list[str] | None).replace(default=None)

family_app = typer.Typer(
    rich_markup_mode="markdown",
    no_args_is_help=True,
    help="Families: boards by period and by facet that one post reaches together.",
)


def parse_pairs(texts: list[str], what: str) -> dict[str, str]:
    """Parse texts of the form `name=value` into a dict. Raises typer.BadParameter if one is malformed or repeated."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals or name in found:
            raise typer.BadParameter(f"{text!r} is not {what}, each name once")
        found[name] = value
    return found


def make_family_spec(given: dict[str, Any]) -> Record:
    """Turn the options of `create` into a family's specification as JSON. Raises typer.BadParameter if one is bad."""
    if "spec" not in given:
        given = {"periods": ["all"], "facets": [], **given}
    if "facets" in given:
        given["facets"] = [[], *([name for name in text.split(",") if name] for text in given["facets"])]
    if "keep" in given:
        pairs = parse_pairs(given["keep"], "like day=30")
        if not all(map(str.isdecimal, pairs.values())):
            raise typer.BadParameter(f"{given['keep']} are not like day=30")
        given["keep"] = {name: int(count) for name, count in pairs.items()}
    return make_spec(given)


def with_facets(given: dict[str, Any]) -> Record:
    return {**given, **parse_pairs(given.pop("within", []), "FACET=VALUE")}


# fmt: off
add_request(
    family_app, "create", f"PUT {FAMILY_PATH}",
    """Create a family, confirm that it has this specification, add columns to it, or shorten its grace.

    Columns are written as for `rankcurve board create`.

    For example:

        rankcurve family create game -c xp:sum:high --period all --period week --facets org --time-zone Europe/Berlin
        rankcurve family create game --spec game.json
    """,
    FAMILY, COLUMNS, option("periods", list[str], "all, year, month, week or day; repeatable.", "--period"),
    option("facets", list[str], "Facets by which boards are split, like org or location,org; repeatable. There is "
           "always a board for everybody, too."),
    option("time_zone", str, "Time zone in which periods begin and end. Default: UTC."),
    option("grace_seconds", int, "How long late posts still count after a period has ended.", min=0),
    option("keep", list[str], "Number of closed periods that keep their rows, like day=30; repeatable."),
    TIES, SPEC, PARTITION, *RULES, convert=make_family_spec,
)
add_request(
    family_app, "show", f"GET {FAMILY_PATH}",
    "Show a family's spec and the number of its boards that have received posts, as JSON.", FAMILY,
)
add_request(
    family_app, "reset", f"POST {FAMILY_PATH}/reset",
    "Empty a family's current boards of one kind of period, such as those of this week. Posts from before that, by "
    "their `at`, are rejected there from then on. The command asks first unless --yes is given.",
    FAMILY, PERIOD, REASON, confirm="Remove all entries of the current {period} of {family}?",
)
add_request(
    family_app, "delete", f"DELETE {FAMILY_PATH}",
    "Delete a family with all its boards. This can't be undone; the command asks first unless --yes is given.",
    FAMILY, REASON, confirm="Delete {family} with all its boards?",
)
add_request(
    family_app, "board", f"GET {FAMILY_PATH}/boards",
    """Print the id of a family's board for a period and facet values. Commands such as `rankcurve top` take this id.

    For example:

        rankcurve top "$(rankcurve family board game --period week org=7)" -c xp
    """,
    FAMILY, WITHIN, PERIOD, AT, convert=with_facets, show=lambda found: typer.echo(found["board"]),
)
