"""Test what the store does for Citus, with a connection that answers as one to a node would."""

from typing import Any, cast

import asyncpg
import pytest

from querybuilder import Built
from storage.engines.citus import PlacementCheck
from storage.engines.partitions import Partitions
from storage.engines.postgres_connection import PostgresConnection, replace_host
from storage.store import CONTROL, Rows


class NodeConnection:
    """A connection to a node that knows one shard, and its last placement."""

    placement = 5

    async def run_query(self, query: Built, **_: Any) -> Rows:
        return [(7,)] if "pg_dist_shard" in query.sql else [(self.placement,)]


async def test_every_read_that_began_before_a_move_runs_again() -> None:
    node, check = NodeConnection(), PlacementCheck()
    connection = cast(PostgresConnection, node)
    first, second = await check.begin(connection), await check.begin(connection)
    node.placement = 6
    with pytest.raises(asyncpg.SerializationError):
        await check.end(connection, second)
    third = await check.begin(connection)
    await check.end(connection, third)
    with pytest.raises(asyncpg.SerializationError):
        await check.end(connection, first)


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
    """Such a statement, or the function that checks it, would run on another node than the tables."""
    connection = cast(PostgresConnection, SchemaConnection(distributed=distributed))
    dialect = (await Partitions.find(connection)).dialect_of(CONTROL)
    assert (dialect.chains, dialect.cursors) == (not distributed, not distributed)


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

    async def run_query(self, query: Built, **_: Any) -> Rows:
        return [(None,)] if "max(" in query.sql else []


async def test_a_store_that_citus_does_not_place_is_never_moved() -> None:
    connection, check = cast(PostgresConnection, UnplacedConnection()), PlacementCheck()
    await check.end(connection, await check.begin(connection))
