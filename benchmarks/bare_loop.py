"""The baseline for batch posts: the same batches in a bare loop over a database driver, in a process of its own.

The table and its index are like those of the service's board; on SQLite, the pragmas are the same, too. Each batch is
one transaction. The loop reads the rows (and locks them on PostgreSQL), merges the values, writes a row only if it
still has the version that was read, and does nothing else. The SQL is written out here because the loop must not use
the project's own layers.

The process runs one round at a time. It reads a line of JSON that describes the round ("seed", "count", "size" and
"connections"), and then prints the seconds that the round took.
"""

import asyncio
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice

import asyncpg
import uvloop

from benchmarks import load
from benchmarks.boards import BATCH, draw_batches, draw_values, owner_at
from benchmarks.servers import PROJECT
from config import Settings
from storage.engines.sqlite import PAGE_BYTES

# A value is stored as a text of 16 digits: `_ZERO` plus the value.
_ZERO = 10**15
# The page size and the checkpoint interval are those of the service. The cache is larger than the service's default, so
# that it holds the whole table.
_PRAGMAS = (
    f"page_size={PAGE_BYTES}",
    "journal_mode=WAL",
    "synchronous=FULL",
    "cache_size=-262144",
    f"wal_autocheckpoint={Settings.checkpoint_pages}",
    "temp_store=MEMORY",
)
_SQLITE_TABLE = "CREATE TABLE b1 (owner TEXT NOT NULL PRIMARY KEY, updated_at INTEGER NOT NULL, c1 TEXT) WITHOUT ROWID"
_SQLITE_INDEX = "CREATE INDEX b1_c1 ON b1 (c1 DESC, owner) WHERE c1 IS NOT NULL"
_SQLITE_INSERT = "INSERT INTO b1 (owner, updated_at, c1) VALUES (?, ?, ?)"
_SQLITE_SELECT = "SELECT updated_at, c1 FROM b1 WHERE owner = ?"
_SQLITE_UPSERT = (
    "INSERT INTO b1 (owner, updated_at, c1) VALUES (?, ?, ?) ON CONFLICT (owner) "
    "DO UPDATE SET updated_at = excluded.updated_at, c1 = excluded.c1 WHERE updated_at = ?"
)
_POSTGRES_TABLE = (
    'CREATE TABLE bare (owner text COLLATE "C" NOT NULL PRIMARY KEY, updated_at bigint NOT NULL, c1 text COLLATE "C")'
)
_POSTGRES_INDEX = "CREATE INDEX bare_c1 ON bare (c1 DESC, owner) WHERE c1 IS NOT NULL"
_POSTGRES_SELECT = "SELECT owner, updated_at, c1 FROM bare WHERE owner = ANY($1) ORDER BY owner FOR NO KEY UPDATE"
_POSTGRES_UPDATE = (
    "UPDATE bare SET updated_at = v.next, c1 = v.c1 FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[]) "
    "AS v(owner, expected, next, c1) WHERE bare.owner = v.owner AND bare.updated_at = v.expected"
)


Batches = list[list[tuple[str, int]]]  # of each post: the owner, and the amount to add


class BareLoop:
    """A running process of this module.

    `place` is the URL of a PostgreSQL database or the path of a SQLite file, and `rows` is the size of the board in it.
    """

    def __init__(self, place: str, rows: int) -> None:
        command = [sys.executable, "-m", "benchmarks.bare_loop", place, str(rows)]
        self._process = subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise load.LoadFailedError("the bare loop ended")
        return line

    def run_round(self, *, seed: int, count: int, size: int = BATCH, connections: int = 1) -> load.Figure:
        """Run one round of `count` batches of `size` posts and return its figure."""
        assert self._process.stdin is not None
        order = {"seed": seed, "count": count, "size": size, "connections": connections}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return load.Figure(count * size / float(self._line()))

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def run_bare_loop(place: str, rows: int) -> Iterator[BareLoop]:
    loop = BareLoop(place, rows)
    try:
        yield loop
    finally:
        loop.stop()


def _board_cells(rows: int) -> Iterator[tuple[str, int, str]]:
    return ((owner_at(index), 1, f"{_ZERO + value:016d}") for index, value in enumerate(draw_values(rows)))


def _make_sqlite_board(path: str, rows: int) -> sqlite3.Connection:
    """Create the board of `boards.draw_values` in a file of its own, with its index, and checkpoint the file."""
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=512)
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    connection.execute(_SQLITE_TABLE)
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(_SQLITE_INSERT, _board_cells(rows))
    connection.execute(_SQLITE_INDEX)
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return connection


def _apply_to_sqlite(connection: sqlite3.Connection, batch: list[tuple[str, int]]) -> None:
    """Merge a batch into the table in one durable transaction, writing a row only if its version is the one read."""
    connection.execute("BEGIN IMMEDIATE")
    now_us = time.time_ns() // 1000
    rows = []
    for name, more in batch:
        updated_at, text = connection.execute(_SQLITE_SELECT, (name,)).fetchone()
        rows.append((name, max(now_us, updated_at + 1), f"{int(text) + more:016d}", updated_at))
    written = connection.executemany(_SQLITE_UPSERT, rows).rowcount
    connection.execute("COMMIT")
    assert written == len(batch), "a row was changed by someone else"


async def _make_postgres_board(connection: asyncpg.Connection, rows: int) -> None:
    """Create the board of `boards.draw_values` in a table of its own, with its index and fresh statistics."""
    await connection.execute("DROP TABLE IF EXISTS bare")
    await connection.execute(_POSTGRES_TABLE)
    await connection.execute(_POSTGRES_INDEX)
    cells = _board_cells(rows)
    while chunk := list(islice(cells, 10_000)):
        await connection.copy_records_to_table("bare", records=chunk)
    await connection.execute("VACUUM ANALYZE bare")


async def _apply_to_postgres(connection: asyncpg.Connection, batch: list[tuple[str, int]]) -> None:
    """Merge a batch into the table in one durable transaction, writing a row only if its version is the one read."""
    async with connection.transaction():
        found = await connection.fetch(_POSTGRES_SELECT, [name for name, _ in batch])
        now_us = time.time_ns() // 1000
        more = dict(batch)
        names = [row[0] for row in found]
        expected = [row[1] for row in found]
        later = [max(now_us, row[1] + 1) for row in found]
        texts = [f"{int(row[2]) + more[row[0]]:016d}" for row in found]
        done = await connection.execute(_POSTGRES_UPDATE, names, expected, later, texts)
    assert done == f"UPDATE {len(batch)}", "a row was changed by someone else"


def _run_rounds(rows: int, run: Callable[[Batches, int], float]) -> None:
    """Run a round for each line of standard input until the input ends, and print the seconds that each round took."""
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        batches = draw_batches(rows, seed=order["seed"], count=order["count"], size=order["size"])
        print(run(batches, order["connections"]), flush=True)


def _serve_sqlite(path: str, rows: int) -> None:
    connection = _make_sqlite_board(path, rows)

    def run(batches: Batches, _connections: int) -> float:
        # The service makes its checkpoints beside its posts. This loop makes its own between rounds, unmeasured.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        begun = time.perf_counter()
        for batch in batches:
            _apply_to_sqlite(connection, batch)
        return time.perf_counter() - begun

    _run_rounds(rows, run)
    connection.close()
    os.unlink(path)


def _serve_postgres(url: str, rows: int) -> None:
    async def connect() -> asyncpg.Connection:
        return await asyncpg.connect(url)

    async def apply_all(connections: list[asyncpg.Connection], batches: Batches) -> float:
        left = iter(batches)

        async def apply_some(connection: asyncpg.Connection) -> None:
            for batch in left:
                await _apply_to_postgres(connection, batch)

        begun = time.perf_counter()
        await asyncio.gather(*map(apply_some, connections))
        return time.perf_counter() - begun

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        connections = [runner.run(connect())]
        runner.run(_make_postgres_board(connections[0], rows))

        def run(batches: Batches, connections_used: int) -> float:
            while len(connections) < connections_used:
                connections.append(runner.run(connect()))
            return runner.run(apply_all(connections[:connections_used], batches))

        _run_rounds(rows, run)


if __name__ == "__main__":
    _place, _rows = sys.argv[1], int(sys.argv[2])
    (_serve_postgres if _place.startswith("postgres") else _serve_sqlite)(_place, _rows)
