"""API keys in the store: for the service, and for the command line on the store itself, which makes the first key.

The rule: opening takes the store's lock, like `serve` does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from config import Settings
from storage.keys import StoredKey, add_key, list_keys, page_keys, revoke_key
from storage.store import Store
from storage.transaction_numbers import bring_up

from .keys import Role, new_key
from .logs import logging_to_stderr
from .stores import open_store
from .wiring import now_us


class StoreKeys:
    """The keys of an opened store.

    With `keep_ops` nothing is done that would leave no valid key with the role ops: over HTTP nobody could undo it.
    """

    def __init__(self, store: Store, *, keys_max: int, now_us: Callable[[], int], keep_ops: bool = False) -> None:
        self._store, self._keys_max, self._now_us, self._keep_ops = store, keys_max, now_us, keep_ops

    async def list(self) -> Sequence[StoredKey]:
        """All keys, revoked ones included."""
        return await self._store.read(lambda: list_keys(self._store.dialect, keys_max=self._keys_max))

    async def page(self, after: tuple[int, str], limit: int) -> Sequence[StoredKey]:
        """Return the keys past a time of creation and an id, revoked ones included."""
        return await self._store.read(lambda: page_keys(self._store.dialect, after=after, limit=limit))

    async def create(self, name: str, role: str) -> tuple[StoredKey, str]:
        """Make a key and return it with its text, which is stored nowhere.

        Raises:
            TooManyKeys, OpsKeyNeeded: see `add_key`.
        """
        key = new_key()
        row = StoredKey(key.id, name, Role.named(role).name.lower(), key.hash, self._now_us(), None)
        await self._store.write(
            lambda: add_key(self._store.dialect, row, keys_max=self._keys_max, keep_ops=self._keep_ops)
        )
        return row, key.text

    async def revoke(self, id: str) -> None:
        """Make a key useless.

        Raises:
            UnknownKey: there is none with that id.
            OpsKeyNeeded: see `revoke_key`.
        """
        await self._store.write(
            lambda: revoke_key(self._store.dialect, id, now_us=self._now_us(), keep_ops=self._keep_ops)
        )


@asynccontextmanager
async def open_keys(settings: Settings) -> AsyncIterator[StoreKeys]:
    """The keys of the settings' store.

    Raises:
        StoreLocked: a service owns the store.
    """
    with logging_to_stderr():
        store = await open_store(settings)
        try:
            await bring_up(store)
            yield StoreKeys(store, keys_max=settings.keys_max, now_us=now_us)
        finally:
            await store.close()
