"""Time `around` and `from_rank` on a large board and on a board of 3,000 rows, both at the top and in the middle.

    python -m benchmarks.deep_pages [--rows N] [--rounds N]

Both boards are in the same store, first SQLite and then PostgreSQL. Requests to the two boards take turns. Every answer
is compared with the values that the boards were filled with.

Bar: the median of the large board is at most 3 times that of the small board.
"""

import asyncio
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import report
from benchmarks.boards import BOARD, COLUMN, fill_board, owner_at, refresh_columns
from benchmarks.bulk import draw_scores, measure_bulk_stores
from benchmarks.client import BadAnswerError, Connection
from benchmarks.exact_anywhere import Board
from benchmarks.options import Options
from benchmarks.servers import serve_store

_SMALL = "small"
_SMALL_ROWS = 3_000
_AROUND_ROWS = 5  # rows better than the owner, and as many worse rows
_PAGE_ROWS = 100
_RANKS = 50  # number of ranks requested at the top, and as many in the middle
_RATIO_MAX = 3.0

Place = tuple[str, str, str]  # the view, "top" or "middle", and the id of the board


def _requests(board_id: str, board: Board, place: str, view: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the path of each request, with the owners that its answer must contain."""
    first = 1 if place == "top" else board.rows // 2
    for rank in range(first, first + _RANKS):
        if view == "around":
            name = owner_at(int(board.best_first[rank - 1]))
            path = f"entries/{name}/around?column={COLUMN}&better={_AROUND_ROWS}&worse={_AROUND_ROWS}"
            rows = board.best_first[max(0, rank - 1 - _AROUND_ROWS) : rank + _AROUND_ROWS]
        else:
            path = f"rankings/{COLUMN}?from_rank={rank}&limit={_PAGE_ROWS}"
            rows = board.best_first[rank - 1 : rank - 1 + _PAGE_ROWS]
        yield f"/v1/leaderboards/{board_id}/{path}", [owner_at(int(index)) for index in rows]


async def _time_requests(port: int, asked: Iterator[tuple[str, list[str]]]) -> list[float]:
    """Send the requests one after the other. Return the milliseconds of each request.

    Raises BadAnswerError if an answer has other owners than expected.
    """
    took, connection = list[float](), Connection(port)
    for path, owners in asked:
        begun = time.perf_counter()
        status, body = await connection.call("GET", path)
        took.append(1000 * (time.perf_counter() - begun))
        if status != 200 or [entry["owner"] for entry in json.loads(body)["entries"]] != owners:
            raise BadAnswerError(f"{path}: {status} {body[:300]!r}")
    connection.close()
    return took


def measure_on(name: str, url: str, folder: Path, boards: dict[str, Board], rounds: int) -> list[report.Bar]:
    took: dict[Place, list[float]] = {}
    with serve_store(url, folder) as server:
        asyncio.run(fill_board(server.port, _SMALL, rows=_SMALL_ROWS, draw=lambda rows, _: draw_scores(rows).tolist()))
        asyncio.run(refresh_columns(server.port, BOARD, [COLUMN]))
        for number in range(rounds + 1):
            for view in ("around", "from_rank"):
                for place in ("top", "middle"):
                    for board_id, board in boards.items():
                        ms = asyncio.run(_time_requests(server.port, _requests(board_id, board, place, view)))
                        if number:  # round 0 only warms up and is not counted
                            took.setdefault((view, place, board_id), []).extend(ms)
    lines: list[list[str | float]] = []
    bars: list[report.Bar] = []
    for view in ("around", "from_rank"):
        for place in ("top", "middle"):
            small, large = (statistics.median(took[view, place, board_id]) for board_id in (_SMALL, BOARD))
            lines.append([f"{view}, {place}", small, large])
            bars.append(report.Bar(f"{name}: {view}, {place}, large / small", large / small, _RATIO_MAX, at_most=True))
    report.print_table([f"{name}: median ms", f"{_SMALL_ROWS:,} rows", f"{boards[BOARD].rows:,} rows"], lines)
    return bars


def measure(options: Options, folder: Path) -> list[report.Bar]:
    boards = {_SMALL: Board(_SMALL_ROWS), BOARD: Board(options.rows)}
    return measure_bulk_stores(options, folder, lambda name, url: measure_on(name, url, folder, boards, options.rounds))


if __name__ == "__main__":
    report.run_program(measure, __doc__, f"deep pages: {{rows:,}} rows, {{rounds}} rounds of {_RANKS} requests")
