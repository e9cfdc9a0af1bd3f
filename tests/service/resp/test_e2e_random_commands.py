"""Send random commands to the service and to a real Redis: every answer must be the same."""

import asyncio

import pytest

from benchmarks.redis_door import compare
from tests.servers import RedisServer

COMMANDS = 1_500


@pytest.mark.parametrize("protocol", [2, 3])
async def test_random_commands_have_the_answers_of_redis(door: int, protocol: int) -> None:
    with RedisServer() as redis_server:
        differing = await asyncio.to_thread(
            compare, door, redis_server.port, commands=COMMANDS, seed=protocol, protocol=protocol
        )
    assert differing == []
