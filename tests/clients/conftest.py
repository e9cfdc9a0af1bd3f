"""Start a real service for the tests of the clients."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.service.real_service import Service


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with Service(tmp_path, player_token_keys=["s" * 32]).running() as made:
        yield made
