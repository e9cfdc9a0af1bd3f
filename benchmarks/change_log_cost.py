"""Measure what the change log and live curves cost batch posts over HTTP, on both stores, with 1 and 6 columns.

python -m benchmarks.change_log_cost [--rows N] [--seconds S] [--rounds N]

Three services take turns. The first has the change log and live curves. The second has the log but gives folding almost
no time. The third has `RANKCURVE_CHANGE_LOG=false`. All apply the same batches to boards with the same content. The
batches are made before the clock starts. Every post changes every ranked column. On PostgreSQL all boards are on one
server.

Bar: with the log and live curves, the rate is at least 75 % of the rate without both. The rate with the log but without
live curves is only reported.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks import load, report
from benchmarks.boards import (
    BATCH,
    BOARD,
    board_spec,
    column_names,
    copy_store,
    draw_batches,
    draw_values,
    fill_board,
    owner_at,
    prepare_store,
    refresh_columns,
    send_batches,
)
from benchmarks.options import Options, parse_options
from benchmarks.servers import POSTGRES_SETTINGS, serve_file, serve_store
from tests.servers import postgres

_CONNECTIONS = 4
_COLUMNS = (1, 6)
_POSTS_PER_S = {("SQLite", 1): 10_000, ("SQLite", 6): 5_000, ("PostgreSQL", 1): 15_000, ("PostgreSQL", 6): 8_000}
# If the disk or the whole machine stands still for some seconds, the service rightly refuses posts. Here a refusal
# would end the benchmark, so posts may wait for ten minutes.
_PATIENT = {"RANKCURVE_POST_WAIT_S_MAX": "600"}
_VARIANTS = {
    "log and live curves": _PATIENT,
    "log alone": _PATIENT | {"RANKCURVE_FOLD_LOAD_RATIO": "0.01"},
    "neither": _PATIENT | {"RANKCURVE_CHANGE_LOG": "false"},
}
COST_MAX = 0.25  # the change log and live curves together may reduce the rate by this ratio


def _posting(port: int, rows: int, columns: int, count: int) -> Callable[[int], load.Figure]:
    names = column_names(columns)

    def contestant(number: int) -> load.Figure:
        bodies = [
            json.dumps(
                {"posts": [{"owner": name, "stats": dict.fromkeys(names, more)} for name, more in batch]}
            ).encode()
            for batch in draw_batches(rows, seed=number, count=count)
        ]
        begun = time.perf_counter()
        asyncio.run(send_batches(port, BOARD, bodies, size=BATCH, connections=_CONNECTIONS))
        return load.Figure(count * BATCH / (time.perf_counter() - begun))

    return contestant


def _on_sqlite(options: Options, folder: Path, columns: int, stack: ExitStack) -> dict[str, int]:
    """Start one service for each variant, on its own copy of a filled file. Return the port of each variant."""
    folder.mkdir()
    store = prepare_store(options, folder, rows=options.rows, columns=columns)
    ports = {}
    for number, (called, environment) in enumerate(_VARIANTS.items()):
        copy = folder / f"{number}.db"
        copy_store(store, copy)
        ports[called] = stack.enter_context(serve_file(copy, environment=environment)).port
    return ports


def _on_postgres(options: Options, folder: Path, columns: int, stack: ExitStack) -> dict[str, int]:
    names = column_names(columns)
    named = {name: draw_values(options.rows, index) for index, name in enumerate(names)}
    owners = [owner_at(index) for index in range(options.rows)]
    cluster = stack.enter_context(postgres(POSTGRES_SETTINGS))
    ports = {}
    for number, (called, environment) in enumerate(_VARIANTS.items()):
        cluster.run_sql(f"CREATE DATABASE log_{number}")
        place = folder / str(number)
        place.mkdir(parents=True)
        url = cluster.url(f"log_{number}")
        ports[called] = stack.enter_context(serve_store(url, place, environment=environment)).port
        asyncio.run(fill_board(ports[called], BOARD, owners=owners, named=named, body=board_spec(names)))
        asyncio.run(refresh_columns(ports[called], BOARD, names))
    cluster.run_sql("CHECKPOINT")
    return ports


def measure(options: Options, folder: Path) -> list[report.Bar]:
    bars = []
    for store, start in (("SQLite", _on_sqlite), ("PostgreSQL", _on_postgres)):
        for columns in _COLUMNS:
            count = max(_CONNECTIONS, round(options.seconds * _POSTS_PER_S[store, columns] / BATCH))
            with ExitStack() as stack:
                ports = start(options, folder / f"{store}-{columns}", columns, stack)
                contestants = {
                    f"{store}, {columns} ranked, {called}": _posting(port, options.rows, columns, count)
                    for called, port in ports.items()
                }
                found = load.run_alternately(contestants, rounds=options.rounds)
            report.print_table(load.COLUMNS[:4], [load.table_row(name, figures)[:4] for name, figures in found.items()])
            both, alone, neither = found.values()
            name = f"{store}, {columns} ranked columns"
            bars += [
                report.Bar(f"{name}: log and live curves / neither", load.median_ratio(both, neither), 1 - COST_MAX),
                report.Bar(f"{name}: log alone / neither", load.median_ratio(alone, neither), None),
                report.Bar(f"{name}: with / without live curves", load.median_ratio(both, alone), None),
            ]
    return bars


def main() -> int:
    options = parse_options(__doc__, rows=300_000)
    title = f"change log and live curves: {options.rows:,} rows, {options.rounds} rounds of about {options.seconds:g} s"
    return report.run_benchmark(options, title, measure)


if __name__ == "__main__":
    sys.exit(main())
