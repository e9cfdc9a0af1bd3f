"""List the backends that every test of the store uses. To test a new backend, add it to the list."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from config.settings import Settings
from querybuilder import Built, Dialect
from storage.engines.partitions import Partitions
from storage.engines.postgres import PostgresStore
from storage.engines.postgres_connection import PostgresConnection
from storage.engines.sqlite import SqliteStore
from storage.store import CONTROL, Rows, Store
from tests.schemas import PARTITIONS, fresh_schema
from tests.storage.citus_forms import NOT_ON_CITUS, find_fault

HOME = 2  # the partition in which such tests run
# Opens a store in one folder (SQLite) or one schema (PostgreSQL). The data remains when the store is closed.
OpenStore = Callable[[], Awaitable[Store]]
# Creates an empty folder or schema, and yields a function that opens stores in it. At the end, the backend closes all
# stores that are still open.
Backend = Callable[[Path], AbstractAsyncContextManager[OpenStore]]

SQLITE_LIMITS = Settings(
    reader_connections=2,
    heavy_reader_connections=1,
    reads_waiting_max=1_000,
    sqlite_cache_mib=4,
    statement_cache=64,
    create_store=True,
).model_copy(update={"checkpoint_pages": 1_000, "checkpoint_after_s": 60})

POSTGRES_LIMITS = Settings(
    writer_connections=1,
    reader_connections=2,
    heavy_reader_connections=1,
    reads_waiting_max=1_000,
    connection_wait_s_max=10,
    connect_timeout_s=5,
    statement_timeout_s=10,
    heavy_statement_timeout_s=20,
    lock_timeout_s=5,
    commit_timeout_s=10,
    store_attempts_max=4,
    statement_cache=64,
).model_copy(update={"store_backoff_base_s": 0.001, "store_backoff_s_max": 0.01})


@asynccontextmanager
async def sqlite_place(directory: Path) -> AsyncIterator[OpenStore]:
    opened: list[Store] = []

    async def open_store() -> Store:
        opened.append(await SqliteStore.open(directory / "boards.db", SQLITE_LIMITS))
        return opened[-1]

    yield open_store
    for store in opened:
        await store.close()


def sqlite_backend(_request: pytest.FixtureRequest) -> Backend:
    return sqlite_place


def postgres_backend(request: pytest.FixtureRequest) -> Backend:
    """Return the PostgreSQL backend. Its stores are schemas on RANKCURVE_TEST_STORE or on a server of the tests.

    The backend fails a test if the store runs a statement that Citus would refuse, or run on several nodes.
    """
    _check_statements(request, allowed=NOT_ON_CITUS)
    return _postgres_backend(request.getfixturevalue("postgres_url"), partitions=None)


def partitions_backend(request: pytest.FixtureRequest) -> Backend:
    """Return the PostgreSQL backend with four partitions, which runs the statements of Citus.

    Tests that know nothing of partitions run in one of them.
    """
    make = Partitions._make_dialect

    def make_dialect(self: Partitions, partition: int) -> Dialect:
        return replace(make(self, partition), chains=False)  # as on Citus

    request.getfixturevalue("monkeypatch").setattr(Partitions, "_make_dialect", make_dialect)
    _check_statements(request)
    # Pools of leases are in the control partition.
    home = CONTROL if "leases" in request.path.parts else HOME
    return _postgres_backend(request.getfixturevalue("postgres_url"), partitions=PARTITIONS, home=home)


def _check_statements(request: pytest.FixtureRequest, *, allowed: Collection[str] = ()) -> None:
    """Fail the test at its end if a statement was not for Citus. The `allowed` forms are no faults."""
    faults = set[tuple[str, str]]()
    run_query = PostgresConnection.run_query

    async def checked(self: PostgresConnection, query: Built) -> Rows:
        fault = find_fault(query.sql)
        if fault is not None and fault not in allowed:
            faults.add((fault, query.sql))
        return await run_query(self, query)

    def fail() -> None:
        if faults:
            pytest.fail("\n".join(f"{fault}: {sql}" for fault, sql in sorted(faults)))

    request.getfixturevalue("monkeypatch").setattr(PostgresConnection, "run_query", checked)
    request.addfinalizer(fail)


def _postgres_backend(url: str, *, partitions: int | None, home: int = CONTROL) -> Backend:
    @asynccontextmanager
    async def postgres_place(_directory: Path) -> AsyncIterator[OpenStore]:
        opened: list[Store] = []
        async with fresh_schema(url) as place:

            async def open_store() -> Store:
                store = await PostgresStore.open(place, POSTGRES_LIMITS)
                if partitions is not None:
                    if not opened:
                        await store.create_apart(partitions, distributed=await store.has_citus())
                    store = store.at(home)
                opened.append(store)
                return store

            yield open_store
            for store in opened:
                await store.close()

    return postgres_place


BACKENDS: dict[str, Callable[[pytest.FixtureRequest], Backend]] = {
    "postgres": postgres_backend,
    "partitions": partitions_backend,
    "sqlite": sqlite_backend,
}
# The backends whose stores have one partition. Jobs run on these; what partitions change in jobs has tests of its own.
ONE_PARTITION = sorted(BACKENDS.keys() - {"partitions"})
