"""Measure the rate of single posts from 64 clients.

    python -m benchmarks.single_posts [--rows N] [--seconds S] [--rounds N]

Every post changes a random owner's value and is durable when it is answered. The store has 1 M rows. An owner process
with one front is compared with one process (`--workers 0`) on a copy of the store, and with a hello-world route.

Bars: the rate of posts is at least 1.5 times that of one process, at a p99 of at most 0.8 times that of one process,
and at least 25 % of the rate of hello-world.
"""

import shutil
import statistics
from pathlib import Path

from benchmarks import load, report
from benchmarks.boards import BOARD, COLUMN, prepare_store
from benchmarks.options import Options
from benchmarks.servers import serve_file, serve_hello

CLIENTS = 64


def measure(options: Options, folder: Path) -> list[report.Bar]:
    store = prepare_store(options, folder, rows=options.rows)
    (folder / "alone").mkdir()
    copy = Path(shutil.copy(store, folder / "alone"))
    with serve_file(store) as server, serve_file(copy, workers=0) as alone, serve_hello(folder) as baseline:
        path = f"/v1/leaderboards/{BOARD}/posts"
        targets = {
            "posts": load.Target(server.url, path, column=COLUMN, rows=options.rows),
            "one process": load.Target(alone.url, path, column=COLUMN, rows=options.rows),
            "hello": load.Target(baseline.url, "/hello"),
        }
        contestants = {
            name: load.wrk_contestant(target, connections=CLIENTS, seconds=options.seconds)
            for name, target in targets.items()
        }
        figures = load.compare(contestants, rounds=options.rounds)
    posts, one = figures["posts"], figures["one process"]
    slower = statistics.median(each.p99_ms / other.p99_ms for each, other in zip(posts, one, strict=True))
    return [
        report.Bar(f"single posts / one process, {CLIENTS} clients", load.median_ratio(posts, one), 1.5),
        report.Bar(f"single posts, p99 / of one process, {CLIENTS} clients", slower, 0.8, at_most=True),
        report.Bar(f"single posts / hello-world, {CLIENTS} clients", load.median_ratio(posts, figures["hello"]), 0.25),
    ]


if __name__ == "__main__":
    report.run_program(measure, __doc__, "single posts: {rows:,} rows, {rounds} rounds of {seconds:g} s")
