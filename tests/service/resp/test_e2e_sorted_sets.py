"""Test sorted sets, hashes and keys of Redis clients, with redis-py against a real service."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ExecAbortError, ResponseError

from service.resp.door import Connection, open_door
from service.serve import make_new_board
from tests.service.real_service import Service

from .conftest import NO_RETRY, Client

AGREED = {"ada": 3, "bob": 2.5, "cyd": 2.5, "dan": -1}


@pytest.fixture(params=[2, 3])
def either(request: pytest.FixtureRequest, connect: Client) -> Any:
    """Return a client of RESP2, and one of RESP3."""
    return connect(protocol=request.param)


def scores(answer: Any) -> dict[str, float]:
    return dict(answer)


async def test_a_post_to_an_unknown_key_makes_its_board(redis: Any, service: Service) -> None:
    assert await redis.zadd("arena", {"ada": 1.5}) == 1
    board = await service.get("/v1/leaderboards/arena")
    assert [(each["name"], each["type"]) for each in board["columns"]] == [("score", "number"), ("member_data", "text")]
    acts = await service.get("/v1/acts?board=arena")
    assert [each["act"] for each in acts["acts"]] == ["board.created"]


async def test_members_are_in_the_order_of_redis(either: Any) -> None:
    await either.zadd("arena", AGREED)
    assert await either.zrange("arena", 0, -1) == ["dan", "bob", "cyd", "ada"]
    assert await either.zrevrange("arena", 0, -1) == ["ada", "cyd", "bob", "dan"]
    assert scores(await either.zrange("arena", 1, 2, withscores=True)) == {"bob": 2.5, "cyd": 2.5}
    assert [await either.zrevrank("arena", member) for member in ("ada", "cyd", "bob", "dan", "eve")] == [
        0,
        1,
        2,
        3,
        None,
    ]
    assert [await either.zrank("arena", member) for member in ("ada", "cyd", "bob", "dan")] == [3, 2, 1, 0]
    assert await either.execute_command("ZREVRANK", "arena", "bob", "WITHSCORE") in ([2, "2.5"], [2, 2.5])


async def test_zadd_keeps_the_terms_of_its_options(redis: Any) -> None:
    await redis.zadd("arena", {"ada": 5})
    assert await redis.zadd("arena", {"ada": 4}, gt=True, ch=True) == 0
    assert await redis.zadd("arena", {"ada": 6}, gt=True, ch=True) == 1
    assert await redis.zadd("arena", {"ada": 9}, nx=True) == 0
    assert await redis.zadd("arena", {"bob": 9}, xx=True) == 0
    assert await redis.zadd("arena", {"ada": 7}, lt=True, ch=True) == 0
    assert await redis.zadd("arena", {"ada": 1}, incr=True) == 7
    assert await redis.zadd("arena", {"ada": -1}, incr=True, gt=True) is None
    assert await redis.zscore("arena", "bob") is None
    assert await redis.zcard("arena") == 1


async def test_terms_hold_while_many_clients_post(connect: Client) -> None:
    clients = [connect() for _ in range(4)]
    added = await asyncio.gather(
        *(clients[number % 4].zadd("arena", {"ada": number}, nx=True) for number in range(20)),
        *(clients[number % 4].zincrby("arena", 1, "bob") for number in range(50)),
    )
    assert sum(added[:20]) == 1
    assert sorted(added[20:]) == [float(number) for number in range(1, 51)]


async def test_scores_are_exact_or_refused(redis: Any) -> None:
    for _ in range(3):
        await redis.zincrby("arena", 0.1, "ada")
    assert await redis.execute_command("ZSCORE", "arena", "ada") == 0.3
    for score in ("0.1234567891", "1e30", "inf", "nan", "x"):
        with pytest.raises(ResponseError):
            await redis.execute_command("ZADD", "arena", score, "bob")
    assert await redis.zscore("arena", "bob") is None


async def test_a_pipeline_answers_in_order(redis: Any) -> None:
    pipeline = redis.pipeline(transaction=False)
    for number in range(300):
        pipeline.zincrby("arena", number, f"m{number % 7}")
        if number % 50 == 0:
            pipeline.zcard("arena").execute_command("NOSUCH").zrevrank("arena", "m0")
    answers = await pipeline.execute(raise_on_error=False)
    plain: dict[str, float] = {}
    expected: list[Any] = []
    for number in range(300):
        plain[f"m{number % 7}"] = plain.get(f"m{number % 7}", 0) + number
        expected.append(plain[f"m{number % 7}"])
        if number % 50 == 0:
            better = sum((score, member) > (plain["m0"], "m0") for member, score in plain.items())
            expected += [len(plain), ResponseError, better]
    assert [type(each) if isinstance(each, Exception) else each for each in answers] == expected


async def test_a_transaction_is_one_of_the_store(redis: Any, service: Service) -> None:
    before = (await service.figures())["rankcurve_write_seconds_count",]
    async with redis.pipeline() as pipeline:
        pipeline.zadd("arena", {"ada": 1}).zincrby("arena", 2, "bob").hset("arena:member_data", "ada", "Ada L.")
        pipeline.zrevrank("arena", "ada")
        assert await pipeline.execute() == [1, 2.0, 1, 1]
    assert (await service.figures())["rankcurve_write_seconds_count",] == before + 1
    async with redis.pipeline() as pipeline:
        pipeline.zadd("arena", {"ada": 5}).execute_command("NOSUCH")
        with pytest.raises((ExecAbortError, ResponseError)):
            await pipeline.execute()
    assert await redis.zscore("arena", "ada") == 1


async def test_a_transaction_is_bounded(redis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.resp.session.QUEUED_WEIGHT_MAX", 150)
    for commands in (["ZCARD arena"] * 151, ["ZRANGE arena 0 -1"] * 3):
        pipeline = redis.pipeline()
        for command in commands:
            pipeline.execute_command(*command.split(" "))
        with pytest.raises((ExecAbortError, ResponseError)):
            await pipeline.execute()
    assert await redis.ping()


async def test_long_answers_are_sent_in_pieces(redis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sent, send = list[int](), Connection._send

    async def count(self: Connection, answers: bytes) -> None:
        sent.append(len(answers))
        await send(self, answers)

    monkeypatch.setattr(Connection, "_send", count)
    await redis.zadd("arena", {f"m{number:03}": number for number in range(100)})
    pipeline = redis.pipeline(transaction=False)
    for _ in range(60):
        pipeline.zrange("arena", 0, -1)
    assert [len(each) for each in await pipeline.execute()] == [100] * 60
    assert max(sent) < sum(sent) / 5


async def test_removed_members_are_gone(redis: Any) -> None:
    await redis.zadd("arena", {f"m{number}": number for number in range(20)})
    assert await redis.zrem("arena", "m0", "m1", "nobody") == 2
    assert await redis.zremrangebyrank("arena", 0, 1) == 2
    assert await redis.zremrangebyscore("arena", 4, 6) == 3
    assert await redis.zpopmax("arena", 2) == [("m19", 19.0), ("m18", 18.0)]
    assert await redis.zpopmin("arena") == [("m7", 7.0)]
    assert await redis.zrange("arena", 0, -1) == [f"m{number}" for number in range(8, 18)]
    assert await redis.zadd("arena", {"m0": 1}) == 1


async def test_every_member_is_popped_once(connect: Client) -> None:
    clients = [connect() for _ in range(4)]
    await clients[0].zadd("arena", {f"m{number}": number % 3 for number in range(40)})
    popped = await asyncio.gather(*(client.zpopmin("arena", 5) for client in clients for _ in range(2)))
    assert len({member for each in popped for member, _ in each}) == sum(map(len, popped))


async def test_ranges_by_score(either: Any) -> None:
    await either.zadd("arena", AGREED)
    assert await either.zrangebyscore("arena", "(-1", 2.5) == ["bob", "cyd"]
    assert await either.zrevrangebyscore("arena", "+inf", "-inf", start=1, num=2) == ["cyd", "bob"]
    assert await either.zrange("arena", "2.5", "(3", byscore=True) == ["bob", "cyd"]
    assert await either.zcount("arena", "-inf", "(2.5") == 1
    assert await either.zrangebyscore("arena", 5, 1) == []


async def test_a_scan_lists_every_member(redis: Any) -> None:
    members = {f"m{number}": float(number) for number in range(55)}
    await redis.zadd("arena", members)
    assert {member: score async for member, score in redis.zscan_iter("arena", count=7)} == members
    assert {member async for member, _ in redis.zscan_iter("arena", match="m1[0-3]")} == {"m10", "m11", "m12", "m13"}
    with pytest.raises(ResponseError):
        await redis.zscan("arena", cursor=12345)


async def test_hashes_are_columns_of_text(redis: Any, service: Service) -> None:
    assert await redis.hset("arena:member_data", mapping={"ada": "Ada L.", "bob": "{}"}) == 2
    assert await redis.hset("arena:member_data", "ada", "Ada") == 0
    assert await redis.hmget("arena:member_data", ["ada", "nobody", "bob"]) == ["Ada", None, "{}"]
    assert await redis.hgetall("arena:member_data") == {"ada": "Ada", "bob": "{}"}
    assert await redis.hgetall("other:member_data") == {}
    assert await redis.hdel("arena:member_data", "bob", "nobody") == 1
    assert await redis.hexists("arena:member_data", "ada")
    assert await redis.zadd("arena", {"ada": 4}) == 1
    page = await service.get("/v1/leaderboards/arena/rankings/score")
    assert [(each["owner"], each["stats"]["member_data"]) for each in page["entries"]] == [("ada", "Ada")]
    with pytest.raises(ResponseError):
        await redis.hset("nothash", "ada", "x")


async def test_keys_are_boards(redis: Any, service: Service) -> None:
    await redis.zadd("arena", AGREED)
    assert await redis.exists("arena", "arena:member_data", "other") == 2
    assert [await redis.type(key) for key in ("arena", "arena:member_data", "other")] == ["zset", "hash", "none"]
    assert [await redis.ttl(key) for key in ("arena", "other")] == [-1, -2]
    assert await redis.expire("arena", 1_000)
    assert 990 < await redis.ttl("arena") <= 1_000
    assert (await service.get("/v1/leaderboards/arena"))["closes_at"] is not None
    assert await redis.delete("arena", "other") == 1
    assert (await service.call("GET", "/v1/leaderboards/arena")).status == 404
    assert await redis.zscore("arena", "ada") is None
    assert await redis.zadd("arena", {"ada": 7}) == 1


async def test_sets_are_stored_of_others(redis: Any) -> None:
    await redis.zadd("one", {"ada": 1, "bob": 2})
    await redis.zadd("two", {"bob": 3, "cyd": 4})
    assert await redis.zunionstore("all", ["one", "two", "missing"]) == 3
    assert scores(await redis.zrange("all", 0, -1, withscores=True)) == {"ada": 1, "cyd": 4, "bob": 5}
    assert await redis.zinterstore("all", {"one": 2, "two": 1}, aggregate="MIN") == 1
    assert scores(await redis.zrange("all", 0, -1, withscores=True)) == {"bob": 3}
    assert await redis.zinterstore("all", ["one", "missing"]) == 0
    assert await redis.exists("all") == 0


async def test_a_set_that_cannot_be_stored_replaces_nothing(redis: Any, service: Service) -> None:
    await redis.zadd("one", {"ada": 1})
    await redis.zadd("all", {"bob": 2})
    for weights in ("1e-12", "1e18", "x", "inf"):
        with pytest.raises(ResponseError):
            await redis.execute_command("ZUNIONSTORE", "all", 1, "one", "WEIGHTS", weights)
    await service.board("made", {"name": "xp"})
    with pytest.raises(ResponseError):
        await redis.zunionstore("made", ["one"])
    assert await redis.zrange("all", 0, -1) == ["bob"]
    assert (await service.get("/v1/leaderboards/made"))["columns"][0]["name"] == "xp"


async def test_a_board_of_several_columns_is_named_with_a_column(redis: Any, service: Service) -> None:
    columns = {"name": "xp", "merge": "sum"}, {"name": "lap", "merge": "min", "scale": 3}
    await service.board("arena", *columns)
    assert await redis.zincrby("arena/xp", 5, "ada") == 5
    assert await redis.zincrby("arena/xp", 5, "ada") == 10
    assert await redis.zadd("arena/lap", {"ada": 61.5, "bob": 60}) == 2
    assert await redis.zadd("arena/lap", {"bob": 62}, ch=True) == 1
    assert await redis.zrange("arena/lap", 0, -1) == ["ada", "bob"]
    assert await redis.zrevrange("arena/lap", 0, -1) == ["bob", "ada"]
    assert await redis.zrank("arena/lap", "ada") == 0
    with pytest.raises(ResponseError):
        await redis.zadd("arena", {"ada": 1})
    with pytest.raises(ResponseError):
        await redis.zscore("arena/none", "ada")


@pytest.mark.parametrize(
    "command",
    [
        "FLUSHALL",
        "EVAL x 0",
        "BZPOPMIN arena 0",
        "RENAME arena other",
        "SELECT 1",
        "ZADD {arena} 1 ada",
        "ZADD arena 1 a\x01",
    ],
)
async def test_what_cannot_be_done_is_refused(redis: Any, command: str) -> None:
    await redis.zadd("arena", {"ada": 1})
    with pytest.raises(ResponseError):
        await redis.execute_command(*command.split(" "))
    assert await redis.zrange("arena", 0, -1) == ["ada"]


async def test_a_long_range_is_refused(redis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.resp.sorted_set_reads.RANGE_ROWS_MAX", 3)
    await redis.zadd("arena", AGREED)
    with pytest.raises(ResponseError):
        await redis.zrange("arena", 0, -1)
    assert len(await redis.zrange("arena", 0, 2)) == 3


async def test_a_board_that_another_process_deleted_is_made_again(redis: Any, service: Service) -> None:
    await redis.zadd("arena", AGREED)
    known = service.context.catalog.find_known("arena")
    assert known is not None
    await service.must("DELETE", "/v1/leaderboards/arena")
    service.context.catalog.keep_board(known)
    assert await redis.zcard("arena") == 0
    service.context.catalog.keep_board(known)
    assert await redis.zadd("arena", {"eve": 1}) == 1
    assert await redis.zrange("arena", 0, -1) == ["eve"]


async def test_no_refusal_rests_on_an_outdated_copy_of_a_board(tmp_path: Path, store_url: str) -> None:
    xp, kills = {"name": "xp", "merge": "last"}, {"name": "kills", "merge": "last"}
    async with (
        Service(tmp_path, jobs="none", store=store_url).running() as one,
        Service(tmp_path, jobs="none", store=store_url).running() as other,
        open_door(other.context, make_new_board(other.context), 0) as [address],
        Redis(port=int(address.rpartition(":")[2]), decode_responses=True, retry=NO_RETRY) as redis,
    ):
        for board in ("posted", "read"):
            await one.board(board, xp)
            assert await redis.zadd(f"{board}/xp", {"ada": 1}) == 1
            await one.must("PUT", f"/v1/leaderboards/{board}", {"columns": [xp, kills]})
        assert await redis.zadd("posted/kills", {"ada": 3}) == 1
        assert await redis.zrange("read/kills", 0, -1) == []
        await one.must("DELETE", "/v1/leaderboards/posted")
        await one.board("posted", {**xp, "scale": 2})
        assert await redis.zadd("posted/xp", {"ada": "1.25"}) == 1
        with pytest.raises(ResponseError, match="name a ranked column"):
            await redis.zadd("posted/shots", {"ada": 1})
