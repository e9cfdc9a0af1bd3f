"""`rankcurve pool …`, `lease …`: clients own pools of resources, and a lease gives a resource to a key."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rankcurve import AsyncClient
from rankcurve.answers import Record
from rankcurve.paths import path_of

from service.commands.requests import add_list, add_request, argument, option
from service.commands.tables import show_json, show_lines, show_table
from service.commands.target import JsonOption, service_command

RESOURCES_A_REQUEST = 1_000
REGION_COLUMNS = ("region", "total", "leased", "available", "headroom")
POOL_PATH = "/v1/pools/{client_id}/{pool_id}"
LEASE_PATH = "/v1/leases/{client_id}/{pool_id}/{lease_key}"
ClientArgument = Annotated[str, typer.Argument(metavar="CLIENT", help="Id of the pool's owner.", show_default=False)]
PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="Id of the pool.", show_default=False)]
KeyArgument = Annotated[
    str, typer.Argument(metavar="LEASE_KEY", help="The key that the resource is for.", show_default=False)
]
NamesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[RESOURCE]…", help="The resources.", show_default=False)
]
FileOption = Annotated[
    Path | None, typer.Option("--file", exists=True, dir_okay=False, help="A file with one resource on each line.")
]
CLIENT = argument("client_id", ClientArgument)
POOL = argument("pool_id", PoolArgument)
LEASE_KEY = argument("lease_key", KeyArgument)

pool_app = typer.Typer(
    rich_markup_mode="markdown", no_args_is_help=True, help="Pools of resources that are leased to keys."
)
lease_app = typer.Typer(no_args_is_help=True, help="Leases of resources.")

add_request(
    pool_app, "create", f"PUT {POOL_PATH}",
    """Create a pool, or change an existing one.

    A new pool is empty until resources are added to it.

    For example:

        rankcurve pool create acme numbers
        rankcurve pool add acme numbers --region eu --file numbers.txt
        rankcurve pool show acme numbers
    """,
    CLIENT, POOL, option("lanes", int, "Parts of each region.", min=1),
)  # fmt: skip
add_list(
    pool_app, "list", "/v1/pools", "List pools by client and id.",
    {"client": "client_id", "pool": "pool_id", "lanes": "lanes", "created": "created_at"},
    option("client_id", str, "Show only pools of this client.", "--client"), numeric=("lanes",),
)  # fmt: skip


@pool_app.command("show")
@service_command()
async def show_pool(
    client: AsyncClient, client_id: ClientArgument, pool_id: PoolArgument, as_json: JsonOption = False
) -> None:
    """Show each region of a pool: how many resources it has, how many are leased or available, and the headroom."""
    pool = await client.request("GET", path_of("v1", "pools", client_id, pool_id), Record)
    if as_json:
        show_json(pool)
        return
    regions: dict[str, Record] = pool.get("regions") or {}
    rows = [[name, *map(region.get, REGION_COLUMNS[1:])] for name, region in sorted(regions.items())]
    show_table(REGION_COLUMNS, rows, numeric=REGION_COLUMNS[1:])


@pool_app.command("add")
@service_command()
async def add_resources(
    client: AsyncClient,
    client_id: ClientArgument,
    pool_id: PoolArgument,
    region: Annotated[str, typer.Option(help="Region of the resources.", show_default=False)],
    resources: NamesArgument = None,
    path: FileOption = None,
) -> None:
    """Add resources to a region of a pool."""
    names = read_names(resources, path)
    await send_names(client, "POST", client_id, pool_id, names, {"region": region})


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
    await send_names(client, "DELETE", client_id, pool_id, names, {} if region is None else {"region": region})


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


async def send_names(
    client: AsyncClient, method: str, client_id: str, pool_id: str, names: list[str], more: Record
) -> None:
    """Send the names of resources, with `more` members, in as many requests as needed. Print the added-up figures."""
    path = path_of("v1", "pools", client_id, pool_id, "resources")
    total = Counter[str]()
    for start in range(0, len(names), RESOURCES_A_REQUEST):
        body = {"resources": names[start : start + RESOURCES_A_REQUEST], **more}
        total.update(await client.request(method, path, dict[str, int], body=body))
    show_json(total)


add_list(
    pool_app, "resources", f"{POOL_PATH}/resources", "List resources, each with its key and the end of its lease.",
    {name: name for name in ("resource", "region", "version", "key", "lease_expires")},
    CLIENT, POOL, numeric=("version",),
)  # fmt: skip
add_request(
    pool_app, "delete", f"DELETE {POOL_PATH}",
    "Delete a pool with every lease in it. Asks first unless --yes is given.",
    CLIENT, POOL, confirm="Delete the pool {pool_id} of {client_id} with every lease in it?",
)  # fmt: skip


@lease_app.command("get")
@service_command()
async def get_lease(
    client: AsyncClient,
    client_id: ClientArgument,
    pool_id: PoolArgument,
    lease_key: KeyArgument,
    region: Annotated[str, typer.Option(help="Region from which a new resource is taken.", show_default=False)],
    seconds: Annotated[float, typer.Option(min=0.001, help="Length of the lease in seconds from now.")] = 60.0,
) -> None:
    """Get the resource of a key and extend its lease, or get a new resource."""
    names = {"client_id": client_id, "pool_id": pool_id, "key": lease_key}
    body = {**names, "region": region, "lease_seconds": seconds}
    show_json(await client.request("POST", "/v1/leases", Record, body=body))


add_request(lease_app, "show", f"GET {LEASE_PATH}", "Show the lease of a key.", CLIENT, POOL, LEASE_KEY)
add_request(lease_app, "give-back", f"DELETE {LEASE_PATH}", "Give a lease back early.", CLIENT, POOL, LEASE_KEY)


@lease_app.command("journal")
@service_command()
async def show_journal(
    client: AsyncClient,
    after: Annotated[int, typer.Option(min=0, help="Show only lines after this number.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Number of lines at most.")] = 100,
) -> None:
    """Print the journal of leases: the events of resources, one JSON object on each line."""
    show_lines(await client.request("GET", "/v1/leases/journal", bytes, query={"after": after, "limit": limit}))
