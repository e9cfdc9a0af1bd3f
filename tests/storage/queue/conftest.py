"""Provide the queue that the tests of this folder share."""

import pytest

from tests.storage.deployment import Deployment
from tests.storage.queueing import QueueDesk


@pytest.fixture
async def desk(deployment: Deployment) -> QueueDesk:
    return await QueueDesk.on(deployment)
