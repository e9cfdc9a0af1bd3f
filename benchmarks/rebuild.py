"""Measure how fast `rankcurve rebuild` makes a board anew from its journal, on both stores, and compare all rows.

python -m benchmarks.rebuild [--rows N]     (as many posts as rows)

Some rows are deleted before the rebuild. The whole table is read by the database driver before the deletion and after
the rebuild, and all rows are compared. Operators use the same command for a rebuild. The start of the command counts as
part of the time.

Bar: no row differs. The rate in posts/s is only reported.
"""

import asyncio
import subprocess
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks import report
from benchmarks.boards import BATCH, BOARD, COLUMN, batch_body, board_spec, create_board, draw_batches, send_batches
from benchmarks.options import Options
from benchmarks.servers import POSTGRES_SETTINGS, rankcurve_command, run_sql, serve_store
from service.stores import SQLITE_PREFIX
from tests.servers import postgres

_OWNERS_RATIO = 0.25  # number of owners / number of posts: an owner gets four posts on average


def _measure_store(name: str, store: str, folder: Path, bodies: Sequence[bytes]) -> list[report.Bar]:
    execute = partial(run_sql, store)
    with serve_store(store, folder) as server:
        asyncio.run(create_board(server.port, BOARD, board_spec([COLUMN])))
        asyncio.run(send_batches(server.port, BOARD, bodies, size=BATCH))
    catalog = "name FROM sqlite_master WHERE type = 'table' AND name"
    catalog = catalog if store.startswith(SQLITE_PREFIX) else "tablename FROM pg_tables WHERE tablename"
    [[table]] = execute(f"SELECT {catalog} LIKE 'entries_%'")
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
    bars = _measure_store("SQLite", f"{SQLITE_PREFIX}{folder}/board.db", folder, bodies)
    with postgres(POSTGRES_SETTINGS) as cluster:
        return bars + _measure_store("PostgreSQL", cluster.url(), folder, bodies)


if __name__ == "__main__":
    report.run_program(measure, __doc__, "rebuild: a journal of {rows:,} posts")
