"""Measure how fast `rankcurve rebuild` makes a board anew from its journal, on both stores, and compare all rows.

python -m benchmarks.rebuild [--rows N]     (as many posts as rows)

Some rows are deleted before the rebuild. The whole table is read by the database driver before the deletion and after
the rebuild, and all rows are compared. Operators use the same command for a rebuild. The start of the command counts as
part of the time.

Bar: no row differs. The rate in posts/s is only reported.
"""

import asyncio
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import asyncpg

from benchmarks import report
from benchmarks.boards import BATCH, BOARD, COLUMN, batch_body, board_spec, create_board, draw_batches, send_batches
from benchmarks.options import Options, parse_options
from benchmarks.servers import POSTGRES_SETTINGS, Server, rankcurve_command, serve_file, serve_store
from tests.servers import postgres

_OWNERS_RATIO = 0.25  # number of owners / number of posts: an owner gets four posts on average

Execute = Callable[[str], list[tuple[object, ...]]]


def _on_sqlite(path: Path) -> Execute:
    def execute(sql: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(path)) as connection, connection:
            return connection.execute(sql).fetchall()

    return execute


def _on_postgres(url: str) -> Execute:
    async def execute(sql: str) -> list[tuple[object, ...]]:
        connection = await asyncpg.connect(url)
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    return lambda sql: asyncio.run(execute(sql))


def _measure_store(
    name: str, store: str, server: Server, bodies: Sequence[bytes], execute: Execute
) -> list[report.Bar]:
    with server:
        asyncio.run(create_board(server.port, BOARD, board_spec([COLUMN])))
        asyncio.run(send_batches(server.port, BOARD, bodies, size=BATCH))
    tables = (
        "sqlite_master WHERE type = 'table' AND name" if store.startswith("sqlite") else "pg_tables WHERE tablename"
    )
    column = "name" if store.startswith("sqlite") else "tablename"
    [[table]] = execute(f"SELECT {column} FROM {tables} LIKE 'entries_%'")
    before = execute(f"SELECT * FROM {table} ORDER BY owner")
    execute(f"DELETE FROM {table} WHERE owner LIKE '%7'")
    posts, lost = len(bodies) * BATCH, len(before) - len(execute(f"SELECT * FROM {table}"))
    print(f"   {name}: {posts:,} posts, {len(before):,} rows, {lost:,} of them deleted")
    begun = time.perf_counter()
    command = [*rankcurve_command(), "rebuild", BOARD, "--store", store]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - begun
    print("   " + done.stdout.strip().replace("\n", "\n   "))
    different = len(set(before) ^ set(execute(f"SELECT * FROM {table}")))
    return [
        report.Bar(f"rows deleted before, {name}", lost, 1),
        report.Bar(f"rows that differ after the rebuild, {name}", different, 0, at_most=True),
        report.Bar(f"posts of the journal a second, {name}", posts / seconds, None),
    ]


def measure(options: Options, folder: Path) -> list[report.Bar]:
    owners = max(BATCH, round(options.rows * _OWNERS_RATIO))
    bodies = [batch_body(batch) for batch in draw_batches(owners, seed=1, count=options.rows // BATCH)]
    path = folder / "board.db"
    bars = _measure_store("SQLite", f"sqlite:///{path}", serve_file(path), bodies, _on_sqlite(path))
    with postgres(POSTGRES_SETTINGS) as cluster:
        url = cluster.url()
        bars += _measure_store("PostgreSQL", url, serve_store(url, folder), bodies, _on_postgres(url))
    return bars


def main() -> int:
    options = parse_options(__doc__, rows=1_000_000)
    return report.run_benchmark(options, f"rebuild: a journal of {options.rows:,} posts", measure)


if __name__ == "__main__":
    sys.exit(main())
