"""Which store a URL names, and how it is opened: decided here and nowhere else.

The rule: the settings' names of bounds are the store's own.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from config import Settings
from storage.observing import StoreObserver
from storage.postgres import PostgresLimits, PostgresStore
from storage.replica import ReplicaFirst
from storage.sqlite import SqliteLimits, SqliteStore
from storage.store import Store

from .limits import limits_of

SQLITE_PREFIX = "sqlite:///"


def is_shared(url: str) -> bool:
    """Whether several processes may open the store at once."""
    return not url.startswith(SQLITE_PREFIX)


async def open_store(settings: Settings, observer: StoreObserver | None = None) -> Store:
    """The store of the settings.

    Raises:
        StoreLocked: another process owns the file.
        StoreUnsupported: it can't be opened, or is not what it should be.
        StoreAway: the server can't be reached.
    """
    if settings.store.startswith(SQLITE_PREFIX):
        path = Path(settings.store.removeprefix(SQLITE_PREFIX))
        return await SqliteStore.open(path, limits_of(SqliteLimits, settings), observer=observer)
    return await PostgresStore.open(settings.store, limits_of(PostgresLimits, settings), observer=observer)


async def open_sampling(settings: Settings, store: Store, observer: StoreObserver | None = None) -> Store:
    """Where curves are sampled from: the replica that the settings name before the store, or the store itself.

    Raises:
        StoreUnsupported, StoreAway: see `open_store`.
    """
    if not settings.sampling_store or not isinstance(store, PostgresStore):
        return store
    limits = replace(limits_of(PostgresLimits, settings), pools="", writer_connections=1)
    replica = await PostgresStore.open(settings.sampling_store, limits, observer=observer)
    return ReplicaFirst(store, replica, lag_s_max=settings.sampling_lag_s_max)
