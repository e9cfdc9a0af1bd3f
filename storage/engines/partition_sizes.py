"""Measures a PostgreSQL store and its partitions, and on Citus finds the servers that hold the partitions."""

from querybuilder import POSTGRES, col, measure_schemas, param
from storage.store import CONTROL, PartitionSize, StoreSize

from .partitions import Partitions
from .postgres_connection import PostgresConnection

_named = col("nspname").in_(param("schemas"))
_SIZES = {distributed: measure_schemas(_named, distributed=distributed).prepared() for distributed in (False, True)}


async def measure_store(partitions: Partitions, connection: PostgresConnection) -> StoreSize:
    """Measure the store. Of a store with one schema, the only partition has the size of the database."""
    database: int = 0
    if not partitions.distributed:
        database = await connection.fetchval("SELECT pg_database_size(current_database())")
        if not partitions.apart and partitions.count == 1:
            return StoreSize(database, None, (PartitionSize(0, database),))
    own = await connection.fetchval("SELECT current_schema()")
    schemas = {
        number: partitions.schema_named(number) if partitions.apart or number > 0 else own
        for number in range(CONTROL if partitions.apart else 0, partitions.count)
    }
    query = _SIZES[partitions.distributed].bind(schemas=list(schemas.values()))
    found = {schema: (size, node) for schema, node, size in await connection.run_query(query.build(POSTGRES))}
    sizes = []
    for number, schema in schemas.items():
        size, node = found.get(schema, (None, None))
        sizes.append(PartitionSize(number, size, schema, node))
    # The database of one server of Citus does not hold all partitions.
    return StoreSize(database or sum(each.store_bytes or 0 for each in sizes), None, tuple(sizes))
