"""Create an empty schema on a PostgreSQL server that tests share. Tests know only the server's connection string."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import asyncpg

from config.settings import Settings
from storage.engines.partitions import Partitions
from storage.engines.postgres import PostgresStore
from storage.leaves import hidden_owners
from storage.schema.creation import add_partition, prepare_store

DROPS_MAX = 3
PARTITIONS = 4  # of a store with several partitions


@asynccontextmanager
async def fresh_schema(url: str) -> AsyncIterator[str]:
    """Create an empty schema and yield a connection string to this schema. Drop the schema at the end.

    Citus never distributes this schema, so a store with one partition is an ordinary one there, too.
    """
    async with _schema(url) as (place, _):
        yield place


@asynccontextmanager
async def fresh_store(url: str) -> AsyncIterator[str]:
    """Yield the connection string of an empty store: on Citus a store with partitions, otherwise an empty schema."""
    async with _schema(url) as (place, connection):
        if await connection.fetchval("SELECT 1 FROM pg_extension WHERE extname = 'citus'"):
            store = await PostgresStore.open(place, Settings())
            await store.create_apart(PARTITIONS, distributed=True)
            await store.close()
        yield place


@asynccontextmanager
async def _schema(url: str) -> AsyncIterator[tuple[str, asyncpg.Connection]]:
    """Yield a connection string to an empty schema, and the connection that drops the schema at the end."""
    name = f"test_{secrets.token_hex(8)}"
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("SET client_min_messages = error; SET citus.enable_schema_based_sharding = off")
        await connection.execute(f"CREATE SCHEMA {name}")
        try:
            yield f"{url}{'&' if '?' in url else '?'}search_path={name}", connection
        finally:
            await _drop(connection, name)
    finally:
        await connection.close()


async def _drop(connection: asyncpg.Connection, name: str) -> None:
    """Drop a schema, and those of the partitions of its store.

    Retry after a deadlock with the last statement of a connection that was just closed.
    """
    found = await connection.fetch(f"SELECT nspname FROM pg_namespace WHERE nspname ~ '^{name}(_control|_p[0-9]+)?$'")
    drop = f"DROP SCHEMA IF EXISTS {', '.join(schema for (schema,) in found)} CASCADE"
    for _ in range(DROPS_MAX - 1):
        with suppress(asyncpg.DeadlockDetectedError):
            await connection.execute(drop)
            return
    await connection.execute(drop)


async def add_partitions(url: str) -> None:
    """Create a store with `PARTITIONS` partitions in an empty schema. The first partition is in the schema of `url`."""
    schemas = Partitions(url.rpartition("search_path=")[2])
    adding = partial(add_partition, schema_of=schemas.schema_named, distributed=False, fill=hidden_owners.copy_states)
    store = await PostgresStore.open(url, Settings())
    await prepare_store(store)
    while store.partitions < PARTITIONS:
        store.at(await store.write(adding))
    await store.close()
