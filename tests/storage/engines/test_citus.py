"""Test what the store does for Citus, on a server with such tables, or with a connection that answers like a node."""

from collections.abc import AsyncIterator
from typing import Any, cast

import asyncpg
import pytest
from structlog.testing import capture_logs

from querybuilder import Built, lit, select
from storage.engines.partitions import Partitions, PlacementCheck, Placements
from storage.engines.postgres_connection import Connector, PostgresConnection, replace_host
from storage.store import CONTROL, Program, Rows
from tests.storage.backends import POSTGRES_LIMITS
from tests.storage.citus_forms import find_fault
from tests.storage.processes import Processes

WORKER = "UPDATE pg_dist_placement SET groupid = {to}"
COORDINATOR = "DELETE FROM pg_dist_placement; INSERT INTO pg_dist_placement SELECT 7, nextval('numbers'), {to}"


@pytest.fixture
def catalog(place: str) -> str:
    """Return the address of a schema whose tables hide those of the system, so also the real ones of Citus."""
    return f"{place},pg_catalog"


@pytest.fixture
async def citus(catalog: str) -> AsyncIterator[asyncpg.Connection]:
    """Open a session that makes Citus' tables, and can write to them. Group 1 has the only shard of a partition."""
    session = await asyncpg.connect(catalog)
    await session.execute(
        "CREATE SEQUENCE numbers; CREATE TABLE log_counter (); CREATE TABLE pg_dist_schema (schemaid oid);"
        "CREATE TABLE pg_dist_shard AS SELECT 'log_counter'::regclass AS logicalrelid, 7::bigint AS shardid;"
        "CREATE TABLE pg_dist_placement AS SELECT 7::bigint AS shardid, 5::bigint AS placementid, 1 AS groupid"
    )
    yield session
    await session.close()


@pytest.mark.parametrize("write", [WORKER, COORDINATOR])
@pytest.mark.parametrize("groups", [[2], [2, 1]], ids=["away", "away and back"])
async def test_every_read_that_began_before_a_move_runs_again(
    catalog: str, citus: asyncpg.Connection, groups: list[int], write: str
) -> None:
    node, check = await Connector(catalog, POSTGRES_LIMITS, "read")(), PlacementCheck()
    first, second = await check.begin(node), await check.begin(node)
    for group in groups:
        await citus.execute(write.format(to=group))
    with pytest.raises(asyncpg.SerializationError):
        await check.end(node, second)
    third = await check.begin(node)
    await check.end(node, third)
    with pytest.raises(asyncpg.SerializationError):
        await check.end(node, first)
    await node.close()


class MovedOnce(PlacementCheck):
    """Finds that a partition was moved while the first read ran."""

    moved = True

    async def begin(self, _connection: PostgresConnection) -> Placements:
        return set()

    async def end(self, _connection: PostgresConnection, _begun: Placements) -> None:
        moved, self.moved = self.moved, False
        if moved:
            raise asyncpg.SerializationError("a partition was moved")


async def test_a_read_that_fails_on_an_empty_partition_during_a_move_runs_again(processes: Processes) -> None:
    store = await processes.open_store()
    store._nodes.entry.placements, found = MovedOnce(), iter(([], [1]))

    def program() -> Program[int]:
        yield select(lit(1)).bind()
        [value] = next(found)
        return value

    assert await store.read(program) == 1


class SchemaConnection:
    """A connection to a node of Citus, in a new schema that Citus distributes or leaves alone."""

    def __init__(self, *, distributed: bool) -> None:
        self._known = {"pg_extension": True, "pg_dist_schema": distributed, "pg_tables": False}

    has_citus = PostgresConnection.has_citus

    async def fetchval(self, _query: str) -> str:
        return "apart"

    async def run_query(self, query: Built, **_: Any) -> Rows:
        [known] = [known for table, known in self._known.items() if table in query.sql]
        return [(1,)] if known else []


@pytest.mark.parametrize("distributed", [True, False])
async def test_a_schema_that_citus_distributes_gets_no_statement_that_changes_several_tables(distributed: bool) -> None:
    connection = cast(PostgresConnection, SchemaConnection(distributed=distributed))
    dialect = (await Partitions.find(connection)).dialect_of(CONTROL)
    assert dialect.chains == (not distributed)


async def test_partitions_that_citus_does_not_place_are_logged_when_the_store_is_opened(
    processes: Processes, catalog: str, citus: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def has_citus(_connection: PostgresConnection) -> bool:
        return True

    await (await processes.open_store()).create_apart(1)
    monkeypatch.setattr(PostgresConnection, "has_citus", has_citus)
    node = await Connector(catalog, POSTGRES_LIMITS, "read")()
    with capture_logs() as lines:
        control = (await Partitions.find(node)).schema_named(CONTROL)
    assert [line["event"] for line in lines] == ["store_not_distributed"]
    with capture_logs() as lines:
        await citus.execute(f"INSERT INTO pg_dist_schema VALUES ('{control}'::regnamespace)")
        assert (await Partitions.find(node)).distributed
    assert lines == []
    await node.close()


@pytest.mark.parametrize(
    ("url", "there"),
    [
        ("postgresql://u:p@a:1,b:2/d?sslmode=disable", "postgresql://u:p@c:5432/d?sslmode=disable"),
        ("postgresql://a/d", "postgresql://c:5432/d"),
    ],
)
def test_the_coordinator_is_reached_with_the_same_user_and_database(url: str, there: str) -> None:
    assert replace_host(url, "c", 5432) == there


def test_an_address_of_ipv6_is_written_in_brackets() -> None:
    assert replace_host("postgresql://u@a/d", "::1", 5432) == "postgresql://u@[::1]:5432/d"


class UnplacedConnection:
    """A connection to a server with Citus, where no partition is distributed."""

    async def run_query(self, _query: Built) -> Rows:
        return []


async def test_a_store_that_citus_does_not_place_is_never_moved() -> None:
    connection, check = cast(PostgresConnection, UnplacedConnection()), PlacementCheck()
    await check.end(connection, await check.begin(connection))


@pytest.mark.parametrize(
    "sql",
    [
        'SELECT 1 FROM "s_p1"."totals" JOIN "s_control"."boards" ON TRUE',
        'SELECT 1 FROM "totals" JOIN "boards" ON TRUE',
        'INSERT INTO "s_p1"."sequences" VALUES ($1, (SELECT 1))',
        'DECLARE "walk" NO SCROLL CURSOR FOR SELECT 1',
        'UPDATE "s_p1"."leases" SET "at" = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint',
        'INSERT INTO "s_p1"."leases" ("a") VALUES ($1) RETURNING clock_timestamp()',
        'MERGE INTO "s_p1"."leases" USING unnest($1)',
        'SELECT "q"."a", (WITH "p" AS (SELECT 1) SELECT * FROM "p") FROM "s_p1"."totals" AS "q"',
        'INSERT INTO "s_p1"."t" ("a") SELECT * FROM unnest($1) AS "v"("a") WHERE TRUE ON CONFLICT ("a") DO NOTHING',
        'WITH "taken" AS (UPDATE "s_p1"."t" SET "a" = $1 RETURNING "a"), "n" AS (INSERT INTO "s_p1"."u" ("a") '
        'SELECT "taken"."a" FROM unnest($2) AS "v"("b") CROSS JOIN "taken" WHERE TRUE) SELECT * FROM "taken"',
    ],
)
def test_statements_that_citus_refuses_are_found(sql: str) -> None:
    assert find_fault(sql) is not None


@pytest.mark.parametrize(
    "sql",
    [
        'WITH "n" AS (INSERT INTO "s_p1"."t" ("a") SELECT * FROM unnest($1) AS "v"("a") WHERE TRUE '
        'ON CONFLICT ("a") DO NOTHING RETURNING $2) SELECT count(*) FROM "n"',
        'INSERT INTO "s_p1"."t" ("a") VALUES ($1) ON CONFLICT ("a") DO NOTHING',
        'SELECT "a" FROM "s_control"."boards" UNION ALL SELECT "b" FROM "s_control"."families"',
    ],
)
def test_other_statements_pass(sql: str) -> None:
    assert find_fault(sql) is None
