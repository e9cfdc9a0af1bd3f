"""Measure how much owners' positions and `/readyz` slow down while 20 clients read the journal, on both stores.

python -m benchmarks.journal_readers [--rows N] [--seconds S] [--rounds N]

The journal is read in pages of 1,000 posts. Positions and `/readyz` have one connection each, and a connection has one
request at a time. Rounds with and without the readers take turns. Each pair of rounds gives a ratio: p50 with readers
divided by p50 without. The reported ratio is the median of all pairs. The benchmark needs two cores: if the machine has
other work, start it by `chrt -r 1`.

Bars: p50 of positions at most 5 times its value without readers, p99 of `/readyz` at most 50 ms.
"""

import asyncio
import random
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import report
from benchmarks.boards import BOARD, COLUMN, board_spec, draw_values, fill_board, owner_at, refresh_columns
from benchmarks.client import BadAnswerError, Connection
from benchmarks.options import Options, parse_options
from benchmarks.servers import serve_store
from tests.servers import DURABLE, postgres

_READERS = 20
_PAGE = 1_000
_SLOWER_MAX = 5.0
_READY_MS_MAX = 50.0
_SERVER = {**DURABLE, "shared_buffers": "256MB"}


@dataclass(frozen=True, slots=True)
class _Round:
    """The figures of one round: sorted milliseconds of both kinds of requests, and pages of the journal per second."""

    positions: list[float]
    ready: list[float]
    pages_per_s: float


async def _read_journal(port: int, ended: asyncio.Event) -> int:
    connection, after, pages = Connection(port), 0, 0
    try:
        while not ended.is_set():
            status, answer = await connection.call("GET", f"/v1/journal?after={after}&limit={_PAGE}")
            if status != 200:
                raise BadAnswerError(f"{status} {answer[:300]!r}")
            last = answer[:-1].rpartition(b"\n")[2]
            after = int(last[len(b'{"seq":') : last.index(b",")]) if last else 0
            pages += 1
    finally:
        connection.close()
    return pages


async def _ask_until_ended(port: int, paths: list[str], ended: asyncio.Event, seed: int) -> list[float]:
    rng, connection, took = random.Random(seed), Connection(port), list[float]()
    try:
        while not ended.is_set():
            begun = time.perf_counter()
            await connection.call_ok("GET", rng.choice(paths))
            took.append(1000 * (time.perf_counter() - begun))
    finally:
        connection.close()
    return sorted(took)


async def _run_round(port: int, options: Options, seed: int, *, readers: int) -> _Round:
    ended = asyncio.Event()
    owners = [f"/v1/leaderboards/{BOARD}/entries/{owner_at(index)}/positions" for index in range(0, options.rows, 7)]
    reading = [asyncio.create_task(_read_journal(port, ended)) for _ in range(readers)]
    asking = [asyncio.create_task(_ask_until_ended(port, paths, ended, seed)) for paths in (owners, ["/readyz"])]
    await asyncio.wait([*reading, *asking], timeout=options.seconds, return_when=asyncio.FIRST_EXCEPTION)
    ended.set()
    positions, ready = await asyncio.gather(*asking)
    return _Round(positions, ready, sum(await asyncio.gather(*reading)) / options.seconds)


async def _fill(port: int, rows: int) -> None:
    owners = [owner_at(index) for index in range(rows)]
    await fill_board(port, BOARD, owners=owners, named={COLUMN: draw_values(rows)}, body=board_spec([COLUMN]))
    await refresh_columns(port, BOARD, [COLUMN])


def _measure_store(
    name: str, url: str, folder: Path, options: Options
) -> tuple[list[list[str | float]], list[report.Bar]]:
    rounds: list[tuple[_Round, _Round]] = []
    with serve_store(url, folder) as server:
        asyncio.run(_fill(server.port, options.rows))
        for number in range(options.rounds + 1):
            quiet, busy = (
                asyncio.run(_run_round(server.port, options, number, readers=each)) for each in (0, _READERS)
            )
            if number:  # round 0 only warms up and is not counted
                rounds.append((quiet, busy))
    lines: list[list[str | float]] = []
    for label, found in zip(("quiet", f"{_READERS} readers"), zip(*rounds, strict=True), strict=True):
        figures = (
            [_percentile(each.positions, 50) for each in found],
            [_percentile(each.positions, 99) for each in found],
        )
        ready = [_percentile(each.ready, 50) for each in found], [_percentile(each.ready, 99) for each in found]
        pages = [each.pages_per_s for each in found]
        lines.append([f"{name}, {label}", *(statistics.median(each) for each in (*figures, *ready, pages))])
    slower = statistics.median(_percentile(b.positions, 50) / _percentile(q.positions, 50) for q, b in rounds)
    ready_ms = statistics.median(_percentile(busy.ready, 99) for _, busy in rounds)
    return lines, [
        report.Bar(f"{name}: p50 of positions with {_READERS} readers / quiet", slower, _SLOWER_MAX, at_most=True),
        report.Bar(f"{name}: p99 of /readyz with {_READERS} readers", ready_ms, _READY_MS_MAX, " ms", at_most=True),
    ]


def _percentile(ordered: list[float], percent: int) -> float:
    return ordered[len(ordered) * percent // 100]


def measure(options: Options, folder: Path) -> list[report.Bar]:
    on_sqlite = _measure_store("SQLite", f"sqlite:///{folder.resolve() / 'board.db'}", folder, options)
    with postgres(_SERVER) as cluster:
        on_postgres = _measure_store("PostgreSQL", cluster.url(), folder, options)
    columns = ("", "positions p50 ms", "p99 ms", "/readyz p50 ms", "p99 ms", "pages/s")
    report.print_table(columns, [*on_sqlite[0], *on_postgres[0]])
    return [*on_sqlite[1], *on_postgres[1]]


def main() -> int:
    options = parse_options(__doc__, rows=50_000)
    title = f"readers of the journal: {options.rows:,} posts, {options.rounds} rounds of {options.seconds:g} s"
    return report.run_benchmark(options, title, measure)


if __name__ == "__main__":
    sys.exit(main())
