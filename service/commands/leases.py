"""`rankcurve client …`, `pool …`, `lease …`: clients own pools of resources, and a lease gives a resource to a key."""

import asyncio
from collections import Counter
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Annotated

import typer
from rankcurve import AsyncClient
from rankcurve.answers import Record
from rankcurve.client import PAGE_ENTRIES
from rankcurve.paths import path_of
from rich.live import Live
from rich.table import Table
from rich.text import Text

from service.commands.tables import cell_text, make_console, show_json, show_records, show_table
from service.commands.target import (
    DEFAULT_URL,
    JsonOption,
    KeyOption,
    LimitOption,
    UrlOption,
    call_service,
    delete_command,
    service_command,
    take,
)

RESOURCES_A_REQUEST = 1_000
COLUMNS = ("region", "total", "leased", "available", "headroom")
ClientArgument = Annotated[str, typer.Argument(metavar="CLIENT", help="Id of the client.", show_default=False)]
PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="Id of the pool.", show_default=False)]
RegionOption = Annotated[str, typer.Option(help="Region of the resources.", show_default=False)]
NamesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[RESOURCE]…", help="The resources.", show_default=False)
]
FileOption = Annotated[
    Path | None, typer.Option("--file", exists=True, dir_okay=False, help="A file with one resource on each line.")
]
LeaseKeyArgument = Annotated[
    str, typer.Argument(metavar="LEASE_KEY", help="The key that the resource is for.", show_default=False)
]

client_app = typer.Typer(no_args_is_help=True, help="Create, list, rename and delete clients, which own pools.")
pool_app = typer.Typer(
    rich_markup_mode="markdown", no_args_is_help=True, help="Pools of resources that are leased to keys."
)
lease_app = typer.Typer(no_args_is_help=True, help="Leases of resources.")


def client_path(client_id: str) -> str:
    return path_of("v1", "clients", client_id)


@client_app.command("create")
@service_command()
async def create_client(
    client: AsyncClient,
    client_id: ClientArgument,
    name: Annotated[str | None, typer.Option(help="Name of the client, for people.")] = None,
) -> None:
    """Create a client, or give it another name. Creating a pool also creates its client."""
    body = {} if name is None else {"name": name}
    show_json(await client.request("PUT", client_path(client_id), Record, body=body))


@client_app.command("list")
@service_command()
async def list_clients(client: AsyncClient, limit: LimitOption = 1000, as_json: JsonOption = False) -> None:
    """List clients by id."""
    found = await take(
        client.list_records("/v1/clients", "clients", Record, {"limit": min(limit, PAGE_ENTRIES)}), limit
    )
    columns = {"client_id": "client", "name": "name", "pools": "pools", "created_at": "created"}
    show_records(found, columns, as_json=as_json, numeric=("pools",))


@client_app.command("show")
@service_command()
async def show_client(client: AsyncClient, client_id: ClientArgument) -> None:
    """Show a client, as JSON."""
    show_json(await client.request("GET", client_path(client_id), Record))


@client_app.command("delete")
@delete_command("Delete {client_id} with all its pools?")
def delete_client(client_id: ClientArgument) -> str:
    """Delete a client with all its pools and every lease in them. Asks first unless --yes is given."""
    return client_path(client_id)


def read_names(words: list[str] | None, path: Path | None) -> list[str]:
    """Return the names of resources, from the arguments or from the lines of a file. Raises typer.BadParameter."""
    if bool(words) == (path is not None):
        raise typer.BadParameter("give either resources or --file")
    if path is None:
        return list(words or [])
    try:
        names = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as cause:
        raise typer.BadParameter(f"{path}: {cause}") from cause
    if not names:
        raise typer.BadParameter(f"{path} has no line")
    return names


def pool_path(client_id: str, pool_id: str) -> str:
    return path_of("v1", "pools", client_id, pool_id)


async def send_names(client: AsyncClient, method: str, pool: str, names: list[str], more: Record) -> None:
    """Send the names of resources, with `more` members, in as many requests as needed. Print the added-up figures."""
    total = Counter[str]()
    for start in range(0, len(names), RESOURCES_A_REQUEST):
        body = {"resources": names[start : start + RESOURCES_A_REQUEST], **more}
        total.update(await client.request(method, f"{pool}/resources", dict[str, int], body=body))
    show_json(total)


@pool_app.command("create")
@service_command()
async def create_pool(
    client: AsyncClient,
    client_id: ClientArgument,
    pool_id: PoolArgument,
    lanes: Annotated[int | None, typer.Option(min=1, help="Parts of each region.")] = None,
) -> None:
    """Create a pool, or change an existing one.

    A new pool is empty until resources are added to it.

    For example:

        rankcurve pool create acme numbers
        rankcurve pool add acme numbers --region eu --file numbers.txt
        rankcurve pool watch acme numbers
    """
    body = {} if lanes is None else {"lanes": lanes}
    show_json(await client.request("PUT", pool_path(client_id, pool_id), Record, body=body))


@pool_app.command("list")
@service_command()
async def list_pools(
    client: AsyncClient,
    client_id: Annotated[str | None, typer.Option("--client", help="Show only pools of this client.")] = None,
    limit: LimitOption = 1000,
    as_json: JsonOption = False,
) -> None:
    """List pools by client and id."""
    query = {"client_id": client_id, "limit": min(limit, PAGE_ENTRIES)}
    found = await take(client.list_records("/v1/pools", "pools", Record, query), limit)
    columns = {"client_id": "client", "pool_id": "pool", "lanes": "lanes", "created_at": "created"}
    show_records(found, columns, as_json=as_json, numeric=("lanes",))


@pool_app.command("show")
@service_command()
async def show_pool(
    client: AsyncClient, client_id: ClientArgument, pool_id: PoolArgument, as_json: JsonOption = False
) -> None:
    """Show each region of a pool: how many resources it has, how many are leased or available, and the headroom."""
    pool = await client.request("GET", pool_path(client_id, pool_id), Record)
    if as_json:
        show_json(pool)
        return
    show_table(COLUMNS, region_rows(pool), numeric=COLUMNS[1:])


def region_rows(pool: Record) -> list[list[object]]:
    regions: dict[str, Record] = pool.get("regions") or {}
    return [[name, *(region.get(column) for column in COLUMNS[1:])] for name, region in sorted(regions.items())]


def regions_picture(pool: Record, title: str) -> Table:
    """Return a table of a pool's regions, with a bar for the leased share of each."""
    table = Table(title=Text(title), box=None, pad_edge=False, header_style="bold", title_justify="left")
    for heading in (*COLUMNS, "in use"):
        table.add_column(Text(heading), justify="right" if heading in COLUMNS[1:] else "left")
    for row in region_rows(pool):
        total, leased = (cell if isinstance(cell, int) else 0 for cell in row[1:3])
        filled = round(20 * leased / total) if total else 0
        table.add_row(*(Text(cell_text(cell)) for cell in row), Text("█" * filled + "░" * (20 - filled)))
    return table


@pool_app.command("watch")
def watch_pool(
    client_id: ClientArgument,
    pool_id: PoolArgument,
    every: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between two updates.")] = 1.0,
    looks: Annotated[
        int | None, typer.Option(min=1, help="Number of updates before the command ends. Default: it never ends.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Watch a pool's regions until interrupted."""

    async def action(client: AsyncClient) -> None:
        with Live(console=make_console(), auto_refresh=False) as live:
            for seen in count(1):
                pool = await client.request("GET", pool_path(client_id, pool_id), Record)
                title = f"{client_id} / {pool_id}   {datetime.now(UTC):%H:%M:%S} UTC"
                live.update(regions_picture(pool, title), refresh=True)
                if seen == looks:
                    return
                await asyncio.sleep(every)

    try:
        call_service(url, key, action)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


@pool_app.command("add")
@service_command()
async def add_resources(
    client: AsyncClient,
    client_id: ClientArgument,
    pool_id: PoolArgument,
    region: RegionOption,
    resources: NamesArgument = None,
    path: FileOption = None,
    move: Annotated[bool, typer.Option(help="Also move resources here that are free in another region.")] = False,
) -> None:
    """Add resources to a region of a pool. With --move, also move resources there that are free in another region."""
    names = read_names(resources, path)
    await send_names(client, "POST", pool_path(client_id, pool_id), names, {"region": region, "move": move})


@pool_app.command("remove")
@service_command()
async def remove_resources(
    client: AsyncClient,
    client_id: ClientArgument,
    pool_id: PoolArgument,
    resources: NamesArgument = None,
    path: FileOption = None,
    region: Annotated[str | None, typer.Option(help="Only resources of this region.")] = None,
) -> None:
    """Take resources out of a pool. Leased resources stay; run the command again after they are given back."""
    names = read_names(resources, path)
    more = {} if region is None else {"region": region}
    await send_names(client, "DELETE", pool_path(client_id, pool_id), names, more)


@pool_app.command("resources")
@service_command()
async def list_resources(
    client: AsyncClient,
    client_id: ClientArgument,
    pool_id: PoolArgument,
    limit: LimitOption = 1000,
    as_json: JsonOption = False,
) -> None:
    """List resources, each with its key and the end of its lease."""
    path = f"{pool_path(client_id, pool_id)}/resources"
    found = await take(client.list_records(path, "resources", Record, {"limit": min(limit, PAGE_ENTRIES)}), limit)
    columns = {name: name for name in ("resource", "region", "version", "key", "lease_expires")}
    show_records(found, columns, as_json=as_json, numeric=("version",))


@pool_app.command("delete")
@delete_command("Delete the pool {pool_id} of {client_id} with every lease in it?")
def delete_pool(client_id: ClientArgument, pool_id: PoolArgument) -> str:
    """Delete a pool with every lease in it. Asks first unless --yes is given."""
    return pool_path(client_id, pool_id)


def lease_path(client_id: str, pool_id: str, lease_key: str) -> str:
    return path_of("v1", "leases", client_id, pool_id, lease_key)


@lease_app.command("get")
@service_command()
async def get_lease(
    client: AsyncClient,
    client_id: ClientArgument,
    pool_id: PoolArgument,
    lease_key: LeaseKeyArgument,
    region: Annotated[str, typer.Option(help="Region from which a new resource is taken.", show_default=False)],
    seconds: Annotated[float, typer.Option(min=0.001, help="Length of the lease in seconds from now.")] = 60.0,
) -> None:
    """Get the resource of a key and extend its lease, or get a new resource."""
    names = {"client_id": client_id, "pool_id": pool_id, "key": lease_key}
    body = {**names, "region": region, "lease_seconds": seconds}
    show_json(await client.request("POST", "/v1/leases", Record, body=body))


@lease_app.command("show")
@service_command()
async def show_lease(
    client: AsyncClient, client_id: ClientArgument, pool_id: PoolArgument, lease_key: LeaseKeyArgument
) -> None:
    """Show the lease of a key."""
    show_json(await client.request("GET", lease_path(client_id, pool_id, lease_key), Record))


@lease_app.command("give-back")
@service_command()
async def give_back(
    client: AsyncClient, client_id: ClientArgument, pool_id: PoolArgument, lease_key: LeaseKeyArgument
) -> None:
    """Give a lease back early."""
    await client.request("DELETE", lease_path(client_id, pool_id, lease_key), bytes)


@lease_app.command("journal")
@service_command()
async def show_journal(
    client: AsyncClient,
    after: Annotated[int, typer.Option(min=0, help="Show only lines after this number.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Number of lines at most.")] = 100,
) -> None:
    """Print the journal of leases: the events of resources, one JSON object on each line."""
    lines = await client.request("GET", "/v1/leases/journal", bytes, query={"after": after, "limit": limit})
    for line in lines.splitlines():
        typer.echo(line.decode())
