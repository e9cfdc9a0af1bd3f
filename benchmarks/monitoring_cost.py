"""Measure how much monitoring slows `positions`: compare the rate while all metrics are read with the rate without.

python -m benchmarks.monitoring_cost [--rows N] [--seconds S] [--rounds N]

Two services serve copies of one board, and get rounds of load in turn. From the monitored service, /metrics and all
managed objects are read once a second, far more often than in operation. The other service has managed objects switched
off.

Bar: at least 95 % of the rate without monitoring.
"""

import sys
import threading
from collections.abc import Callable
from pathlib import Path

from benchmarks import load, report
from benchmarks.boards import BOARD, copy_store, prepare_store
from benchmarks.client import call_once
from benchmarks.options import Options, parse_options
from benchmarks.positions import FEW
from benchmarks.servers import Server, serve_file

_EVERY_S = 1.0
_PATHS = ("/metrics", "/jolokia/read/*:*")


def while_polled(server: Server, measured: Callable[[int], load.Figure]) -> Callable[[int], load.Figure]:
    """Return a contestant that runs the rounds of `measured` while a thread reads the server's monitoring."""

    def contest(number: int) -> load.Figure:
        over = threading.Event()
        watcher = threading.Thread(target=poll_monitoring, args=(server, over))
        watcher.start()
        try:
            return measured(number)
        finally:
            over.set()
            watcher.join()

    return contest


def poll_monitoring(server: Server, over: threading.Event) -> None:
    """Read the metrics and all managed objects once a second, until `over` is set."""
    while not over.wait(_EVERY_S):
        for path in _PATHS:
            status, answer = call_once(server.port, "GET", path)
            if status != 200 or not answer:
                raise load.LoadFailedError(f"{path}: {status}")


def measure(options: Options, folder: Path) -> list[report.Bar]:
    store = prepare_store(options, folder, rows=options.rows)
    other = folder / "other" / "board.db"
    other.parent.mkdir()
    copy_store(store, other)
    with serve_file(store) as on, serve_file(other, environment={"RANKCURVE_MANAGED_OBJECTS": "false"}) as off:
        targets = [
            load.Target(each.url, f"/v1/leaderboards/{BOARD}/entries/", "/positions", rows=options.rows)
            for each in (on, off)
        ]
        ours, theirs = (load.wrk_contestant(target, connections=FEW, seconds=options.seconds) for target in targets)
        figures = load.run_alternately({"watched": while_polled(on, ours), "unwatched": theirs}, rounds=options.rounds)
    report.print_table(load.COLUMNS, [load.table_row(name, found) for name, found in figures.items()])
    return [
        report.Bar("positions watched / unwatched", load.median_ratio(figures["watched"], figures["unwatched"]), 0.95)
    ]


def main() -> int:
    options = parse_options(__doc__, rows=100_000)
    title = f"cost of monitoring: {options.rows:,} rows, {options.rounds} rounds of {options.seconds:g} s"
    return report.run_benchmark(options, title, measure)


if __name__ == "__main__":
    sys.exit(main())
