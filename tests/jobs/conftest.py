"""Provide each test with a world: a job process with a real store that no other test uses."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.jobs.world import World
from tests.storage.backends import BACKENDS, ONE_PARTITION
from tests.storage.deployment import Deployment


@pytest.fixture(params=ONE_PARTITION)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with BACKENDS[request.param](request)(tmp_path) as open_store:
        yield World(await Deployment.on(await open_store()))
