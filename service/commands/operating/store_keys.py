"""Lists, creates and revokes API keys in a store itself, without a service, for instance to create the first key."""

from typing import Any

from service.contract.keys import key_facts, make_api_key
from service.wiring import now_us
from storage.boards.api_keys import StoredKey, add_key, list_keys, revoke_key
from storage.store import Store


class StoreKeys:
    """The keys of an opened store. Even the last key may be revoked, because `--store` can always create another."""

    def __init__(self, store: Store, *, keys_max: int) -> None:
        self._store, self._keys_max = store, keys_max

    async def list_keys(self) -> list[dict[str, Any]]:
        """Return all keys, including revoked keys, in the form in which the service lists them."""
        return list(map(key_facts, await self._store.read(lambda: list_keys(limit=self._keys_max))))

    async def create(self, name: str, role: str) -> tuple[StoredKey, str]:
        """Create a key. Return the stored key, and the text that callers send. Raises CatalogFullError."""
        key, text = make_api_key(name, role, now_us())
        await self._store.write(lambda: add_key(key, keys_max=self._keys_max))
        return key, text

    async def revoke(self, id: str) -> None:
        """Revoke a key. Raises UnknownKeyError."""
        await self._store.write(lambda: revoke_key(id, now_us=now_us()))
