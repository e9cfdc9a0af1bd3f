"""Test how the schema of a store is created, and what happens when a process opens an existing store."""

from functools import partial

import pytest

from querybuilder import col, select, update
from storage.errors import SchemaUnknownError, StoreExistsError, TooManyPartitionsError
from storage.leaves.totals import ALL_ENTRIES, find_totals
from storage.schema.creation import PARTITIONS_MAX, count_partitions, create_schema, find_salt
from storage.schema.sequences import take_number
from storage.schema.tables import META, SCHEMA_VERSION
from storage.store import Program, Store
from tests.storage.backends import OpenStore
from tests.storage.deployment import Deployment, part, ranked
from tests.storage.meddling import run_query
from tests.storage.processes import Processes


async def created(store: Store) -> str:
    return await store.write(create_schema)


async def meta(store: Store) -> dict[str, str]:
    rows = await store.read_query(select(col("name"), col("content")).from_(META).bind())
    return {row[0]: row[1] for row in rows}


async def test_opening_a_store_again_changes_nothing_and_returns_the_same_salt(open_store: OpenStore) -> None:
    store = await open_store()
    salt = await created(store)
    assert len(bytes.fromhex(salt)) >= 16
    assert await created(store) == salt
    described = await meta(store)
    assert described["schema_version"] == str(SCHEMA_VERSION)
    assert described["salt"] == salt
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


async def test_a_creation_that_needs_an_empty_store_changes_nothing_in_another(store: Store) -> None:
    salt = await created(store)
    with pytest.raises(StoreExistsError):
        await store.write(lambda: create_schema(if_missing=False))
    assert (await meta(store))["salt"] == salt


@pytest.mark.parametrize("apart", [False, True])
async def test_a_store_apart_is_created_only_where_there_is_no_store(processes: Processes, apart: bool) -> None:
    store = await processes.open_store()
    salt = await (store.create_apart(2) if apart else created(store))
    again = await processes.open_store()
    with pytest.raises(StoreExistsError):
        await again.create_apart(3)
    assert await again.read(find_salt) == salt
    assert again.partitions == (2 if apart else 1)


@pytest.mark.parametrize("apart", [False, True])
async def test_an_added_partition_takes_boards(processes: Processes, apart: bool) -> None:
    store = await processes.open_store()
    await (store.create_apart(1) if apart else created(store))
    deployment = await Deployment.on(store)
    filled: list[int] = []

    def fill(number: int) -> Program[None]:
        filled.append(number)
        yield from ()

    assert [await store.add_partition(fill), await store.add_partition(fill)] == filled == [1, 2]
    board = await deployment.create("b", ranked("xp"), partition=2)
    await deployment.apply(deployment.post("ada", part(board, {"xp": 5})))
    assert store.partitions == await store.read(count_partitions) == 3
    entries = [await store.at(number).read(partial(find_totals, [board.key])) for number in range(3)]
    assert [each[board.key].get(ALL_ENTRIES, 0) for each in entries] == [0, 0, 1]


async def test_a_store_gets_no_more_partitions_than_it_can_have(processes: Processes) -> None:
    store = await processes.open_store()
    await created(store)
    full = update(META).set(content=str(PARTITIONS_MAX)).where(col("name").eq("partitions")).bind()
    await store.write(lambda: run_query(full))
    with pytest.raises(TooManyPartitionsError):
        await store.add_partition(lambda number: iter(()))  # type: ignore[arg-type, return-value]
