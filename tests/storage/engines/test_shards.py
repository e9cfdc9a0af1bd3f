"""Test that reads go to the shards of their tables on a node of Citus, and through Citus if a shard was moved.

There is no Citus here. The table of a partition answers statements that go through Citus. A copy with another position
is its shard.
"""

from collections.abc import AsyncIterator
from functools import partial

import asyncpg
import pytest

from storage.engines.database_nodes import SHARDS_MAX
from storage.engines.partitions import PlacementCheck, Placements, ShardAwayError
from storage.engines.postgres import PostgresStore
from storage.engines.postgres_connection import PostgresConnection
from storage.errors import UnknownBoardError
from storage.leaves.row_tables import layout_of
from storage.log.change_log import change_log
from storage.store import read_single
from tests.storage.backends import POSTGRES_LIMITS
from tests.storage.deployment import Deployment, part, ranked

SHARD = 7
OF_SHARD, THROUGH_CITUS = 1_001, 1  # marks
MOVED = "UPDATE pg_dist_placement SET groupid = 2"


class CountedCheck(PlacementCheck):
    """Counts how many reads checked whether a partition was moved."""

    checks = 0

    async def begin(self, _connection: PostgresConnection) -> Placements:
        return set()

    async def end(self, _connection: PostgresConnection, _begun: Placements) -> None:
        self.checks += 1


@pytest.fixture
async def citus(place: str) -> AsyncIterator[asyncpg.Connection]:
    """Open a session in a schema whose tables hide those of Citus. The node has the only shard of a partition."""
    session = await asyncpg.connect(f"{place},pg_catalog")
    await session.execute(
        "CREATE TABLE pg_dist_shard (logicalrelid oid, shardid bigint); CREATE TABLE pg_dist_local_group (groupid int);"
        "CREATE TABLE pg_dist_placement (shardid bigint, groupid int); INSERT INTO pg_dist_local_group VALUES (1)"
    )
    yield session
    await session.close()


@pytest.fixture
async def store(place: str, citus: asyncpg.Connection) -> AsyncIterator[PostgresStore]:
    """Provide a partition on a node of Citus. Its store does not know the shards yet."""
    store = await PostgresStore.open(f"{place},pg_catalog", POSTGRES_LIMITS)
    await store.create_apart(1)
    schema = store._partitions.schema_named(0)
    await citus.execute(
        f"CREATE TABLE {schema}.log_counter_{SHARD} AS TABLE {schema}.log_counter;"
        f"UPDATE {schema}.log_counter_{SHARD} SET next = next + 1000;"
        f"INSERT INTO pg_dist_shard VALUES ('{schema}.log_counter'::regclass, {SHARD});"
        f"INSERT INTO pg_dist_placement VALUES ({SHARD}, 1)"
    )
    store._nodes.entry.placements = CountedCheck()
    yield store
    await store.close()


async def find_shards(store: PostgresStore) -> None:
    """Read marks, so that the store seeks the shard of their table. Then look it up, as reading the map does."""
    assert await read_marks(store) == [THROUGH_CITUS] * 3
    await store._nodes.entry.light.run(store._nodes._find_shards)


async def read_marks(store: PostgresStore) -> list[int]:
    """Read the mark in each way in which a store reads."""
    at = store.at(0)
    reads = partial(read_single, at), at.read, partial(at.read, heavy=True)
    return [await read(change_log.take_mark) for read in reads]


def checks_of(store: PostgresStore) -> int:
    check = store._nodes.entry.placements
    assert isinstance(check, CountedCheck)
    return check.checks


async def test_a_read_goes_to_the_shard_as_soon_as_that_is_known(store: PostgresStore) -> None:
    await find_shards(store)
    checks = checks_of(store)
    assert checks == 2  # a single statement needs no check
    assert await read_marks(store) == [OF_SHARD] * 3
    assert checks_of(store) == checks  # each statement has found that the shard is there


@pytest.mark.parametrize("gone", [MOVED, "DROP TABLE {schema}.log_counter_7", "DELETE FROM pg_dist_placement"])
async def test_a_read_of_a_shard_that_was_moved_goes_through_citus(
    store: PostgresStore, citus: asyncpg.Connection, gone: str
) -> None:
    await find_shards(store)
    await citus.execute(gone.format(schema=store._partitions.schema_named(0)))
    assert await read_marks(store) == [THROUGH_CITUS] * 3


async def test_a_thousand_reads_of_a_moved_shard_leave_no_connection_lent(
    store: PostgresStore, citus: asyncpg.Connection
) -> None:
    await find_shards(store)
    await citus.execute(MOVED)
    at = store.at(0)
    for number in range(1_000):
        read = partial(read_single, at) if number % 2 else at.read
        assert await read(change_log.take_mark) == THROUGH_CITUS
    assert store._nodes._counts["lent read"] == 0


async def test_a_deleted_board_is_unknown_to_reads_of_its_shard(
    store: PostgresStore, citus: asyncpg.Connection
) -> None:
    deployment = await Deployment.on(store)
    board = await deployment.create("b", ranked("xp"))
    await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    entries = deployment.open_rows(board)
    table = f"{store._partitions.schema_named(0)}.{layout_of(board.leaf).table}"
    await store.at(0).read(lambda: entries.find_entries(["ada"]))
    await citus.execute(f"INSERT INTO pg_dist_shard VALUES ('{table}'::regclass, {SHARD})")
    await store._nodes.entry.light.run(store._nodes._find_shards)
    await citus.execute(f"CREATE TABLE {table}_{SHARD} AS TABLE {table}")
    assert set(await store.at(0).read(lambda: entries.find_entries(["ada"]))) == {"ada"}
    await citus.execute(f"DROP TABLE {table}, {table}_{SHARD}")
    for read in (store.at(0).read, partial(read_single, store.at(0))):
        with pytest.raises(UnknownBoardError):
            await read(lambda: entries.find_entries(["ada"]))


async def test_a_process_seeks_and_knows_a_bounded_number_of_shards(store: PostgresStore) -> None:
    for number in range(SHARDS_MAX + 10):
        with pytest.raises(ShardAwayError):
            store._nodes.find_shard("s", f"t{number}")
    assert len(store._nodes._sought) == SHARDS_MAX
    store._nodes._shards = {("s", f"t{number}"): number for number in range(SHARDS_MAX)}
    store._nodes._sought = {"log_counter"}
    await store._nodes.entry.light.run(store._nodes._find_shards)
    assert list(store._nodes._shards.values()) == [SHARD]
