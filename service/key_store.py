"""List, create and revoke the API keys in a store.

The service uses `StoreKeys` on its own store. The command line uses it on a store that no service has open, for
instance to create the first key.
"""

from collections.abc import Callable
from typing import Any

from service.contract.keys import Role, make_api_key
from service.contract.values import format_us
from storage.boards.api_keys import StoredKey, add_key, list_keys, revoke_key
from storage.store import Store


class StoreKeys:
    """The keys of an opened store.

    With `keep_ops`, a change is refused if it would leave no valid key with the role ops. Over HTTP, nobody could then
    create one.
    """

    def __init__(self, store: Store, *, keys_max: int, now_us: Callable[[], int], keep_ops: bool = False) -> None:
        self._store, self._keys_max, self._now_us, self._keep_ops = store, keys_max, now_us, keep_ops

    async def list_keys(self) -> list[dict[str, Any]]:
        """Return all keys, revoked ones included, as the service lists them."""
        rows = await self._store.read(lambda: list_keys(keys_max=self._keys_max))
        return list(map(key_facts, rows))

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


def key_facts(row: StoredKey) -> dict[str, Any]:
    """Return the members of a key in all answers of the service."""
    return {
        "id": row.id,
        "name": row.name,
        "role": row.role,
        "created_at": format_us(row.created_at_us),
        "revoked_at": None if row.revoked_at_us is None else format_us(row.revoked_at_us),
    }
