"""Test how a store on Citus measures its partitions, on a server with tables and a function like those of Citus."""

import asyncpg

from storage.engines.partitions import Partitions
from storage.engines.postgres_connection import Connector
from storage.store import CONTROL, PartitionSize
from tests.storage.backends import POSTGRES_LIMITS

# Each partition has a colocation, shard and placement with its number. Colocation 0 has two shards. The shard of
# colocation 2 was moved from group 1. The server of group 2 does not answer, so it gives no sizes.
_CITUS = """
CREATE TABLE pg_dist_schema (schemaid oid, colocationid int);
CREATE TABLE pg_dist_partition (logicalrelid oid, colocationid int);
CREATE TABLE pg_dist_shard (logicalrelid oid, shardid bigint);
CREATE TABLE pg_dist_placement (shardid bigint, shardstate int, groupid int);
CREATE TABLE pg_dist_node (groupid int, nodename text, nodeport int, noderole text);
CREATE FUNCTION citus_shard_sizes(OUT shard_id bigint, OUT size bigint) RETURNS SETOF record LANGUAGE sql
    AS 'VALUES (10::bigint, 8::bigint), (11, 4), (30, 5)';
INSERT INTO pg_dist_partition VALUES (100, 0), (101, 0), (102, 2), (103, 99);
INSERT INTO pg_dist_shard VALUES (100, 10), (101, 11), (102, 20), (103, 30);
INSERT INTO pg_dist_placement VALUES (10, 1, 1), (11, 1, 1), (20, 4, 1), (20, 1, 2), (30, 1, 1);
INSERT INTO pg_dist_node VALUES (1, 'a', 1, 'secondary'), (1, 'b', 2, 'primary'), (2, 'c', 3, 'primary');
"""


async def test_sizes_and_servers_of_partitions_on_citus_are_those_of_their_shards(place: str) -> None:
    session = await asyncpg.connect(f"{place},pg_catalog")
    await session.execute(_CITUS)
    found = Partitions(await session.fetchval("SELECT current_schema()"), apart=True, distributed=True, count=3)
    schemas = {number: found.schema_named(number) for number in (CONTROL, 0, 1, 2)}
    try:
        for number, schema in schemas.items():
            await session.execute(f'CREATE SCHEMA "{schema}"')
            if number != CONTROL:  # Citus does not place this schema
                await session.execute(f"INSERT INTO pg_dist_schema VALUES ('\"{schema}\"'::regnamespace, {number})")
        node = await Connector(f"{place},pg_catalog", POSTGRES_LIMITS, "read")()
        sizes = await found.measure(node)
        await node.close()
    finally:
        for schema in schemas.values():
            await session.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
        await session.close()
    assert sizes.store_bytes == 12
    assert sizes.partitions == (
        PartitionSize(CONTROL, None, schemas[CONTROL], None),
        PartitionSize(0, 12, schemas[0], "b:2"),
        PartitionSize(1, None, schemas[1], None),
        PartitionSize(2, None, schemas[2], "c:3"),
    )
