"""Provide the pools that the tests of this folder share."""

import pytest

from tests.storage.backends import OpenStore
from tests.storage.deployment import Deployment
from tests.storage.leasing import Pools


@pytest.fixture
async def pools(open_store: OpenStore) -> Pools:
    made = Pools(await Deployment.on(await open_store()))
    await made.create()
    return made
