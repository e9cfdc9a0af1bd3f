"""`rankcurve pool …` and `rankcurve lease …`: manage pools of resources, and lease their resources to keys."""

from typing import Annotated

import typer
from rankcurve import AsyncClient
from rankcurve.answers import Record

from service.commands.request_commands import add_list, add_request, argument, option, print_lines
from service.commands.tables import Columns, show_records
from service.commands.target import service_command

POOL_PATH = "/v1/pools/{client_id}/{pool_id}"
LEASE_PATH = "/v1/leases/{client_id}/{pool_id}/{key}"
CLIENT = argument("client_id", "CLIENT", "Id of the pool's owner.")
POOL = argument("pool_id", "POOL", "Id of the pool.")
LEASE_KEY = argument("key", "LEASE_KEY", "The key that the resource is for.")
RESOURCES = argument("resources", "RESOURCE…", "The resources. `xargs -n 1000` splits a long list.", list[str])
REGION_COLUMNS: Columns = {name: name for name in ("region", "total", "leased", "available", "headroom")}

pool_app = typer.Typer(
    rich_markup_mode="markdown", no_args_is_help=True, help="Pools of resources that are leased to keys."
)
lease_app = typer.Typer(no_args_is_help=True, help="Leases of resources.")


def show_regions(pool: Record) -> None:
    regions: dict[str, Record] = pool.get("regions") or {}
    records = [{"region": name, **region} for name, region in sorted(regions.items())]
    show_records(records, REGION_COLUMNS, as_json=False, numeric=tuple(REGION_COLUMNS)[1:])


# fmt: off
add_request(
    pool_app, "create", f"PUT {POOL_PATH}",
    """Create a pool, or confirm an existing one.

    A new pool is empty until resources are added to it.

    For example:

        rankcurve pool create acme numbers
        rankcurve pool add acme numbers --region eu "+49 30 1" "+49 30 2"
        rankcurve pool show acme numbers
    """,
    CLIENT, POOL,
)
add_list(
    pool_app, "list", "/v1/pools", "List pools by client and id.",
    {"client": "client_id", "pool": "pool_id", "created": "created_at"},
    option("client_id", str, "Show only pools of this client.", "--client"),
)
add_request(
    pool_app, "show", f"GET {POOL_PATH}",
    "Show each region of a pool: how many resources it has, how many are leased or available, and the headroom.",
    CLIENT, POOL, show=show_regions,
)
add_request(
    pool_app, "add", f"POST {POOL_PATH}/resources", "Add resources to a region of a pool.",
    CLIENT, POOL, RESOURCES, option("region", str, "Region of the resources.", default=...),
)
add_request(
    pool_app, "remove", f"DELETE {POOL_PATH}/resources",
    "Take resources out of a pool. Leased resources stay; run the command again after they are given back.",
    CLIENT, POOL, RESOURCES,
)
add_list(
    pool_app, "resources", f"{POOL_PATH}/resources", "List resources, each with its key and the end of its lease.",
    {name: name for name in ("resource", "region", "version", "key", "lease_expires")},
    CLIENT, POOL, numeric=("version",),
)
add_request(
    pool_app, "delete", f"DELETE {POOL_PATH}",
    "Delete a pool with every lease in it. Asks first unless --yes is given.",
    CLIENT, POOL, confirm="Delete the pool {pool_id} of {client_id} with every lease in it?",
)
add_request(
    lease_app, "get", "POST /v1/leases", "Get the resource of a key and extend its lease, or get a new resource.",
    CLIENT, POOL, LEASE_KEY, option("region", str, "Region from which a new resource is taken.", default=...),
    option("lease_seconds", float, "Length of the lease in seconds from now.", "--seconds", default=60.0),
)
add_request(lease_app, "show", f"GET {LEASE_PATH}", "Show the lease of a key.", CLIENT, POOL, LEASE_KEY)
add_request(lease_app, "give-back", f"DELETE {LEASE_PATH}", "Give a lease back early.", CLIENT, POOL, LEASE_KEY)
# fmt: on


@lease_app.command("journal")
@service_command()
async def show_journal(
    client: AsyncClient,
    after: Annotated[int, typer.Option(min=0, help="Show only lines after this number.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of lines.")] = 100,
) -> None:
    """Print the journal of leases, one JSON object on each line: what happened to which resource."""
    await print_lines(client, "/v1/leases/journal", after=after, limit=limit)
