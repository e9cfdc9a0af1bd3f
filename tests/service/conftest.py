"""Start real services for tests. Each service stops when its test ends, and each test has a database of its own."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.memcached import OpenMemcached
from tests.schemas import add_partitions, fresh_store
from tests.service.real_service import Process, Service, Spawn
from tests.service.ways import Ways, trace_ways


@pytest.fixture(scope="session")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Ways:
    return asyncio.run(trace_ways(tmp_path_factory.mktemp("ways")))


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with Service(tmp_path).running() as made:
        yield made


@pytest.fixture
async def store_url(postgres_url: str) -> AsyncIterator[str]:
    """Return the connection string of an empty schema on the PostgreSQL server."""
    async with fresh_store(postgres_url) as url:
        yield url


@pytest.fixture
async def partitions_url(store_url: str) -> str:
    """Return the connection string of an empty store with four partitions, the first in the schema of the URL."""
    await add_partitions(store_url)
    return store_url


@pytest.fixture(params=["fronts", "postgres"])
async def either_store(request: pytest.FixtureRequest) -> AsyncIterator[dict[str, Any]]:
    """Return arguments of `Service` for an empty store: SQLite with an owner and two fronts, and PostgreSQL.

    A test whose request has to reach a certain process asks for `sqlite`, a single process.
    """
    if request.param != "postgres":
        yield {"fronts": 2} if request.param == "fronts" else {}
        return
    async with fresh_store(request.getfixturevalue("postgres_url")) as url:
        yield {"store": url}


@pytest.fixture
def table(either_store: dict[str, Any]) -> str:
    """Return the table layout of boards: `own` on SQLite, `shared` on PostgreSQL."""
    return "shared" if "store" in either_store else "own"


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Spawn]:
    """Yield a function that starts `rankcurve` commands as processes. Stop these processes at the end."""
    started: list[Process] = []

    def start(*arguments: str, **named: Any) -> Process:
        started.append(Process(tmp_path, *arguments, **named))
        return started[-1]

    yield start
    for process in started:
        process.discard()


@pytest.fixture
def cache() -> Iterator[OpenMemcached]:
    with OpenMemcached() as server:
        yield server


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    handlers, level, lines = logging.root.handlers[:], logging.root.level, structlog.get_config()
    yield
    structlog.configure(**lines)
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
