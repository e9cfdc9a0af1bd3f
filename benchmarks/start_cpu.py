"""Measure the processor time that a process takes from its start until it is ready, on SQLite and on PostgreSQL.

    python -m benchmarks.start_cpu [--rounds N]

A process opens an existing store with one small board and its curve. It runs its jobs, too. The stores take turns,
after a start of each that is not counted.

Bar: the median of the processor times is at most 0.35 s on both stores.
"""

import asyncio
import statistics
from pathlib import Path

from benchmarks import report
from benchmarks.boards import fill_board
from benchmarks.options import Options
from benchmarks.servers import serve_store
from service.stores import SQLITE_PREFIX
from tests.servers import DURABLE, postgres

_CPU_S_MAX = 0.35
_ROWS = 1_000


def _fill(url: str, folder: Path) -> None:
    with serve_store(url, folder) as server:
        asyncio.run(fill_board(server.port, rows=_ROWS))


def _start(url: str, folder: Path) -> float:
    """Start a process, and return the seconds of processor time that it has used by the time it is ready."""
    with serve_store(url, folder, environment={"RANKCURVE_WORKERS": "0"}) as server:
        return server.cpu_s()


def measure(options: Options, folder: Path) -> list[report.Bar]:
    with postgres(DURABLE) as cluster:
        urls = {"SQLite": f"{SQLITE_PREFIX}{folder / 'start.db'}", "PostgreSQL": cluster.url()}
        for url in urls.values():
            _fill(url, folder)
        took_s: dict[str, list[float]] = {name: [] for name in urls}
        for number in range(options.rounds + 1):
            for name, url in urls.items():
                seconds = _start(url, folder)
                if number:
                    took_s[name].append(seconds)
    report.print_table(
        ("store", "processor s", "lowest", "highest"),
        [(name, statistics.median(found), min(found), max(found)) for name, found in took_s.items()],
    )
    return [
        report.Bar(f"{name}, start to ready", statistics.median(found), _CPU_S_MAX, " s", at_most=True)
        for name, found in took_s.items()
    ]


if __name__ == "__main__":
    report.run_program(measure, __doc__, "processor time from start to ready: {rounds} starts on each store", rounds=9)
