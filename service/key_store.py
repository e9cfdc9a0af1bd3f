"""List, create and revoke the API keys in a store.

The service uses `StoreKeys` on its own store. The command line uses `open_keys` on a store that no service has open,
for instance to create the first key.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from config import Settings
from service.contract.keys import Role, make_api_key
from service.stores import open_store
from service.telemetry.logs import logging_to_stderr
from storage.boards.api_keys import StoredKey, add_key, list_keys, page_keys, revoke_key
from storage.schema.creation import prepare_store
from storage.store import Store


class StoreKeys:
    """The keys of an opened store.

    With `keep_ops`, a change is refused if it would leave no valid key with the role ops. Over HTTP, nobody could then
    create one.
    """

    def __init__(self, store: Store, *, keys_max: int, now_us: Callable[[], int], keep_ops: bool = False) -> None:
        self._store, self._keys_max, self._now_us, self._keep_ops = store, keys_max, now_us, keep_ops

    async def list_keys(self) -> Sequence[StoredKey]:
        """Return all keys, revoked ones included."""
        return await self._store.read(lambda: list_keys(keys_max=self._keys_max))

    async def page_keys(self, after: tuple[int, str], limit: int) -> Sequence[StoredKey]:
        """Return up to `limit` keys, revoked ones included, that follow the creation time and id in `after`."""
        return await self._store.read(lambda: page_keys(after=after, limit=limit))

    async def create(self, name: str, role: str) -> tuple[StoredKey, str]:
        """Create a key and return it with its text. The text is stored nowhere.

        Raises:
            TooManyKeysError, OpsKeyNeededError: see `add_key`.
        """
        key = make_api_key()
        row = StoredKey(key.id, name, Role.from_name(role).name.lower(), key.hash, self._now_us(), None)
        await self._store.write(lambda: add_key(row, keys_max=self._keys_max, keep_ops=self._keep_ops))
        return row, key.text

    async def revoke(self, id: str) -> None:
        """Revoke a key.

        Raises:
            UnknownKeyError: there is no key with that id.
            OpsKeyNeededError: see `revoke_key`.
        """
        await self._store.write(lambda: revoke_key(id, now_us=self._now_us(), keep_ops=self._keep_ops))


@asynccontextmanager
async def open_keys(settings: Settings, *, now_us: Callable[[], int]) -> AsyncIterator[StoreKeys]:
    """Open the store of the settings and provide its keys. At the end, close the store.

    Raises:
        StoreLockedError: a service owns the store.
    """
    with logging_to_stderr():
        store = await open_store(settings)
        try:
            await prepare_store(store)
            yield StoreKeys(store, keys_max=settings.keys_max, now_us=now_us)
        finally:
            await store.close()
