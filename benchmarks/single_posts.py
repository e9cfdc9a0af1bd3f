"""Measure the rate of single posts from 64 clients: with posts in groups, and with one transaction for each post.

    python -m benchmarks.single_posts [--rows N] [--seconds S] [--rounds N]

Every post changes a random owner's value and is durable when it is answered. The baseline is a hello-world route. Two
services, with and without grouping, start from copies of one store of 1 M rows.

Bars: the rate of grouped posts is at least 3 times the rate with `RANKCURVE_GROUPING=false`, and at least 25 % of the
rate of hello-world.
"""

from pathlib import Path

from benchmarks import load, report
from benchmarks.boards import BOARD, COLUMN, copy_store, prepare_store
from benchmarks.options import Options
from benchmarks.servers import serve_file, serve_hello

CLIENTS = 64


def measure(options: Options, folder: Path) -> list[report.Bar]:
    store = prepare_store(options, folder, rows=options.rows)
    twin = folder / "ungrouped.db"
    copy_store(store, twin)
    ungrouped = {"RANKCURVE_GROUPING": "false"}
    with serve_file(store) as server, serve_file(twin, environment=ungrouped) as plain, serve_hello(folder) as baseline:
        path = f"/v1/leaderboards/{BOARD}/posts"
        targets = {
            "posts, grouped": load.Target(server.url, path, column=COLUMN, rows=options.rows),
            "posts, grouping off": load.Target(plain.url, path, column=COLUMN, rows=options.rows),
            "hello": load.Target(baseline.url, "/hello"),
        }
        contestants = {
            name: load.wrk_contestant(target, connections=CLIENTS, seconds=options.seconds)
            for name, target in targets.items()
        }
        figures = load.compare(contestants, rounds=options.rounds)
    grouped = figures["posts, grouped"]
    return [
        report.Bar(
            f"single posts / grouping off, {CLIENTS} clients",
            load.median_ratio(grouped, figures["posts, grouping off"]),
            3.0,
        ),
        report.Bar(
            f"single posts / hello-world, {CLIENTS} clients", load.median_ratio(grouped, figures["hello"]), 0.25
        ),
    ]


if __name__ == "__main__":
    report.run_program(measure, __doc__, "single posts: {rows:,} rows, {rounds} rounds of {seconds:g} s")
