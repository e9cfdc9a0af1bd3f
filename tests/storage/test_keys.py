"""Why here: an API key that works after it was revoked is an open door, so what is stored of keys is pinned."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.errors import StoreBusy, TooManyKeys, UnknownKey
from storage.keys import StoredKey, add_key, list_keys, revoke_key
from tests.storage.backends import OpenStore
from tests.storage.deployment import Deployment

KEY = StoredKey(id="k1", name="importer", role="writer", hash="ab" * 32, created_at_us=5, revoked_at_us=None)
KEYS_MAX = 3


async def add(deployment: Deployment, key: StoredKey) -> None:
    await deployment.store.write(lambda: add_key(deployment.dialect, key, keys_max=KEYS_MAX))


async def listed(deployment: Deployment) -> list[StoredKey]:
    return await deployment.store.read(lambda: list_keys(deployment.dialect, keys_max=KEYS_MAX))


async def revoke(deployment: Deployment, key_id: str, now_us: int) -> None:
    await deployment.store.write(lambda: revoke_key(deployment.dialect, key_id, now_us=now_us))


async def test_keys_are_listed_as_stored_by_time_of_creation(open_store: OpenStore) -> None:
    first = await Deployment.on(await open_store())
    earlier = replace(KEY, id="k0", created_at_us=4)
    await add(first, KEY)
    await add(first, earlier)
    await first.store.close()
    assert await listed(await Deployment.on(await open_store())) == [earlier, KEY]


async def test_a_key_is_revoked_at_its_first_time_and_stays_listed(deployment: Deployment) -> None:
    other = replace(KEY, id="k2", created_at_us=6)
    await add(deployment, KEY)
    await add(deployment, other)
    await revoke(deployment, "k1", 10)
    await revoke(deployment, "k1", 20)
    assert await listed(deployment) == [replace(KEY, revoked_at_us=10), other]


async def test_revoking_a_key_that_is_not_there_is_said(deployment: Deployment) -> None:
    with pytest.raises(UnknownKey, match="k9"):
        await revoke(deployment, "k9", 10)


async def test_no_two_keys_have_one_id_and_there_are_at_most_so_many(deployment: Deployment) -> None:
    await add(deployment, KEY)
    with pytest.raises(StoreBusy):
        await add(deployment, replace(KEY, role="ops"))
    for number in range(2, KEYS_MAX + 1):
        await add(deployment, replace(KEY, id=f"k{number}"))
    with pytest.raises(TooManyKeys):
        await add(deployment, replace(KEY, id="one too many"))
    assert len(await listed(deployment)) == KEYS_MAX
