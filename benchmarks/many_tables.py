"""Measure what grows with the number of tables: the start of a front end, and `rankcurve partition list`.

    python -m benchmarks.many_tables [--rows N] [--rounds N] [--store URL]

N boards (3,000), each with a table of its own, are created in a store with four partitions. `--store` names an empty
database or a store with partitions, which may be on Citus. A start is timed until the first answer of `/readyz`.

Bars: a start and a list take at most 2 s.
"""

import asyncio
import statistics
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks import report
from benchmarks.boards import COLUMN, board_spec
from benchmarks.client import Connection, for_each
from benchmarks.journal_partitions import prepare_store
from benchmarks.options import Options
from benchmarks.servers import POSTGRES_SETTINGS, PROJECT, rankcurve_command, serve_store
from tests.servers import postgres

_CONNECTIONS = 4
_S_MAX = 2.0


async def _create_boards(port: int, boards: int) -> None:
    async def create(connection: Connection, number: int) -> None:
        await connection.call_ok("PUT", f"/v1/leaderboards/board-{number:05}", board_spec([COLUMN]))

    await for_each(port, range(boards), create, connections=_CONNECTIONS)


def _start_s(url: str, folder: Path) -> float:
    with serve_store(url, folder) as server:
        return time.perf_counter() - server.spawned_at


def _list_s(url: str) -> float:
    command, begun = [*rankcurve_command(), "partition", "list", "--store", url], time.perf_counter()
    subprocess.run(command, cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun


def measure(options: Options, folder: Path) -> list[report.Bar]:
    with ExitStack() as stack:
        url = options.store or stack.enter_context(postgres(POSTGRES_SETTINGS)).create_database("tables")
        asyncio.run(prepare_store(url))
        with serve_store(url, folder, jobs="none") as server:
            begun = time.perf_counter()
            asyncio.run(_create_boards(server.port, options.rows))
            took_s = time.perf_counter() - begun
        start_s = statistics.median(_start_s(url, folder) for _ in range(options.rounds))
        list_s = statistics.median(_list_s(url) for _ in range(options.rounds))
    return [
        report.Bar("boards created per second", options.rows / took_s, None),
        report.Bar("start", start_s, _S_MAX, " s", at_most=True),
        report.Bar("partition list", list_s, _S_MAX, " s", at_most=True),
    ]


if __name__ == "__main__":
    report.run_program(measure, __doc__, "{rows:,} boards with tables of their own", rows=3_000)
