"""A service in this process with a port for Redis clients, and clients of the library redis-py."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from service.resp.door import open_door
from service.serve import make_new_board
from tests.service.real_service import Service

NO_RETRY = Retry(NoBackoff(), 0)
Client = Callable[..., Any]


@pytest.fixture
async def door(service: Service) -> AsyncIterator[int]:
    """Return the port on which the service listens for Redis clients."""
    async with open_door(service.context, make_new_board(service.context), 0) as [address]:
        yield int(address.rpartition(":")[2])


@pytest.fixture
async def connect(door: int) -> AsyncIterator[Client]:
    """Return a function that makes a client. Its answers are texts."""
    made: list[Any] = []

    def make(**options: Any) -> Any:
        made.append(
            Redis(port=door, decode_responses=True, **{"protocol": 2, "retry": Retry(NoBackoff(), 0), **options})
        )
        return made[-1]

    yield make
    for client in made:
        await client.aclose()


@pytest.fixture
def redis(connect: Client) -> Any:
    return connect()
