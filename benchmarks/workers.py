"""Compare the rate of `positions` with two worker processes and with one, on PostgreSQL, and check the metrics.

python -m benchmarks.workers [--rows N] [--seconds S] [--rounds N]

A node with two workers and a node with one worker serve the same database, which has a board of 1 M rows. Neither node
runs jobs. Rounds of load go to the two nodes in turn. The metrics are checked after a known number of other requests,
because `wrk` aborts its last requests when a round ends.

Bar: the metrics of every worker show exactly the number of requests sent. The ratio of the rates is only reported.
"""

import asyncio
import random
import sys
from pathlib import Path

from benchmarks import load, report
from benchmarks.boards import BOARD, COLUMN, board_spec, draw_values, fill_board, owner_at, refresh_columns
from benchmarks.client import HOST, Connection, for_each, read_metrics
from benchmarks.options import Options, parse_options
from benchmarks.positions import FEW, check_positions
from benchmarks.servers import POSTGRES_SETTINGS, Server, free_port, rankcurve_command
from tests.servers import postgres

_COUNTED = 20_000  # number of requests sent, which the metrics must show
_ASKED = 16  # reads of the metrics, each on a new connection; enough to reach every worker
_SAMPLE = 'rankcurve_requests_total{route="positions",status="2xx"} '


def _node(url: str, folder: Path, *, workers: int, jobs: str = "none") -> Server:
    port = free_port()
    command = [*rankcurve_command(), "serve", "--host", HOST, "--port", str(port), "--store", url]
    command += ["--workers", str(workers), "--jobs", jobs]
    return Server(command, folder, port=port, ready_path="/readyz")


async def _read_counts(port: int) -> set[float]:
    """Read the metrics of all workers. Return the different counts of answered `positions` requests."""
    return {
        sum(float(line.removeprefix(_SAMPLE)) for line in text.splitlines() if _SAMPLE in line)
        async for text in read_metrics(port, _ASKED)
    }


async def _count_off(port: int, rows: int) -> int:
    """Send `_COUNTED` requests. Return the difference between this number and the metrics of the workers."""
    rng = random.Random(7)
    [before] = await _read_counts(port)

    async def one(connection: Connection, index: int) -> None:
        await connection.call_ok("GET", f"/v1/leaderboards/{BOARD}/entries/{owner_at(index)}/positions")

    await for_each(port, [rng.randrange(rows) for _ in range(_COUNTED)], one, connections=FEW)
    after = await _read_counts(port)
    return round(max(abs(told - before - _COUNTED) for told in after))


def _fill(url: str, folder: Path, rows: int) -> None:
    with _node(url, folder, workers=1, jobs="embedded") as server:
        owners = [owner_at(index) for index in range(rows)]
        took_s = asyncio.run(
            fill_board(server.port, BOARD, owners=owners, named={COLUMN: draw_values(rows)}, body=board_spec([COLUMN]))
        )
        asyncio.run(refresh_columns(server.port, BOARD, [COLUMN]))
        print(f"   filled {rows:,} rows over HTTP in {took_s:.0f} s, {rows / took_s:,.0f} rows/s", flush=True)


def measure(options: Options, folder: Path) -> list[report.Bar]:
    with postgres(POSTGRES_SETTINGS) as cluster:
        url = cluster.url()
        _fill(url, folder, options.rows)
        cluster.run_sql("VACUUM ANALYZE", "CHECKPOINT")
        with _node(url, folder, workers=1) as one, _node(url, folder, workers=2) as two:
            methods = asyncio.run(check_positions(two.port, options.rows))
            print(f"   {sum(methods.values())} answers checked against ranks computed apart; methods: {methods}")
            contestants = {
                name: load.wrk_contestant(
                    load.Target(server.url, f"/v1/leaderboards/{BOARD}/entries/", "/positions", rows=options.rows),
                    connections=FEW,
                    seconds=options.seconds,
                )
                for name, server in (("1 worker", one), ("2 workers", two))
            }
            figures = load.run_alternately(contestants, rounds=options.rounds)
            off = asyncio.run(_count_off(two.port, options.rows))
    report.print_table(
        load.COLUMNS, [load.table_row(f"{name}, {FEW} connections", found) for name, found in figures.items()]
    )
    ratio = load.median_ratio(figures["2 workers"], figures["1 worker"])
    return [
        report.Bar(f"requests of {_COUNTED:,} by which any worker's summed metrics are off", off, 0, at_most=True),
        report.Bar("positions, 2 workers / 1 worker", ratio, None),
    ]


def main() -> int:
    options = parse_options(__doc__)
    title = f"workers: positions, PostgreSQL, {options.rows:,} rows, {options.rounds} rounds of {options.seconds:g} s"
    return report.run_benchmark(options, title, measure)


if __name__ == "__main__":
    sys.exit(main())
