"""Measure a board of 25 million rows in one SQLite file: memory, refreshes, positions, and ten minutes of load.

python -m benchmarks.large_board [--rows N] [--seconds S] [--rounds N] [--boards KEPT]

A board of 1 million rows is measured, too. The page cache has the same size for both boards. Memory is the peak of the
process. During the ten minutes of load, 2,500 posts/s and 500 requests/s for positions are sent. The time of a request
counts from when it was due. If `--seconds` is less than 5, the load is shorter.

Bars: memory at most 400 MiB; a skip refresh at most 2 s; p99 of positions at most 1.5 times that of 1 million rows; at
least 99 % of the offered requests answered; no request failed.
"""

import asyncio
import random
import sys
import time
from collections import Counter
from pathlib import Path

from benchmarks import load, report
from benchmarks.boards import BOARD, COLUMN, owner_at
from benchmarks.bulk import prepare_bulk_store
from benchmarks.client import Connection
from benchmarks.options import Options, parse_options
from benchmarks.servers import Server, serve_store
from service.stores import SQLITE_PREFIX

_CACHE_MIB = 40  # page cache of each of the four connections
_SETTINGS = {"RANKCURVE_SQLITE_CACHE_MIB": str(_CACHE_MIB)}
_SMALL_ROWS = 1_000_000
_CONNECTIONS = 32
_BUSY_CONNECTIONS = 256
_POSTS_PER_S, _POSITIONS_PER_S = 2_500, 500
_BUSY_S = 600.0
_ENTRIES = f"/v1/leaderboards/{BOARD}/entries/"


async def time_refresh(port: int, method: str) -> float:
    """Refresh the curve by `method`, and return the seconds that the answer reports. Raises BadAnswerError."""
    connection = Connection(port)
    try:
        board = f"/v1/leaderboards/{BOARD}"
        body = await connection.call_ok("GET", board)
        spec = {"columns": body["columns"], "predictor": {**body["predictor"], "method": method}}
        await connection.call_ok("PUT", board, spec)
        answer = await connection.call_ok("POST", f"{board}/rankings/{COLUMN}/refresh")
        print(f"   {method}: {answer['seconds']:.2f} s, certificate {answer['certificate']}", flush=True)
        return float(answer["seconds"])
    finally:
        connection.close()


class BusyMinutes:
    """The load: posts and requests for positions of random owners, at a steady rate."""

    def __init__(self, port: int, rows: int) -> None:
        self._port, self._rows = port, rows
        self._free: asyncio.LifoQueue[Connection] = asyncio.LifoQueue()
        self.statuses: Counter[int] = Counter()
        self.took_ms: dict[str, list[float]] = {"post": [], "positions": []}

    async def run(self, seconds: float) -> None:
        for _ in range(_BUSY_CONNECTIONS):
            self._free.put_nowait(Connection(self._port))
        rng, begun = random.Random(3), time.perf_counter()
        per_s = _POSTS_PER_S + _POSITIONS_PER_S
        async with asyncio.TaskGroup() as calls:
            for number in range(round(seconds * per_s)):
                due = begun + number / per_s
                if (early_s := due - time.perf_counter()) > 0:
                    await asyncio.sleep(early_s)
                calls.create_task(self._call(due, rng, post=number % 6 != 0))
        while not self._free.empty():
            self._free.get_nowait().close()

    async def _call(self, due: float, rng: random.Random, *, post: bool) -> None:
        name = owner_at(rng.randrange(self._rows))
        connection = await self._free.get()
        if post:
            body = f'{{"owner": "{name}", "stats": {{"{COLUMN}": {rng.randint(1, 1000)}}}}}'.encode()
            status, _ = await connection.call("POST", f"/v1/leaderboards/{BOARD}/posts", body)
        else:
            status, _ = await connection.call("GET", f"{_ENTRIES}{name}/positions")
        self._free.put_nowait(connection)
        self.statuses[status] += 1
        self.took_ms["post" if post else "positions"].append(1000 * (time.perf_counter() - due))


def _positions(server: Server, rows: int, seconds: float, rounds: int) -> list[load.Figure]:
    target = load.Target(server.url, _ENTRIES, "/positions", rows=rows)
    contestant = load.wrk_contestant(target, connections=_CONNECTIONS, seconds=seconds)
    return load.run_alternately({"positions": contestant}, rounds=rounds)["positions"]


def _p99(took: list[float]) -> float:
    return sorted(took)[len(took) * 99 // 100]


def measure(options: Options, folder: Path) -> list[report.Bar]:
    figures: dict[int, list[load.Figure]] = {}
    bars: list[report.Bar] = []
    for rows in (min(_SMALL_ROWS, options.rows), options.rows):
        store = prepare_bulk_store(options, folder, rows=rows)
        print(f"   {rows:,} rows: file {store.stat().st_size / 2**20:,.0f} MiB", flush=True)
        with serve_store(f"{SQLITE_PREFIX}{store}", folder, environment=_SETTINGS) as server:
            for method, limit_s in (("scan", None), ("skip", 2.0), ("auto", None)):
                took_s = asyncio.run(time_refresh(server.port, method))
                bars.append(report.Bar(f"{rows:,} rows: refresh by {method}", took_s, limit_s, " s", at_most=True))
            figures[rows] = _positions(server, rows, options.seconds, options.rounds)
            if rows == options.rows:
                bars += _busy(server, options)
            bars.append(
                report.Bar(f"{rows:,} rows: most resident memory", server.most_resident_mib(), 400, " MiB", True)
            )
    report.print_table(
        load.COLUMNS, [load.table_row(f"positions of {rows:,} rows", found) for rows, found in figures.items()]
    )
    small, large = ([figure.p99_ms for figure in found] for found in figures.values())
    ratio = sorted(large)[len(large) // 2] / sorted(small)[len(small) // 2]
    return [*bars, report.Bar(f"p99 of positions, {options.rows:,} / {_SMALL_ROWS:,} rows", ratio, 1.5, at_most=True)]


def _busy(server: Server, options: Options) -> list[report.Bar]:
    seconds = _BUSY_S if options.seconds >= 5 else 10 * options.seconds  # a short run also has a shorter load
    minutes = BusyMinutes(server.port, options.rows)
    begun = time.perf_counter()
    asyncio.run(minutes.run(seconds))
    held = minutes.statuses[200] / (time.perf_counter() - begun) / (_POSTS_PER_S + _POSITIONS_PER_S)
    failed = sum(count for status, count in minutes.statuses.items() if status != 200)
    what = f"{seconds:.0f} s of {_POSTS_PER_S:,} posts/s and {_POSITIONS_PER_S} positions/s"
    return [
        report.Bar(f"{what}: answered / offered rate", held, 0.99),
        report.Bar(f"{what}: failed", failed, 0, at_most=True),
        *(report.Bar(f"{what}: p99 of {kind}", _p99(took), None, " ms") for kind, took in minutes.took_ms.items()),
    ]


def main() -> int:
    options = parse_options(__doc__, rows=25_000_000, rounds=3)
    title = f"a board of {options.rows:,} rows in SQLite, page cache {_CACHE_MIB} MiB a connection"
    return report.run_benchmark(options, title, measure)


if __name__ == "__main__":
    sys.exit(main())
