"""`rankcurve owner …`: hide, show and erase owners, their profiles and their posts."""

import json
from typing import Annotated

import typer
from rankcurve import AsyncClient
from rankcurve.answers import ENCODER, Record

from service.commands.requests import add_request, argument, option
from service.commands.tables import show_json
from service.commands.target import NumbersAreArguments, fail, service_command

OWNER = argument("owner", "OWNER", "Whom.")
OWNER_PATH = "/v1/owners/{owner}"

owner_app = typer.Typer(
    rich_markup_mode="markdown", no_args_is_help=True, help="Hide, show and erase owners; show profiles and posts."
)


def show_changed(answer: Record) -> None:
    """Say on stderr how many entries were changed. If there are none, warn."""
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


@owner_app.command("profile", cls=NumbersAreArguments)
@service_command()
async def profile(
    client: AsyncClient,
    owner: Annotated[str, typer.Argument(metavar="OWNER", help="Whose.", show_default=False)],
    document: Annotated[
        str | None, typer.Argument(metavar="JSON", help="Store this object. Default: print the stored profile.")
    ] = None,
) -> None:
    """Print an owner's profile, or store one (role `writer`)."""
    if document is not None:
        try:
            await client.put_profile(owner, json.loads(document))
        except ValueError as error:
            fail(f"the profile is not JSON: {error}")
    show_json(await client.profile(owner))
