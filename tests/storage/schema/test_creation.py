"""Test how the schema of a store is created, and what happens when a process opens an existing store."""

import pytest

from querybuilder import col, select, update
from storage.errors import SchemaUnknownError
from storage.schema.creation import SCHEMA_VERSION, create_schema
from storage.schema.sequences import take_number
from storage.schema.tables import META
from storage.store import Store
from tests.storage.backends import OpenStore
from tests.storage.deployment import Deployment, part, ranked


async def created(store: Store) -> str:
    return await store.write(lambda: create_schema(store.dialect))


async def meta(store: Store) -> dict[str, str]:
    rows = await store.read_query(select(col("name"), col("content")).from_(META).bind())
    return {row[0]: row[1] for row in rows}


async def test_opening_a_store_again_changes_nothing_and_returns_the_same_salt(open_store: OpenStore) -> None:
    store = await open_store()
    salt = await created(store)
    assert len(bytes.fromhex(salt)) >= 16
    assert await created(store) == salt
    described = await meta(store)
    assert (described["schema_version"], described["salt"]) == (str(SCHEMA_VERSION), salt)
    deployment = await Deployment.on(store)
    board = await deployment.create("b", ranked("xp"))
    await deployment.apply(deployment.post("ada", part(board, {"xp": 5})))
    await store.close()
    reopened = await Deployment.on(await open_store())
    assert await created(reopened.store) == salt
    assert await reopened.stats(board, "ada") == {"xp": 5}


async def test_a_store_of_a_newer_version_is_refused_and_left_alone(store: Store) -> None:
    salt = await created(store)
    before = await meta(store)
    newer = str(SCHEMA_VERSION + 1)
    query = update(META).set(content=newer).where(col("name").eq("schema_version")).bind()

    def rewrite() -> object:
        return (yield query)

    await store.write(rewrite)  # type: ignore[arg-type]
    with pytest.raises(SchemaUnknownError, match=f"schema {newer}"):
        await created(store)
    assert await meta(store) == before | {"schema_version": newer, "salt": salt}


async def test_each_sequence_counts_from_one_by_itself(deployment: Deployment) -> None:
    store = deployment.store

    async def next_of(name: str) -> int:
        return await store.write(lambda: take_number(name))

    assert [await next_of("a"), await next_of("a"), await next_of("b"), await next_of("a")] == [1, 2, 1, 3]
