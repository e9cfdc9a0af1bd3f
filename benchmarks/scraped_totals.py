"""Check that the totals of /metrics are still correct after ten workers of a node were killed under load.

    python -m benchmarks.scraped_totals [--seconds S]

Eight clients post. The clients' own counts of requests and posts are compared with the metrics of every worker, once
with kills and once without.

Bars: for posts and for requests, answered <= counted in the metrics <= sent. Without kills all three counts are equal.
"""

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
_POSTS = 10  # posts per request
_KILLS = 10
_ASKED = 6  # reads of the metrics, each on a new connection; enough to reach every worker
_LINE = re.compile(r"^(rankcurve_(?:posts|requests)_total)\{([^}]*)\} (\S+)$", re.MULTILINE)


@dataclass(slots=True)
class ClientCounts:
    sent: int = 0
    answered: int = 0
    stop: bool = False


async def post_until_stopped(port: int, seed: int, counts: ClientCounts) -> None:
    """Post until `counts.stop` is set. If a connection is lost, open a new one, but do not repeat the request."""
    connection, rng, number = Connection(port), random.Random(seed), 0
    while not counts.stop:
        number += 1
        posts = [
            {"owner": owner_at(rng.randrange(10_000)), "stats": {COLUMN: 1}, "post_id": f"{seed}/{number}/{index}"}
            for index in range(_POSTS)
        ]
        counts.sent += 1
        try:
            status, _ = await connection.call(
                "POST", f"/v1/leaderboards/{BOARD}/posts", json.dumps({"posts": posts}).encode()
            )
        except (OSError, EOFError):
            await asyncio.sleep(0.01)
            continue
        counts.answered += status == 200
    connection.close()


async def read_counters(port: int) -> set[tuple[int, int]]:
    """Read the metrics over several connections. Return the different pairs (requests, posts)."""
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
    """Return the id of each worker's current process, as the supervisor logged it."""
    pids: dict[str, int] = {}
    for line in server.log_text().splitlines():
        logged = json.loads(line) if line.startswith("{") else {}
        if logged.get("event") == "process_ready" and logged.get("work") == "serve":
            pids[logged["name"]] = logged["pid"]
    return list(pids.values())


async def kill_workers(server: Server, options: Options) -> None:
    """Kill one worker after the other. Each killed worker must be replaced before the next kill."""
    rng = random.Random(3)
    for _ in range(_KILLS):
        await asyncio.sleep(options.seconds / _KILLS)
        before = worker_pids(server)
        victim = rng.choice(before)
        os.kill(victim, signal.SIGKILL)
        while set(worker_pids(server)) == set(before):  # noqa: ASYNC110 - another process' log
            await asyncio.sleep(0.05)


async def run_load(server: Server, options: Options, *, kills: bool) -> tuple[ClientCounts, tuple[int, int]]:
    """Run the clients, with or without kills.

    Return the counts of the clients, and how much (requests, posts) have grown in the metrics.
    """
    [before] = await read_counters(server.port)
    counts = ClientCounts()
    async with asyncio.TaskGroup() as group:
        for seed in range(_CLIENTS):
            group.create_task(post_until_stopped(server.port, seed + 100 * kills, counts))
        if kills:
            await kill_workers(server, options)
        else:
            await asyncio.sleep(options.seconds)
        counts.stop = True
    after = await read_counters(server.port)
    if len(after) != 1:
        raise AssertionError(f"workers tell different totals: {after}")
    [(requests, posts)] = after
    return counts, (requests - before[0], posts - before[1])


def measure(options: Options, folder: Path) -> list[report.Bar]:
    port = free_port()
    with postgres(DURABLE) as database:
        command = [*rankcurve_command(), "serve", "--host", HOST, "--port", str(port), "--workers", str(_WORKERS)]
        command += ["--store", database.create_database("totals"), "--set", "worker_backoff_base_s=0.01"]
        with Server(command, folder, port=port, ready_path="/readyz") as server:
            asyncio.run(create_board(port, BOARD, board_spec([COLUMN])))
            calm, calm_counted = asyncio.run(run_load(server, options, kills=False))
            counts, (requests, posts) = asyncio.run(run_load(server, options, kills=True))
    print(f"   nothing killed: {calm.answered:,} of {calm.sent:,} requests answered, {calm_counted} counted")
    print(f"   {_KILLS} kills: {counts.answered:,} <= {requests:,} <= {counts.sent:,} requests,", end=" ")
    print(f"{counts.answered * _POSTS:,} <= {posts:,} <= {counts.sent * _POSTS:,} posts")
    off = max(abs(calm_counted[0] - calm.answered), abs(calm_counted[1] - calm.answered * _POSTS))
    return [
        report.Bar("requests and posts counted wrongly where nothing was killed", off, 0, at_most=True),
        report.Bar("answered requests that are not counted", max(0, counts.answered - requests), 0, at_most=True),
        report.Bar("answered posts that are not counted", max(0, counts.answered * _POSTS - posts), 0, at_most=True),
        report.Bar("counted requests that were not sent", max(0, requests - counts.sent), 0, at_most=True),
        report.Bar("counted posts that were not sent", max(0, posts - counts.sent * _POSTS), 0, at_most=True),
    ]


def main() -> int:
    options = parse_options(__doc__, seconds=10.0)
    title = f"scraped totals: {_WORKERS} workers, {_KILLS} kills under load of {_CLIENTS} clients"
    return report.run_benchmark(options, title, measure)


if __name__ == "__main__":
    sys.exit(main())
