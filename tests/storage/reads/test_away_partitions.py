"""Test which partitions are found to be away, and that posts are counted by partition."""

from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from storage.engines.postgres import PostgresStore
from storage.errors import StoreAwayError
from storage.reads.away_partitions import find_away_partitions
from storage.store import CONTROL, Store
from tests.meter import RecordingMeter
from tests.schemas import PARTITIONS
from tests.storage.deployment import Deployment, part, ranked
from tests.storage.processes import Processes

XP = ranked("xp")
WAIT_S = 60.0
SHORT_S = 0.2


@pytest.fixture
async def apart(processes: Processes) -> PostgresStore:
    """Provide a store whose control partition and four others have schemas of their own."""
    store = await processes.open_store()
    await store.create_apart(PARTITIONS)
    return store


@pytest.fixture
def schema(place: str) -> str:
    """Return the name that begins the names of the store's schemas."""
    return parse_qs(urlsplit(place).query)["search_path"][0]


async def test_in_a_store_with_one_schema_no_partition_is_away(store: Store) -> None:
    await Deployment.on(store)
    assert await find_away_partitions(store, wait_s_max=WAIT_S) == []


async def test_the_writer_reports_applied_posts_by_partition(apart: PostgresStore) -> None:
    deployment, meter = await Deployment.on(apart), RecordingMeter()
    boards = [await deployment.create(f"b{partition}", XP, partition=partition) for partition in (1, 3)]
    both = deployment.post("ada", *(part(board, {"xp": 1}) for board in boards), post_id="once")
    async with deployment.open_writer(meter) as writer:
        await writer.submit([both, deployment.post("ada", part(boards[1], {"xp": 1}))])
        await writer.submit([both])  # a duplicate, which is not applied
    assert meter.by_label("rankcurve_partition_posts_applied") == {"1": 1, "3": 2}


async def test_a_partition_that_is_locked_or_missing_is_away_and_the_others_are_not(
    apart: PostgresStore, schema: str, raw: asyncpg.Connection
) -> None:
    assert await find_away_partitions(apart, wait_s_max=WAIT_S) == []
    await raw.execute(f"ALTER SCHEMA {schema}_p1 RENAME TO {schema}_p9")
    async with raw.transaction():
        await raw.execute(f"LOCK TABLE {schema}_p3.log_counter IN ACCESS EXCLUSIVE MODE")
        assert await find_away_partitions(apart, wait_s_max=SHORT_S) == [1, 3]
    assert await find_away_partitions(apart, wait_s_max=WAIT_S) == [1]


async def test_without_the_control_partition_or_all_others_the_store_is_away(
    apart: PostgresStore, schema: str, raw: asyncpg.Connection
) -> None:
    await raw.execute(f"ALTER SCHEMA {schema}_control RENAME TO {schema}_p9")
    with pytest.raises(StoreAwayError, match="control partition"):
        await find_away_partitions(apart, wait_s_max=WAIT_S)
    await raw.execute(f"ALTER SCHEMA {schema}_p9 RENAME TO {schema}_control")
    for number in range(PARTITIONS):
        await raw.execute(f"ALTER SCHEMA {schema}_p{number} RENAME TO {schema}_p{number + 10}")
    with pytest.raises(StoreAwayError, match="no partition"):
        await find_away_partitions(apart, wait_s_max=WAIT_S)


async def test_the_size_of_a_store_names_the_schema_and_the_size_of_each_partition(
    apart: PostgresStore, schema: str
) -> None:
    size = await apart.size()
    assert [each.number for each in size.partitions] == [CONTROL, *range(PARTITIONS)]
    assert [each.schema for each in size.partitions] == [f"{schema}_control", *(f"{schema}_p{n}" for n in range(4))]
    before = {each.number: each.store_bytes for each in size.partitions}
    deployment = await Deployment.on(apart)
    board = await deployment.create("b", XP, partition=1)
    await deployment.apply(*(deployment.post(f"o{number}", part(board, {"xp": number})) for number in range(500)))
    after = {each.number: each.store_bytes for each in (await apart.size()).partitions}
    assert {number for number in range(PARTITIONS) if after[number] != before[number]} == {1}


async def test_a_store_with_one_partition_gives_it_the_size_of_the_store(store: Store) -> None:
    await Deployment.on(store)
    if store.partitions == 1:
        size = await store.size()
        assert [(each.number, each.store_bytes, each.node) for each in size.partitions] == [(0, size.store_bytes, None)]
