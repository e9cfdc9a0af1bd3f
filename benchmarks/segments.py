"""Measure a board of several segments, against the same board of one segment, on PostgreSQL with four partitions.

    python -m benchmarks.segments [--rows N] [--seconds S] [--rounds N] [--store URL]

With more than `_COMPARED_ROWS_MAX` rows, only a board of eight segments is filled, refreshed and read, and the memory
of a front end without jobs is measured. `--store` names an empty database, which may have the extension Citus.

Bars: positions by estimate at least 0.9 of the rate of one segment, with 32 connections and with 256; exact positions,
top and rows around an owner at most 3 times slower; batches of 1,000 posts at least 0.8. Memory of a front end at most
250 MiB.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks import load, report
from benchmarks.batch_posts import through_http
from benchmarks.boards import BATCH, COLUMN, board_spec, create_board
from benchmarks.bulk import load_rows
from benchmarks.client import call_service
from benchmarks.journal_partitions import prepare_store
from benchmarks.options import Options
from benchmarks.positions import FEW, MANY
from benchmarks.servers import POSTGRES_SETTINGS, serve_store
from tests.servers import postgres

_COMPARED_ROWS_MAX = 5_000_000
_SEGMENTS, _SEGMENTS_OF_LARGE = 4, 8
_SLOWER_MAX = 3.0
_MEMORY_MIB_MAX = 250.0
_ESTIMATE = "positions, estimate"
_READS = {  # by name: the path before and after the owner, or the whole path of a request without an owner
    _ESTIMATE: ("/entries/", "/positions?rank=estimate"),
    "positions, exact": ("/entries/", "/positions?rank=exact"),
    "around an owner": ("/entries/", f"/around?column={COLUMN}&better=5&worse=5"),
    "top 100": (f"/rankings/{COLUMN}?limit=100", None),
}


def _prepare_board(url: str, folder: Path, board: str, segments: int, rows: int) -> None:
    """Create a board and fill it through the store."""
    with serve_store(url, folder, jobs="none") as server:
        asyncio.run(create_board(server.port, board, {**board_spec([COLUMN]), "segments": segments}))
    begun = time.perf_counter()
    asyncio.run(load_rows(url, rows, board_id=board))
    print(f"   {board}: {rows:,} rows in {time.perf_counter() - begun:.0f} s", flush=True)


async def _refresh(port: int, board: str) -> float:
    """Refresh the board's curve. Return the seconds until the answer."""
    begun = time.perf_counter()
    answer = await call_service(port, "POST", f"/v1/leaderboards/{board}/rankings/{COLUMN}/refresh")
    took_s = time.perf_counter() - begun
    print(f"   {board}: refreshed in {took_s:.1f} s, certificate {answer['certificate']}", flush=True)
    return took_s


def _reader(
    url: str, board: str, read: str, rows: int, seconds: float, connections: int = FEW
) -> Callable[[int], load.Figure]:
    path, after = _READS[read]
    path = f"/v1/leaderboards/{board}{path}"
    target = load.Target(url, path) if after is None else load.Target(url, path, after, rows=rows)
    return load.wrk_contestant(target, connections=connections, seconds=seconds)


def _compare(url: str, folder: Path, options: Options) -> list[report.Bar]:
    boards = {"one": 1, "several": _SEGMENTS}
    for board, segments in boards.items():
        _prepare_board(url, folder, board, segments, options.rows)
    bars = []
    with serve_store(url, folder) as server:
        for board in boards:
            asyncio.run(_refresh(server.port, board))
        for read in _READS:
            for connections in (FEW, MANY) if read == _ESTIMATE else (FEW,):
                contestants = {
                    board: _reader(server.url, board, read, options.rows, options.seconds, connections)
                    for board in boards
                }
                title = f"{read}, {connections} connections"
                ratio = _run(title, contestants, options.rounds)
                if read == _ESTIMATE:
                    bars.append(report.Bar(f"{title}: rate of {_SEGMENTS} segments / one", ratio, 0.9))
                else:
                    slower = f"{title}: time of {_SEGMENTS} segments / one"
                    bars.append(report.Bar(slower, 1 / ratio, _SLOWER_MAX, at_most=True))
        count = max(4, round(options.seconds * 4))
        for with_ids in (False, True):
            posters = {
                board: through_http(server.port, options.rows, count, board=board, with_ids=with_ids)
                for board in boards
            }
            title = f"batches of {BATCH:,}{' with post ids' if with_ids else ''}"
            ratio = _run(title, posters, options.rounds)
            bars.append(report.Bar(f"{title}: rate of {_SEGMENTS} segments / one", ratio, 0.8))
    return bars


def _run(title: str, contestants: dict[str, Callable[[int], load.Figure]], rounds: int) -> float:
    """Return how fast the board of several segments is, divided by the board of one."""
    print(f"   {title}:")
    figures = load.compare(contestants, rounds=rounds)
    return load.median_ratio(figures["several"], figures["one"])


def _fill_large(url: str, folder: Path, options: Options) -> list[report.Bar]:
    begun = time.perf_counter()
    _prepare_board(url, folder, "large", _SEGMENTS_OF_LARGE, options.rows)
    filled_s = time.perf_counter() - begun
    with serve_store(url, folder) as server:
        refreshed_s = asyncio.run(_refresh(server.port, "large"))
    bars = [
        report.Bar("rows filled per second", options.rows / filled_s, None),
        report.Bar("refresh of all segments", refreshed_s, None, " s"),
    ]
    with serve_store(url, folder, jobs="none") as front:
        for read in _READS:
            reader = _reader(front.url, "large", read, options.rows, options.seconds)
            figures = load.compare({read: reader}, rounds=options.rounds)
            bars.append(report.Bar(f"{read}, per second", load.median_per_s(figures[read]), None))
        for rank in (1_000_000, options.rows // 2):
            page = partial(load.run_wrk, connections=1, seconds=options.seconds, seed=1)
            target = load.Target(front.url, f"/v1/leaderboards/large/rankings/{COLUMN}?from_rank={rank}&limit=50")
            bars.append(report.Bar(f"page from rank {rank:,}", page(target).p50_ms, None, " ms"))
        bars.append(
            report.Bar("memory of a front end", front.most_resident_mib(), _MEMORY_MIB_MAX, " MiB", at_most=True)
        )
    return bars


def measure(options: Options, folder: Path) -> list[report.Bar]:
    with ExitStack() as stack:
        url = options.store or stack.enter_context(postgres(POSTGRES_SETTINGS)).create_database("segments")
        asyncio.run(prepare_store(url))
        if options.rows > _COMPARED_ROWS_MAX:
            return _fill_large(url, folder, options)
        return _compare(url, folder, options)


if __name__ == "__main__":
    report.run_program(measure, __doc__, "segments: {rows:,} rows, {rounds} rounds")
