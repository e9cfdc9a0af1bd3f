"""Simulate several processes on one PostgreSQL store. Each is a deployment with its own connections."""

from contextlib import AsyncExitStack
from typing import Any

import asyncpg

from storage.engines.postgres import PostgresStore
from storage.meter import NO_METER, Meter
from tests.storage.backends import POSTGRES_LIMITS
from tests.storage.deployment import Deployment

_WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock' AND query LIKE $2"
)


async def count_waiting(session: asyncpg.Connection, session_name: str, query: str) -> int:
    """Return how many statements that match the pattern `query` wait for a lock in sessions of this name."""
    # Without this statement, a transaction would always see the first statistics that it read.
    await session.execute("SELECT pg_stat_clear_snapshot()")
    waiting: int = await session.fetchval(_WAITING, session_name, query)
    return waiting


class Processes:
    """Deployments on one schema. Each has connections of its own, as a process would."""

    def __init__(self, stack: AsyncExitStack, place: str) -> None:
        self._stack, self._place = stack, place

    async def open_store(self, url: str | None = None, *, meter: Meter = NO_METER, **limits: Any) -> PostgresStore:
        """Open the store as a process would that has not created the schema yet. It is closed at the end."""
        store = await PostgresStore.open(url or self._place, POSTGRES_LIMITS.model_copy(update=limits), meter=meter)
        self._stack.push_async_callback(store.close)
        return store

    async def start_process(self, url: str | None = None, **limits: Any) -> Deployment:
        return await Deployment.on(await self.open_store(url, **limits))
