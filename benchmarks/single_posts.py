"""Measure the rate of single posts from 64 clients.

    python -m benchmarks.single_posts [--rows N] [--seconds S] [--rounds N]

Every post changes a random owner's value and is durable when it is answered. The baseline is a hello-world route. The
store has 1 M rows.

Bars: the rate of posts is at least 25 % of the rate of hello-world.
"""

from pathlib import Path

from benchmarks import load, report
from benchmarks.boards import BOARD, COLUMN, prepare_store
from benchmarks.options import Options
from benchmarks.servers import serve_file, serve_hello

CLIENTS = 64


def measure(options: Options, folder: Path) -> list[report.Bar]:
    store = prepare_store(options, folder, rows=options.rows)
    with serve_file(store) as server, serve_hello(folder) as baseline:
        path = f"/v1/leaderboards/{BOARD}/posts"
        targets = {
            "posts": load.Target(server.url, path, column=COLUMN, rows=options.rows),
            "hello": load.Target(baseline.url, "/hello"),
        }
        contestants = {
            name: load.wrk_contestant(target, connections=CLIENTS, seconds=options.seconds)
            for name, target in targets.items()
        }
        figures = load.compare(contestants, rounds=options.rounds)
    ratio = load.median_ratio(figures["posts"], figures["hello"])
    return [report.Bar(f"single posts / hello-world, {CLIENTS} clients", ratio, 0.25)]


if __name__ == "__main__":
    report.run_program(measure, __doc__, "single posts: {rows:,} rows, {rounds} rounds of {seconds:g} s")
