"""`rankcurve client …`: create, list, show, rename and delete clients, who own pools."""

from __future__ import annotations

from typing import Annotated

import typer

from service.client.client import ServiceClient
from service.client.client_leases import Record, client_path, list_records
from service.commands.tables import show_json, show_records
from service.commands.target import (
    DEFAULT_URL,
    JsonOption,
    KeyOption,
    LimitOption,
    Target,
    UrlOption,
    YesOption,
    call_service,
    delete_if_confirmed,
)

ClientArgument = Annotated[str, typer.Argument(metavar="CLIENT", help="Id of the client.", show_default=False)]

client_app = typer.Typer(no_args_is_help=True, help="Create, list, rename and delete clients, which own pools.")


@client_app.command("create")
def create(
    client_id: ClientArgument,
    name: Annotated[str | None, typer.Option(help="Name of the client, for people.")] = None,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Create a client, or give it another name. Creating a pool also creates its client."""
    body = {} if name is None else {"name": name}

    async def action(client: ServiceClient) -> None:
        show_json(await client.request_answer("PUT", client_path(client_id), Record, body=body))

    call_service(Target(url, key), action)


@client_app.command("list")
def list_clients(
    limit: LimitOption = 1000, as_json: JsonOption = False, url: UrlOption = DEFAULT_URL, key: KeyOption = None
) -> None:
    """List clients by id."""

    async def action(client: ServiceClient) -> None:
        found = await list_records(client, "/v1/clients", "clients", limit=limit)
        columns = {"client_id": "client", "name": "name", "pools": "pools", "created_at": "created"}
        show_records(found, columns, as_json=as_json, numeric=("pools",))

    call_service(Target(url, key), action)


@client_app.command("show")
def show(client_id: ClientArgument, url: UrlOption = DEFAULT_URL, key: KeyOption = None) -> None:
    """Show a client, as JSON."""

    async def action(client: ServiceClient) -> None:
        show_json(await client.request_answer("GET", client_path(client_id), Record))

    call_service(Target(url, key), action)


@client_app.command("delete")
def delete(
    client_id: ClientArgument, yes: YesOption = False, url: UrlOption = DEFAULT_URL, key: KeyOption = None
) -> None:
    """Delete a client with all its pools and every lease in them. Asks first unless --yes is given."""
    delete_if_confirmed(
        Target(url, key), client_path(client_id), client_id, f"Delete {client_id} with all its pools?", yes=yes
    )
