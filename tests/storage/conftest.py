"""One fixture for each way to need a store, so that every test of the port runs on every backend.

The rule it keeps: each test has a place of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
import pytest

from storage.records import Table
from storage.store import Store
from tests.schemas import fresh_schema
from tests.storage.backends import BACKENDS, Backend, OpenStore
from tests.storage.deployment import Deployment, Session
from tests.storage.processes import Processes

PROCESSES_S_MAX = 60


@pytest.fixture(params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each backend in turn."""
    return BACKENDS[request.param](request)


@pytest.fixture(params=list(Table))
def table(request: pytest.FixtureRequest) -> Table:
    """Each layout in turn: boards in tables of their own, and in one that they share."""
    return Table(request.param)


@pytest.fixture
async def open_store(backend: Backend, tmp_path: Path) -> AsyncIterator[OpenStore]:
    """Opens the store of an empty place."""
    async with backend(tmp_path) as opened:
        yield opened


@pytest.fixture
async def store(open_store: OpenStore) -> Store:
    """An open store without a schema yet."""
    return await open_store()


@pytest.fixture
async def deployment(store: Store, table: Table) -> Deployment:
    """A migrated store and what is needed to work with it."""
    return await Deployment.on(store, table)


@pytest.fixture
def session(backend: Backend, tmp_path: Path, table: Table) -> Iterator[Session]:
    """A deployment for tests that hypothesis drives."""
    opened = Session(backend, tmp_path, table)
    yield opened
    opened.close()


@pytest.fixture
async def place(postgres_url: str) -> AsyncIterator[str]:
    """An empty place on the server."""
    async with fresh_schema(postgres_url) as url:
        yield url


@pytest.fixture
async def processes(place: str) -> AsyncIterator[Processes]:
    """Processes on a fresh place."""
    async with asyncio.timeout(PROCESSES_S_MAX), AsyncExitStack() as stack:
        yield Processes(stack, place)


@pytest.fixture
async def raw(place: str) -> AsyncIterator[asyncpg.Connection]:
    """Somebody else's session on the place."""
    connection = await asyncpg.connect(place)
    yield connection
    await connection.close()
