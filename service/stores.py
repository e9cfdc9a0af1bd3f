"""Opens the store that a URL names. Only this module decides which kind of store a URL means.

A process imports only the database driver that its own store needs.
"""

from pathlib import Path

from config import Settings
from storage.meter import NO_METER, Meter
from storage.store import Store

SQLITE_PREFIX = "sqlite:///"


def is_shared(url: str) -> bool:
    """Return whether several processes may open the store at the same time."""
    return not url.startswith(SQLITE_PREFIX)


async def open_store(settings: Settings, meter: Meter = NO_METER) -> Store:
    """Open the store that the setting `store` names.

    Raises:
        StoreLockedError: another process has opened the database file.
        StoreUnsupportedError: the database can't be opened, or it is not a store of the expected kind.
        StoreAwayError: the database server can't be reached.
    """
    if not is_shared(settings.store):
        from storage.engines.sqlite import SqliteStore

        path = Path(settings.store.removeprefix(SQLITE_PREFIX))
        return await SqliteStore.open(path, settings, meter=meter)
    from storage.engines.postgres import PostgresStore

    return await PostgresStore.open(settings.store, settings, meter=meter)
