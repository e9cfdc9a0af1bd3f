"""What PostgreSQL does not need and Citus does, an extension that makes one database of several servers (nodes).

Each partition is on one node. A front end connects to any node, which sends every statement to the node of its tables.
Two things are different from PostgreSQL:

- Only one node, the coordinator, changes definitions. So a transaction that yields a definition is rolled back, and
  runs again on a connection to the coordinator.
- An operator may move a partition to another node at any time. In a transaction with one snapshot, statements after the
  move would see a later state of the partition, or an empty one. So a read checks at its end that nothing was moved.
"""

import asyncpg

from .postgres_connection import PostgresConnection

_LAST_PLACEMENT = "SELECT coalesce(max(placementid), 0) FROM pg_dist_placement"  # grows with every move


class DefinitionNeededError(Exception):
    """The transaction changes a definition, so it has to run on the coordinator."""


async def has_citus(connection: PostgresConnection) -> bool:
    return bool(await connection.fetchval("SELECT count(*) FROM pg_extension WHERE extname = 'citus'"))


async def is_distributed(connection: PostgresConnection, schema: str) -> bool:
    """Return whether Citus places the tables of a schema."""
    placed = "SELECT count(*) FROM pg_dist_schema WHERE schemaid = to_regnamespace(quote_ident($1))"
    return bool(await connection.fetchval(placed, schema))


async def find_coordinator(connection: PostgresConnection) -> tuple[str, int] | None:
    """Return host and port of the coordinator, or None if no operator has told them to Citus."""
    found = await connection.fetchrow("SELECT nodename, nodeport FROM pg_dist_node WHERE groupid = 0")
    return None if found is None else (found[0], found[1])


class PlacementCheck:
    """Checks that no partition was moved while a read ran."""

    def __init__(self) -> None:
        self._last: int | None = None  # the last placement at some time before the reads that are running now

    async def begin(self, connection: PostgresConnection) -> None:
        if self._last is None:
            self._last = await connection.fetchval(_LAST_PLACEMENT)

    async def commit(self, connection: PostgresConnection) -> None:
        """End the transaction. Raise a serialization failure if a partition was moved since it began."""
        check = f"IF ({_LAST_PLACEMENT}) <> {self._last} THEN RAISE serialization_failure; END IF;"
        try:
            await connection.execute(f"COMMIT; DO $$BEGIN {check} END$$")
        except asyncpg.SerializationError:
            self._last = None
            raise
