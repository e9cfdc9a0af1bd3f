"""Measure how much faster counts, and how much slower folds, would be with a third level of the counting tree.

python -m benchmarks.studies.counting_tree [--rows N]

The counting tree has two levels. On the first level, a live curve divides the range of values into parts, and has a
counter for each part. On the second level are the rows of each part, which a count reads. A third level would split
each part into smaller parts. Counts would read fewer rows, but folding would keep more counters. Both effects are
measured on the same board. A count is timed in the store, on both stores, without HTTP.

All figures are only reported; there is no bar.
"""

import asyncio
import random
import statistics
import time
from functools import partial
from pathlib import Path

from benchmarks import report
from benchmarks.boards import BOARD
from benchmarks.bulk import draw_scores, load_bulk_board, prepare_bulk_store
from benchmarks.options import Options
from config import load
from predictor import AsOf, Curve, Knot, LiveCounts, LiveCurve
from service.stores import SQLITE_PREFIX, open_store
from storage.boards.boards import find_board
from storage.leaves.entries import Entries
from storage.leaves.row_rankings import RowRanking
from storage.store import Program, Store
from tests.predictor.quality import count_by_key
from tests.servers import DURABLE, postgres

_GAP_ROWS = (100, 1_000, 3_000, 10_000, 30_000)
_COUNTS = 200
_CELLS = (1_000, 10_000, 100_000)
_MOVES = 20_000
_SERVER = {**DURABLE, "shared_buffers": "1GB", "max_wal_size": "4GB"}


async def time_counts(store_url: str, rows: int) -> dict[int, tuple[float, float]]:
    """Time counts in a store. Return (median, 99th percentile) in ms, by the number of rows that a count reads."""
    store = await open_store(load({"store": store_url}, {}))
    try:
        board = await store.read(lambda: find_board(BOARD))
        entries = Entries(board.leaf)
        ascending = sorted(draw_scores(rows).tolist())
        return {gap: await _time_counts(store, entries, ascending, gap) for gap in _GAP_ROWS}
    finally:
        await store.close()


async def _time_counts(store: Store, entries: Entries, ascending: list[int], gap: int) -> tuple[float, float]:
    ranking = entries.rankings[0]
    rng, took = random.Random(gap), list[float]()
    for _ in range(_COUNTS):
        start = rng.randrange(len(ascending) - gap)
        least, past = (ranking.padding.text_start(ascending[at]) for at in (start, start + gap))
        took.append(await store.read(partial(_timed, ranking, least, past)))
    return statistics.median(took), sorted(took)[len(took) * 99 // 100]


def _timed(ranking: RowRanking, least: str, past: str) -> Program[float]:
    begun = time.perf_counter()
    yield from ranking.count_range(least=least, past=past)
    return 1000 * (time.perf_counter() - begun)


def measure_fold(rows: int, cells: int) -> tuple[float, float, float]:
    """Return the costs of a live curve whose range of values is divided into `cells` parts.

    These are the microseconds per counted move, the KiB of the encoded counts, and the milliseconds to encode the
    counts and build the live curve.
    """
    numbers = draw_scores(rows)
    keys = list(count_by_key(sorted((-numbers).tolist())))
    every = max(1, rows // cells)
    knots, better_count, wanted = [], 0, 0
    for number, (key, ties) in enumerate(keys):
        if better_count >= wanted or number == len(keys) - 1:
            knots.append(Knot(key, better_count, ties))
            wanted = better_count + every
        better_count += ties
    curve = Curve(knots, total=rows, as_of_us=0)
    rng = random.Random(cells)
    numbers = numbers.tolist()
    moves = [(-numbers[at], -rng.choice(numbers)) for at in rng.sample(range(rows), _MOVES)]
    counts = LiveCounts(curve)
    begun = time.perf_counter()
    counts.count_moves(moves)
    moved = time.perf_counter()
    document = counts.encode()
    LiveCurve(curve, counts, as_of=AsOf(0))
    ended = time.perf_counter()
    return 1e6 * (moved - begun) / _MOVES, len(document) / 1024, 1000 * (ended - moved)


def measure(options: Options, folder: Path) -> list[report.Bar]:
    table: list[tuple[str, float, float]] = []
    bars = []
    for rows in sorted({min(1_000_000, options.rows), options.rows}):
        store = prepare_bulk_store(options, folder, rows=rows)
        found = {"SQLite": asyncio.run(time_counts(f"{SQLITE_PREFIX}{store}", rows))}
        with postgres(_SERVER) as cluster:
            load_bulk_board(cluster.url(), folder, rows)
            cluster.run_sql("VACUUM ANALYZE", "CHECKPOINT")
            found["PostgreSQL"] = asyncio.run(time_counts(cluster.url(), rows))
        for name, by_gap in found.items():
            table += [(f"{name}, {rows:,} rows: a count of {gap:,}", *took) for gap, took in by_gap.items()]
            bars.append(
                report.Bar(
                    f"{name}, {rows:,} rows: saved by a third level", by_gap[10_000][0] - by_gap[100][0], None, " ms"
                )
            )
    report.print_table(("", "median ms", "p99 ms"), table)
    prices = [(f"{cells:,} cells", *measure_fold(options.rows, cells)) for cells in _CELLS]
    report.print_table(("folding", "us a move", "KiB a document", "ms a document"), prices)
    return bars


if __name__ == "__main__":
    report.run_program(measure, __doc__, "a third level of the counting tree: {rows:,} rows", rows=10_000_000)
