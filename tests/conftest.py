"""Provide the servers of a test run as fixtures, and set the markers of the tests.

A server starts when the first test needs it, and runs until the session ends. If a server is not installed, the tests
that need it fail. No test is skipped.
"""

import gc
import os
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

from tests.chromium import chromium
from tests.servers import MEMORY, PostgresServer, has_memory, postgres

# Examples have no time limit, because a busy machine may run any example slowly.
settings.register_profile("any_machine", deadline=None, max_examples=50)
settings.register_profile("quick", deadline=None, max_examples=20)  # `make quick`
settings.register_profile("histories", deadline=None, max_examples=1_500)  # see `choose_examples`
settings.load_profile("any_machine")

# On a disk, each commit of a SQLite store waits for the disk. Tests end processes, and not the power of the machine.
if has_memory():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# By default, structlog shows an exception with the variables of all its frames, which can take a second.
*_processors, _ = structlog.get_config()["processors"]
_plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
structlog.configure(processors=[*_processors, _plain])

# These modules begin first. At the end of a run, one of them would keep one process busy while the others wait.
LONGEST = {"test_e2e_openapi", "test_page_commands", "test_release", "test_store_model", "test_tutorial"}
# A test gets a marker if one of the marker's words is a fixture of the test, or a part of its parametrized id.
MARKING = {
    "browser": {"chromium_address"},
    "end_to_end": {"service", "serving", "spawn", "wheels"},
    "server": {"cache", "partitions", "partitions_url", "postgres", "postgres_server", "postgres_url", "postgresql"},
    "store": {"backend", "open_store", "sqlite", "world"},
}
# The tests of a module that imports one of these get the marker.
STARTERS = {
    "end_to_end": {"Service", "serve_file"},
    "server": {"MemcachedServer", "OpenMemcached", "PostgresServer", "Prometheus", "RedisServer"},
}


def pytest_collection_finish() -> None:
    """Let garbage collections skip what the collection of tests has made, because it stays until the end."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test with what it needs. Put the longest modules first, then those with a service or a browser."""
    for item in items:
        module = item.getparent(pytest.Module)
        callspec = getattr(item, "callspec", None)
        made_for = set() if callspec is None else set(callspec.id.split("-"))
        used = {*getattr(item, "fixturenames", ()), *made_for}
        names = [name for name, marking in MARKING.items() if marking & used]
        if item.path.name.startswith("test_e2e_") and "end_to_end" not in names:
            names.append("end_to_end")
        for name, starters in STARTERS.items():
            if name not in names and module is not None and starters & vars(module.obj).keys():
                names.append(name)
        if "sqlite-shared" in item.name or "sqlite-segments" in item.name:
            names.append("variant")
        for name in names or ["unit"]:
            item.add_marker(name)
    slow = {item.path for item in items if item.get_closest_marker("end_to_end") or item.get_closest_marker("browser")}
    items.sort(key=lambda item: (item.path.stem not in LONGEST, item.path not in slow))


@pytest.fixture(scope="session")
def chromium_address() -> Iterator[str]:
    """Start a browser and yield the address of its DevTools. Each test opens pages of its own."""
    with chromium() as browser:
        yield browser.address


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Start a PostgreSQL server that tests share.

    Each test uses a schema of its own, and no test may stop the server.
    """
    with postgres() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url(request: pytest.FixtureRequest) -> str:
    """Return the connection string from RANKCURVE_TEST_STORE.

    If that is not set, return the one of the tests' own server.
    """
    given = os.environ.get("RANKCURVE_TEST_STORE")
    if given:
        return given
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.url()
