"""Provide the queue that the tests of this folder share."""

import pytest

from storage.records import TableSharing
from tests.storage.deployment import Deployment
from tests.storage.queueing import QueueDesk


@pytest.fixture
async def desk(deployment: Deployment) -> QueueDesk:
    return await QueueDesk.on(deployment)


@pytest.fixture
def table() -> TableSharing:
    """Give each board a table of its own, because shared tables make no difference here."""
    return TableSharing.OWN
