"""Test what the store does for Citus, with a connection that answers as one to a node would."""

from typing import Any, cast

import asyncpg
import pytest

from querybuilder import Built
from storage.engines.citus import PlacementCheck
from storage.engines.postgres_connection import PostgresConnection, replace_host
from storage.store import Rows


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
