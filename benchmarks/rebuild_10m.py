"""Measure the time of a refresh of a board of 10 million players, by scan and by skip sampling, on both stores.

python -m benchmarks.rebuild_10m [--rows N] [--rounds N]

A large cloud provider reports 8 min 34 s for the same task. A figure here is the time that the refresh itself reports:
snapshot, reading, fit and storing. The service's log shows how long reading and fitting took in a scan. The first round
of each method is not counted.

Bars: scan at most 4 s on SQLite and 8 s on PostgreSQL, skip sampling at most 0.7 s on both.
"""

import asyncio
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.boards import BOARD, COLUMN, board_spec
from benchmarks.bulk import load_bulk_board, prepare_bulk_store
from benchmarks.client import Connection
from benchmarks.options import Options, parse_options
from benchmarks.servers import serve_file, serve_store
from tests.servers import DURABLE, postgres

_METHODS = ("scan", "skip")
_BARS_S = {("SQLite", "scan"): 4.0, ("PostgreSQL", "scan"): 8.0, ("SQLite", "skip"): 0.7, ("PostgreSQL", "skip"): 0.7}
_SERVER = {**DURABLE, "shared_buffers": "1GB", "max_wal_size": "4GB"}


async def refresh_by_methods(port: int, rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Refresh by each method for several rounds, and return the answers by method."""
    answers: dict[str, list[dict[str, Any]]] = {}
    connection = Connection(port)
    for method in _METHODS:
        await connection.call_ok(
            "PUT",
            f"/v1/leaderboards/{BOARD}",
            {**board_spec([COLUMN]), "predictor": {"method": method, "refresh_seconds": 86_400}},
        )
        path = f"/v1/leaderboards/{BOARD}/rankings/{COLUMN}/refresh"
        answers[method] = [await connection.call_ok("POST", path) for _ in range(rounds + 1)][1:]
    connection.close()
    return answers


def measure(options: Options, folder: Path) -> list[report.Bar]:
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with serve_file(prepare_bulk_store(options, folder, rows=options.rows)) as server:
        found["SQLite"] = asyncio.run(refresh_by_methods(server.port, options.rounds))
    with postgres(_SERVER) as cluster:
        load_bulk_board(cluster.url(), folder, options.rows)
        cluster.run_sql("VACUUM ANALYZE", "CHECKPOINT")
        with serve_store(cluster.url(), folder) as server:
            found["PostgreSQL"] = asyncio.run(refresh_by_methods(server.port, options.rounds))
    rows, bars = [], []
    for store, by_method in found.items():
        for method, answers in by_method.items():
            seconds = [answer["seconds"] for answer in answers]
            certificate = answers[-1]["certificate"]
            certified = "none" if certificate is None else f"{100 * certificate:.3f} %"
            rows.append((f"{store}, {method}", statistics.median(seconds), min(seconds), max(seconds), certified))
            bar = report.Bar(
                f"{store}: {method} refresh", statistics.median(seconds), _BARS_S[store, method], " s", at_most=True
            )
            bars.append(bar)
    report.print_table(("refresh", "seconds", "lowest", "highest", "certificate"), rows)
    return bars


def main() -> int:
    options = parse_options(__doc__, rows=10_000_000, rounds=5)
    title = f"rebuild: {options.rows:,} lognormal integers, 1,000 samples, {options.rounds} rounds"
    return report.run_benchmark(options, title, measure)


if __name__ == "__main__":
    sys.exit(main())
