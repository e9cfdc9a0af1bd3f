"""Check every answer that the service gives after its process starts, with and without a stored curve.

python -m benchmarks.start_to_answer [--rows N] [--seconds S]

Clients send requests even before the service is ready, and every answer is compared with the true rank.

Bars: no request fails once the service has answered, no answer has rank 0, and ranks are exact while there is no curve.
"""

import asyncio
import json
import random
import sys
import time
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import report
from benchmarks.boards import BOARD, COLUMN, board_spec, draw_values, fill_board, owner_at
from benchmarks.client import Connection
from benchmarks.options import Options, parse_options
from benchmarks.servers import Server, serve_file

_CLIENTS = 8
_CURVE_BEFORE = "curve stored before"
_KEY = f"/v1/leaderboards/{BOARD}"


@dataclass(slots=True)
class Seen:
    first_s: float = 0.0
    answers: int = 0
    failed: int = 0
    wrong: int = 0
    estimated: int = 0
    methods: dict[str, int] = field(default_factory=dict)


async def ask_until(
    server: Server, numbers: list[int], ascending: list[int], seen: Seen, *, seed: int, until: float
) -> None:
    """Request positions of random owners until the time `until`.

    A refused connection counts as a failure only after the first answer.
    """
    connection, rng = Connection(server.port), random.Random(seed)
    while time.perf_counter() < until:
        index = rng.randrange(len(numbers))
        try:
            status, _ = found = await connection.call("GET", f"{_KEY}/entries/{owner_at(index)}/positions")
        except (OSError, EOFError):
            seen.failed += seen.answers > 0
            await asyncio.sleep(0.005)
            continue
        seen.first_s = seen.first_s or time.perf_counter() - server.spawned_at
        seen.answers += 1
        if status != 200:
            seen.failed += 1
            continue
        count_answer(found[1], 1 + len(numbers) - bisect_right(ascending, numbers[index]), seen)
    connection.close()


def count_answer(answer: bytes, rank: int, seen: Seen) -> None:
    position = json.loads(answer)["positions"][0]
    seen.methods[position["method"]] = seen.methods.get(position["method"], 0) + 1
    seen.wrong += not (1 <= position["low"] <= rank <= position["high"] and position["rank"] >= 1)
    if position["method"] == "count":
        seen.wrong += not (position["exact"] and position["rank"] == rank)
    else:
        seen.estimated += 1


async def refresh_curve(server: Server) -> None:
    connection = Connection(server.port)
    await connection.call_ok("POST", f"{_KEY}/rankings/{COLUMN}/refresh")
    connection.close()


async def start_and_ask(server: Server, numbers: list[int], seconds: float) -> Seen:
    seen, ascending = Seen(), sorted(numbers)
    server.spawn()
    until = time.perf_counter() + seconds
    async with asyncio.TaskGroup() as group:
        for seed in range(_CLIENTS):
            group.create_task(ask_until(server, numbers, ascending, seen, seed=seed, until=until))
    return seen


def measure(options: Options, folder: Path) -> list[report.Bar]:
    store, numbers = folder / "start.db", draw_values(options.rows)
    with serve_file(store, jobs="none") as server:
        owners = [owner_at(index) for index in range(options.rows)]
        asyncio.run(fill_board(server.port, BOARD, owners=owners, named={COLUMN: numbers}, body=board_spec([COLUMN])))
    runs: dict[str, Seen] = {}
    for name, jobs in (
        ("no curve, no jobs", "none"),
        ("no curve, jobs running", "embedded"),
        (_CURVE_BEFORE, "embedded"),
    ):
        if name == _CURVE_BEFORE:
            with serve_file(store, jobs="embedded") as server:
                asyncio.run(refresh_curve(server))
        server = serve_file(store, jobs=jobs)
        try:
            runs[name] = asyncio.run(start_and_ask(server, numbers, options.seconds))
        finally:
            server.stop()
    rows = [
        (name, 1000 * seen.first_s, seen.answers, seen.failed, seen.wrong, str(seen.methods))
        for name, seen in runs.items()
    ]
    report.print_table(("start", "first answer ms", "answers", "failed", "wrong", "methods"), rows)
    bare = runs["no curve, no jobs"]
    return [
        report.Bar("answers that failed", sum(seen.failed for seen in runs.values()), 0, at_most=True),
        report.Bar(
            "answers with a rank of 0 or an untrue bracket", sum(seen.wrong for seen in runs.values()), 0, at_most=True
        ),
        report.Bar("answers not counted while there is no curve", bare.estimated, 0, at_most=True),
        report.Bar("answers with no curve", bare.answers, 1),
        report.Bar("answers from the curve stored before", runs[_CURVE_BEFORE].estimated, 1),
        report.Bar("start to first answer", 1000 * bare.first_s, None, " ms"),
    ]


def main() -> int:
    options = parse_options(__doc__, rows=100_000)
    return report.run_benchmark(
        options, f"start to first answer: {options.rows:,} rows, {options.seconds:g} s each", measure
    )


if __name__ == "__main__":
    sys.exit(main())
