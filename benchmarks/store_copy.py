"""Copy a store to PostgreSQL and back with `rankcurve store copy`, which is killed ten times on each way.

python -m benchmarks.store_copy [--rows N] [--kills N]

A SQLite store has a board of 1,000,000 owners. Each has posted twice, the second time with a post id, so the journal
has 2,000,000 posts. Small boards, a family and leases are beside it. The command is killed (SIGKILL) at random times,
and started again each time. Afterwards another program, which shares no code with the command, reads both stores table
by table in the order of their keys, and compares the rows.

Bars: on each way, rows that differ 0, and resident memory of the command <= 300 MiB. The minutes are reported: those of
all runs of the command together.
"""

import asyncio
import itertools
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg

from benchmarks import report
from benchmarks.boards import BATCH, BOARD, batch_body, fill_board, keep_store, owner_at, send_batches
from benchmarks.client import call_service
from benchmarks.options import Options
from benchmarks.servers import POSTGRES_SETTINGS, PROJECT, serve_file
from service.stores import SQLITE_PREFIX
from tests.servers import postgres

KILLS = 10
MEMORY_MIB_MAX = 300
_ROWS_A_SECOND = 20_000  # of the board, about: says when kills come, and nothing more
_PREFETCHED = 2_000
_SMALL = 20


class Copied(NamedTuple):
    """The cost of copying a store in one direction, over all runs of the command."""

    seconds: float
    kills: int
    memory_mib: float  # the most of a run


async def fill(port: int, rows: int) -> None:
    """Fill the board by two posts for every owner, and create small things beside it."""
    await fill_board(port, rows=rows)
    owners = [(owner_at(index), 1) for index in range(rows)]
    bodies = (
        batch_body(owners[start : start + BATCH], post_id_prefix=f"again{start}") for start in range(0, rows, BATCH)
    )
    await send_batches(port, BOARD, bodies)
    column = {"name": "xp", "sorted": True, "merge": "sum"}
    for number in range(_SMALL):
        small: dict[str, object] = {"columns": [column], "table": "shared" if number % 2 else "own"}
        await call_service(port, "PUT", f"/v1/leaderboards/small{number}", small)
        await send_batches(port, f"small{number}", [batch_body(owners[:BATCH], post_id_prefix="small")])
    family: dict[str, object] = {"columns": [column], "periods": ["all", "day"], "facets": [["org"]]}
    await call_service(port, "PUT", "/v1/families/cup", family)
    await send_batches(port, "cup", [batch_body(owners[:BATCH], post_id_prefix="cup", faceted=True)], kind="families")
    await call_service(port, "PUT", "/v1/pools/game/servers", {})
    names: dict[str, object] = {"region": "eu", "resources": [f"server{number}" for number in range(_SMALL)]}
    await call_service(port, "POST", "/v1/pools/game/servers/resources", names)


def copy_killed(before: str, after: str, *, rows: int, kills: int) -> Copied:
    """Run the command until it has copied the store, killing it that many times unless it ends earlier."""
    rng = random.Random(len(before))
    command = [sys.executable, "-m", "service.cli", "store", "copy", before, after]
    begun_s, memory_kib = time.monotonic(), 0
    for killed in itertools.count():
        process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.DEVNULL)
        wait_s = rng.uniform(0, 3 * rows / _ROWS_A_SECOND / kills) + 0.5
        until_s = time.monotonic() + wait_s
        while process.poll() is None:
            # Not `ru_maxrss`: it also counts the process that started the command, until the command began.
            _, found, most = Path(f"/proc/{process.pid}/status").read_text().partition("\nVmHWM:")
            memory_kib = max(memory_kib, int(most.split()[0]) if found else 0)  # it is missing after the end
            if killed < kills and time.monotonic() > until_s:
                process.send_signal(signal.SIGKILL)
                until_s = float("inf")
            time.sleep(0.01)
        if process.returncode == 0:
            return Copied(time.monotonic() - begun_s, killed, memory_kib / 1024)
        if process.returncode != -signal.SIGKILL:
            raise RuntimeError(f"the command failed with exit code {process.returncode}")
    raise AssertionError


def list_tables(file: Path) -> dict[str, list[str]]:
    """Return the key columns of each table except `meta`."""
    with closing(sqlite3.connect(file)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {name: connection.execute(f"SELECT * FROM pragma_table_info('{name}')").fetchall() for name in names}
    keys = {name: sorted((row[5], row[1]) for row in rows if row[5]) for name, rows in found.items() if name != "meta"}
    return {name: [column for _, column in key] for name, key in keys.items()}


def read_file(file: Path, table: str, key: list[str]) -> Iterator[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as connection:
        yield from connection.execute(f'SELECT * FROM "{table}" ORDER BY {", ".join(key)}')


async def read_postgres(url: str, table: str, key: list[str]) -> AsyncIterator[tuple[Any, ...]]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            query = f'SELECT * FROM "{table}" ORDER BY {", ".join(key)}'
            async for row in connection.cursor(query, prefetch=_PREFETCHED):
                yield tuple(row)
    finally:
        await connection.close()


async def count_differences(file: Path, url: str) -> tuple[int, int]:
    """Compare the rows of a file and a PostgreSQL store: how many are equal, and how many differ or are in one only."""
    tables = list_tables(file)
    equal = different = 0
    for table, key in tables.items():
        ours = read_file(file, table, key)
        async for theirs in read_postgres(url, table, key):
            if next(ours, None) == theirs:
                equal += 1
            else:
                different += 1
        different += sum(1 for _ in ours)
    connection = await asyncpg.connect(url)
    there = {
        row[0] for row in await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    }
    await connection.close()
    return equal, different + len(there ^ {*tables, "meta"})


def count_file_differences(file: Path, other: Path) -> int:
    """Return the number of rows that differ between two files, or are in only one of them."""
    tables = list_tables(file)
    pairs = (
        pair
        for table, key in tables.items()
        for pair in itertools.zip_longest(read_file(file, table, key), read_file(other, table, key))
    )
    different = [ours for ours, theirs in pairs if ours != theirs]
    return len(different) + (tables != list_tables(other))


def measure(options: Options, folder: Path) -> list[report.Bar]:
    back, kills = folder / "back.db", min(options.kills, KILLS)

    def fill_file(store: Path) -> None:
        with serve_file(store) as server:
            asyncio.run(fill(server.port, options.rows))

    old = keep_store(options, folder, f"copied-{options.rows}", fill_file)
    with postgres(POSTGRES_SETTINGS) as database:
        url = database.url()
        there = copy_killed(f"{SQLITE_PREFIX}{old}", url, rows=options.rows, kills=kills)
        equal, different = asyncio.run(count_differences(old, url))
        again = copy_killed(url, f"{SQLITE_PREFIX}{back}", rows=options.rows, kills=kills)
    different_back = count_file_differences(old, back)
    print(f"   {equal:,} rows are equal; killed {there.kills} and {again.kills} times")
    bars = []
    for way, copied, differ in (("to PostgreSQL", there, different), ("back to SQLite", again, different_back)):
        bars += [
            report.Bar(f"{way}: rows that differ", differ, 0, at_most=True),
            report.Bar(f"{way}: memory of the command", copied.memory_mib, MEMORY_MIB_MAX, " MiB", at_most=True),
            report.Bar(f"{way}: with {copied.kills} kills", copied.seconds / 60, None, " min"),
        ]
    return bars


if __name__ == "__main__":
    report.run_program(
        measure,
        __doc__,
        f"a board of {{rows:,}} owners that have posted twice, copied there and back, with at most {KILLS} kills each",
    )
