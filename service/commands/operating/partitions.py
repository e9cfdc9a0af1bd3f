"""`rankcurve store init` creates an empty store. `rankcurve partition` adds partitions to a store and lists them.

The commands open the store itself, without a service. Services may run on the same PostgreSQL store.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from config import Settings
from config.masking import masked
from service.commands.operating.board_moves import move
from service.commands.operating.own_store import refuse_one_file, run_on_store
from service.commands.operating.store_copies import copy, reopen
from service.commands.settings import settings_command
from service.commands.tables import show_records
from service.commands.target import JsonOption, fail
from storage.errors import StoreExistsError, TooManyPartitionsError
from storage.store import CONTROL, PartitionSize

if TYPE_CHECKING:
    from storage.store import Store

PartitionsOption = Annotated[
    int,
    typer.Option("--partitions", metavar="N", min=1, max=64, help="Number of partitions, each with its own schema."),
]
CitusOption = Annotated[bool, typer.Option("--citus", help="Let Citus put each partition on one of its nodes.")]
ONE_PARTITION = "has one partition; several need a PostgreSQL store"
store_app = typer.Typer(rich_markup_mode="markdown", no_args_is_help=True, help="Create or copy a store.")
partition_app = typer.Typer(
    rich_markup_mode="markdown",
    no_args_is_help=True,
    help="""Add and list the partitions of a PostgreSQL store, in the store itself.

    A partition is a schema with the tables of its boards. The services that use the store may go on.""",
)


@store_app.command("init")
@settings_command("store", create_store=True)
def init(settings: Settings, partitions: PartitionsOption = 1, citus: CitusOption = False) -> None:
    """Create the tables of an empty store. Fail, and change nothing, if there is already a store.

    A service creates an ordinary store with one partition by itself. Only this command creates several partitions.

    For example:

        rankcurve store init --partitions 4 --store postgresql://USER@HOST/DATABASE
    """
    if partitions > 1 or citus:
        refuse_one_file(settings, ONE_PARTITION)
    run_on_store(settings, partial(create_store, partitions=partitions, citus=citus, name=masked(settings.store)))


store_app.command("copy")(copy)
store_app.command("reopen")(reopen)
partition_app.command("move")(move)


@partition_app.command("add")
@settings_command("store")
def add(settings: Settings) -> None:
    """Add a partition to the store and print its number. The boards that exist stay where they are."""
    refuse_one_file(settings, ONE_PARTITION)
    run_on_store(settings, add_partition)


@partition_app.command("list")
@settings_command("store", create_store=False)
def list_partitions(settings: Settings, as_json: JsonOption = False) -> None:
    """List the partitions with schema and bytes, and on Citus with the node that holds them."""
    records = run_on_store(settings, read_partitions)
    columns = {name: name for name in ("partition", "schema", "node", "bytes")}
    show_records(records, columns, as_json=as_json, numeric=("bytes",))


async def create_store(store: Store, *, partitions: int, citus: bool, name: str) -> None:
    from storage.engines.postgres import PostgresStore
    from storage.schema.creation import create_schema

    try:
        if isinstance(store, PostgresStore) and (partitions > 1 or citus):
            if citus and not await store.has_citus():
                fail("the database has no extension citus: run CREATE EXTENSION citus in it first")
            await store.create_apart(partitions, distributed=citus)
        else:
            await store.write(lambda: create_schema(if_missing=False))
    except StoreExistsError:
        fail(f"{name}: there is already a store, and nothing was changed")
    typer.echo(f"created {name} with {'1 partition' if partitions == 1 else f'{partitions} partitions'}")
    for each in (await store.size()).partitions:
        if each.schema is not None:
            typer.echo(f"{name_partition(each.number)}: schema {each.schema}{_on_node(each)}")


async def add_partition(store: Store) -> None:
    from storage.engines.postgres import PostgresStore
    from storage.leaves import hidden_owners
    from storage.schema.creation import PARTITIONS_MAX, find_salt

    assert isinstance(store, PostgresStore)
    await store.read(find_salt)  # raises an error for a store of another version
    try:
        number = await store.add_partition(hidden_owners.copy_marks)
    except TooManyPartitionsError:
        fail(f"the store has {PARTITIONS_MAX} partitions, and cannot have more")
    added = next(each for each in (await store.size()).partitions if each.number == number)
    typer.echo(f"partition {number}: schema {added.schema}{_on_node(added)}")


async def read_partitions(store: Store) -> list[dict[str, object]]:
    from storage.schema.creation import find_salt

    await store.read(find_salt)  # raises an error for a store of another version
    return [
        {"partition": name_partition(number), "schema": schema, "node": node, "bytes": size_bytes}
        for number, size_bytes, schema, node in (await store.size()).partitions
    ]


def name_partition(number: int) -> str:
    return "control" if number == CONTROL else str(number)


def _on_node(size: PartitionSize) -> str:
    return "" if size.node is None else f" on {size.node}"
