"""Measure the rate of durable posts in batches of 1,000 over HTTP on PostgreSQL, against a bare asyncpg loop.

    python -m benchmarks.batch_posts_postgres [--rows N] [--seconds S] [--rounds N]

Both sides use one server with fsync on. They apply the same batches to boards of 1 M rows with the same content. The
batches are made before the clock starts. The two sides take turns, round by round.

Bars: at least 50 % of the rate of a bare loop with one connection, and 65 % of one with as many connections as the
posters have.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from benchmarks import load, report
from benchmarks.bare_loop import run_bare_loop
from benchmarks.batch_posts import through_http
from benchmarks.boards import BATCH, fill_board
from benchmarks.options import Options
from benchmarks.servers import POSTGRES_SETTINGS, serve_store
from tests.servers import postgres

_CONNECTIONS = 4
_POSTS_PER_S = 20_000  # an assumed rate, from which the number of batches for a round is computed


def measure(options: Options, folder: Path) -> list[report.Bar]:
    count = max(_CONNECTIONS, round(options.seconds * _POSTS_PER_S / BATCH))
    with postgres(POSTGRES_SETTINGS) as cluster, serve_store(cluster.url(), folder) as server:
        asyncio.run(fill_board(server.port, rows=options.rows))
        cluster.run_sql("VACUUM ANALYZE", "CHECKPOINT")
        with run_bare_loop(cluster.url(), options.rows) as bare:
            contestants: dict[str, Callable[[int], load.Figure]] = {
                "posts over HTTP": through_http(server.port, options.rows, count),
                "bare asyncpg, one connection": lambda number: bare.run_round(seed=number, count=count),
                "bare asyncpg, as many connections as HTTP": lambda number: bare.run_round(
                    seed=number, count=count, connections=_CONNECTIONS
                ),
                "posts over HTTP, with post ids": through_http(server.port, options.rows, count, with_ids=True),
            }
            figures = load.compare(contestants, rounds=options.rounds)
    bare_figures = figures["bare asyncpg, one connection"]
    many = figures["bare asyncpg, as many connections as HTTP"]
    http, with_ids = figures["posts over HTTP"], figures["posts over HTTP, with post ids"]
    return [
        report.Bar(f"batches of {BATCH:,} / bare asyncpg, one connection", load.median_ratio(http, bare_figures), 0.5),
        report.Bar(
            f"batches of {BATCH:,} / bare asyncpg, {_CONNECTIONS} connections", load.median_ratio(http, many), 0.65
        ),
        report.Bar(
            "with post ids / bare asyncpg, one connection, without", load.median_ratio(with_ids, bare_figures), None
        ),
    ]


if __name__ == "__main__":
    report.run_program(
        measure, __doc__, "batch posts on PostgreSQL: {rows:,} rows, {rounds} rounds of about {seconds:g} s"
    )
