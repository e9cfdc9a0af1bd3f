"""How large the store is and what runs on it: looked at now and then, shown at every scrape.

The rule: a scrape never waits for the store.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from storage.errors import StorageError
from storage.store import Store, StoreSize

log = structlog.get_logger(__name__)

INTERVAL_S = 30.0  # between two looks: PostgreSQL asks its file system for the size of every table


class StoreSizes(Collector):
    """The size of one store, as of the last look, and the build that serves it."""

    def __init__(self, registry: CollectorRegistry, *, version: str, store: str) -> None:
        self._build = {"version": version, "python": platform.python_version(), "store": store}
        self.last: StoreSize | None = None  # None: nobody has looked yet
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """The figures as of the last look."""
        build = GaugeMetricFamily("rankcurve_build_info", "What runs here; always 1", labels=tuple(self._build))
        build.add_metric(tuple(self._build.values()), 1)
        yield build
        if self.last is None:
            return
        yield GaugeMetricFamily(
            "rankcurve_store_bytes", "Size of the store, its log included", value=self.last.store_bytes
        )
        if self.last.disk_free_bytes is not None:
            yield GaugeMetricFamily(
                "rankcurve_store_disk_free_bytes",
                "Free space of the disk that a SQLite store is on",
                value=self.last.disk_free_bytes,
            )

    @asynccontextmanager
    async def measuring(self, store: Store, sleep: Callable[[float], Awaitable[None]]) -> AsyncIterator[None]:
        """Look now, and from time to time until the end."""
        await self.look(store)

        async def keep_looking() -> None:
            while True:
                await sleep(INTERVAL_S)
                await self.look(store)

        looking = asyncio.create_task(keep_looking(), name="store size")
        try:
            yield
        finally:
            looking.cancel()

    async def look(self, store: Store) -> None:
        """Take over the size that the store has now; the one before stays where the store does not say."""
        try:
            self.last = await store.size()
        except StorageError as error:
            log.info("store_size_unknown", detail=error.detail)
