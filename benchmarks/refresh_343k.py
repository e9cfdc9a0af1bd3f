"""Measure the time of a refresh of six columns of 343,000 rows with 1,000 samples, on SQLite.

python -m benchmarks.refresh_343k [--rows N] [--rounds N]

The report that started this project gives 68 s and 129 s. A figure here is the time that the refresh itself reports
(store and curve, without HTTP). The time of the whole request is printed beside this figure.

Bars: one column at most 25 ms, all six at most 400 ms.
"""

import asyncio
import statistics
import time
from pathlib import Path

from benchmarks import report
from benchmarks.boards import BOARD, board_spec, column_names, prepare_store
from benchmarks.client import Connection
from benchmarks.options import Options
from benchmarks.servers import serve_file

_COLUMNS = 6


async def time_refreshes(port: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return (seconds that the refresh reports, seconds of the request) by column and round.

    Round 0 is not counted.
    """
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in column_names(_COLUMNS)}
    connection = Connection(port)
    sampled = {
        **board_spec(column_names(_COLUMNS)),
        "predictor": {"method": "skip"},
    }  # the default method, `auto`, would scan this board, because it gets no posts
    await connection.call_ok("PUT", f"/v1/leaderboards/{BOARD}", sampled)
    for number in range(rounds + 1):
        for name, figures in took.items():
            begun = time.perf_counter()
            answer = await connection.call_ok("POST", f"/v1/leaderboards/{BOARD}/rankings/{name}/refresh")
            if number:
                figures.append((answer["seconds"], time.perf_counter() - begun))
    connection.close()
    return took


def measure(options: Options, folder: Path) -> list[report.Bar]:
    store = prepare_store(options, folder, rows=options.rows, columns=_COLUMNS)
    with serve_file(store) as server:
        took = asyncio.run(time_refreshes(server.port, options.rounds))
    rows = []
    for name, figures in took.items():
        seconds = [1000 * inside for inside, _ in figures]
        trips = [1000 * trip for _, trip in figures]
        rows.append((name, statistics.median(seconds), min(seconds), max(seconds), statistics.median(trips)))
    report.print_table(("column", "refresh ms", "lowest", "highest", "round trip ms"), rows)
    of_all = [sum(figures[number][0] for figures in took.values()) for number in range(options.rounds)]
    slowest_ms = max(row[1] for row in rows)
    return [
        report.Bar("one column, median of the slowest", slowest_ms, 25, " ms", at_most=True),
        report.Bar(
            f"all {_COLUMNS} columns, one after the other", 1000 * statistics.median(of_all), 400, " ms", at_most=True
        ),
    ]


if __name__ == "__main__":
    report.run_program(
        measure,
        __doc__,
        f"refresh: {{rows:,}} rows x {_COLUMNS} columns, 1,000 samples, {{rounds}} rounds",
        rows=343_000,
        rounds=15,
    )
