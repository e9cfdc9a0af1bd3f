"""The Redis shell of `against_redis`, which serves the service's busiest routes from a Redis sorted set.

The shell uses the same aiohttp and uvloop as the service, and is as fast as such a shell can reasonably be: it has
redis-py's asyncio client with hiredis, sends the commands of one request in one pipeline, and uses msgspec for JSON. It
does less than the service: it has no brackets, versions, post ids or cursors, and it ranks ties by member. As in the
service, each entry has the time of its last change, which is kept in a Redis hash beside the sorted set. With `bare=1`,
a request reads and writes only scores, without times.
"""

import sys
import time
from datetime import UTC, datetime
from typing import Any

import msgspec
import redis.asyncio
import uvloop
from aiohttp import web

_encode = msgspec.json.Encoder().encode
REDIS: web.AppKey[Any] = web.AppKey("redis", object)
AROUND: web.AppKey[Any] = web.AppKey("around", object)
# A Lua script for Redis. It reads the rows around a member in one round trip instead of two.
_AROUND = """
local better = redis.call('ZREVRANK', KEYS[1], ARGV[1])
local first = math.max(0, better - tonumber(ARGV[2]))
local rows = redis.call('ZREVRANGE', KEYS[1], first, better + tonumber(ARGV[3]), 'WITHSCORES')
return {better, redis.call('ZCARD', KEYS[1]), rows}
"""


class _Post(msgspec.Struct):
    owner: str
    stats: dict[str, int]


class _Posts(msgspec.Struct):
    owner: str | None = None
    stats: dict[str, int] | None = None
    posts: list[_Post] | None = None


_decode_posts = msgspec.json.Decoder(_Posts).decode


def _json(body: object, status: int = 200) -> web.Response:
    return web.Response(body=_encode(body), status=status, content_type="application/json")


async def _entries(
    request: web.Request, first_rank: int, rows: list[tuple[bytes, float]], column: str
) -> list[dict[str, object]]:
    entries: list[dict[str, object]] = [
        {"rank": rank, "owner": member.decode(), "value": int(score), "stats": {column: int(score)}}
        for rank, (member, score) in enumerate(rows, first_rank)
    ]
    if "bare" not in request.query and rows:
        times = await request.app[REDIS].hmget(_times(request), [member for member, _ in rows])
        for entry, at_us in zip(entries, times, strict=True):
            entry["updated_at"] = _time_text(int(at_us))
    return entries


def _times(request: web.Request) -> str:
    return f"{request.match_info['board']}:updated_at"


def _time_text(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat()


async def positions(request: web.Request) -> web.Response:
    board, owner, column = request.match_info["board"], request.match_info["owner"], "xp"
    key = f"{board}:{column}"
    pipe = request.app[REDIS].pipeline(transaction=False)
    score, better, total = await pipe.zscore(key, owner).zrevrank(key, owner).zcard(key).execute()
    if better is None:
        return _json({"code": "unknown_owner"}, 404)
    percentile = 100 * (total - better - 1) / (total - 1) if total > 1 else 100
    position = {
        "column": column,
        "value": int(score),
        "rank": better + 1,
        "total": total,
        "percentile": round(percentile, 3),
    }
    return _json({"owner": owner, "positions": [position]})


async def around(request: web.Request) -> web.Response:
    column, before, after = request.query["column"], int(request.query["better"]), int(request.query["worse"])
    key = f"{request.match_info['board']}:{column}"
    client = request.app[REDIS]
    owner = request.match_info["owner"]
    if "script" in request.query:
        better, total, flat = await request.app[AROUND](keys=[key], args=[owner, before, after])
        rows = list(zip(flat[::2], map(float, flat[1::2]), strict=True))
        first = max(0, better - before)
    else:
        # The rows to read depend on the rank, so two round trips are needed. Each carries as many commands as possible.
        better, total = await client.pipeline(transaction=False).zrevrank(key, owner).zcard(key).execute()
        if better is None:
            return _json({"code": "unknown_owner"}, 404)
        first = max(0, better - before)
        rows = await client.zrevrange(key, first, better + after, withscores=True)
    return _json({"column": column, "total": total, "entries": await _entries(request, first + 1, rows, column)})


async def page(request: web.Request) -> web.Response:
    column, limit = request.match_info["column"], int(request.query["limit"])
    key = f"{request.match_info['board']}:{column}"
    pipe = request.app[REDIS].pipeline(transaction=False)
    rows, total = await pipe.zrevrange(key, 0, limit - 1, withscores=True).zcard(key).execute()
    return _json({"column": column, "total": total, "entries": await _entries(request, 1, rows, column)})


async def post(request: web.Request) -> web.Response:
    body = _decode_posts(await request.read())
    posts = body.posts
    if posts is None:
        assert body.owner is not None, "neither a post nor posts"
        assert body.stats is not None, "a post without stats"
        posts = [_Post(body.owner, body.stats)]
    bare = "bare" in request.query
    now_us = time.time_ns() // 1000
    scores = iter(await _increments(request.app[REDIS], request.match_info["board"], posts, None if bare else now_us))
    results: list[dict[str, object]] = [
        {"owner": one.owner, "status": "applied", "stats": {column: int(next(scores)) for column in one.stats}}
        for one in posts
    ]
    if not bare:
        for result in results:
            result["updated_at"] = _time_text(now_us)
    return _json({"results": results})


async def _increments(client: Any, board: str, posts: list[_Post], now_us: int | None) -> list[float]:
    changes = [(f"{board}:{column}", more, one.owner) for one in posts for column, more in one.stats.items()]
    if len(changes) == 1 and now_us is None:  # a pipeline with one command costs more than the command itself
        return [await client.zincrby(*changes[0])]
    pipe = client.pipeline(transaction=False)
    for change in changes:
        pipe.zincrby(*change)
    if now_us is not None:
        pipe.hset(f"{board}:updated_at", mapping={one.owner: now_us for one in posts})
    found: list[float] = await pipe.execute()
    return found[: len(changes)]


async def ready(request: web.Request) -> web.Response:
    await request.app[REDIS].ping()
    return _json({"status": "ready"})


def main(port: int, redis_port: int) -> None:
    async def connect(app: web.Application) -> None:
        app[REDIS] = redis.asyncio.Redis(host="127.0.0.1", port=redis_port)
        app[AROUND] = app[REDIS].register_script(_AROUND)

    app = web.Application(client_max_size=8 * 2**20)
    app.on_startup.append(connect)
    board = "/v1/leaderboards/{board}"
    app.router.add_get(board + "/entries/{owner}/positions", positions)
    app.router.add_get(board + "/entries/{owner}/around", around)
    app.router.add_get(board + "/rankings/{column}", page)
    app.router.add_post(board + "/posts", post)
    app.router.add_get("/readyz", ready)
    web.run_app(app, host="127.0.0.1", port=port, access_log=None, print=None, loop=uvloop.new_event_loop())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
