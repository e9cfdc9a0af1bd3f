"""The queue that the tests of this folder share."""

import pytest

from storage.records import TableSharing
from tests.storage.deployment import Deployment
from tests.storage.queueing import QueueDesk


@pytest.fixture
async def desk(deployment: Deployment) -> QueueDesk:
    return await QueueDesk.on(deployment)


@pytest.fixture
def table() -> TableSharing:
    """Give boards tables of their own: what is tested here is the same in shared tables."""
    return TableSharing.OWN
