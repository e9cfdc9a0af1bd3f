"""`rankcurve store init` creates an empty store. `rankcurve partition` adds partitions, lists them and moves boards.

`rankcurve board split` spreads a board's rows over other segments in the same way. The commands open the store itself,
without a service; on PostgreSQL, services may keep running on it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from config import Settings
from config.masking import masked
from service.commands.operating.own_store import refuse_one_file, run_on_store, settings_command
from service.commands.operating.stores import copy, reopen
from service.commands.tables import show_records
from service.commands.target import BoardArgument, JsonOption, fail
from storage.errors import StoreExistsError, TooManyPartitionsError
from storage.store import CONTROL, PartitionSize

if TYPE_CHECKING:
    from jobs.boards.move import BeginCopy, MoveCounts
    from storage.store import Store

TargetArgument = Annotated[
    int, typer.Argument(metavar="PARTITION", min=0, help="The number of the partition.", show_default=False)
]
SegmentsArgument = Annotated[
    int, typer.Argument(metavar="SEGMENTS", min=2, max=64, help="The number of segments.", show_default=False)
]
PROGRESS_S = 1.0
# To get its lock, the move waits until long reads of the board's table end. Meanwhile, posts to the board wait, too.
# After this time in seconds, the move stops waiting, lets the posts pass and tries again later.
LOCK_TIMEOUT_S_MAX = 1.0


@settings_command("store", create_store=False)
def move(settings: Settings, board: BoardArgument, partition: TargetArgument) -> None:
    """Move a leaderboard to another partition of the store. Services may keep running, and no post is lost.

    The rows are copied while the services accept posts. At the end, posts to the leaderboard wait until the last
    changes are copied, usually for less than a second. If the command is killed, the leaderboard stays where it was:
    run the command again after a minute. The leaderboards of a family share a partition and cannot be moved.

    For example:

        rankcurve partition move season 3 --store postgresql://USER@HOST/DATABASE
    """
    from storage.boards.board_copy import begin_move

    _run(settings, board, lambda _store: partial(begin_move, target=partition), f"is in partition {partition}")


@settings_command("store", create_store=False)
def split(settings: Settings, board: BoardArgument, segments: SegmentsArgument) -> None:
    """Spread a leaderboard over another number of segments. Services may keep running, and no post is lost.

    The services accept posts while each row is copied to the segment of its owner. At the end, posts to the leaderboard
    wait, usually for less than a second. The new segments have no curves yet, so ranks are counted until a job process
    has refreshed them, which it starts to do within a second. If the command is killed, the leaderboard stays as it
    was: run the command again after a minute. On SQLite, stop the service first.

    For example:

        rankcurve board split season 8 --store postgresql://USER@HOST/DATABASE
    """
    from storage.boards.board_copy import begin_split

    def begin(opened: Store) -> BeginCopy:
        own_tables_max = settings.own_tables_max if opened.dialect.parses_schema else None
        boards_max = settings.catalog_boards_max
        return partial(begin_split, segments=segments, boards_max=boards_max, own_tables_max=own_tables_max)

    _run(settings, board, begin, f"has {segments} segments")


def _run(settings: Settings, board: str, begin: Callable[[Store], BeginCopy], where: str) -> None:
    """Move a board's rows and print the result, or end the command if the move fails.

    `begin(store)` returns a function that begins the copy. `where` ("is in partition 3") is printed after the id.
    """
    settings = settings.model_copy(update={"lock_timeout_s": min(settings.lock_timeout_s, LOCK_TIMEOUT_S_MAX)})
    begun_s = shown_s = time.monotonic()

    def show_progress(counts: MoveCounts) -> None:
        nonlocal shown_s
        if time.monotonic() - shown_s >= PROGRESS_S:
            shown_s = time.monotonic()
            typer.echo(_describe(counts))

    async def work(store: Store) -> MoveCounts:
        # Imported here, because the other commands need no database driver.
        from jobs.boards.move import BoardMove
        from service.wiring import make_holder, make_work_leases
        from storage.schema.creation import prepare_store

        await prepare_store(store)
        move = BoardMove(
            store,
            make_work_leases(settings),
            board_id=board,
            begin=begin(store),
            holder=make_holder(),
            monotonic=time.monotonic,
            sleep=asyncio.sleep,
            report=show_progress,
        )
        return await move.run()

    done = run_on_store(settings, work)
    typer.echo(f"{board} {where}: {_describe(done)} in {time.monotonic() - begun_s:.1f} s")
    typer.echo(f"posts to it waited for at most {done.waited_s:.3f} s")


def _describe(counts: MoveCounts) -> str:
    return f"{counts.rows:,} rows and {counts.post_ids:,} post ids copied, {counts.changed:,} rows copied again"


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

    A partition is a schema with the tables of its boards. The services that use the store may keep running.""",
)


@store_app.command("init")
@settings_command("store", create_store=True)
def init(settings: Settings, partitions: PartitionsOption = 1, citus: CitusOption = False) -> None:
    """Create the tables of an empty store. If a store already exists there, fail and change nothing.

    A service creates its own store, with one partition. Use this command for a store with several.

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
    """Add a partition to the store and print its number. Existing boards stay where they are."""
    refuse_one_file(settings, ONE_PARTITION)
    run_on_store(settings, add_partition)


@partition_app.command("list")
@settings_command("store", create_store=False)
def list_partitions(settings: Settings, as_json: JsonOption = False) -> None:
    """List the partitions with their schemas and sizes in bytes, and on Citus the nodes that hold them."""
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
        fail(f"{name}: a store already exists there; nothing was changed")
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
        number = await store.add_partition(hidden_owners.copy_states)
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
