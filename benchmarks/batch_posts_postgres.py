"""Measure the rate of durable posts in batches of 1,000 over HTTP on PostgreSQL, against a bare asyncpg loop.

    python -m benchmarks.batch_posts_postgres [--rows N] [--seconds S] [--rounds N]

Both sides use one server with fsync on. They apply the same batches to boards of 1 M rows with the same content. The
batches are made before the clock starts. The two sides take turns, round by round.

Bars: at least 50 % of the rate of a bare loop with one connection, and 65 % of one with as many connections as the
posters have.
"""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import load, report
from benchmarks.bare_loop import run_bare_loop
from benchmarks.batch_posts import through_http
from benchmarks.boards import BATCH, BOARD, COLUMN, board_spec, draw_values, fill_board, owner_at
from benchmarks.options import Options, parse_options
from benchmarks.servers import POSTGRES_SETTINGS, serve_store
from tests.servers import postgres

_CONNECTIONS = 4
_POSTS_PER_S = 20_000  # an assumed rate, from which the number of batches for a round is computed


def _fill(port: int, rows: int) -> None:
    owners = [owner_at(index) for index in range(rows)]
    took_s = asyncio.run(
        fill_board(port, BOARD, owners=owners, named={COLUMN: draw_values(rows)}, body=board_spec([COLUMN]))
    )
    print(f"   filled {rows:,} rows over HTTP in {took_s:.0f} s, {rows / took_s:,.0f} rows/s", flush=True)


def measure(options: Options, folder: Path) -> list[report.Bar]:
    count = max(_CONNECTIONS, round(options.seconds * _POSTS_PER_S / BATCH))
    with postgres(POSTGRES_SETTINGS) as cluster, serve_store(cluster.url(), folder) as server:
        _fill(server.port, options.rows)
        cluster.run_sql("VACUUM ANALYZE", "CHECKPOINT")
        with run_bare_loop("bare_asyncpg", cluster.url(), options.rows) as bare:
            contestants: dict[str, Callable[[int], load.Figure]] = {
                "posts over HTTP": through_http(server.port, options.rows, count),
                "bare asyncpg, one connection": lambda number: bare.run_round(seed=number, count=count, connections=1),
                "bare asyncpg, as many connections as HTTP": lambda number: bare.run_round(
                    seed=number, count=count, connections=_CONNECTIONS
                ),
                "posts over HTTP, with post ids": through_http(server.port, options.rows, count, with_ids=True),
            }
            figures = load.run_alternately(contestants, rounds=options.rounds)
    report.print_table(load.COLUMNS[:4], [load.table_row(name, found)[:4] for name, found in figures.items()])
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


def main() -> int:
    options = parse_options(__doc__)
    title = f"batch posts on PostgreSQL: {options.rows:,} rows, {options.rounds} rounds of about {options.seconds:g} s"
    return report.run_benchmark(options, title, measure)


if __name__ == "__main__":
    sys.exit(main())
