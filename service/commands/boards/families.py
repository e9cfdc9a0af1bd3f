"""`rankcurve family …`: manage families, and find the board of a period."""

from typing import Any

import typer
from rankcurve.answers import Record

from service.commands.boards.boards import COLUMNS, PARTITION, SPEC, TIES, make_spec
from service.commands.requests import add_request, argument, option

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
    """Return a family's specification as JSON from the options of `create`. Raises typer.BadParameter if one is bad."""
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
    option("grace_seconds", int, "For how long after a period late posts still count.", min=0),
    option("keep", list[str], "Number of closed periods that keep their rows, like day=30; repeatable."),
    TIES, SPEC, PARTITION, convert=make_family_spec,
)
add_request(
    family_app, "show", f"GET {FAMILY_PATH}",
    "Show a family's spec and the number of its boards that have received posts, as JSON.", FAMILY,
)
add_request(
    family_app, "reset", f"POST {FAMILY_PATH}/reset",
    "Empty a family's current boards of one kind of period, such as those of this week. Posts from before that, by "
    "their `at`, are rejected there from then on. The command asks first unless --yes is given.",
    FAMILY, PERIOD, confirm="Remove all entries of the current {period} of {family}?",
)
add_request(
    family_app, "delete", f"DELETE {FAMILY_PATH}",
    "Delete a family with all its boards. This can't be undone; the command asks first unless --yes is given.",
    FAMILY, confirm="Delete {family} with all its boards?",
)
add_request(
    family_app, "board", f"GET {FAMILY_PATH}/boards",
    """Print the id of a family's board for a period and facet values. Commands such as `rankcurve top` take this id.

    For example:

        rankcurve top "$(rankcurve family board game --period week org=7)" -c xp
    """,
    FAMILY, WITHIN, PERIOD, AT, convert=with_facets, show=lambda found: typer.echo(found["board"]),
)
