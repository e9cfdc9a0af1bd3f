"""Compare exact ranks, default brackets and pages by cursor of three real boards over HTTP with plain sorting.

    python -m benchmarks.real_boards DATA

The true ranks are computed here from the files, by competition ranking. All owners are checked, not only some.

Bar: no exact rank, bracket or row of a page differs from the truth.
"""

import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import report
from benchmarks.boards import COLUMN, REAL_BOARDS, RealBoard, import_real_board, read_real_board
from benchmarks.client import Connection, for_each, percent_encode
from benchmarks.options import parse_options
from benchmarks.servers import serve_file

_CONNECTIONS = 8
_PAGE = 997  # rows per page; no board's size is a multiple of 997, so the last page is short
_SHOWN = 3


@dataclass(slots=True)
class Faults:
    """The wrong answers of one board, counted by kind. Only the first few of each kind are printed."""

    exact: int = 0
    bracket: int = 0
    walk: int = 0

    def note(self, what: str, found: object) -> None:
        setattr(self, what, getattr(self, what) + 1)
        if getattr(self, what) <= _SHOWN:
            print(f"   {what}: {found}")


async def check_ranks(port: int, board: RealBoard, faults: Faults) -> dict[str, int]:
    """Check every owner's position in the exact and the default mode.

    Return how many of the default answers used each method.
    """
    better = board.better_counts()
    methods: dict[str, int] = {}

    async def one(connection: Connection, index: int) -> None:
        path = f"/v1/leaderboards/{board.name}/entries/{percent_encode(board.owners[index])}/positions"
        value, rank, total = board.values[index], 1 + better[board.values[index]], len(board.values)
        exact = (await connection.call_ok("GET", path + "?rank=exact"))["positions"][0]
        said = {name: exact[name] for name in ("value", "rank", "low", "high", "exact", "total")}
        if said != {"value": value, "rank": rank, "low": rank, "high": rank, "exact": True, "total": total}:
            faults.note("exact", f"{board.owners[index]}: {exact}, truth {rank}")
        default = (await connection.call_ok("GET", path))["positions"][0]
        low, high = default["low"], default["high"]
        honest = default["exact"] == (low == high) and low <= default["rank"] <= high
        if not (low <= rank <= high and honest and default["value"] == value and default["total"] == total):
            faults.note("bracket", f"{board.owners[index]}: {default}, truth {rank}")
        methods[default["method"]] = methods.get(default["method"], 0) + 1

    await for_each(port, range(len(board.owners)), one, connections=_CONNECTIONS)
    return methods


async def check_walk(port: int, board: RealBoard, faults: Faults) -> None:
    """Read all pages by cursor. Compare the owners, values and ranks with the sorted file."""
    sign = -1 if board.best == "high" else 1
    better = board.better_counts()
    truth = sorted((sign * value, name) for name, value in zip(board.owners, board.values, strict=True))
    want = [(name, sign * key, 1 + better[sign * key]) for key, name in truth]
    path = f"/v1/leaderboards/{board.name}/rankings/{COLUMN}?limit={_PAGE}"
    connection, got, next_cursor = Connection(port), [], ""
    for _ in range(len(want) // _PAGE + 2):
        page = await connection.call_ok("GET", path + next_cursor)
        got += [
            (entry["owner"], entry["value"], entry["rank"] if entry["exact"] else None) for entry in page["entries"]
        ]
        if page["next"] is None:
            break
        next_cursor = f"&cursor={percent_encode(page['next'])}"
    connection.close()
    for place, (one, other) in enumerate(zip(got, want, strict=False), 1):
        if one != other:
            faults.note("walk", f"row {place}: {one}, truth {other}")
    if len(got) != len(want):
        faults.note("walk", f"{len(got)} entries, truth {len(want)}")


async def check_board(port: int, board: RealBoard) -> Faults:
    faults = Faults()
    filled_s = await import_real_board(port, board)
    begun = time.perf_counter()
    methods = await check_ranks(port, board, faults)
    await check_walk(port, board, faults)
    entries, distinct = len(board.values), len(set(board.values))
    print(
        f"   {board.name} ({board.best}): {entries:,} entries, {distinct:,} values, imported in {filled_s:.1f} s,",
        end=" ",
    )
    print(f"checked in {time.perf_counter() - begun:.1f} s, default answers by method {methods}", flush=True)
    return faults


def measure(data: Path, folder: Path) -> list[report.Bar]:
    bars = []
    with serve_file(folder / "real.db") as server:
        for name in REAL_BOARDS:
            faults = asyncio.run(check_board(server.port, read_real_board(data, name)))
            bars += [
                report.Bar(f"{name}: exact ranks unlike competition ranking", faults.exact, 0, at_most=True),
                report.Bar(f"{name}: default answers whose bracket misses the truth", faults.bracket, 0, at_most=True),
                report.Bar(f"{name}: rows of the walk unlike the sorted file", faults.walk, 0, at_most=True),
            ]
    return bars


def main() -> int:
    options = parse_options(__doc__)
    if options.data is None:
        print(
            "usage: python -m benchmarks.real_boards FOLDER (with "
            + ", ".join(f"{name}.csv" for name in REAL_BOARDS)
            + ")"
        )
        return 2
    data = options.data
    return report.run_benchmark(options, "real boards", lambda _, folder: measure(data, folder))


if __name__ == "__main__":
    sys.exit(main())
