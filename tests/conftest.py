"""The servers of a test run as fixtures, and the markers of its tests.

A server runs once a session; the first test that needs it starts it. A test whose server is not installed fails; it is
never left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.chromium import chromium
from tests.servers import PostgresServer, postgres

# A busy machine may take any time for one example.
settings.register_profile("any_machine", deadline=None)
settings.load_profile("any_machine")

# A test that uses one of these fixtures, or is made for one of these stores, has the marker.
MARKING = {
    "browser": {"chromium_address"},
    "end_to_end": {"service", "spawn"},
    "server": {"cache", "postgres", "postgres_server", "postgres_url"},
    "store": {"backend", "open_store", "sqlite", "world"},
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test by what it needs; one that needs nothing is a unit test."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        made_for = set() if callspec is None else {text for text in callspec.params.values() if isinstance(text, str)}
        used = {*getattr(item, "fixturenames", ()), *made_for}
        names = [name for name, marking in MARKING.items() if marking & used]
        if item.path.name.startswith("test_e2e_") and "end_to_end" not in names:
            names.append("end_to_end")
        for name in names or ["unit"]:
            item.add_marker(name)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--screenshots FOLDER`: for who wants to look at the pages that were tested."""
    parser.addoption("--screenshots", type=Path, help="write a picture of every view of the dashboard to this folder")


@pytest.fixture(scope="session")
def chromium_address() -> Iterator[str]:
    """Where the DevTools of a browser listen: each test opens pages of its own in it."""
    with chromium() as browser:
        yield browser.address


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server that tests share: each works in a schema of its own, none stops it."""
    with postgres() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url(request: pytest.FixtureRequest) -> str:
    """The connection string of the server that the tests were given by RANKCURVE_TEST_STORE, or of their own."""
    given = os.environ.get("RANKCURVE_TEST_STORE")
    if given:
        return given
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.url()
