"""Finds, names and measures the database schemas of the partitions of a PostgreSQL store.

A store has one of two layouts:

    in one schema    control and partition 0 share the connection's schema   partition 1, 2 …: NAME_p1, NAME_p2 …
    apart            control: NAME_control                                   partition 0, 1 …: NAME_p0, NAME_p1 …

The control partition has the tables that belong to no board. NAME is the first schema in the search path of the
connection, or `rankcurve` if this first schema is `public`. A store that Citus spreads is created with the
layout "apart", because Citus cannot move the schema `public` to another server.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import structlog

from querybuilder import POSTGRES, Dialect, col, lit, measure_schemas, param, select
from storage.schema.creation import count_partitions
from storage.schema.placement import place_tables
from storage.schema.tables import META
from storage.store import CONTROL, PartitionSize, StoreSize

from .citus import is_distributed
from .postgres_connection import PostgresConnection

log = structlog.get_logger(__name__)
DEFAULT_NAME = "rankcurve"
_named = col("nspname").in_(param("schemas"))
_SIZES = {distributed: measure_schemas(_named, distributed=distributed).prepared() for distributed in (False, True)}
_META = (
    select(lit(1)).from_("pg_tables").where(col("schemaname").eq(param("schema")), col("tablename").eq(META)).prepared()
)


@dataclass
class Partitions:
    """The partitions of one store. Each has a dialect, which may put a schema before the names of tables."""

    name: str = DEFAULT_NAME
    exists: bool = False  # whether the database already has a store
    apart: bool = False  # whether the control partition and partition 0 have their own schemas
    distributed: bool = False  # whether Citus places the schemas on its nodes
    count: int = 1  # how many partitions hold boards; other processes may have added more
    _dialects: dict[tuple[int, bool], Dialect] = field(default_factory=dict, init=False)

    @classmethod
    async def find(cls, connection: PostgresConnection) -> "Partitions":
        """Return the partitions of the store in this database. Without a store, return the default, one partition."""
        schema = await connection.fetchval("SELECT current_schema()") or DEFAULT_NAME
        found = cls(DEFAULT_NAME if schema == "public" else schema)
        found.apart = await _holds_store(connection, found.schema_named(CONTROL))
        if await connection.has_citus():
            placed = await is_distributed(connection, found.schema_named(CONTROL) if found.apart else schema)
            found.distributed = found.apart or placed
            if not placed and found.apart:
                log.warning("store_not_distributed", detail="Citus places no partition: all are on one server")
        found.exists = found.apart or await _holds_store(connection, schema)
        if found.exists:
            counting = next(count_partitions())
            for (count,) in await connection.run_query(counting.build(found.dialect_of(CONTROL))):
                found.count = int(count)
        return found

    def schema_named(self, partition: int) -> str:
        """Return the name for the schema of a partition that has its own schema."""
        return f"{self.name}_control" if partition == CONTROL else f"{self.name}_p{partition}"

    def schema_of(self, partition: int) -> str | None:
        """Return the schema of a partition, or None if it is the schema of the connection."""
        return self.schema_named(partition) if self.apart or partition > 0 else None

    def dialect_of(self, partition: int, shard_of: Callable[[str, str], int] | None = None) -> Dialect:
        """Return the dialect of a partition. With `shard_of`, its statements read shards on their own node."""
        key = partition, shard_of is not None
        dialect = self._dialects.get(key)
        if dialect is None:
            made = self._make_dialect(partition)
            dialect = self._dialects[key] = made if shard_of is None else replace(made, shard_of=shard_of)
        return dialect

    def _make_dialect(self, partition: int) -> Dialect:
        if not self.apart and not self.distributed and partition <= 0:
            return POSTGRES
        schema_of = place_tables(partition, self.schema_of)
        # On Citus, ON CONFLICT DO NOTHING reports skipped rows as inserted. And if a statement updates rows and inserts
        # what RETURNING returns (a chain), Citus sends these rows to all nodes, and fails while a node is down.
        chains = not self.distributed
        spares = self.distributed
        return replace(POSTGRES, schema_of=schema_of, chains=chains, counts_skipped=False, spares_tables=spares)

    async def measure(self, connection: PostgresConnection) -> StoreSize:
        """Return the sizes of the partitions, and their sum. A size is that of all tables with their indexes."""
        own = await connection.fetchval("SELECT current_schema()")
        numbers = range(CONTROL if self.apart else 0, self.count)
        schemas = {number: self.schema_of(number) or own for number in numbers}
        query = _SIZES[self.distributed].bind(schemas=list(schemas.values()))
        found = {schema: (size, node) for schema, node, size in await connection.run_query(query.build(POSTGRES))}
        sizes = []
        for number, schema in schemas.items():
            size, node = found.get(schema, (None, None))
            sizes.append(PartitionSize(number, size, schema, node))
        return StoreSize(sum(each.store_bytes or 0 for each in sizes), None, tuple(sizes))


async def _holds_store(connection: PostgresConnection, schema: str) -> bool:
    return bool(await connection.run_query(_META.bind(schema=schema).build(POSTGRES)))
