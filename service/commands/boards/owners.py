"""`rankcurve owner …`: hide, unhide and erase owners, and print their entries and posts."""

import typer
from rankcurve.answers import ENCODER, Record

from service.commands.requests import add_list, add_request, argument, option
from service.commands.tables import cell_text, say

OWNER = argument("owner", "OWNER", "Whom.")
OWNER_PATH = "/v1/owners/{owner}"

owner_app = typer.Typer(
    rich_markup_mode="markdown", no_args_is_help=True, help="Hide, unhide and erase owners; print entries and posts."
)


def show_changed(answer: Record) -> None:
    """Print on stderr how many entries were changed. If no entry was changed, warn that the name may be misspelled."""
    entries: int = answer["entries"]
    warning = "; warning: there are no entries of this owner, so the name may be misspelled"
    typer.echo(f"changed {entries} entries{'' if entries else warning}", err=True)


def values_text(entry: Record) -> str:
    """Return the values of an entry as a text such as `xp 30, lap 58.25`, without those that it lacks."""
    return ", ".join(f"{name} {cell_text(value)}" for name, value in entry["stats"].items() if value is not None)


def show_posts(answer: Record) -> None:
    for post in answer["posts"]:
        say(ENCODER.encode(post).decode())


# fmt: off
add_request(
    owner_app, "hide", f"PUT {OWNER_PATH}/hidden",
    "Hide an owner from every ranking, total and stream (role `ops`). The owner's posts are still merged.",
    OWNER, show=show_changed,
)
add_request(
    owner_app, "unhide", f"DELETE {OWNER_PATH}/hidden", "Let rankings show a hidden owner again (role `ops`).",
    OWNER, show=show_changed,
)
add_list(
    owner_app, "show", f"{OWNER_PATH}/boards", "Print an owner's entries, by leaderboard. It changes nothing.",
    {"board": "board", "values": values_text, "updated": "updated_at"}, OWNER,
)
add_request(
    owner_app, "erase", f"DELETE {OWNER_PATH}",
    "Erase an owner: all entries, the profile, and the name and posts in the journal (role `ops`).",
    OWNER, confirm="Erasing can't be undone. Erase {owner} everywhere?", show=show_changed,
)
add_request(
    owner_app, "posts", f"GET {OWNER_PATH}/posts", "Print an owner's newest posts, one JSON object on each line.",
    OWNER, option("limit", int, "At most this many.", "--limit", "-n", default=20), show=show_posts,
)
# fmt: on
