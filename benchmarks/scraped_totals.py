"""Check that /metrics counts right after ten workers of a node were killed under load of 8 clients.

    python -m benchmarks.scraped_totals [--seconds S]

The clients' own numbers of requests and posts are compared with the metrics of any worker, once with kills and once
without.

Bars: answered <= counted <= sent. Without a kill the three numbers are equal, to the post and to the request.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks import report
from benchmarks.boards import BOARD, COLUMN, board_spec, create_board, owner_at
from benchmarks.client import HOST, Connection, read_metrics
from benchmarks.options import Options, parse_options
from benchmarks.servers import Server, free_port, rankcurve_command
from tests.servers import DURABLE, postgres

_WORKERS = 2
_CLIENTS = 8
_POSTS = 10  # posts in a request
_KILLS = 10
_ASKED = 6  # connections that ask for the metrics, so that each worker is asked
_LINE = re.compile(r"^(rankcurve_(?:posts|requests)_total)\{([^}]*)\} (\S+)$", re.MULTILINE)


@dataclass(slots=True)
class Told:
    """Requests and posts, as the clients know them."""

    sent: int = 0
    answered: int = 0
    stop: bool = False


async def post_until_stopped(port: int, seed: int, told: Told) -> None:
    """Post until told to stop. A connection that breaks is opened again, and what it had sent is not sent again."""
    connection, rng, number = Connection(port), random.Random(seed), 0
    while not told.stop:
        number += 1
        posts = [
            {"owner": owner_at(rng.randrange(10_000)), "stats": {COLUMN: 1}, "post_id": f"{seed}/{number}/{index}"}
            for index in range(_POSTS)
        ]
        told.sent += 1
        try:
            status, _ = await connection.call(
                "POST", f"/v1/leaderboards/{BOARD}/posts", json.dumps({"posts": posts}).encode()
            )
        except (OSError, EOFError):
            await asyncio.sleep(0.01)
            continue
        told.answered += status == 200
    connection.close()


async def read_counters(port: int) -> set[tuple[int, int]]:
    """Return the different pairs of (requests, posts) that the workers tell over connections of their own."""
    found = set()
    async for text in read_metrics(port, _ASKED):
        lines = _LINE.findall(text)
        requests = sum(
            float(value)
            for name, labels, value in lines
            if name.endswith("requests_total") and 'route="post"' in labels
        )
        posts = sum(float(value) for name, _, value in lines if name.endswith("posts_total"))
        found.add((round(requests), round(posts)))
    return found


def worker_pids(server: Server) -> list[int]:
    """Return the ids of the processes that serve now, from the supervisor's log."""
    pids: dict[str, int] = {}
    for line in server.log_text().splitlines():
        told = json.loads(line) if line.startswith("{") else {}
        if told.get("event") == "process_ready" and told.get("work") == "serve":
            pids[told["name"]] = told["pid"]
    return list(pids.values())


async def kill_workers(server: Server, options: Options) -> None:
    """Kill one worker after the other. Before the next kill the worker before must have a successor."""
    rng = random.Random(3)
    for _ in range(_KILLS):
        await asyncio.sleep(options.seconds / _KILLS)
        before = worker_pids(server)
        victim = rng.choice(before)
        os.kill(victim, signal.SIGKILL)
        while set(worker_pids(server)) == set(before):  # noqa: ASYNC110 - another process' log
            await asyncio.sleep(0.05)


async def run_load(server: Server, options: Options, *, kills: bool) -> tuple[Told, tuple[int, int]]:
    """Post for a while. Return what the clients know, and by how much the metrics grew."""
    [before] = await read_counters(server.port)
    told = Told()
    async with asyncio.TaskGroup() as group:
        for seed in range(_CLIENTS):
            group.create_task(post_until_stopped(server.port, seed + 100 * kills, told))
        if kills:
            await kill_workers(server, options)
        else:
            await asyncio.sleep(options.seconds)
        told.stop = True
    after = await read_counters(server.port)
    if len(after) != 1:
        raise AssertionError(f"workers tell different totals: {after}")
    [(requests, posts)] = after
    return told, (requests - before[0], posts - before[1])


def measure(options: Options, folder: Path) -> list[report.Bar]:
    port = free_port()
    with postgres(DURABLE) as database:
        command = [*rankcurve_command(), "serve", "--host", HOST, "--port", str(port), "--workers", str(_WORKERS)]
        command += ["--store", database.create_database("totals"), "--set", "worker_backoff_base_s=0.01"]
        with Server(command, folder, port=port, ready_path="/readyz") as server:
            asyncio.run(create_board(port, BOARD, board_spec([COLUMN])))
            calm, calm_counted = asyncio.run(run_load(server, options, kills=False))
            told, (requests, posts) = asyncio.run(run_load(server, options, kills=True))
    print(f"   nothing killed: {calm.answered:,} of {calm.sent:,} requests answered, {calm_counted} counted")
    print(f"   {_KILLS} kills: {told.answered:,} <= {requests:,} <= {told.sent:,} requests,", end=" ")
    print(f"{told.answered * _POSTS:,} <= {posts:,} <= {told.sent * _POSTS:,} posts")
    off = max(abs(calm_counted[0] - calm.answered), abs(calm_counted[1] - calm.answered * _POSTS))
    return [
        report.Bar("requests and posts counted wrongly where nothing was killed", off, 0, at_most=True),
        report.Bar("answered requests that are not counted", max(0, told.answered - requests), 0, at_most=True),
        report.Bar("answered posts that are not counted", max(0, told.answered * _POSTS - posts), 0, at_most=True),
        report.Bar("counted requests that were not sent", max(0, requests - told.sent), 0, at_most=True),
        report.Bar("counted posts that were not sent", max(0, posts - told.sent * _POSTS), 0, at_most=True),
    ]


def main() -> int:
    options = parse_options(__doc__, seconds=10.0)
    title = f"scraped totals: {_WORKERS} workers, {_KILLS} kills under load of {_CLIENTS} clients"
    return report.run_benchmark(options, title, measure)


if __name__ == "__main__":
    sys.exit(main())
