"""A board made anew from a journal of as many posts as rows are asked for, compared row for row.

Rule kept: what is compared is the whole table, read by sqlite3 before and after; the command is the one that operators
have, its start included in the time.
"""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import report
from benchmarks.boards import BATCH, BOARD, COLUMN, batch_body, batches, create, send_batches, spec
from benchmarks.options import Options, parse
from benchmarks.servers import rankcurve, service

_OWNERS_RATIO = 0.25  # of the posts: owners post four times on average


def _rows(store: Path) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(store)
    try:
        table = connection.execute("SELECT name FROM sqlite_master WHERE name LIKE 'entries_%' AND type = 'table'")
        [[name]] = table.fetchall()
        return connection.execute(f"SELECT * FROM {name} ORDER BY owner").fetchall()
    finally:
        connection.close()


def _spoil(store: Path) -> None:
    connection = sqlite3.connect(store)
    try:
        [[name]] = connection.execute(
            "SELECT name FROM sqlite_master WHERE name LIKE 'entries_%' AND type = 'table'"
        ).fetchall()
        with connection:
            connection.execute(f"DELETE FROM {name} WHERE owner LIKE '%7'")
    finally:
        connection.close()


def measure(options: Options, folder: Path) -> list[report.Bar]:
    store = folder / "board.db"
    owners = max(BATCH, round(options.rows * _OWNERS_RATIO))
    bodies = [batch_body(batch) for batch in batches(owners, seed=1, count=options.rows // BATCH)]
    with service(store) as server:
        asyncio.run(create(server.port, BOARD, spec([COLUMN])))
        asyncio.run(send_batches(server.port, BOARD, bodies, size=BATCH))
    before = _rows(store)
    print(f"   {len(bodies) * BATCH:,} posts, {len(before):,} rows, file {store.stat().st_size / 2**20:.0f} MiB")
    _spoil(store)
    begun = time.perf_counter()
    command = [*rankcurve(), "rebuild", BOARD, "--store", f"sqlite:///{store}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - begun
    print("   " + done.stdout.strip().replace("\n", "\n   "))
    after = _rows(store)
    different = len(set(before) ^ set(after))
    return [
        report.Bar("rows that differ after the rebuild", different, 0, at_most=True),
        report.Bar("posts of the journal a second", len(bodies) * BATCH / seconds, None),
    ]


def main() -> int:
    options = parse(__doc__, rows=1_000_000)
    return report.run(options, f"rebuild: a journal of {options.rows:,} posts", measure)


if __name__ == "__main__":
    sys.exit(main())
