"""Measure how fast a post is taken back, and how fast `rankcurve rebuild` recreates a board from its journal.

python -m benchmarks.rebuild [--rows N]     (as many posts as rows)

One owner has 1,000 posts, spread one by one between the batches of the others over all of the journal. Some of these
posts are voided while nobody posts: the oldest, the newest and others at equal distances.

Some rows are deleted before the rebuild. The whole table is read by the database driver before the deletion and after
the rebuild, and all rows are compared. Operators use the same command for a rebuild. The start of the command counts as
part of the time.

Bars: half of the posts are taken back in at most 50 ms each, and no row differs after the rebuild, not even that of
the owner whose posts were taken back. The other figures are only reported.
"""

import asyncio
import subprocess
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks import report
from benchmarks.boards import BATCH, BOARD, COLUMN, batch_body, board_spec, create_board, draw_batches
from benchmarks.client import Connection
from benchmarks.options import Options
from benchmarks.servers import POSTGRES_SETTINGS, rankcurve_command, run_sql, serve_store
from service.stores import SQLITE_PREFIX
from tests.servers import postgres

_RUNS = 1_000  # posts of the owner whose posts are taken back
_VOIDED = 40
_RUNNER = "runner"
_OWNERS_RATIO = 0.25  # number of owners / number of posts: an owner gets four posts on average


async def _post_runs(port: int, bodies: Sequence[bytes]) -> None:
    """Post the batches, and between them the runs of one owner, each run with an id."""
    connection, sent = Connection(port), 0
    for number, body in enumerate(bodies, 1):
        await connection.call("POST", f"/v1/leaderboards/{BOARD}/posts", body)
        while sent < _RUNS * number // len(bodies):
            run = {"owner": _RUNNER, "stats": {COLUMN: sent % 7}, "post_id": str(sent)}
            await connection.call_ok("POST", f"/v1/leaderboards/{BOARD}/posts", run)
            sent += 1


async def _void_runs(port: int) -> list[float]:
    """Void some of the runs. Return the milliseconds that each request took."""
    connection, times_ms = Connection(port), []
    await connection.call_ok("GET", f"/v1/leaderboards/{BOARD}/entries/{_RUNNER}")
    for index in range(_VOIDED):
        path = f"/v1/leaderboards/{BOARD}/posts/{index * (_RUNS - 1) // (_VOIDED - 1)}?owner={_RUNNER}"
        begun = time.perf_counter()
        await connection.call_ok("DELETE", path)
        times_ms.append((time.perf_counter() - begun) * 1e3)
    return times_ms


def _measure_store(name: str, store: str, folder: Path, bodies: Sequence[bytes]) -> list[report.Bar]:
    execute = partial(run_sql, store)
    with serve_store(store, folder) as server:
        asyncio.run(create_board(server.port, BOARD, board_spec([COLUMN])))
        asyncio.run(_post_runs(server.port, bodies))
        times_ms = sorted(asyncio.run(_void_runs(server.port)))
    catalog = "name FROM sqlite_master WHERE type = 'table' AND name"
    catalog = catalog if store.startswith(SQLITE_PREFIX) else "tablename FROM pg_tables WHERE tablename"
    [[table]] = execute(f"SELECT {catalog} LIKE 'entries_%'")
    before = execute(f"SELECT * FROM {table} ORDER BY owner")
    execute(f"DELETE FROM {table} WHERE owner LIKE '%7'")
    posts, lost = len(bodies) * BATCH + _RUNS, len(before) - len(execute(f"SELECT * FROM {table}"))
    print(f"   {name}: {posts:,} posts, {len(before):,} rows, {lost:,} of them deleted")
    begun = time.perf_counter()
    command = [*rankcurve_command(), "rebuild", BOARD, "--store", store]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - begun
    print("   " + done.stdout.strip().replace("\n", "\n   "))
    different = len(set(before) ^ set(execute(f"SELECT * FROM {table}")))
    return [
        report.Bar(f"a post is taken back, median, {name}", times_ms[_VOIDED // 2], 50, " ms", at_most=True),
        report.Bar(f"a post is taken back, slowest, {name}", times_ms[-1], None, " ms"),
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
