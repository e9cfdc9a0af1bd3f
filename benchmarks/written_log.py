"""Measure how much PostgreSQL writes to its log for a post, and how fast one reader follows the journal.

    python -m benchmarks.written_log [--rows N] [--seconds S]

Batches of 1,000 posts change random owners of one board. After a checkpoint, PostgreSQL writes each page as a whole
when it is changed first, so posts right after a checkpoint cost most. The reader asks for pages of 1,000 lines, one
after the other, and does nothing with them.

All figures are only reported; there is no bar.
"""

import asyncio
import json
import time
from pathlib import Path

from benchmarks import report
from benchmarks.batch_posts import through_http
from benchmarks.boards import BATCH, BOARD, COLUMN, board_spec, create_board
from benchmarks.bulk import load_rows
from benchmarks.client import Connection
from benchmarks.options import Options
from benchmarks.servers import POSTGRES_SETTINGS, run_sql, serve_store
from tests.servers import postgres

_PARTS = 3  # of the posts after a checkpoint
_POSTS_PER_S = 10_000  # an assumed rate, from which the number of batches is computed


def _measure_log(url: str, port: int, rows: int, count: int, *, with_ids: bool) -> list[float]:
    """Post after a checkpoint. Return the kilobytes of log that a post of each part costs."""
    run_sql(url, "CHECKPOINT")
    costs = []
    for part in range(_PARTS):
        begun = _find_end(url)
        through_http(port, rows, count, with_ids=with_ids, name=f"{with_ids}")(part + 1)
        costs.append((_find_end(url) - begun) / (count * BATCH) / 1_000)
    return costs


def _find_end(url: str) -> float:
    """Return the number of bytes that the server has written to its log."""
    return float(run_sql(url, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")[0][0])


async def _follow_journal(port: int) -> float:
    """Read the whole journal, and return the number of lines read per second."""
    connection, lines, after, begun = Connection(port), 0, "0", time.perf_counter()
    while True:
        _, answer = await connection.call("GET", f"/v1/journal?after={after}&limit=1000")
        found = answer.splitlines()
        if not found:
            return lines / (time.perf_counter() - begun)
        lines, after = lines + len(found), json.loads(found[-1])["seq"]


def measure(options: Options, folder: Path) -> list[report.Bar]:
    count = max(10, round(options.seconds * _POSTS_PER_S / BATCH))
    bars = []
    for compression in ("off", "lz4"):
        with postgres({**POSTGRES_SETTINGS, "wal_compression": compression}) as cluster:
            url = cluster.url()
            with serve_store(url, folder, jobs="none") as server:
                asyncio.run(create_board(server.port, BOARD, board_spec([COLUMN])))
                asyncio.run(load_rows(url, options.rows))
                for with_ids in (False, True):
                    costs = _measure_log(url, server.port, options.rows, count, with_ids=with_ids)
                    kind = f"wal_compression {compression}, {'with' if with_ids else 'without'} post ids"
                    bars.append(report.Bar(f"{kind}: log of a post after a checkpoint", costs[0], None, " kB"))
                    bars.append(report.Bar(f"{kind}: {count * BATCH:,} posts later", costs[-1], None, " kB"))
                rate = asyncio.run(_follow_journal(server.port))
    return [*bars, report.Bar("journal, one reader", rate, None, " lines a second")]


if __name__ == "__main__":
    report.run_program(measure, __doc__, "PostgreSQL's log of a post: {rows:,} rows", rows=2_000_000)
