"""Measure the time until the grants of a closed board are made, and what posts to another board notice of it.

    python -m benchmarks.grants [--rows N] [--seconds S]

A board of N owners closes, and its best 10 % get a reward. Single posts come at a steady rate to another board, first
for S seconds while nothing else happens, then until all grants are made. Measured on SQLite and PostgreSQL.

Bars: all grants are made at most 20 s after the end of the board. Meanwhile p99 of the posts is at most twice the quiet
one. No grant is missing, and none is made twice.
"""

import asyncio
import json
import random
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks import report
from benchmarks.boards import BOARD, COLUMN, board_spec, create_board, owner_at
from benchmarks.bulk import draw_scores, measure_bulk_stores
from benchmarks.client import Connection
from benchmarks.options import Options
from benchmarks.paced import PacedClient, build_post, run_punctually
from benchmarks.servers import serve_store

_OTHER = "other"
_PERCENT = 10
_POSTS_PER_S = 100
_WINDOW_S = 0.25
_LOOK_S = 0.05
_SOON = timedelta(seconds=2)
_PAGE = 1_000
_GRANTS = f"/v1/leaderboards/{BOARD}/grants"


async def wait_for_grants(port: int) -> float:
    """Wait until all grants of the board are made, and return the time by `perf_counter`."""
    connection = Connection(port)
    while True:
        answer = await connection.call_ok("GET", f"{_GRANTS}?limit=1")
        if answer["made"]:
            connection.close()
            return time.perf_counter()
        await asyncio.sleep(_LOOK_S)


async def list_owners(port: int) -> list[str]:
    """Return the owner who received each of the board's grants."""
    connection, owners, query = Connection(port), list[str](), f"?limit={_PAGE}"
    while query:
        page = await connection.call_ok("GET", _GRANTS + query)
        owners += [each["owner"] for each in page["grants"]]
        query = f"?limit={_PAGE}&cursor={page['next']}" if page["next"] else ""
    connection.close()
    return owners


async def time_grants(port: int, seconds: float) -> tuple[list[float], list[float], float]:
    """Close the board.

    Return the milliseconds of posts before and during the closing, sorted, and the seconds it took.
    """
    rng = random.Random(6)

    def ask() -> bytes:
        post = {"owner": owner_at(rng.randrange(1_000)), "stats": {COLUMN: 1}}
        return build_post(f"/v1/leaderboards/{_OTHER}/posts", json.dumps(post).encode())

    await create_board(port, _OTHER, board_spec([COLUMN]))
    async with PacedClient(port) as client:
        await client.send_at_rate(ask, per_s=_POSTS_PER_S, seconds=1, rng=rng)
        quiet = await client.send_at_rate(ask, per_s=_POSTS_PER_S, seconds=seconds, rng=rng)
        ends_at = datetime.now(UTC) + _SOON
        ends_s = time.perf_counter() + _SOON.total_seconds()
        rewards = [{"name": "top", "column": COLUMN, "to_percent": _PERCENT, "data": {"coins": 100}}]
        season = {"closes_at": ends_at.isoformat(), "grace_seconds": 0, "rewards": rewards}
        await create_board(port, BOARD, {**board_spec([COLUMN]), **season})
        await asyncio.sleep(ends_s - time.perf_counter())
        waiting, meanwhile = asyncio.create_task(wait_for_grants(port)), list[float]()
        while not waiting.done():
            meanwhile += await client.send_at_rate(ask, per_s=_POSTS_PER_S, seconds=_WINDOW_S, rng=rng)
        return sorted(quiet), sorted(meanwhile), await waiting - ends_s


def count_expected(values: Sequence[int]) -> int:
    """Return how many owners with these values get the reward: the best tenth, and all who tie with its last."""
    best = sorted(values, reverse=True)
    last = best[(len(best) * _PERCENT + 99) // 100 - 1]
    return sum(value >= last for value in best)


def measure_service(name: str, port: int, values: Sequence[int], seconds: float) -> list[report.Bar]:
    """Measure a service while a board closes whose owners have these values. `name` is the name of its store."""
    quiet, meanwhile, took_s = run_punctually(time_grants(port, seconds))
    owners = asyncio.run(list_owners(port))
    p99s = [each[len(each) * 99 // 100] for each in (quiet, meanwhile)]
    print(f"   {name}: {len(owners):,} grants; posts p99 {p99s[0]:.1f} ms quiet, {p99s[1]:.1f} ms meanwhile")
    return [
        report.Bar(f"{name}: end of the board to all grants", took_s, 20.0, " s", at_most=True),
        report.Bar(f"{name}: p99 of posts, meanwhile / quiet", p99s[1] / p99s[0], 2.0, at_most=True),
        report.Bar(f"{name}: missing grants", count_expected(values) - len(set(owners)), 0, at_most=True),
        report.Bar(f"{name}: grants made twice", len(owners) - len(set(owners)), 0, at_most=True),
    ]


def measure(options: Options, folder: Path) -> list[report.Bar]:
    values = draw_scores(options.rows).tolist()

    def measure_on(name: str, url: str) -> list[report.Bar]:
        with serve_store(url, folder) as server:
            return measure_service(name, server.port, values, options.seconds)

    return measure_bulk_stores(options, folder, measure_on)


if __name__ == "__main__":
    report.run_program(measure, __doc__, "grants: {rows:,} owners", seconds=20)
