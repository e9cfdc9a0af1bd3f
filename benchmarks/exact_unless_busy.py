"""Measure how many default positions are exact at half of the saturating rate, and what that costs at saturation.

    python -m benchmarks.exact_unless_busy [--rows N] [--seconds S] [--rounds N]

On each store, wrk saturates the service with default positions and with `rank=estimate` in turns. Then it requests both
at half of the saturating rate of the default positions, over many connections that pause at random before each request.
The service's own metrics tell how many default answers were exact.

Bars: at half of the saturating rate at least 99 % of the default answers are exact. At saturation the rate is at least
0.9 times the rate of `rank=estimate`, and the 99th percentile of the times at most 1.2 times as long.
"""

import asyncio
import statistics
from dataclasses import replace
from pathlib import Path

from benchmarks import load, report
from benchmarks.boards import BOARD, COLUMN, refresh_columns
from benchmarks.bulk import measure_bulk_stores
from benchmarks.client import read_metrics
from benchmarks.options import Options
from benchmarks.servers import serve_store

_CONNECTIONS = 32
_PAUSING_CONNECTIONS = 256  # so many that the next request hardly changes the number under way
_MODES = {"default": "/positions", "estimate": "/positions?rank=estimate"}
_PREFIX = f"/v1/leaderboards/{BOARD}/entries/"


def count_methods(port: int) -> dict[str, float]:
    """Return the number of positions that the service has answered by each method."""
    found = read_metrics(port).items()
    reads = {name: count for name, count in found if name.startswith("rankcurve_reads_total{")}
    return {name.split('method="')[1].split('"')[0]: n for name, n in reads.items() if 'route="positions"' in name}


def share_of_exact(before: dict[str, float], after: dict[str, float]) -> float:
    grown = {method: count - before.get(method, 0) for method, count in after.items()}
    return 100 * (1 - grown.get("curve", 0) / sum(grown.values()))


def measure_on(name: str, url: str, folder: Path, options: Options) -> list[report.Bar]:
    with serve_store(url, folder) as server:
        asyncio.run(refresh_columns(server.port, BOARD, [COLUMN]))
        targets = {mode: load.Target(server.url, _PREFIX, after, rows=options.rows) for mode, after in _MODES.items()}
        saturated = load.run_alternately(
            {
                mode: load.wrk_contestant(target, connections=_CONNECTIONS, seconds=options.seconds)
                for mode, target in targets.items()
            },
            rounds=options.rounds,
        )
        half_per_s = load.median_per_s(saturated["default"]) / 2
        pause_ms = 1000 * _PAUSING_CONNECTIONS / half_per_s
        half: dict[str, list[load.Figure]] = {mode: [] for mode in _MODES}
        shares = []
        for number in range(options.rounds + 1):
            for mode, target in targets.items():
                before = count_methods(server.port)
                pausing = replace(target, pause_ms=pause_ms)
                figure = load.run_wrk(pausing, connections=_PAUSING_CONNECTIONS, seconds=options.seconds, seed=number)
                if number:  # in round 0 the process is still busy
                    half[mode].append(figure)
                    if mode == "default":
                        shares.append(share_of_exact(before, count_methods(server.port)))
    rows = [load.table_row(f"{name}: {mode}", found) for mode, found in saturated.items()]
    rows += [load.table_row(f"{name}: {mode}, half the rate", found) for mode, found in half.items()]
    report.print_table(load.COLUMNS, rows)
    print(f"   exact at half the rate: {[round(share, 2) for share in shares]} %")
    p99 = statistics.median(
        one.p99_ms / other.p99_ms for one, other in zip(saturated["default"], saturated["estimate"], strict=True)
    )
    rate = load.median_ratio(saturated["default"], saturated["estimate"])
    return [
        report.Bar(f"{name}: exact at half of the saturating rate", statistics.median(shares), 99.0, " %"),
        report.Bar(f"{name}: rate at saturation / rate of rank=estimate", rate, 0.9),
        report.Bar(f"{name}: p99 at saturation / p99 of rank=estimate", p99, 1.2, at_most=True),
    ]


def measure(options: Options, folder: Path) -> list[report.Bar]:
    return measure_bulk_stores(options, folder, lambda name, url: measure_on(name, url, folder, options))


if __name__ == "__main__":
    report.run_program(measure, __doc__, "exact unless busy: {rows:,} rows, {rounds} rounds of {seconds:g} s")
