"""Fixtures for the tests of the dashboard: a node with data, and a page of a browser.

At the end of each test, the fixture checks three things. The page sent requests only to the node. The page had no
error. The browser blocked nothing that the page tried.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.browser import Page, open_page
from tests.service.monitoring.dashboard.shown_node import fill
from tests.service.real_service import Process


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Start a node without keys that has boards of all kinds, and estimated ranks. All tests share this node."""
    with Process(tmp_path_factory.mktemp("dashboard"), "--set", "exact_gap_rows_max=0") as process:
        asyncio.run(fill(process.url))
        yield process


@pytest.fixture
async def page(chromium_address: str) -> AsyncIterator[Page]:
    async with open_page(chromium_address) as page:
        yield page
        assert page.errors == []
        assert len(page.hosts()) <= 1, page.hosts()
