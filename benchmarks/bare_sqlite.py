"""The baseline of batch posts on SQLite: the same batches in a bare sqlite3 loop, in a process of its own.

`batch_posts` starts this process. The table, the index and the pragmas are like those of the service, and each batch is
one transaction. The loop reads the rows, merges the values, and writes a row only if it still has the version that was
read. The loop does nothing else. The SQL is written out here, because the loop must not use the project's own layers.
"""

import json
import os
import sqlite3
import sys
import time

from benchmarks.boards import draw_batches, draw_values, owner_at

# The cache size and the checkpoint interval are the service's defaults of `sqlite_cache_mib` and `checkpoint_pages`.
# A value is stored as a text of 16 digits: `_ZERO` plus the value.
_PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "cache_size=-262144",
    "wal_autocheckpoint=100000",
    "temp_store=MEMORY",
)
_ZERO = 10**15
_TABLE = "CREATE TABLE b1 (owner TEXT NOT NULL PRIMARY KEY, updated_at INTEGER NOT NULL, c1 TEXT) WITHOUT ROWID"
_INDEX = "CREATE INDEX b1_c1 ON b1 (c1 DESC, owner) WHERE c1 IS NOT NULL"
_INSERT = "INSERT INTO b1 (owner, updated_at, c1) VALUES (?, ?, ?)"
_SELECT = "SELECT updated_at, c1 FROM b1 WHERE owner = ?"
_UPSERT = (
    "INSERT INTO b1 (owner, updated_at, c1) VALUES (?, ?, ?) ON CONFLICT (owner) "
    "DO UPDATE SET updated_at = excluded.updated_at, c1 = excluded.c1 WHERE updated_at = ?"
)


def make_board(path: str, rows: int) -> sqlite3.Connection:
    """Create the board of `boards.draw_values` in a file of its own, with its index, and checkpoint the file."""
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=512)
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    connection.execute(_TABLE)
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(
        _INSERT, ((owner_at(index), 1, f"{_ZERO + value:016d}") for index, value in enumerate(draw_values(rows)))
    )
    connection.execute(_INDEX)
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return connection


def apply_batch(connection: sqlite3.Connection, batch: list[tuple[str, int]]) -> None:
    """Merge a batch into the table in one durable transaction. A row is written only if its version is the one read."""
    connection.execute("BEGIN IMMEDIATE")
    now_us = time.time_ns() // 1000
    rows = []
    for name, more in batch:
        updated_at, text = connection.execute(_SELECT, (name,)).fetchone()
        rows.append((name, max(now_us, updated_at + 1), f"{int(text) + more:016d}", updated_at))
    written = connection.executemany(_UPSERT, rows).rowcount
    connection.execute("COMMIT")
    assert written == len(batch), "a row was changed by someone else"


def main(path: str, rows: int) -> None:
    """Run a round for each line of standard input, until the input ends.

    A line is a JSON object with "seed", "count" and "size". After each round, print a line with the seconds that the
    round took.
    """
    connection = make_board(path, rows)
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        work = draw_batches(rows, seed=order["seed"], count=order["count"], size=order["size"])
        begun = time.perf_counter()
        for batch in work:
            apply_batch(connection, batch)
        print(time.perf_counter() - begun, flush=True)
        # The service makes its checkpoints beside its posts. This loop makes its own between rounds, unmeasured.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    os.unlink(path)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
