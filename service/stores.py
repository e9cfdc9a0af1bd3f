"""Opens the store that a URL names. No other module decides what kind of store a URL stands for.

A process imports only the database driver that its own store needs.
"""

from pathlib import Path
from typing import NamedTuple, Self

from config import Settings
from storage.meter import NO_METER, Meter
from storage.store import Store

SQLITE_PREFIX = "sqlite:///"


class OwnerSockets(NamedTuple):
    """The Unix sockets on which the owner of a SQLite store listens for the other processes of its node."""

    posts: Path  # receives frames with posts, see `storage.posting.remote_writer`
    requests: Path  # receives, over HTTP, the requests that front processes pass on

    @classmethod
    def in_folder(cls, folder: Path) -> Self:
        return cls(folder / "posts.owner", folder / "requests.owner")


def is_shared(url: str) -> bool:
    return not url.startswith(SQLITE_PREFIX)


async def open_store(settings: Settings, meter: Meter = NO_METER, *, beside_owner: bool = False) -> Store:
    """Open the store that the setting `store` names. If `beside_owner` is true, another process owns the SQLite file.

    Raises:
        StoreLockedError: another process has opened the database file.
        StoreUnsupportedError: the database can't be opened, or it is not a store of the expected kind.
        StoreAwayError: the database server can't be reached.
    """
    if not is_shared(settings.store):
        from storage.engines.sqlite import SqliteStore

        path = Path(settings.store.removeprefix(SQLITE_PREFIX))
        opening = SqliteStore.open_beside_owner if beside_owner or settings.read_only else SqliteStore.open
        return await opening(path, settings, meter=meter)
    from storage.engines.postgres import PostgresStore

    return await PostgresStore.open(settings.store, settings, meter=meter)
