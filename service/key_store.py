"""API keys on the store itself, without a service: how the first key is made.

The rule: opening takes the store's lock, like `serve` does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from config import Settings
from storage.keys import StoredKey, add_key, list_keys, revoke_key
from storage.store import Store
from storage.transaction_numbers import bring_up

from .keys import Role, new_key
from .logs import logging_to_stderr
from .stores import open_store
from .wiring import now_us


class StoreKeys:
    """The keys of an opened store."""

    def __init__(self, store: Store, *, keys_max: int, now_us: Callable[[], int]) -> None:
        self._store, self._keys_max, self._now_us = store, keys_max, now_us

    async def list(self) -> Sequence[StoredKey]:
        """All keys, revoked ones included."""
        return await self._store.read(lambda: list_keys(self._store.dialect, keys_max=self._keys_max))

    async def create(self, name: str, role: str) -> str:
        """Make a key and return its text, which is stored nowhere."""
        key = new_key()
        row = StoredKey(key.id, name, Role.named(role).name.lower(), key.hash, self._now_us(), None)
        await self._store.write(lambda: add_key(self._store.dialect, row, keys_max=self._keys_max))
        return key.text

    async def revoke(self, id: str) -> None:
        """Make a key useless.

        Raises:
            UnknownKey: there is none with that id.
        """
        await self._store.write(lambda: revoke_key(self._store.dialect, id, now_us=self._now_us()))


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
