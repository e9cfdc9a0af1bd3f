"""An empty place on a shared PostgreSQL server: a schema of its own, named in the connection string.

The rule: a connection string is all that is known of the server, so that any compatible one serves.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg


@asynccontextmanager
async def fresh_schema(url: str) -> AsyncIterator[str]:
    """A connection string whose tables are nobody else's; they go at the end."""
    name = f"test_{secrets.token_hex(8)}"
    await _run(url, f"CREATE SCHEMA {name}")
    try:
        yield f"{url}{'&' if '?' in url else '?'}search_path={name}"
    finally:
        await _run(url, f"DROP SCHEMA {name} CASCADE")


async def _run(url: str, sql: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("SET client_min_messages = warning")
        await connection.execute(sql)
    finally:
        await connection.close()
