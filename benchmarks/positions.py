"""Measure the rate of `positions` for random owners of a board with 1 M rows against a hello-world route.

python -m benchmarks.positions [--rows N] [--seconds S] [--rounds N]

Rounds have 32 or 256 connections. Before anything is timed, answers are compared with ranks that are computed without
the service.

Bars: with 32 connections the rate is at least 50 % of the rate of hello-world. With 256 connections it is at least 90 %
of the rate with 32 connections.
"""

import asyncio
import random
import sys
from bisect import bisect_right
from pathlib import Path

from benchmarks import load, report
from benchmarks.boards import BOARD, COLUMN, draw_values, owner_at, prepare_store
from benchmarks.client import BadAnswerError, Connection, for_each
from benchmarks.options import Options, parse_options
from benchmarks.servers import serve_file, serve_hello

_CHECKED = 500
FEW, MANY = 32, 256


async def check_positions(port: int, rows: int) -> dict[str, int]:
    """Request positions of some owners in the default mode, and compare the answers with the true ranks.

    Return the number of answers by method. Raises BadAnswerError.
    """
    numbers = draw_values(rows)
    ascending = sorted(numbers)
    methods: dict[str, int] = {}

    async def one(connection: Connection, index: int) -> None:
        answer = await connection.call_ok("GET", f"/v1/leaderboards/{BOARD}/entries/{owner_at(index)}/positions")
        position = answer["positions"][0]
        rank = 1 + rows - bisect_right(ascending, numbers[index])
        if not (
            position["value"] == numbers[index]
            and position["low"] <= rank <= position["high"]
            and position["total"] == rows
        ):
            raise BadAnswerError(f"owner {index}, value {numbers[index]}, rank {rank}: {position}")
        methods[position["method"]] = methods.get(position["method"], 0) + 1

    await for_each(port, random.Random(1).sample(range(rows), min(_CHECKED, rows)), one, connections=8)
    return methods


def measure(options: Options, folder: Path) -> list[report.Bar]:
    store = prepare_store(options, folder, rows=options.rows)
    with serve_file(store) as server, serve_hello(folder) as baseline:
        methods = asyncio.run(check_positions(server.port, options.rows))
        print(f"   {sum(methods.values())} answers checked against ranks computed apart; methods: {methods}")
        ours = load.Target(server.url, f"/v1/leaderboards/{BOARD}/entries/", "/positions", rows=options.rows)
        theirs = load.Target(baseline.url, "/hello")
        contestants = {
            f"{name}, {connections}": load.wrk_contestant(target, connections=connections, seconds=options.seconds)
            for connections in (FEW, MANY)
            for name, target in (("positions", ours), ("hello", theirs))
        }
        figures = load.run_alternately(contestants, rounds=options.rounds)
        resident_mib = server.resident_mib()
    report.print_table(load.COLUMNS, [load.table_row(f"{name} connections", found) for name, found in figures.items()])
    few, many = figures[f"positions, {FEW}"], figures[f"positions, {MANY}"]
    return [
        report.Bar(
            f"positions ({COLUMN}) / hello-world, {FEW} connections",
            load.median_ratio(few, figures[f"hello, {FEW}"]),
            0.5,
        ),
        report.Bar(f"positions at {MANY} / at {FEW} connections", load.median_ratio(many, few), 0.9),
        report.Bar("service resident memory", resident_mib, None, " MiB"),
    ]


def main() -> int:
    options = parse_options(__doc__)
    title = f"positions: {options.rows:,} rows, {options.rounds} rounds of {options.seconds:g} s"
    return report.run_benchmark(options, title, measure)


if __name__ == "__main__":
    sys.exit(main())
