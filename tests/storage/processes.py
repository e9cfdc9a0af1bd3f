"""Several processes on one PostgreSQL store, as deployments with connections of their own."""

from contextlib import AsyncExitStack
from typing import Any

from storage.engines.postgres import PostgresStore
from tests.storage.backends import POSTGRES_LIMITS
from tests.storage.deployment import Deployment


class Processes:
    """Deployments on one schema. Each has connections of its own, like a process."""

    def __init__(self, stack: AsyncExitStack, place: str) -> None:
        self._stack, self._place = stack, place

    async def start_process(self, url: str | None = None, **limits: Any) -> Deployment:
        store = await PostgresStore.open(url or self._place, POSTGRES_LIMITS.model_copy(update=limits))
        self._stack.push_async_callback(store.close)
        return await Deployment.on(store)
