"""Test API keys in the store. A revoked key that still works would be a security hole."""

import asyncio
from dataclasses import replace

import pytest

from storage.boards.api_keys import StoredKey, add_key, count_keys, list_keys, revoke_key
from storage.errors import CatalogFullError, OpsKeyNeededError, StoreBusyError, UnknownKeyError
from tests.storage.deployment import Deployment

KEY = StoredKey(id="k1", name="importer", role="writer", hash="ab" * 32, created_at_us=5, revoked_at_us=None)
KEYS_MAX = 3


async def add(deployment: Deployment, key: StoredKey, *, keep_ops: bool = False) -> None:
    await deployment.write(add_key, key, keys_max=KEYS_MAX, keep_ops=keep_ops)


async def test_a_key_is_revoked_at_its_first_time_and_stays_listed(deployment: Deployment) -> None:
    other = replace(KEY, id="k2", created_at_us=6)
    await add(deployment, KEY)
    await add(deployment, other)
    await deployment.write(revoke_key, "k1", now_us=10)
    await deployment.write(revoke_key, "k1", now_us=20)
    assert await deployment.read(list_keys, limit=KEYS_MAX) == [replace(KEY, revoked_at_us=10), other]


async def test_revoking_an_unknown_key_says_so(deployment: Deployment) -> None:
    with pytest.raises(UnknownKeyError, match="k9"):
        await deployment.write(revoke_key, "k9", now_us=10)


async def test_keys_have_different_ids_and_a_bounded_number(deployment: Deployment) -> None:
    await add(deployment, KEY)
    with pytest.raises(StoreBusyError):
        await add(deployment, replace(KEY, role="ops"))
    for number in range(2, KEYS_MAX + 1):
        await add(deployment, replace(KEY, id=f"k{number}"))
    with pytest.raises(CatalogFullError):
        await add(deployment, replace(KEY, id="one too many"))
    assert len(await deployment.read(list_keys, limit=KEYS_MAX)) == KEYS_MAX


async def test_keys_are_listed_in_pages_and_every_change_changes_the_counts(deployment: Deployment) -> None:
    made = [replace(KEY, id=f"k{number}", created_at_us=5 + number // 2) for number in range(KEYS_MAX)]
    seen = [await deployment.read(count_keys)]
    for key in made:
        await add(deployment, key)
        seen.append(await deployment.read(count_keys))
    await deployment.write(revoke_key, "k1", now_us=10)
    seen.append(await deployment.read(count_keys))
    assert seen == [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1)]
    after = (-1, "")
    pages = []
    for _ in range(2):
        pages.append(await deployment.read(list_keys, after=after, limit=2))
        after = pages[-1][-1].created_at_us, pages[-1][-1].id
    assert [[key.id for key in page] for page in pages] == [["k0", "k1"], ["k2"]]


async def test_one_of_two_operators_who_revoke_each_others_key_at_once_is_refused(deployment: Deployment) -> None:
    async def revoke(key_id: str) -> None:
        await deployment.write(revoke_key, key_id, now_us=10)

    with pytest.raises(OpsKeyNeededError):
        await add(deployment, KEY, keep_ops=True)
    for key_id in ("k1", "k2"):
        await add(deployment, replace(KEY, id=key_id, role="ops"))
    done = await asyncio.gather(revoke("k1"), revoke("k2"), return_exceptions=True)
    assert sorted(type(each).__name__ for each in done) == ["NoneType", "OpsKeyNeededError"]
    [left] = [key.id for key in await deployment.read(list_keys, limit=KEYS_MAX) if key.revoked_at_us is None]
    with pytest.raises(OpsKeyNeededError, match=left):
        await revoke(left)
    await revoke("k1" if left == "k2" else "k2")
