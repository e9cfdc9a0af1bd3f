"""Send random commands to the service and to a real Redis, and long reads beside a plain list: answers are the same."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from benchmarks.redis_door import compare
from service.resp.door import open_door
from service.serve import make_new_board
from tests.servers import RedisServer
from tests.service.real_service import Service

COMMANDS = 1_200
MEMBERS = 3_000
TEXT = {"name": "member_data", "type": "text", "merge": "last"}
BOARDS: dict[str, dict[str, Any]] = {
    "usual": {},
    "low values are best": {"columns": [{"name": "score", "merge": "last", "best": "low", "scale": 9}, TEXT]},
    "sums": {"columns": [{"name": "score", "merge": "sum", "scale": 3}, TEXT], "table": "shared"},
    "segments": {"columns": [{"name": "score", "merge": "last", "scale": 9}, TEXT], "segments": 3},
}


async def compare_with_redis(service: Service, protocol: int, commands: int) -> list[str]:
    async with open_door(service.context, make_new_board(service.context), 0) as [address]:
        port = int(address.rpartition(":")[2])
        with RedisServer() as other:
            return await asyncio.to_thread(compare, port, other.port, commands=commands, seed=7, protocol=protocol)


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("board", BOARDS)
async def test_random_commands_have_the_answers_of_redis(tmp_path: Path, board: str, protocol: int) -> None:
    settings = {"resp_board": json.dumps(BOARDS[board])} if BOARDS[board] else {}
    async with Service(tmp_path, **settings).running() as service:
        assert await compare_with_redis(service, protocol, COMMANDS) == []


async def test_random_commands_have_the_answers_of_redis_on_postgres(tmp_path: Path, store_url: str) -> None:
    async with Service(tmp_path, store=store_url, resp_rank="exact").running() as service:
        assert await compare_with_redis(service, 3, COMMANDS // 2) == []


@pytest.mark.parametrize("best", ["high", "low"])
@pytest.mark.parametrize("rank", ["auto", "exact"])
async def test_long_boards_with_a_curve_have_the_order_of_redis(tmp_path: Path, best: str, rank: str) -> None:
    rng = random.Random(3)
    scores = {f"m{number:04}": rng.randint(0, 300) for number in range(MEMBERS)}
    async with Service(tmp_path, resp_rank=rank).running() as service:
        predictor = {"samples": 64, "exact_top": 10}
        await service.board("arena", {"name": "xp", "best": best}, predictor=predictor)
        async with (
            open_door(service.context, None, 0) as [address],
            Redis(port=int(address.rpartition(":")[2]), decode_responses=True, protocol=2) as redis,
        ):
            await redis.zadd("arena", scores)
            await service.refresh("arena", "xp")
            changed = {member: rng.randint(0, 300) for member in rng.sample(sorted(scores), 60)}
            await redis.zadd("arena", changed)
            scores |= changed
            ascending = sorted(scores, key=lambda member: (scores[member], member))
            await check_reads(redis, rng, scores, ascending)


async def check_reads(redis: Any, rng: random.Random, scores: dict[str, int], ascending: list[str]) -> None:
    """Compare ranks, counts and ranges with those of a plain list."""
    descending = ascending[::-1]
    asked = rng.sample(ascending, 40) + ascending[:3] + descending[:3]
    for member in asked:
        assert await redis.zrank("arena", member) == ascending.index(member)
        assert await redis.zrevrank("arena", member) == descending.index(member)
    for _ in range(40):
        first, least = rng.randrange(len(ascending)), rng.randint(0, 300)
        last, most = first + rng.randint(0, 30), least + rng.randint(0, 4)
        assert await redis.zrange("arena", first, last) == ascending[first : last + 1]
        assert await redis.zrevrange("arena", first, last) == descending[first : last + 1]
        assert await redis.zrange("arena", -1 - last, -1 - first) == descending[first : last + 1][::-1]
        within = [member for member in ascending if least <= scores[member] <= most]
        assert await redis.zcount("arena", least, most) == len(within)
        assert await redis.zrangebyscore("arena", least, most, start=3, num=9) == within[3:12]
        assert await redis.zrevrangebyscore("arena", most, least, start=3, num=9) == within[::-1][3:12]
