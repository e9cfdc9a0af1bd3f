"""`rankcurve client …`: create, list, show, rename and delete clients, whose pools there are.

The rule: the service judges; this module only turns words into requests.
"""

from __future__ import annotations

from typing import Annotated

import typer

from service.client import ServiceClient
from service.client_leases import Record, client_path, listed
from service.commands.tables import show_json, show_table
from service.commands.target import DEFAULT_URL, JsonOption, KeyOption, Target, UrlOption, talk

LISTED_MAX = 100_000
ClientArgument = Annotated[str, typer.Argument(metavar="CLIENT", help="Id of the client.", show_default=False)]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
LimitOption = Annotated[int, typer.Option(min=1, max=LISTED_MAX, help="At most so many.")]

client_app = typer.Typer(no_args_is_help=True, help="Create, list, rename and delete clients of leased pools.")


@client_app.command("create")
def create(
    client_id: ClientArgument,
    name: Annotated[str | None, typer.Option(help="What people call it.")] = None,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Create a client, or give it another name. A pool creates its client by itself."""
    body = {} if name is None else {"name": name}

    async def action(client: ServiceClient) -> None:
        show_json(await client.call("PUT", client_path(client_id), Record, body=body))

    talk(Target(url, key), action)


@client_app.command("list")
def list_clients(
    limit: LimitOption = 1000, as_json: JsonOption = False, url: UrlOption = DEFAULT_URL, key: KeyOption = None
) -> None:
    """List clients by id."""

    async def action(client: ServiceClient) -> None:
        found = await listed(client, "/v1/clients", "clients", limit=limit)
        if as_json:
            show_json(found)
            return
        rows = [(each.get("client_id"), each.get("name"), each.get("pools"), each.get("created_at")) for each in found]
        show_table(("client", "name", "pools", "created"), rows, numeric=("pools",))

    talk(Target(url, key), action)


@client_app.command("show")
def show(client_id: ClientArgument, url: UrlOption = DEFAULT_URL, key: KeyOption = None) -> None:
    """Show a client, as JSON."""

    async def action(client: ServiceClient) -> None:
        show_json(await client.call("GET", client_path(client_id), Record))

    talk(Target(url, key), action)


@client_app.command("delete")
def delete(
    client_id: ClientArgument, yes: YesOption = False, url: UrlOption = DEFAULT_URL, key: KeyOption = None
) -> None:
    """Delete a client with all its pools and every lease in them; asks first unless --yes."""
    if not yes and not typer.confirm(f"Delete {client_id} with all its pools?"):
        raise typer.Exit(1)

    async def action(client: ServiceClient) -> None:
        await client.send("DELETE", client_path(client_id))
        typer.echo(f"deleted {client_id}", err=True)

    talk(Target(url, key), action)
