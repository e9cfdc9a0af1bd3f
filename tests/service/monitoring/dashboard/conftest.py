"""The fixtures of the dashboard's tests: a filled node, and a page of a browser.

At the end of each test the fixture checks the page. The page must have sent requests only to the node. It must have had
no error, and must have tried nothing that the browser forbids.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.browser import Page, open_page
from tests.service.monitoring.dashboard.shown_node import fill
from tests.service.real_service import Process


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Start a node without keys that has boards of all kinds; tests share it."""
    process = Process(tmp_path_factory.mktemp("dashboard"))
    try:
        process.ready()
        asyncio.run(fill(process.url))
        yield process
    finally:
        process.discard()


@pytest.fixture
async def page(chromium_address: str) -> AsyncIterator[Page]:
    """Open a page in a new profile of the browser."""
    async with open_page(chromium_address) as page:
        yield page
        assert page.errors == []
        assert len(page.hosts()) <= 1, page.hosts()
