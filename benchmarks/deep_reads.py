"""Time exact ranks, `around` and `from_rank` on a large board and on one of 3,000 rows, at the top and in the middle.

    python -m benchmarks.deep_reads [--rows N] [--rounds N]

Both boards are in the same store, first SQLite and then PostgreSQL. Requests to the two boards take turns. Every answer
is compared with the values that the boards were filled with. Posts to the worst owners are sent before; some of these
are folded when the reads begin, and some are not.

Bars: the median of the large board is at most 3 times that of the small board. On the large board, an exact rank in the
middle takes at most 2 times as long as one near 1,000.
"""

import asyncio
import json
import statistics
import time
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.boards import BOARD, COLUMN, batch_body, fill_board, owner_at, refresh_columns, send_batches
from benchmarks.bulk import draw_scores, measure_bulk_stores
from benchmarks.client import BadAnswerError, Connection
from benchmarks.options import Options
from benchmarks.servers import serve_store

_SMALL = "small"
_SMALL_ROWS = 3_000
_AROUND_ROWS = 5  # rows better than the owner, and as many worse rows
_PAGE_ROWS = 100
_RANKS = 50  # number of ranks requested at the top, and as many in the middle
_TOP = {"exact": 1_000, "around": 1, "from_rank": 1}  # the first rank at the top, by view
_UNFOLDED = 1_000  # this many of the worst owners get posts before the measurement
_RATIO_MAX, _EXACT_RATIO_MAX = 3.0, 2.0

Place = tuple[str, str, str]  # the view, "top" or "middle", and the id of the board


class Board:
    """The owners and keys of a filled board, best first."""

    def __init__(self, rows: int) -> None:
        import numpy

        scores = draw_scores(rows)
        self.rows = rows
        self.best_first = numpy.argsort(-scores, kind="stable")
        self._ascending = (-scores[self.best_first]).tolist()

    def rank_at(self, index: int) -> int:
        return 1 + bisect_left(self._ascending, self._ascending[index])

    def owners(self, start: int, end: int) -> list[str]:
        return [owner_at(int(index)) for index in self.best_first[max(0, start) : end]]


def _requests(board_id: str, board: Board, place: str, view: str) -> Iterator[tuple[str, Any]]:
    """Yield the path of each request, together with the rank or the owners that its answer must contain."""
    first = _TOP[view] if place == "top" else board.rows // 2
    for rank in range(first, first + _RANKS):
        [owner] = board.owners(rank - 1, rank)
        wanted: Any
        if view == "exact":
            path, wanted = f"entries/{owner}/positions?rank=exact", board.rank_at(rank - 1)
        elif view == "around":
            path = f"entries/{owner}/around?column={COLUMN}&better={_AROUND_ROWS}&worse={_AROUND_ROWS}"
            wanted = board.owners(rank - 1 - _AROUND_ROWS, rank + _AROUND_ROWS)
        else:
            path = f"rankings/{COLUMN}?from_rank={rank}&limit={_PAGE_ROWS}"
            wanted = board.owners(rank - 1, rank - 1 + _PAGE_ROWS)
        yield f"/v1/leaderboards/{board_id}/{path}", wanted


async def _time_requests(port: int, asked: Iterator[tuple[str, Any]]) -> list[float]:
    """Send the requests one after the other, and return the milliseconds that each took.

    Raises BadAnswerError if an answer has the wrong owners or the wrong rank.
    """
    took, connection = list[float](), Connection(port)
    for path, wanted in asked:
        begun = time.perf_counter()
        status, body = await connection.call("GET", path)
        took.append(1000 * (time.perf_counter() - begun))
        answer = json.loads(body)
        exact = isinstance(wanted, int)
        found = answer["positions"][0]["rank"] if exact else [entry["owner"] for entry in answer["entries"]]
        if status != 200 or found != wanted:
            raise BadAnswerError(f"{path}: {status} {body[:300]!r}")
    connection.close()
    return took


def measure_on(name: str, url: str, folder: Path, boards: dict[str, Board], rounds: int) -> list[report.Bar]:
    places = [(view, place) for view in _TOP for place in ("top", "middle")]
    took: dict[Place, list[float]] = {}
    with serve_store(url, folder) as server:
        asyncio.run(fill_board(server.port, _SMALL, rows=_SMALL_ROWS, draw=lambda rows, _: draw_scores(rows).tolist()))
        asyncio.run(refresh_columns(server.port, BOARD, [COLUMN]))
        worst = boards[BOARD].owners(boards[BOARD].rows - _UNFOLDED, boards[BOARD].rows)
        posts = [batch_body([(each, more) for each in worst]) for more in (0, 1)]
        asyncio.run(send_batches(server.port, BOARD, posts))
        for number in range(rounds + 1):
            for view, place in places:
                for board_id, board in boards.items():
                    ms = asyncio.run(_time_requests(server.port, _requests(board_id, board, place, view)))
                    if number:  # round 0 only warms up and is not counted
                        took.setdefault((view, place, board_id), []).extend(ms)
    median_ms = {place: statistics.median(ms) for place, ms in took.items()}
    lines: list[list[str | float]] = [
        [", ".join(place), median_ms[*place, _SMALL], median_ms[*place, BOARD]] for place in places
    ]
    report.print_table([f"{name}: median ms", f"{_SMALL_ROWS:,} rows", f"{boards[BOARD].rows:,} rows"], lines)
    ratios = {place: median_ms[*place, BOARD] / median_ms[*place, _SMALL] for place in places}
    exact = median_ms["exact", "middle", BOARD] / median_ms["exact", "top", BOARD]
    return [
        *(
            report.Bar(f"{name}: {', '.join(place)}, large / small", ratio, _RATIO_MAX, at_most=True)
            for place, ratio in ratios.items()
        ),
        report.Bar(f"{name}: exact rank, middle / near 1,000", exact, _EXACT_RATIO_MAX, at_most=True),
    ]


def measure(options: Options, folder: Path) -> list[report.Bar]:
    boards = {_SMALL: Board(_SMALL_ROWS), BOARD: Board(options.rows)}
    return measure_bulk_stores(options, folder, lambda name, url: measure_on(name, url, folder, boards, options.rounds))


if __name__ == "__main__":
    report.run_program(measure, __doc__, f"deep reads: {{rows:,}} rows, {{rounds}} rounds of {_RANKS} requests")
