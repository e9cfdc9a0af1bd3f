"""Measure the rate of posts through the Python client's buffer, against raw batches of the same size.

    python -m benchmarks.buffered_posts [--rows N] [--seconds S] [--rounds N]

All contestants post the same stats to the same board over one connection. Each request has 1,000 posts, and each post
has an id and a time. The raw contestant builds and encodes each batch, and sends it with a plain HTTP client that does
nothing else: no retry, no result for each post. The contestants take turns, round by round.

Bar: the buffer reaches at least 80 % of the rate of raw batches. The buffers of the async client and with a spool are
reported.
"""

import asyncio
import contextlib
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rankcurve import AsyncClient, Client

from benchmarks import load, report
from benchmarks.boards import BATCH, BOARD, owner_at, prepare_store
from benchmarks.client import BadAnswerError, Connection
from benchmarks.options import Options, parse_options
from benchmarks.servers import Server, serve_file

_OWNERS_DRAWN = 100_000


def draw_posts(rows: int, number: int) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield owners and stats without end."""
    rng = random.Random(number)
    drawn = [(owner_at(rng.randrange(rows)), {"xp": rng.randrange(1, 1000)}) for _ in range(_OWNERS_DRAWN)]
    return itertools.cycle(drawn)


def post_raw(server: Server, options: Options, number: int) -> load.Figure:
    async def post() -> int:
        posts, ids, sent = draw_posts(options.rows, number), itertools.count(), 0
        connection, until_s = Connection(server.port), time.perf_counter() + options.seconds
        path = f"/v1/leaderboards/{BOARD}/posts"
        while time.perf_counter() < until_s:
            batch = [
                {"owner": owner, "stats": stats, "post_id": f"raw-{number}-{next(ids)}", "at": datetime.now(UTC)}
                for owner, stats in itertools.islice(posts, BATCH)
            ]
            status, answer = await connection.call("POST", path, msgspec.json.encode({"posts": batch}))
            if status != 200:
                raise BadAnswerError(answer.decode())
            sent += BATCH
        connection.close()
        return sent

    begun = time.perf_counter()
    return load.Figure(asyncio.run(post()) / (time.perf_counter() - begun))


def post_buffered(server: Server, options: Options, number: int, *, spool: bool) -> load.Figure:
    posts, sent = draw_posts(options.rows, number), 0
    begun = time.perf_counter()
    until_s = begun + options.seconds
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=options.folder)) if spool else None
        client = stack.enter_context(Client(server.url))
        buffer = stack.enter_context(client.buffer(BOARD, posts_per_request=BATCH, spool=folder))
        while time.perf_counter() < until_s:
            for owner, stats in itertools.islice(posts, 100):
                buffer.submit(owner, stats)
            sent += 100
        buffer.close()  # inside the measured time: every post is settled
        took_s = time.perf_counter() - begun
    return load.Figure(sent / took_s)


def post_buffered_async(server: Server, options: Options, number: int) -> load.Figure:
    async def post() -> float:
        posts, sent = draw_posts(options.rows, number), 0
        begun = time.perf_counter()
        async with AsyncClient(server.url) as client, client.buffer(BOARD, posts_per_request=BATCH) as buffer:
            while time.perf_counter() < begun + options.seconds:
                for owner, stats in itertools.islice(posts, 100):
                    await buffer.submit(owner, stats)
                sent += 100
            await buffer.close()
            return sent / (time.perf_counter() - begun)

    return load.Figure(asyncio.run(post()))


def measure(options: Options, folder: Path) -> list[report.Bar]:
    store = prepare_store(options, folder, rows=options.rows)
    with serve_file(store) as server:
        contestants: dict[str, Callable[[int], load.Figure]] = {
            "raw batches": lambda number: post_raw(server, options, number),
            "buffer": lambda number: post_buffered(server, options, number, spool=False),
            "buffer with a spool": lambda number: post_buffered(server, options, number, spool=True),
            "buffer of the async client": lambda number: post_buffered_async(server, options, number),
        }
        figures = load.run_alternately(contestants, rounds=options.rounds)
    report.print_table(load.COLUMNS[:4], [load.table_row(name, found)[:4] for name, found in figures.items()])
    raw = figures.pop("raw batches")
    return [
        report.Bar(
            f"{name} / raw batches of {BATCH:,}", load.median_ratio(found, raw), 0.8 if name == "buffer" else None
        )
        for name, found in figures.items()
    ]


def main() -> int:
    options = parse_options(__doc__, rows=100_000)
    title = f"buffered posts: {options.rows:,} rows, {options.rounds} rounds of {options.seconds:g} s"
    return report.run_benchmark(options, title, measure)


if __name__ == "__main__":
    sys.exit(main())
