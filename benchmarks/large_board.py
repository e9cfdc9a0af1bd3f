"""Measure a board of 25 million rows in one SQLite file: memory, refreshes, positions, and ten minutes of load.

python -m benchmarks.large_board [--rows N] [--seconds S] [--rounds N] [--boards KEPT]

A board of 1 million rows is measured, too, also with the default settings. Memory is that of all processes after the
load; pages that processes share count once. During the ten minutes of load, 2,500 posts/s and 500 requests/s for
positions are sent. The time of a request counts from when it was due. If `--seconds` is less than 5, the load is
shorter.

Bars: memory at most 220 MiB; a skip refresh at most 2 s; p99 of positions at most 1.5 times that of 1 million rows; at
least 99 % of the offered requests answered. A request that fails ends the run.
"""

import asyncio
import json
import random
import time
from pathlib import Path

from benchmarks import load, report
from benchmarks.boards import BOARD, COLUMN, owner_at
from benchmarks.bulk import prepare_bulk_store
from benchmarks.client import call_service
from benchmarks.options import Options
from benchmarks.paced import Kinds, build_get, build_post, run_punctually, send_kinds
from benchmarks.servers import Server, serve_store
from service.stores import SQLITE_PREFIX

_SMALL_ROWS = 1_000_000
_CONNECTIONS = 32
_POSTS_PER_S, _POSITIONS_PER_S = 2_500, 500
_BUSY_S = 600.0
_ENTRIES = f"/v1/leaderboards/{BOARD}/entries/"


async def time_refresh(port: int, method: str) -> float:
    """Refresh the curve by `method`, and return the seconds that the answer reports. Raises BadAnswerError."""
    board = f"/v1/leaderboards/{BOARD}"
    body = await call_service(port, "GET", board)
    spec = {"columns": body["columns"], "predictor": {**body["predictor"], "method": method}}
    await call_service(port, "PUT", board, spec)
    answer = await call_service(port, "POST", f"{board}/rankings/{COLUMN}/refresh")
    print(f"   {method}: {answer['seconds']:.2f} s, certificate {answer['certificate']}", flush=True)
    return float(answer["seconds"])


def _positions(server: Server, rows: int, seconds: float, rounds: int) -> list[load.Figure]:
    target = load.Target(server.url, _ENTRIES, "/positions", rows=rows)
    contestant = load.wrk_contestant(target, connections=_CONNECTIONS, seconds=seconds)
    return load.run_alternately({"positions": contestant}, rounds=rounds)["positions"]


def measure(options: Options, folder: Path) -> list[report.Bar]:
    figures: dict[int, list[load.Figure]] = {}
    bars: list[report.Bar] = []
    for rows in sorted({min(_SMALL_ROWS, options.rows), options.rows}):
        store = prepare_bulk_store(options, folder, rows=rows)
        print(f"   {rows:,} rows: file {store.stat().st_size / 2**20:,.0f} MiB", flush=True)
        with serve_store(f"{SQLITE_PREFIX}{store}", folder) as server:
            for method, limit_s in (("scan", None), ("skip", 2.0), ("auto", None)):
                took_s = asyncio.run(time_refresh(server.port, method))
                bars.append(report.Bar(f"{rows:,} rows: refresh by {method}", took_s, limit_s, " s", at_most=True))
            figures[rows] = _positions(server, rows, options.seconds, options.rounds)
            if rows == options.rows:
                bars += _busy(server, options)
            bars.append(report.Bar(f"{rows:,} rows: resident memory", server.resident_mib(), 220, " MiB", at_most=True))
    report.print_table(
        load.COLUMNS, [load.table_row(f"positions of {rows:,} rows", found) for rows, found in figures.items()]
    )
    first = figures[min(_SMALL_ROWS, options.rows)]
    small, large = ([figure.p99_ms for figure in found] for found in (first, figures[options.rows]))
    ratio = sorted(large)[len(large) // 2] / sorted(small)[len(small) // 2]
    return [*bars, report.Bar(f"p99 of positions, {options.rows:,} / {_SMALL_ROWS:,} rows", ratio, 1.5, at_most=True)]


def _busy(server: Server, options: Options) -> list[report.Bar]:
    """Send posts, and requests for the positions of random owners, at a steady rate."""
    seconds = _BUSY_S if options.seconds >= 5 else 10 * options.seconds  # a short run also has a shorter load
    rng = random.Random(3)

    def post() -> bytes:
        body = {"owner": owner_at(rng.randrange(options.rows)), "stats": {COLUMN: rng.randint(1, 1000)}}
        return build_post(f"/v1/leaderboards/{BOARD}/posts", json.dumps(body).encode())

    def positions() -> bytes:
        return build_get(f"{_ENTRIES}{owner_at(rng.randrange(options.rows))}/positions")

    kinds: Kinds = {"post": (post, _POSTS_PER_S), "positions": (positions, _POSITIONS_PER_S)}
    begun = time.perf_counter()
    took_ms = run_punctually(send_kinds(server.port, kinds, seconds, rng))
    answered_per_s = sum(map(len, took_ms.values())) / (time.perf_counter() - begun)
    what = f"{seconds:.0f} s of {_POSTS_PER_S:,} posts/s and {_POSITIONS_PER_S} positions/s"
    return [
        report.Bar(f"{what}: answered / offered rate", answered_per_s / (_POSTS_PER_S + _POSITIONS_PER_S), 0.99),
        *(
            report.Bar(f"{what}: p99 of {kind}", took[len(took) * 99 // 100], None, " ms")
            for kind, took in took_ms.items()
        ),
    ]


if __name__ == "__main__":
    report.run_program(
        measure,
        __doc__,
        "a board of {rows:,} rows in SQLite",
        rows=25_000_000,
        rounds=3,
    )
