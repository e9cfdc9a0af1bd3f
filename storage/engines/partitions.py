"""Finds, names and measures the schemas that hold a PostgreSQL store's partitions, even when Citus distributes them.

A store has one of two layouts:

    in one schema    control and partition 0 share the connection's schema   partition 1, 2 …: NAME_p1, NAME_p2 …
    apart            control: NAME_control                                   partition 0, 1 …: NAME_p0, NAME_p1 …

The control partition holds the tables that belong to no board. NAME is the first schema in the connection's search
path, or `rankcurve` if that schema is `public`. A store that Citus distributes always has the layout "apart", because
Citus cannot move the schema `public` to another server.

Citus is an extension that turns several servers (nodes) into one database. Each partition is on one node. A process may
connect to any node, because that node forwards each statement to the node that has the tables; `read_node_map` asks
Citus which one that is. Two things differ from plain PostgreSQL:

- Only one node, the coordinator, can create or change tables and schemas. A transaction that contains such a statement
  is therefore rolled back and runs again on a connection to the coordinator.
- An operator may move a partition to another node at any time. A read that began before the move would then see the
  partition in a later state, or empty. `PostgresStore.read` therefore checks at its end that nothing was moved.

Citus plans each statement from scratch, which takes longer than a short read. To avoid this, reads name not the table
but its only shard, which is a table on the node, named after the table and the shard's number. A move keeps the number,
and no table name is used twice. Each such statement checks in its own snapshot that the shard is on the node. If the
shard has been moved, the statement fails and runs again through Citus.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import asyncpg
import structlog

from querybuilder import POSTGRES, Dialect, as_text, col, lit, measure_schemas, param, select
from storage.schema.creation import count_partitions
from storage.schema.placement import place_tables
from storage.schema.tables import LOG_COUNTER, META
from storage.store import CONTROL, PartitionSize, StoreSize

from .postgres_connection import PostgresConnection

_PLACED = (
    select(lit(1))
    .from_("pg_dist_schema", "d")
    .join("pg_namespace", col("oid", "n").eq(col("schemaid", "d")), alias="n")
    .where(col("nspname", "n").eq(param("schema")))
    .prepared()
)
# One table shows where a partition is: META for the control partition, otherwise LOG_COUNTER. Each is one shard.
_SHOWING_TABLES = META, LOG_COUNTER
_NODES = (
    select(col("groupid"), col("nodename"), col("nodeport"))
    .from_("pg_dist_node")
    .where(as_text(col("noderole")).eq("primary"))
    .prepared()
)
_SHARDS = (
    select(col("nspname", "n"), col("relname", "c"), col("shardid", "s"), col("groupid", "p"))
    .from_("pg_class", "c")
    .join("pg_namespace", col("oid", "n").eq(col("relnamespace", "c")), alias="n")
    .join("pg_dist_shard", col("logicalrelid", "s").eq(col("oid", "c")), alias="s")
    .join("pg_dist_placement", col("shardid", "p").eq(col("shardid", "s")), alias="p")
    .where(col("relname", "c").in_(param("tables")))
    .prepared()
)
# A move of a shard writes its row in `pg_dist_placement` again. This changes `xmin`, the id of the writing transaction.
# No other column changes in every move: worker nodes keep `placementid`, and a move there and back restores `groupid`.
_PLACEMENTS = (
    select(col("shardid"), col("xmin")).from_("pg_dist_placement").where(col("shardid").in_(param("shards"))).prepared()
)

COORDINATOR_GROUP = 0  # Citus gives this number to the coordinator
Placements = set[tuple[Any, ...]]  # pairs of a shard's id and `xmin`


class DefinitionNeededError(Exception):
    """The transaction creates or changes a table or schema, so it has to run on the coordinator."""


class ShardAwayError(Exception):
    """A table's shard is not known yet, or is no longer on the node, so the statement has to go through Citus."""


class Address(NamedTuple):
    host: str
    port: int


class NodeMap(NamedTuple):
    schemas: dict[str, Address]  # by the schema of a partition: its node
    coordinator: Address | None  # None: no operator has told Citus its address


async def is_distributed(connection: PostgresConnection, schema: str) -> bool:
    """Return whether Citus manages a schema, so that its tables may be on any node."""
    return bool(await connection.run_query(_PLACED.bind(schema=schema).build(POSTGRES)))


async def read_node_map(connection: PostgresConnection) -> NodeMap:
    """Read which node has which partition, as far as the node at the other end of this connection knows."""
    nodes = await connection.run_query(_NODES.bind().build(POSTGRES))
    addresses = {group: Address(host, port) for group, host, port in nodes}
    placed = await connection.run_query(_SHARDS.bind(tables=_SHOWING_TABLES).build(POSTGRES))
    schemas = {schema: addresses[group] for schema, _, _, group in placed if group in addresses}
    return NodeMap(schemas, addresses.get(COORDINATOR_GROUP))


async def find_shards(connection: PostgresConnection, tables: Iterable[str]) -> dict[tuple[str, str], int]:
    """Find the number of the only shard of each table with one of these names, by schema and table."""
    found = await connection.run_query(_SHARDS.bind(tables=list(tables)).build(POSTGRES))
    return {(schema, table): shard for schema, table, shard, _ in found}


class PlacementCheck:
    """Checks that no partition was moved to another node while a read ran.

    All connections passed to it must lead to the same node. Each node has its own copy of Citus' tables, and the same
    move has a different `xmin` in each copy.
    """

    def __init__(self) -> None:
        self._shards: list[int] = []
        self._last: Placements | None = None  # as found last; None: look up shards and placements again

    def forget(self) -> None:
        """Forget the known partitions, so that the next read looks them up again and finds a new one."""
        self._last = None

    async def begin(self, connection: PostgresConnection) -> Placements:
        """Read the placements of all partitions. Call this before a read, and pass the result to `end` after it."""
        if self._last is None:
            self._shards = [*(await find_shards(connection, _SHOWING_TABLES)).values()]
            self._last = await self._find_placements(connection)
        return self._last

    async def end(self, connection: PostgresConnection, begun: Placements) -> None:
        """Raise asyncpg.SerializationError if a partition was moved since the read began."""
        if await self._find_placements(connection) != begun:
            self.forget()
            raise asyncpg.SerializationError("a partition was moved")

    async def _find_placements(self, connection: PostgresConnection) -> Placements:
        return {tuple(row) for row in await connection.run_query(_PLACEMENTS.bind(shards=self._shards).build(POSTGRES))}


log = structlog.get_logger(__name__)
DEFAULT_NAME = "rankcurve"
_named = col("nspname").in_(param("schemas"))
_SIZES = {distributed: measure_schemas(_named, distributed=distributed).prepared() for distributed in (False, True)}
_META = (
    select(lit(1)).from_("pg_tables").where(col("schemaname").eq(param("schema")), col("tablename").eq(META)).prepared()
)


@dataclass
class Partitions:
    """The partitions of one store. Each has a dialect, which may qualify table names with a schema."""

    name: str = DEFAULT_NAME
    exists: bool = False  # whether the database already has a store
    apart: bool = False  # whether the control partition and partition 0 have their own schemas
    distributed: bool = False  # whether Citus places the schemas on its nodes
    count: int = 1  # how many partitions hold boards; other processes may have added more
    _dialects: dict[tuple[int, bool], Dialect] = field(default_factory=dict, init=False)

    @classmethod
    async def find(cls, connection: PostgresConnection) -> "Partitions":
        """Find the partitions of the store in this database. If there is no store yet, return the default of one."""
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
        return f"{self.name}_control" if partition == CONTROL else f"{self.name}_p{partition}"

    def schema_of(self, partition: int) -> str | None:
        """Return the name of a partition's schema, or None if it is the connection's own schema."""
        return self.schema_named(partition) if self.apart or partition > 0 else None

    def dialect_of(self, partition: int, shard_of: Callable[[str, str], int] | None = None) -> Dialect:
        """Create a partition's dialect. With `shard_of`, its statements read shards on their own node."""
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
        """Measure the size of each partition and their sum. Sizes cover all tables with their indexes."""
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
