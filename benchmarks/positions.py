"""Measure the rates of reads on a board with 1 M rows against a hello-world route.

python -m benchmarks.positions [--rows N] [--seconds S] [--rounds N]

The reads are `positions` and `around` for random owners, and the ten best rows, also by clients that have them already
(`If-None-Match`). Rounds have 32 connections, or 256 for `positions`. Before anything is timed, positions are compared
with ranks that are computed without the service.

Bars: with 32 connections the rate of `positions` is at least 60 % of the rate of hello-world, that of `around` 30 %,
that of the ten best rows 75 %, and 80 % if they are unchanged. With 256 connections the rate of `positions` is at least
90 % of that with 32, and with two fronts at least 1.5 times that of one process, both on copies of the store.
"""

import asyncio
import random
import shutil
import urllib.request
from bisect import bisect_right
from pathlib import Path

from benchmarks import load, report
from benchmarks.boards import BOARD, COLUMN, draw_values, owner_at, prepare_store
from benchmarks.client import BadAnswerError, Connection, for_each
from benchmarks.options import Options
from benchmarks.servers import serve_file, serve_hello

_CHECKED = 500
FEW, MANY = 32, 256
# By what is read: the least share of hello-world's rate.
_BARS = {"positions": 0.6, "around": 0.3, "top 10": 0.75, "top 10 unchanged": 0.8}


async def check_positions(port: int, rows: int) -> dict[str, int]:
    """Request the positions of some owners in the default mode, and compare the answers with the true ranks.

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


def _read_tag(url: str) -> str:
    with urllib.request.urlopen(url) as answer:
        return str(answer.headers["ETag"])


def measure(options: Options, folder: Path) -> list[report.Bar]:
    store = prepare_store(options, folder, rows=options.rows)
    copies = []
    for name in ("alone", "two"):
        (folder / name).mkdir()
        copies.append(Path(shutil.copy(store, folder / name)))
    with (
        serve_file(store) as server,
        serve_file(copies[0], workers=0) as alone,
        serve_file(copies[1], workers=2) as two,
        serve_hello(folder) as baseline,
    ):
        methods = asyncio.run(check_positions(server.port, options.rows))
        print(f"   {sum(methods.values())} answers checked against ranks computed apart; methods: {methods}")
        entries = f"/v1/leaderboards/{BOARD}/entries/"
        around = f"/around?column={COLUMN}&better=5&worse=5"
        top = f"/v1/leaderboards/{BOARD}/rankings/{COLUMN}?limit=10"
        targets = {
            "positions": load.Target(server.url, entries, "/positions", rows=options.rows),
            "around": load.Target(server.url, entries, around, rows=options.rows),
            "top 10": load.Target(server.url, top),
            "top 10 unchanged": load.Target(server.url, top, known=_read_tag(server.url + top)),
            "hello": load.Target(baseline.url, "/hello"),
        }
        contestants = {
            name: load.wrk_contestant(target, connections=FEW, seconds=options.seconds)
            for name, target in targets.items()
        }
        many = f"positions, {MANY} connections"
        # With few connections, each of two fronts is less busy than one process, and so counts more ranks exactly.
        crowds = {many: server, "one process": alone, "two fronts": two}
        for name, crowded in crowds.items():
            target = load.Target(crowded.url, entries, "/positions", rows=options.rows)
            contestants[name] = load.wrk_contestant(target, connections=MANY, seconds=options.seconds)
        figures = load.compare(contestants, rounds=options.rounds)
        resident_mib = server.resident_mib()
    ratios = {name: load.median_ratio(figures[name], figures["hello"]) for name in _BARS}
    spread = load.median_ratio(figures["two fronts"], figures["one process"])
    crowd = load.median_ratio(figures[many], figures["positions"])
    return [
        *(report.Bar(f"{name} / hello-world, {FEW} connections", ratios[name], bar) for name, bar in _BARS.items()),
        report.Bar(f"positions at {MANY} / at {FEW} connections", crowd, 0.9),
        report.Bar(f"positions, two fronts / one process, {MANY} connections", spread, 1.5),
        report.Bar("service resident memory", resident_mib, None, " MiB"),
    ]


if __name__ == "__main__":
    report.run_program(measure, __doc__, "positions: {rows:,} rows, {rounds} rounds of {seconds:g} s")
