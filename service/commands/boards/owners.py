"""`rankcurve owner …`: hide, show and erase owners, and print their posts."""

import typer
from rankcurve.answers import ENCODER, Record

from service.commands.requests import add_request, argument, option

OWNER = argument("owner", "OWNER", "Whom.")
OWNER_PATH = "/v1/owners/{owner}"

owner_app = typer.Typer(
    rich_markup_mode="markdown", no_args_is_help=True, help="Hide, show and erase owners; print posts."
)


def show_changed(answer: Record) -> None:
    """Print on stderr how many entries were changed. If no entry was changed, warn that the name may be misspelled."""
    entries: int = answer["entries"]
    warning = "; warning: there are no entries of this owner, so the name may be misspelled"
    typer.echo(f"changed {entries} entries{'' if entries else warning}", err=True)


def show_posts(answer: Record) -> None:
    for post in answer["posts"]:
        typer.echo(ENCODER.encode(post).decode())


# fmt: off
add_request(
    owner_app, "hide", f"PUT {OWNER_PATH}/hidden",
    "Hide an owner from every ranking, total and stream (role `ops`). The owner's posts are still merged.",
    OWNER, show=show_changed,
)
add_request(
    owner_app, "show", f"DELETE {OWNER_PATH}/hidden", "Show a hidden owner again (role `ops`).",
    OWNER, show=show_changed,
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
