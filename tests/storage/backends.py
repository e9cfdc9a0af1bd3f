"""Where the stores under test live: a backend joins the suite by one entry here.

The rule it keeps: no test of the port names a backend.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from storage.sqlite import SqliteLimits, SqliteStore
from storage.store import Store

# Opens the store of one place; closed and opened again it holds what it held.
OpenStore = Callable[[], Awaitable[Store]]
# Makes an empty place; what is still open when the context ends is closed.
Backend = Callable[[Path], AbstractAsyncContextManager[OpenStore]]

SQLITE_LIMITS = SqliteLimits(
    reader_connections=2,
    heavy_reader_connections=1,
    reads_waiting_max=1_000,
    sqlite_cache_mib=4,
    checkpoint_pages=1_000,
    checkpoint_idle_s=60,
    statement_cache=64,
)


@asynccontextmanager
async def sqlite_place(directory: Path) -> AsyncIterator[OpenStore]:
    """A file in an empty directory."""
    opened: list[Store] = []

    async def open_store() -> Store:
        opened.append(await SqliteStore.open(directory / "boards.db", SQLITE_LIMITS))
        return opened[-1]

    yield open_store
    for store in opened:
        await store.close()


BACKENDS: dict[str, Backend] = {"sqlite": sqlite_place}
