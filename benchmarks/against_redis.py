"""Compare the service with a Redis sorted set behind an aiohttp server: reads, posts and memory.

python -m benchmarks.against_redis [--rows N] [--seconds S] [--rounds N]

The aiohttp server in front of Redis is called the Redis shell (`redis_shell`). Service and shell have the same members,
values and requests, and both write durably before they answer. The Redis shell sends the commands of one request in one
pipeline.

A ratio is the service's rate divided by the rate of the Redis shell. Bars: the ratio is at least 2 for `positions`, 1.5
for `around`, 2.5 for the top 10, and 1 for single posts. Against a Redis that keeps scores without their times, it is
at least 2 for `around`, 4 for the top 10 and 1.2 for single posts, and the p99 of single posts is at most twice that of
Redis. Batches and memory are only reported.
"""

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from benchmarks import load, report
from benchmarks.batch_posts import through_http
from benchmarks.boards import BOARD, COLUMN, draw_values, owner_at, prepare_store
from benchmarks.client import BadAnswerError, Connection
from benchmarks.options import Options
from benchmarks.servers import Server, serve_file, serve_redis, serve_redis_shell

_CONNECTIONS = 32
_LOAD_ROWS = 10_000
_BATCHES = 40
_PATHS = {
    "positions": (f"/v1/leaderboards/{BOARD}/entries/", "/positions"),
    "around": (f"/v1/leaderboards/{BOARD}/entries/", f"/around?column={COLUMN}&better=5&worse=5"),
}
_BARS = {"positions": 2.0, "around": 1.5, "top 10": 2.5, "single posts": 1.0, "batch posts": None}
_BARE_BARS = {"around": 2.0, "top 10": 4.0, "single posts": 1.2}
_BARE = {name: f"{name} of scores alone, redis" for name in _BARE_BARS}
_SCRIPTED = "around of scores alone by a Lua script, redis"
_TOP = f"/v1/leaderboards/{BOARD}/rankings/{COLUMN}?limit=10"
_POSTS = f"/v1/leaderboards/{BOARD}/posts"


class Rivals(NamedTuple):
    service: Server
    shell: Server
    redis: Server


def fill_redis(port: int, rows: int) -> None:
    """Write the board of `boards.draw_values` to Redis as a sorted set."""
    import redis as redis_client

    client = redis_client.Redis(host="127.0.0.1", port=port)
    numbers = draw_values(rows)
    for first in range(0, rows, _LOAD_ROWS):
        these = range(first, min(rows, first + _LOAD_ROWS))
        client.zadd(f"{BOARD}:{COLUMN}", {owner_at(index): numbers[index] for index in these})
    client.close()


def fill_redis_times(port: int, rows: int) -> None:
    """Write a time of last change for each entry to a Redis hash."""
    import redis as redis_client

    client = redis_client.Redis(host="127.0.0.1", port=port)
    now_us = time.time_ns() // 1000
    for first in range(0, rows, _LOAD_ROWS):
        these = range(first, min(rows, first + _LOAD_ROWS))
        client.hset(f"{BOARD}:updated_at", mapping={owner_at(index): now_us + index for index in these})
    client.close()


async def check_same(rivals: Rivals, rows: int) -> None:
    """Check that the service and the Redis shell give the same answers for some owners and for the top 10.

    For each owner, the value, the total of the board and the number of entries around the owner are compared.

    Raises BadAnswerError.
    """
    ours, theirs = Connection(rivals.service.port), Connection(rivals.shell.port)
    for index in range(0, rows, max(1, rows // 20)):
        before, after = _PATHS["positions"]
        one, other = [
            (await side.call_ok("GET", before + owner_at(index) + after))["positions"][0] for side in (ours, theirs)
        ]
        if (one["value"], one["total"]) != (other["value"], other["total"]):
            raise BadAnswerError(f"owner {index}: {one} and {other}")
        before, after = _PATHS["around"]
        windows = [
            len((await side.call_ok("GET", before + owner_at(index) + after))["entries"]) for side in (ours, theirs)
        ]
        if windows[0] != windows[1]:
            raise BadAnswerError(f"around owner {index}: {windows} entries")
    tops = [[entry["value"] for entry in (await side.call_ok("GET", _TOP))["entries"]] for side in (ours, theirs)]
    if tops[0] != tops[1]:
        raise BadAnswerError(f"top 10: {tops}")
    ours.close()
    theirs.close()


def wrk_targets(url: str, rows: int) -> dict[str, load.Target]:
    found = {name: load.Target(url, before, after, rows=rows) for name, (before, after) in _PATHS.items()}
    found["top 10"] = load.Target(url, _TOP)
    found["single posts"] = load.Target(url, _POSTS, column=COLUMN, rows=rows)
    return found


def run_rounds(rivals: Rivals, options: Options) -> dict[str, list[load.Figure]]:
    contestants: dict[str, Callable[[int], load.Figure]] = {}
    sides = {"service": rivals.service, "redis": rivals.shell}
    for name in wrk_targets("", options.rows):
        for side, server in sides.items():
            target = wrk_targets(server.url, options.rows)[name]
            contestants[f"{name}, {side}"] = load.wrk_contestant(
                target, connections=_CONNECTIONS, seconds=options.seconds
            )
    for side, server in sides.items():
        contestants[f"batch posts, {side}"] = through_http(server.port, options.rows, _BATCHES)
    # Two more contestants have no bar: the Redis shell without the times of entries, and `around` as a script in Redis.
    after = _PATHS["around"][1]
    found = wrk_targets(rivals.shell.url, options.rows)
    aside = {
        _BARE["around"]: replace(found["around"], after=f"{after}&bare=1"),
        _BARE["top 10"]: replace(found["top 10"], path=f"{_TOP}&bare=1"),
        _BARE["single posts"]: replace(found["single posts"], path=f"{_POSTS}?bare=1"),
        _SCRIPTED: replace(found["around"], after=f"{after}&bare=1&script=1"),
    }
    for name, target in aside.items():
        contestants[name] = load.wrk_contestant(target, connections=_CONNECTIONS, seconds=options.seconds)
    return load.compare(contestants, rounds=options.rounds)


def measure(options: Options, folder: Path) -> list[report.Bar]:
    store = prepare_store(options, folder, rows=options.rows)
    with (
        serve_redis(folder) as redis_server,
        serve_redis_shell(folder, redis_server.port) as shell,
        serve_file(store) as server,
    ):
        rivals = Rivals(server, shell, redis_server)
        begun = time.perf_counter()
        empty_mib = redis_server.resident_mib()
        fill_redis(redis_server.port, options.rows)
        print(f"   filled Redis in {time.perf_counter() - begun:.0f} s")
        member_bytes = (redis_server.resident_mib() - empty_mib) * 2**20 / options.rows
        fill_redis_times(redis_server.port, options.rows)
        asyncio.run(check_same(rivals, options.rows))
        figures = run_rounds(rivals, options)
        memory = [
            report.Bar("resident memory, service", server.resident_mib(), None, " MiB"),
            report.Bar("resident memory, redis-server", redis_server.resident_mib(), None, " MiB"),
            report.Bar("resident memory, shell before Redis", shell.resident_mib(), None, " MiB"),
            report.Bar("redis-server, a member and column", member_bytes, None, " bytes"),
        ]
    ratios = {name: load.median_ratio(figures[f"{name}, service"], figures[f"{name}, redis"]) for name in _BARS}
    bars = [report.Bar(f"{name}, service / Redis", ratios[name], target) for name, target in _BARS.items()]
    aside = {**_BARE, "around by script": _SCRIPTED}
    beside = [
        report.Bar(
            f"{name}, service / Redis of scores alone",
            load.median_ratio(figures[f"{of}, service"], figures[line]),
            _BARE_BARS.get(name),
        )
        for name, line in aside.items()
        for of in (name.removesuffix(" by script"),)
    ]
    slowest = {
        side: statistics.median(each.p99_ms for each in figures[side])
        for side in ("single posts, service", _BARE["single posts"])
    }
    p99 = report.Bar(
        "single posts, p99 of the service / of Redis of scores alone",
        slowest["single posts, service"] / slowest[_BARE["single posts"]],
        2,
        at_most=True,
    )
    return [*bars, *beside, p99, *memory]


if __name__ == "__main__":
    report.run_program(
        measure,
        __doc__,
        f"against Redis: {{rows:,}} members, {_CONNECTIONS} connections, {{rounds}} rounds of {{seconds:g}} s",
        seconds=4.0,
    )
