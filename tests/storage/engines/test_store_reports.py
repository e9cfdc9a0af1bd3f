"""Test what stores report: statements and rows by kind, waits, borrowed connections, retries, sizes, and free space."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from querybuilder import STATEMENT_KINDS, count, select
from storage.engines.postgres import PostgresStore
from storage.engines.sqlite import SqliteStore
from storage.schema.creation import find_salt
from storage.store import Store
from tests.meter import RecordingMeter
from tests.schemas import fresh_schema
from tests.storage.backends import POSTGRES_LIMITS, SQLITE_LIMITS
from tests.storage.deployment import Deployment, part, ranked
from tests.storage.proxy import DatabaseProxy

XP = ranked("xp")
STATEMENTS, ROWS = "rankcurve_store_statements", "rankcurve_store_rows"


@pytest.fixture(params=["sqlite", "postgres"])
async def watched(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Store, RecordingMeter]]:
    meter = RecordingMeter()
    store: Store
    if request.param == "sqlite":
        store = await SqliteStore.open(tmp_path / "boards.db", SQLITE_LIMITS, meter=meter)
        yield store, meter
        await store.close()
    else:
        async with fresh_schema(request.getfixturevalue("postgres_url")) as url:
            store = await PostgresStore.open(url, POSTGRES_LIMITS, meter=meter)
            yield store, meter
            await store.close()


async def test_statements_are_reported_by_kind_with_rows_returned_or_changed(
    watched: tuple[Store, RecordingMeter],
) -> None:
    store, meter = watched
    deployment = await Deployment.on(store)
    board = await deployment.create("b", XP)
    before = sum(meter.by_label(STATEMENTS).values())
    await deployment.apply(*(deployment.post(f"p{number}", part(board, {"xp": 1})) for number in range(5)))
    statements, rows = meter.by_label(STATEMENTS), meter.by_label(ROWS)
    assert statements.keys() & {"insert", "update", "with"}
    assert sum(statements.values()) > before
    assert rows.get("insert", 0) + rows.get("with", 0) >= 5
    await store.read_query(select(count()).from_("boards").bind())
    assert meter.by_label(STATEMENTS) == {**statements, "select": statements.get("select", 0) + 1}
    assert meter.by_label(ROWS) == {**rows, "select": rows.get("select", 0) + 1}
    assert meter.by_label(STATEMENTS).keys() <= set(STATEMENT_KINDS)
    await store.read(find_salt, heavy=True)
    limits = SQLITE_LIMITS if store.sole_writer else POSTGRES_LIMITS
    assert meter.read_connections("common heavy") == (0, 0, limits.heavy_reader_connections)
    assert max(meter.values["rankcurve_store_connections_lent common heavy"]) >= 1
    assert meter.values["rankcurve_store_connection_wait_seconds common"]


async def test_a_lost_connection_is_reported_as_a_retry(place: str) -> None:
    meter = RecordingMeter()
    async with DatabaseProxy(place) as way:
        store = await PostgresStore.open(way.url, POSTGRES_LIMITS, meter=meter)
        await Deployment.on(store)
        # The connection is lost while the query runs. If it were lost before, the pool might only open a new one.
        way.lose, way.marker = 1, b'FROM "boards"'
        await store.read_query(select(count()).from_("boards").bind())
        assert (way.lost, meter.counts["rankcurve_store_retries"]) == (1, 1)
        assert meter.read_connections("common read") == (0, 0, POSTGRES_LIMITS.reader_connections)
        assert max(meter.values["rankcurve_store_connections_lent common read"]) == 1
        await store.close()


async def test_a_store_grows_with_what_is_posted(store: Store) -> None:
    deployment = await Deployment.on(store)
    board = await deployment.create("b", ranked("xp"))
    before = await store.size()
    await deployment.apply(*(deployment.post(f"owner-{number}", part(board, {"xp": number})) for number in range(500)))
    assert (await store.size()).store_bytes > before.store_bytes > 0


async def test_a_sqlite_store_reports_the_size_of_its_files_and_the_room_on_its_disk(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "boards.db", SQLITE_LIMITS)
    await Deployment.on(store)
    size = await store.size()
    assert size.store_bytes == sum((tmp_path / f"boards.db{end}").stat().st_size for end in ("", "-wal"))
    assert size.disk_free_bytes is not None
    assert size.disk_free_bytes > 0
    await store.close()
