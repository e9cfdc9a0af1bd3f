"""Measure how soon two new job processes apply the first post of a queue that was filled before they started.

    python -m benchmarks.cold_queue [--rows N] [--rounds N]

Every round has a new PostgreSQL database and new processes. Before any job process starts, two front ends queue 4,000
posts to a family of 25 boards with 6 columns. The measured time begins when both job processes are ready.

Bar: the first queued post is applied at most 2 s after the last job process is ready.
"""

import asyncio
import random
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks import report
from benchmarks.boards import owner_at
from benchmarks.client import Connection
from benchmarks.options import Options, parse_options
from benchmarks.servers import Server, serve_jobs, serve_store
from tests.servers import DURABLE, PostgresServer, postgres

PROCESSES = 2  # number of front ends, and number of job processes
_FIRST_S_MAX = 2.0
_WAIT_S = 60.0
_BATCH = 200  # posts per request
_COLUMNS = [f"c{number}" for number in range(6)]
_FAMILY: dict[str, Any] = {
    "columns": [{"name": name, "sorted": True, "merge": "sum"} for name in _COLUMNS],
    "periods": ["all", "year", "month", "week", "day"],
    "facets": [[], ["org"], ["place"], ["org", "place"], ["group"]],
}
_PATH = "/v1/families/cold"
_APPLIED = "SELECT coalesce(sum(applied), 0)::bigint FROM ingest_shards"


def draw_post(number: int, rng: random.Random) -> dict[str, Any]:
    """Return a post with random facets, which the family fans out to 25 boards."""
    facets = {"org": str(rng.randrange(50)), "place": str(rng.randrange(20)), "group": str(rng.randrange(200))}
    return {"owner": owner_at(number), "stats": dict.fromkeys(_COLUMNS, 1), "post_id": str(number), "facets": facets}


async def queue_posts(fronts: list[Server], rows: int) -> None:
    connections = [Connection(front.port) for front in fronts]
    await connections[0].call_ok("PUT", _PATH, _FAMILY)
    rng = random.Random(15)
    for turn, begin in enumerate(range(0, rows, _BATCH)):
        posts = [draw_post(number, rng) for number in range(begin, min(rows, begin + _BATCH))]
        await connections[turn % len(connections)].call_ok("POST", f"{_PATH}/posts?mode=queued", {"posts": posts})
    for connection in connections:
        connection.close()


async def wait_for_first_applied(database: Any, begun_s: float) -> float:
    """Wait until a queued post is applied. Return the seconds since `begun_s`, a time of `time.monotonic`."""
    while not await database.fetchval(_APPLIED):
        if time.monotonic() - begun_s > _WAIT_S:
            raise TimeoutError(f"nothing was applied within {_WAIT_S:.0f} s")
        await asyncio.sleep(0.01)
    return time.monotonic() - begun_s


async def run_cold_start(cluster: PostgresServer, folder: Path, rows: int, turn: int) -> tuple[float, int]:
    """Run one round. Return the seconds until a post was applied, and how many posts were applied at that time."""
    url = cluster.create_database(f"cold{turn}")
    with ExitStack() as stack:
        fronts = [stack.enter_context(serve_store(url, folder, jobs="none")) for _ in range(PROCESSES)]
        await queue_posts(fronts, rows)
        jobs = [serve_jobs(url, folder) for _ in range(PROCESSES)]
        for process in jobs:
            stack.callback(process.stop)
            process.spawn()
        for process in jobs:
            await asyncio.to_thread(process.wait_ready)
        begun_s = time.monotonic()
        database = await asyncpg.connect(url)
        try:
            return await wait_for_first_applied(database, begun_s), int(await database.fetchval(_APPLIED))
        finally:
            await database.close()


def measure(options: Options, folder: Path) -> list[report.Bar]:
    with postgres(DURABLE) as cluster:
        rounds = [asyncio.run(run_cold_start(cluster, folder, options.rows, turn)) for turn in range(options.rounds)]
    report.print_table(
        ("round", "first applied s", "posts"), [[number, *each] for number, each in enumerate(rounds, 1)]
    )
    slowest_s = max(seconds for seconds, _ in rounds)
    return [
        report.Bar(
            "first queued post applied, from the last process being ready", slowest_s, _FIRST_S_MAX, " s", at_most=True
        )
    ]


def main() -> int:
    options = parse_options(__doc__, rows=4_000, rounds=3)
    title = f"cold queue: {options.rows:,} posts to 25 boards each wait for {PROCESSES} job processes"
    return report.run_benchmark(options, title, measure)


if __name__ == "__main__":
    sys.exit(main())
