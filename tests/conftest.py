"""The servers of a test run, as fixtures: one of each a session, started by the first test that asks.

The rule: a test that needs a server that can't be had fails; it is never left out.
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
