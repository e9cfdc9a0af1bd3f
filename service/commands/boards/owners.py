"""`rankcurve owner …`: hide, show and erase owners, their profiles and their posts."""

import json
from typing import Annotated

import typer
from rankcurve import AsyncClient
from rankcurve.answers import ENCODER, Record
from rankcurve.client import owner_path
from rankcurve.errors import one_line

from service.commands.tables import show_json
from service.commands.target import NumbersAreArguments, fail, service_command

owner_app = typer.Typer(
    rich_markup_mode="markdown", no_args_is_help=True, help="Hide, show and erase owners; show profiles and posts."
)

OwnerArgument = Annotated[str, typer.Argument(metavar="OWNER", help="Whom.", show_default=False)]


def say_changed(owner: str, changed: str, entries: int) -> None:
    """Say on stderr what has happened to an owner, with a warning if no leaderboard has an entry of that name."""
    warning = "" if entries else "; warning: there are no entries of this owner, so the name may be misspelled"
    typer.echo(f"{one_line(owner)} is {changed}{warning}", err=True)


@owner_app.command("hide", cls=NumbersAreArguments)
@service_command()
async def hide(client: AsyncClient, owner: OwnerArgument) -> None:
    """Hide an owner from every ranking, total and stream (role `ops`). The owner's posts are still merged."""
    say_changed(owner, "hidden", await client.hide_owner(owner))


@owner_app.command("show", cls=NumbersAreArguments)
@service_command()
async def show(client: AsyncClient, owner: OwnerArgument) -> None:
    """Show a hidden owner again (role `ops`)."""
    say_changed(owner, "shown", await client.show_owner(owner))


@owner_app.command("erase", cls=NumbersAreArguments)
@service_command()
async def erase(
    client: AsyncClient,
    owner: OwnerArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Erase an owner: all entries, the profile, and the name and posts in the journal (role `ops`)."""
    if not yes:
        typer.confirm(f"Erasing can't be undone. Erase {owner} everywhere?", abort=True)
    say_changed(owner, "erased", await client.erase_owner(owner))


@owner_app.command("posts", cls=NumbersAreArguments)
@service_command()
async def posts(
    client: AsyncClient,
    owner: OwnerArgument,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000, help="At most this many.")] = 20,
) -> None:
    """Print an owner's newest posts, one JSON object on each line."""
    answer = await client.request("GET", owner_path(owner, "posts"), Record, query={"limit": limit})
    for post in answer["posts"]:
        typer.echo(ENCODER.encode(post).decode())


@owner_app.command("profile", cls=NumbersAreArguments)
@service_command()
async def profile(
    client: AsyncClient,
    owner: OwnerArgument,
    document: Annotated[
        str | None, typer.Argument(metavar="JSON", help="Store this object. Default: print the stored profile.")
    ] = None,
) -> None:
    """Print an owner's profile, or store one (role `writer`)."""
    body = None
    if document is not None:
        try:
            body = json.loads(document)
        except ValueError as error:
            fail(f"the profile is not JSON: {error}")
    method = "GET" if document is None else "PUT"
    answer = await client.request(method, owner_path(owner, "profile"), Record, body=body)
    show_json(answer["profile"])
