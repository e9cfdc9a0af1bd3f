"""`rankcurve pool …`: create, list, show, fill, empty, watch and delete pools of resources."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from service.client.client import ServiceClient
from service.client.client_leases import Record, add_up_figures, list_records, pool_path, split_names
from service.commands.leases.clients import ClientArgument
from service.commands.tables import cell_text, make_console, show_json, show_records, show_table
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

RESOURCES_A_REQUEST = 1_000
COLUMNS = ("region", "total", "leased", "available", "headroom")
PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="Id of the pool.", show_default=False)]
RegionOption = Annotated[str, typer.Option(help="Region of the resources.", show_default=False)]
NamesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[RESOURCE]…", help="The resources.", show_default=False)
]
FileOption = Annotated[
    Path | None, typer.Option("--file", exists=True, dir_okay=False, help="A file with one resource on each line.")
]

pool_app = typer.Typer(
    rich_markup_mode="markdown", no_args_is_help=True, help="Pools of resources that are leased to keys."
)


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


@pool_app.command("create")
def create(
    client_id: ClientArgument,
    pool_id: PoolArgument,
    partitions: Annotated[int | None, typer.Option(min=1, help="Parts of each region.")] = None,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Create a pool, or change an existing one.

    Examples:
        rankcurve pool create acme numbers
        rankcurve pool add acme numbers --region eu --file numbers.txt
        rankcurve pool watch acme numbers
    """
    body = {} if partitions is None else {"partitions": partitions}

    async def action(client: ServiceClient) -> None:
        show_json(await client.request_answer("PUT", pool_path(client_id, pool_id), Record, body=body))

    call_service(Target(url, key), action)


@pool_app.command("list")
def list_pools(
    client_id: Annotated[str | None, typer.Option("--client", help="Show only pools of this client.")] = None,
    limit: LimitOption = 1000,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """List pools by client and id."""
    query = {} if client_id is None else {"client_id": client_id}

    async def action(client: ServiceClient) -> None:
        found = await list_records(client, "/v1/pools", "pools", limit=limit, query=query)
        columns = {"client_id": "client", "pool_id": "pool", "partitions": "partitions", "created_at": "created"}
        show_records(found, columns, as_json=as_json, numeric=("partitions",))

    call_service(Target(url, key), action)


@pool_app.command("show")
def show(
    client_id: ClientArgument,
    pool_id: PoolArgument,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Show each region of a pool: how many resources it has, how many are leased or available, and the headroom."""

    async def action(client: ServiceClient) -> None:
        pool = await client.request_answer("GET", pool_path(client_id, pool_id), Record)
        if as_json:
            show_json(pool)
            return
        show_table(COLUMNS, region_rows(pool), numeric=COLUMNS[1:])

    call_service(Target(url, key), action)


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
def watch(
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

    async def action(client: ServiceClient) -> None:
        with Live(console=make_console(), auto_refresh=False) as live:
            seen = 0
            while True:
                pool = await client.request_answer("GET", pool_path(client_id, pool_id), Record)
                title = f"{client_id} / {pool_id}   {datetime.now(UTC):%H:%M:%S} UTC"
                live.update(regions_picture(pool, title), refresh=True)
                seen += 1
                if looks is not None and seen >= looks:
                    return
                await asyncio.sleep(every)

    try:
        call_service(Target(url, key), action)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


@pool_app.command("add")
def add(
    client_id: ClientArgument,
    pool_id: PoolArgument,
    region: RegionOption,
    resources: NamesArgument = None,
    path: FileOption = None,
    move: Annotated[bool, typer.Option(help="Also move resources here that are free in another region.")] = False,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Add resources to a region of a pool. With --move, also move resources there that are free in another region."""
    names = read_names(resources, path)

    async def action(client: ServiceClient) -> None:
        answers = [
            await client.request_answer(
                "POST",
                pool_path(client_id, pool_id) + "/resources",
                Record,
                body={"region": region, "resources": some, "move": move},
            )
            for some in split_names(names, RESOURCES_A_REQUEST)
        ]
        show_json(add_up_figures(answers))

    call_service(Target(url, key), action)


@pool_app.command("remove")
def remove(
    client_id: ClientArgument,
    pool_id: PoolArgument,
    resources: NamesArgument = None,
    path: FileOption = None,
    region: Annotated[str | None, typer.Option(help="Only resources of this region.")] = None,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Take resources out of a pool. Leased resources stay; run the command again after they are given back."""
    names = read_names(resources, path)
    more = {} if region is None else {"region": region}

    async def action(client: ServiceClient) -> None:
        answers = [
            await client.request_answer(
                "DELETE", pool_path(client_id, pool_id) + "/resources", Record, body={"resources": some, **more}
            )
            for some in split_names(names, RESOURCES_A_REQUEST)
        ]
        show_json(add_up_figures(answers))

    call_service(Target(url, key), action)


@pool_app.command("resources")
def list_resources(
    client_id: ClientArgument,
    pool_id: PoolArgument,
    limit: LimitOption = 1000,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """List resources, each with its key and the end of its lease."""

    async def action(client: ServiceClient) -> None:
        found = await list_records(client, pool_path(client_id, pool_id) + "/resources", "resources", limit=limit)
        columns = {name: name for name in ("resource", "region", "version", "key", "lease_expires")}
        show_records(found, columns, as_json=as_json, numeric=("version",))

    call_service(Target(url, key), action)


@pool_app.command("delete")
def delete(
    client_id: ClientArgument,
    pool_id: PoolArgument,
    yes: YesOption = False,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Delete a pool with every lease in it. Asks first unless --yes is given."""
    question = f"Delete the pool {pool_id} of {client_id} with every lease in it?"
    delete_if_confirmed(Target(url, key), pool_path(client_id, pool_id), f"{client_id} {pool_id}", question, yes=yes)
