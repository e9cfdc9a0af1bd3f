"""Simulate several processes on one PostgreSQL store. Each is a deployment with its own connections."""

from contextlib import AsyncExitStack
from typing import Any

from storage.engines.postgres import PostgresStore
from tests.storage.backends import POSTGRES_LIMITS
from tests.storage.deployment import Deployment


class Processes:
    """Deployments on one schema. Each has connections of its own, as a process would."""

    def __init__(self, stack: AsyncExitStack, place: str) -> None:
        self._stack, self._place = stack, place

    async def start_process(self, url: str | None = None, **limits: Any) -> Deployment:
        store = await PostgresStore.open(url or self._place, POSTGRES_LIMITS.model_copy(update=limits))
        self._stack.push_async_callback(store.close)
        return await Deployment.on(store)
