"""Compare the times of exact ranks in the middle of a board and of exact ranks near rank 1,000, on both stores.

    python -m benchmarks.exact_anywhere [--rows N]

Both times are measured over HTTP and in the store. In the store a full count is timed, too. Requests for owners near
rank 1,000 and in the middle take turns. Every answer over HTTP is compared with the values that the board was filled
with. Posts are sent before the measurement; some of these posts are folded, and some are not.

Bars: over HTTP a rank in the middle takes at most 2 times as long as a rank near 1,000. In the store a rank in the
middle takes at most 1 ms on SQLite and 3 ms on PostgreSQL. A full count takes at least 20 times as long.
"""

import asyncio
import json
import random
import statistics
import time
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks import report
from benchmarks.boards import BOARD, COLUMN, batch_body, owner_at, refresh_columns, send_batches
from benchmarks.bulk import draw_scores, measure_bulk_stores
from benchmarks.client import BadAnswerError, Connection
from benchmarks.options import Options
from benchmarks.servers import serve_store
from config import load
from service.stores import open_store
from storage.boards.boards import find_board
from storage.curves.sampling import sample_curve
from storage.entries.entries import Entries
from storage.entries.exact_ranks import CountStart
from storage.entries.rankings import Ranking
from storage.log.change_log import change_log
from storage.store import Program, Store, read_single

_NEAR = 1_000
_OWNERS = 50  # number of owners requested near rank 1,000, and as many in the middle
_ROUNDS = 6
_FULL_COUNTS = 5
_CHANGES_MAX = 20_000
_UNFOLDED = 1_000  # this many of the worst owners get posts before the measurement
_STORE_MS = {"SQLite": 1.0, "PostgreSQL": 3.0}


class Board:
    """The owners and keys of the filled board, best first."""

    def __init__(self, rows: int) -> None:
        import numpy

        scores = draw_scores(rows)
        self.rows = rows
        self.best_first = numpy.argsort(-scores, kind="stable")
        self.ascending = (-scores[self.best_first]).tolist()

    def around(self, rank: int) -> list[tuple[str, int]]:
        """Return (owner, rank) of the `_OWNERS` owners whose ranks come right after `rank`."""
        return [
            (owner_at(int(index)), 1 + bisect_left(self.ascending, self.ascending[rank + at]))
            for at, index in enumerate(self.best_first[rank : rank + _OWNERS])
        ]


async def _time_positions(port: int, asked: list[tuple[str, int]], mode: str) -> tuple[list[float], set[str]]:
    """Request each owner's position and check its bracket.

    Return the milliseconds of each request, and the methods of the positions.
    """
    took, methods = list[float](), set[str]()
    connection = Connection(port)
    try:
        for name, rank in asked:
            path = f"/v1/leaderboards/{BOARD}/entries/{name}/positions?rank={mode}"
            begun = time.perf_counter()
            status, body = await connection.call("GET", path)
            took.append(1000 * (time.perf_counter() - begun))
            position = json.loads(body)["positions"][0] if status == 200 else {}
            methods.add(position.get("method", str(status)))
            if not position.get("low", 0) <= rank <= position.get("high", 0):
                raise BadAnswerError(f"{name} stands at {rank}, the answer is {body[:300]!r}")
    finally:
        connection.close()
    return took, methods


def time_over_http(port: int, board: Board) -> dict[tuple[str, int], tuple[float, set[str]]]:
    """Time the requests over HTTP. Return (median ms, methods) by (mode, rank). Ranks and modes take turns."""
    places = {rank: board.around(rank) for rank in (_NEAR, board.rows // 2)}
    took: dict[tuple[str, int], list[float]] = {}
    said: dict[tuple[str, int], set[str]] = {}
    for _ in range(_ROUNDS):
        for mode in ("exact", "auto", "estimate"):
            for rank, asked in places.items():
                ms, methods = asyncio.run(_time_positions(port, asked, mode))
                took.setdefault((mode, rank), []).extend(ms)
                said.setdefault((mode, rank), set()).update(methods)
    return {place: (statistics.median(ms), said[place]) for place, ms in took.items()}


async def time_in_store(store_url: str, rows: int) -> tuple[float, float, float]:
    """Time three counts in the store.

    Return the median ms of a short count in the middle, a short count near the top, and a full count in the middle.
    """
    store = await open_store(load({"store": store_url, "heavy_statement_timeout_s": 600}, {}))
    try:
        board = await store.read(lambda: find_board(BOARD))
        entries = Entries(board)
        index = board.column_index[COLUMN]
        ranking = entries.rankings[index]
        start = await store.read(lambda: _fit(store, entries, index), heavy=True)
        far = await _time_short_count(store, ranking, start, rows // 2)
        near = await _time_short_count(store, ranking, start, _NEAR)
        middle = await store.read(lambda: ranking.find_row(start, rows // 2), heavy=True)
        assert middle is not None
        full = [
            await store.read(partial(_timed, ranking.count_better, middle[0]), heavy=True) for _ in range(_FULL_COUNTS)
        ]
        return far, near, statistics.median(full)
    finally:
        await store.close()


def _fit(store: Store, entries: Entries, index: int) -> Program[CountStart]:
    mark = yield from change_log.take_mark()
    curve = yield from sample_curve(store.dialect, entries, index, gap_rows_max=10_000, now_us=1)
    return CountStart(curve, mark, _CHANGES_MAX, 0)


async def _time_short_count(store: Store, ranking: Ranking, start: CountStart, rank: int) -> float:
    took, rng = list[float](), random.Random(rank)
    for _ in range(100):
        found = await store.read(partial(ranking.find_row, start, rank + rng.randrange(1_000)))
        assert found is not None
        cell, name = found
        begun = time.perf_counter()
        count = await read_single(store, partial(ranking.count_from_anchor, start, cell, owner=name))
        took.append(1000 * (time.perf_counter() - begun))
        assert count is not None
    return statistics.median(took)


def _timed(count: Callable[[str], Program[int]], cell: str) -> Program[float]:
    begun = time.perf_counter()
    yield from count(cell)
    return 1000 * (time.perf_counter() - begun)


def measure_on(name: str, url: str, folder: Path, board: Board) -> list[report.Bar]:
    with serve_store(url, folder) as server:
        asyncio.run(refresh_columns(server.port, BOARD, [COLUMN]))
        worst = [owner_at(int(index)) for index in board.best_first[-_UNFOLDED:]]
        bodies = [batch_body([(each, 0) for each in worst]), batch_body([(each, 1) for each in worst])]
        asyncio.run(send_batches(server.port, BOARD, bodies))
        served = time_over_http(server.port, board)
    middle = board.rows // 2
    far, near, full = asyncio.run(time_in_store(url, board.rows))
    lines: list[list[str | float]] = [
        [f"rank={mode} at {rank:,}", ms, " ".join(sorted(said))] for (mode, rank), (ms, said) in served.items()
    ]
    lines.append([f"in the store, at {_NEAR:,}", near, ""])
    lines.append([f"in the store, at {middle:,}", far, ""])
    lines.append([f"in the store, counted in full at {middle:,}", full, ""])
    report.print_table([name, "median ms", "method"], lines)
    ratio = served["exact", middle][0] / served["exact", _NEAR][0]
    return [
        report.Bar(f"{name}: rank=exact at {middle:,} / at {_NEAR:,} over HTTP", ratio, 2.0, at_most=True),
        report.Bar(f"{name}: in the store at {middle:,}", far, _STORE_MS[name], " ms", at_most=True),
        report.Bar(f"{name}: full count / short count at {middle:,}", full / far, 20.0),
    ]


def measure(options: Options, folder: Path) -> list[report.Bar]:
    board = Board(options.rows)
    return measure_bulk_stores(options, folder, lambda name, url: measure_on(name, url, folder, board))


if __name__ == "__main__":
    report.run_program(measure, __doc__, f"exact anywhere: {{rows:,}} rows, {_ROUNDS} rounds of {_OWNERS} owners")
