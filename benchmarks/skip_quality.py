"""How far off the skip-sampled curve is: the worst relative rank error over all entries of a board, asked over HTTP.

Rule kept: every distinct value is asked for with `rank=estimate`, and the truth is counted here; the mean is never
quoted for the worst.
"""

from __future__ import annotations

import asyncio
import math
import sys
from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks import report
from benchmarks.boards import COLUMN, REAL_BOARDS, RealBoard, import_real, owner, real_board
from benchmarks.client import Connection, for_each
from benchmarks.options import Options, parse, workplace
from benchmarks.servers import service

_ASKED = 300  # values a request: the request line stays under 8 KiB
_CONNECTIONS = 4
_WORST = 0.9  # percent


@dataclass(slots=True)
class Quality:
    """Errors in percent of the true rank, worst unless said."""

    entries: float = 0.0  # over the values that owners have
    lattice: float = 0.0  # over the first possible value past each of them
    mean: float = 0.0  # over the entries
    broken: int = 0  # answers whose bracket misses the truth, or that lie outside their own bracket
    knots: int = 0


def lognormal(rows: int) -> RealBoard:
    """The made-up board of the bars: rounded lognormal integers, high is better."""
    import numpy

    numbers = [int(value) for value in numpy.random.default_rng(11).lognormal(10, 1.5, rows).round()]
    return RealBoard(
        f"lognormal-{rows}", "high", [owner(index) for index in range(rows)], [str(value) for value in numbers], numbers
    )


class Truth:
    """Strictly better counts of any value of one board, by plain sorting."""

    def __init__(self, board: RealBoard) -> None:
        self._sign = -1 if board.best == "high" else 1
        self._keys = sorted(self._sign * value for value in board.values)
        distinct = sorted(set(self._keys))
        step = math.gcd(*(after - before for before, after in pairwise(distinct))) or 1
        self.values = [self._sign * key for key in distinct]
        self.past = [self._sign * (key + step) for key in distinct[:-1]]
        ends = [bisect_left(self._keys, key + 1) for key in distinct]
        self.ties = {self._sign * key: end - start for key, start, end in zip(distinct, [0, *ends], ends, strict=False)}

    def rank(self, value: int) -> int:
        return 1 + bisect_left(self._keys, self._sign * value)


async def ask(port: int, board: RealBoard) -> Quality:
    """Ask for all values, and for the first one past each."""
    truth, quality = Truth(board), Quality()
    path = f"/v1/leaderboards/{board.name}/rankings/{COLUMN}"

    async def chunk(connection: Connection, values: list[int]) -> None:
        answer = await connection.must("GET", f"{path}/positions?rank=estimate&values={','.join(map(str, values))}")
        for value, position in zip(values, answer["positions"], strict=True):
            rank = truth.rank(value)
            error = 100 * abs(position["rank"] - rank) / rank
            ties = truth.ties.get(value, 0)
            quality.lattice = max(quality.lattice, error)
            if ties:
                quality.entries = max(quality.entries, error)
                quality.mean += ties * error / len(board.values)
            inside = position["low"] <= min(rank, position["rank"]) and max(rank, position["rank"]) <= position["high"]
            quality.broken += not (inside and position["exact"] == (position["low"] == position["high"]))

    wanted = sorted({*truth.values, *truth.past})
    chunks = [wanted[first : first + _ASKED] for first in range(0, len(wanted), _ASKED)]
    await for_each(port, chunks, chunk, connections=_CONNECTIONS)
    connection = Connection(port)
    quality.knots = len((await connection.must("GET", f"{path}/curve"))["knots"])
    connection.close()
    return quality


async def check_board(port: int, board: RealBoard) -> Quality:
    await import_real(port, board)
    return await ask(port, board)


def measure(options: Options, folder: Path) -> list[report.Bar]:
    found: dict[str, Quality] = {}
    with service(folder / "quality.db") as server:
        if options.data is not None:
            for name in REAL_BOARDS:
                found[name] = asyncio.run(check_board(server.port, real_board(options.data, name)))
        made_up = lognormal(options.rows)
        found[made_up.name] = asyncio.run(check_board(server.port, made_up))
    rows = [(name, one.entries, one.lattice, one.mean, one.knots, one.broken) for name, one in found.items()]
    report.table(("board", "worst %", "worst past a value %", "mean %", "knots", "broken brackets"), rows)
    bars = []
    for name, one in found.items():
        bars += [
            report.Bar(f"{name}: worst relative error over all entries", one.entries, _WORST, " %", at_most=True),
            report.Bar(f"{name}: broken brackets", one.broken, 0, at_most=True),
            report.Bar(f"{name}: knots", one.knots, 1000, at_most=True),
        ]
    return bars


def main() -> int:
    options = parse(__doc__, rows=343_000)
    with workplace(options) as folder:
        report.heading(f"quality of skip-sampled curves, 1,000 samples, {options.rows:,} lognormal integers", folder)
        if options.data is None:
            print("   without a folder of real boards: only the made-up one")
        return report.verdict(measure(options, folder))


if __name__ == "__main__":
    sys.exit(main())
