"""`rankcurve owner …`: hide, show and erase owners, their profiles and their match history."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from service.client.client import ServiceClient, quote_segment
from service.commands.numbers import NumbersAreArguments
from service.commands.tables import show_json
from service.commands.target import DEFAULT_URL, KeyOption, Target, UrlOption, call_service, fail

owner_app = typer.Typer(
    rich_markup_mode="markdown", no_args_is_help=True, help="Hide, show and erase owners; show profiles and posts."
)

OwnerArgument = Annotated[str, typer.Argument(metavar="OWNER", help="Whom.", show_default=False)]


def _path(owner: str, rest: str = "") -> str:
    return f"/v1/owners/{quote_segment(owner)}{rest}"


def _send(method: str, path: str, said: str, url: str, key: str | None) -> None:
    async def action(client: ServiceClient) -> None:
        await client.send_request(method, path)
        typer.echo(said, err=True)

    call_service(Target(url, key), action)


@owner_app.command("hide", cls=NumbersAreArguments)
def hide(owner: OwnerArgument, url: UrlOption = DEFAULT_URL, key: KeyOption = None) -> None:
    """Hide an owner from every ranking, total and stream (role `ops`). The owner's posts are still merged."""
    _send("PUT", _path(owner, "/hidden"), f"{owner} is hidden", url, key)


@owner_app.command("show", cls=NumbersAreArguments)
def show(owner: OwnerArgument, url: UrlOption = DEFAULT_URL, key: KeyOption = None) -> None:
    """Show a hidden owner again (role `ops`)."""
    _send("DELETE", _path(owner, "/hidden"), f"{owner} is shown", url, key)


@owner_app.command("erase", cls=NumbersAreArguments)
def erase(
    owner: OwnerArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Erase an owner: all entries, the profile, and the name and posts in the journal (role `ops`)."""
    if not yes:
        typer.confirm(f"Erasing can't be undone. Erase {owner} everywhere?", abort=True)
    _send("DELETE", _path(owner), f"{owner} is erased", url, key)


@owner_app.command("posts", cls=NumbersAreArguments)
def posts(
    owner: OwnerArgument,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000, help="So many.")] = 20,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Print an owner's newest posts, one JSON object on each line."""

    async def action(client: ServiceClient) -> None:
        answer = await client.request_answer("GET", _path(owner, "/posts"), dict[str, Any], query={"limit": str(limit)})
        for post in answer["posts"]:
            show_json(post)

    call_service(Target(url, key), action)


@owner_app.command("profile", cls=NumbersAreArguments)
def profile(
    owner: OwnerArgument,
    document: Annotated[
        str | None, typer.Argument(metavar="JSON", help="Store this object. Default: print the stored profile.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Print an owner's profile, or store one (role `writer`)."""
    body = None
    if document is not None:
        try:
            body = json.loads(document)
        except ValueError as error:
            fail(f"the profile is not JSON: {error}")

    async def action(client: ServiceClient) -> None:
        method = "GET" if document is None else "PUT"
        answer = await client.request_answer(method, _path(owner, "/profile"), dict[str, Any], body=body)
        show_json(answer["profile"])

    call_service(Target(url, key), action)
