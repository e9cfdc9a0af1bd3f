"""`rankcurve lease …`: get a resource for a key, show it, give it back, and read the journal of leases."""

from __future__ import annotations

from typing import Annotated

import typer

from service.client.client import ServiceClient
from service.client.client_leases import Record, lease_path, read_lease_journal, record_line
from service.commands.leases.clients import ClientArgument
from service.commands.leases.pools import PoolArgument
from service.commands.tables import show_json
from service.commands.target import DEFAULT_URL, KeyOption, Target, UrlOption, call_service

LeaseKeyArgument = Annotated[
    str, typer.Argument(metavar="LEASE_KEY", help="The key that the resource is for.", show_default=False)
]

lease_app = typer.Typer(no_args_is_help=True, help="Leases of resources.")


@lease_app.command("get")
def get(
    client_id: ClientArgument,
    pool_id: PoolArgument,
    lease_key: LeaseKeyArgument,
    region: Annotated[str, typer.Option(help="Region from which a new resource is taken.", show_default=False)],
    seconds: Annotated[float, typer.Option(min=0.001, help="Length of the lease in seconds from now.")] = 60.0,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Get the resource of a key and extend its lease, or get a new resource."""
    body = {
        "client_id": client_id, "pool_id": pool_id, "key": lease_key, "region": region, "lease_seconds": seconds,
    }  # fmt: skip

    async def action(client: ServiceClient) -> None:
        show_json(await client.request_answer("POST", "/v1/leases", Record, body=body))

    call_service(Target(url, key), action)


@lease_app.command("show")
def show(
    client_id: ClientArgument,
    pool_id: PoolArgument,
    lease_key: LeaseKeyArgument,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Show the lease of a key."""

    async def action(client: ServiceClient) -> None:
        show_json(await client.request_answer("GET", lease_path(client_id, pool_id, lease_key), Record))

    call_service(Target(url, key), action)


@lease_app.command("give-back")
def give_back(
    client_id: ClientArgument,
    pool_id: PoolArgument,
    lease_key: LeaseKeyArgument,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Give a lease back early."""

    async def action(client: ServiceClient) -> None:
        await client.send_request("DELETE", lease_path(client_id, pool_id, lease_key))

    call_service(Target(url, key), action)


@lease_app.command("journal")
def show_journal(
    after: Annotated[int, typer.Option(min=0, help="Show only lines after this number.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Number of lines at most.")] = 100,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Print the journal of leases: the events of resources, one JSON object on each line."""

    async def action(client: ServiceClient) -> None:
        for record in await read_lease_journal(client, after, limit):
            typer.echo(record_line(record))

    call_service(Target(url, key), action)
