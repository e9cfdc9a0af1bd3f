"""Fixtures that provide stores. Every test of the `Store` interface runs on every backend."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from storage.engines import postgres_connection
from storage.engines.postgres_connection import PostgresConnection
from storage.records import Board, TableSharing
from storage.store import Store
from tests.schemas import fresh_schema
from tests.storage.backends import BACKENDS, ONE_PARTITION, Backend, OpenStore
from tests.storage.deployment import SEGMENTS, BoardTable, Deployment, Session, ranked
from tests.storage.processes import Processes

PROCESSES_S_MAX = 60
# The promises of a store and the models of whole rooms run on every backend with every table layout.
CONFORMANCE = {
    "test_grants", "test_owner_merges", "test_posts", "test_rankings", "test_replay", "test_store_model",
    "test_voided_histories", "test_writers",
}  # fmt: skip
# The other tests run with tables of the boards' own on SQLite, and with one shared table on PostgreSQL. In these rooms
# and files, the layout makes no difference, or only shared tables are meant.
OWN_TABLES = {
    "leases", "log", "test_enqueuing", "test_post_ids", "test_queue_application", "test_queue_partitions",
    "test_refresh_requests", "test_shard_leases", "test_shared_curves", "test_stored_curves", "test_writer",
    "test_writer_flow",
}  # fmt: skip
SHARED_TABLES = {"test_shared_tables"}
# Only these rooms and files run with several partitions too: the promises of a store, and posts, whose statements
# differ on Citus. What partitions change elsewhere has tests of its own.
IN_PARTITIONS = CONFORMANCE | {
    "leagues", "posting", "test_lease_transaction", "test_queue_model", "test_transactions", "test_work_leases",
}  # fmt: skip
# With several partitions, only these files run with shared tables too. A table is shared within one partition.
SHARED_IN_PARTITIONS = {"test_posts", "test_replay", "test_store_model"}
# Only these files run with segments too. With several partitions, each segment is in another one.
SEGMENTED = {
    "test_entrants", "test_grants", "test_owner_merges", "test_rankings", "test_writers", "test_store_model",
    "test_voided_histories",
}  # fmt: skip


def list_places(names: set[str]) -> list[tuple[str, BoardTable]]:
    """Return the backends on which the tests of a room and a file run, each with a table layout."""
    backends = sorted(BACKENDS) if names & IN_PARTITIONS else ONE_PARTITION
    segmented: list[tuple[str, BoardTable]] = [(name, SEGMENTS) for name in ("partitions", "sqlite")]
    segmented = segmented if names & SEGMENTED else []
    if names & SHARED_TABLES:
        return [(name, TableSharing.SHARED) for name in backends]
    if not names & CONFORMANCE:
        shared = set() if names & OWN_TABLES else {"postgres"}
        return [(name, TableSharing.SHARED if name in shared else TableSharing.OWN) for name in backends] + segmented
    places: list[tuple[str, BoardTable]] = [(name, table) for name in backends for table in TableSharing]
    if not names & SHARED_IN_PARTITIONS:
        places.remove(("partitions", TableSharing.SHARED))
    return places + segmented


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on its backends, each with a layout of tables."""
    names = {metafunc.definition.path.parent.name, metafunc.definition.path.stem}
    chosen = any(mark.args[0] == "backend" for mark in metafunc.definition.iter_markers("parametrize"))
    places = list_places(names)
    match "backend" in metafunc.fixturenames and not chosen, "table" in metafunc.fixturenames:
        case True, True:
            metafunc.parametrize(("backend", "table"), places, indirect=["backend"])
        case True, False:
            metafunc.parametrize("backend", sorted({name for name, _ in places}), indirect=True)
        case False, True:
            metafunc.parametrize("table", sorted({table for _, table in places if table is not SEGMENTS}))


@pytest.fixture(autouse=True)
def looked_up_types(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test in which the driver asks the server about a type. Beside many tables, that takes seconds on Citus."""
    asked: list[int] = []
    introspect = PostgresConnection._introspect_types

    async def looked_up(self: PostgresConnection, oids: Iterable[int], timeout_s: float) -> Any:
        asked.extend(oids)
        return await introspect(self, oids, timeout_s)

    monkeypatch.setattr(PostgresConnection, "_introspect_types", looked_up)
    yield
    assert asked == [], "give these types to `register_data_types` in postgres_connection.py"


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Backend:
    return BACKENDS[request.param](request)


@pytest.fixture
async def open_store(backend: Backend, tmp_path: Path) -> AsyncIterator[OpenStore]:
    """Return a function that opens stores. All of them use the same folder or schema, which is empty at first."""
    async with backend(tmp_path) as opened:
        yield opened


@pytest.fixture
async def store(open_store: OpenStore) -> Store:
    return await open_store()


@pytest.fixture
async def deployment(store: Store, table: BoardTable) -> Deployment:
    return await Deployment.on(store, table)


@pytest.fixture
async def board(deployment: Deployment) -> Board:
    """Create the board `b`, whose only column `xp` is ranked."""
    return await deployment.create("b", ranked("xp"))


@pytest.fixture
def session(backend: Backend, tmp_path: Path, table: BoardTable) -> Iterator[Session]:
    """Provide a session with a deployment, for tests that Hypothesis runs."""
    opened = Session(backend, tmp_path, table)
    yield opened
    opened.close()


@pytest.fixture
def session_name(monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the database sessions of this test an application name of their own. Return that name."""
    name = f"rankcurve_{secrets.token_hex(8)}"
    monkeypatch.setattr(postgres_connection, "APPLICATION_NAME", name)
    return name


@pytest.fixture
async def place(postgres_url: str) -> AsyncIterator[str]:
    async with fresh_schema(postgres_url) as url:
        yield url


@pytest.fixture
async def processes(place: str, session_name: str) -> AsyncIterator[Processes]:
    """Provide an object that starts processes, all on the same schema, which is empty at first."""
    async with asyncio.timeout(PROCESSES_S_MAX), AsyncExitStack() as stack:
        yield Processes(stack, place)


@pytest.fixture
async def raw(place: str) -> AsyncIterator[asyncpg.Connection]:
    """Open a database session in the schema. No store uses this session."""
    connection = await asyncpg.connect(place)
    yield connection
    await connection.close()


@pytest.fixture
async def bystander(place: str) -> AsyncIterator[asyncpg.Connection]:
    """Open a session like one of another service. At the end, check that the test did not end this session."""
    connection = await asyncpg.connect(place, server_settings={"application_name": "rankcurve"})
    yield connection
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()
