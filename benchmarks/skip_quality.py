"""Measure the worst relative error of the ranks from skip-sampled curves, over all entries of a board and over HTTP.

    python -m benchmarks.skip_quality [DATA] [--rows N]

For every distinct value, and for the next possible value after it, the rank is requested with `rank=estimate`. The true
ranks are counted from the board itself. The reported error is the worst error, not the mean.

Bars: the worst relative error over all entries is at most 0.9 %, no bracket misses the true rank, at most 1,000 knots.
"""

import asyncio
import math
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.boards import COLUMN, REAL_BOARDS, RealBoard, fill_board, owner_at, read_real_board, refresh_columns
from benchmarks.bulk import draw_scores
from benchmarks.client import Connection, for_each
from benchmarks.curve_boards import GAP_ROWS_MAX
from benchmarks.options import Options, parse_options
from benchmarks.servers import serve_file
from predictor import Bracket
from tests.predictor import quality
from tests.predictor.quality import Quality

_ASKED = 300  # values per request: the request line stays under 8 KiB
_CONNECTIONS = 4
_WORST = 0.9  # the bar, in percent
_KNOTS = 1_000


class Answers:
    """The service's brackets by key (smaller is better). `measure_quality` takes this object in place of a curve."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.brackets: dict[int, Bracket] = {}
        self.contradictions = 0  # number of answers whose rank or `exact` contradicts their own bracket

    def take(self, key: int, position: dict[str, Any]) -> None:
        rank, low, high, exact = (position[name] for name in ("rank", "low", "high", "exact"))
        self.brackets[key] = Bracket(rank, low, high, "knot" if exact else "curve")
        self.contradictions += not low <= rank <= high or exact != (low == high)

    def locate(self, key: int) -> Bracket:
        return self.brackets[key]


@dataclass(frozen=True, slots=True)
class BoardQuality:
    quality: Quality
    contradictions: int
    knots: int


def draw_lognormal_board(rows: int) -> RealBoard:
    """Return the board to which the bars apply: rounded lognormal values, of which higher values are better."""
    numbers: list[int] = draw_scores(rows).tolist()
    return RealBoard(
        f"lognormal-{rows}",
        "high",
        [owner_at(index) for index in range(rows)],
        [str(value) for value in numbers],
        numbers,
    )


async def ask_board(port: int, board: RealBoard) -> BoardQuality:
    """Request the rank of every value and of the next possible value after it. Return how good the answers are."""
    sign = -1 if board.best == "high" else 1
    keys = sorted(sign * value for value in board.values)
    answers = Answers(math.gcd(*(worse - better for better, worse in pairwise(keys))) or 1)
    path = f"/v1/leaderboards/{board.name}/rankings/{COLUMN}"

    async def chunk(connection: Connection, asked: list[int]) -> None:
        values = ",".join(str(sign * key) for key in asked)
        answer = await connection.call_ok("GET", f"{path}/positions?rank=estimate&values={values}")
        for key, position in zip(asked, answer["positions"], strict=True):
            answers.take(key, position)

    wanted = sorted({*keys, *(key + answers.step for key in keys)})
    chunks = [wanted[first : first + _ASKED] for first in range(0, len(wanted), _ASKED)]
    await for_each(port, chunks, chunk, connections=_CONNECTIONS)
    connection = Connection(port)
    knots = len((await connection.call_ok("GET", f"{path}/curve"))["knots"])
    connection.close()
    return BoardQuality(quality.measure_quality(answers, quality.count_by_key(keys)), answers.contradictions, knots)


async def check_board(port: int, board: RealBoard) -> BoardQuality:
    # By default the service may scan a board that is at rest. Long gaps get knots on top of `samples`.
    samples = _KNOTS - len(board.values) // GAP_ROWS_MAX
    spec = board.spec() | {"predictor": {"method": "skip", "samples": samples}}
    await fill_board(port, board.name, owners=board.owners, named={COLUMN: board.texts}, body=spec)
    await refresh_columns(port, board.name, [COLUMN])
    return await ask_board(port, board)


def measure(options: Options, folder: Path) -> list[report.Bar]:
    found: dict[str, BoardQuality] = {}
    with serve_file(folder / "quality.db", environment={"RANKCURVE_GAP_ROWS_MAX": str(GAP_ROWS_MAX)}) as server:
        if options.data is not None:
            for name in REAL_BOARDS:
                found[name] = asyncio.run(check_board(server.port, read_real_board(options.data, name)))
        made_up = draw_lognormal_board(options.rows)
        found[made_up.name] = asyncio.run(check_board(server.port, made_up))
    bars, rows = [], []
    for name, one in found.items():
        measured, broken = one.quality, one.quality.broken_brackets + one.contradictions
        worst = 100 * measured.worst_entry_error
        rows.append((name, worst, 100 * measured.worst_error, 100 * measured.mean_error, one.knots, broken))
        bars += [
            report.Bar(f"{name}: worst relative error over all entries", worst, _WORST, " %", at_most=True),
            report.Bar(f"{name}: broken brackets", broken, 0, at_most=True),
            report.Bar(f"{name}: knots", one.knots, _KNOTS, at_most=True),
        ]
    report.print_table(("board", "worst %", "worst, points past too %", "mean %", "knots", "broken brackets"), rows)
    return bars


def main() -> int:
    options = parse_options(__doc__, rows=343_000)
    title = f"quality of skip-sampled curves, {_KNOTS:,} knots, {options.rows:,} lognormal integers"
    if options.data is None:
        title += "; no folder of real boards is given"
    return report.run_benchmark(options, title, measure)


if __name__ == "__main__":
    sys.exit(main())
