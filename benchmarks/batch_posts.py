"""Measure the rate of durable posts in batches of 1,000 over HTTP, against a bare sqlite3 loop.

    python -m benchmarks.batch_posts [--rows N] [--seconds S] [--rounds N]

Both sides apply the same batches to boards of 1 M rows with the same content. The batches are made before the clock
starts. The two sides take turns, round by round. The posts of the bare loop have no post ids.

The posts of single clients reach the store in small groups. So batches of 16 are compared as well, without HTTP: by the
seconds that the service needs for a write transaction (`rankcurve_write_seconds`).

Bars: at least 80 % of the bare loop's rate, and with post ids at least 65 %. A transaction of 16 posts takes at most
1.6 times as long as that of the bare loop.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import load, report
from benchmarks.bare_loop import run_bare_loop
from benchmarks.boards import BATCH, BOARD, batch_body, draw_batches, prepare_store, send_batches
from benchmarks.client import read_metrics
from benchmarks.options import Options
from benchmarks.servers import serve_file

_CONNECTIONS = 4
_GROUP = 16  # posts of a small group
# Assumed rates, which determine how many batches and groups a round has.
_POSTS_PER_S = 10_000
_GROUPS_PER_S = 500


def through_http(
    port: int, rows: int, count: int, *, board: str = BOARD, with_ids: bool = False, name: str = ""
) -> Callable[[int], load.Figure]:
    """Return a contestant that sends batches of posts to the service.

    If `with_ids` is true, each post has a post_id that begins with `name`. The service then applies a repeated post
    only once, which the bare loop cannot do.
    """

    def contestant(number: int) -> load.Figure:
        work = draw_batches(rows, seed=number, count=count)
        bodies = [
            batch_body(batch, post_id_prefix=f"{name}{board}-{number}/{index}" if with_ids else None)
            for index, batch in enumerate(work)
        ]
        begun = time.perf_counter()
        asyncio.run(send_batches(port, board, bodies, size=BATCH, connections=_CONNECTIONS))
        return load.Figure(count * BATCH / (time.perf_counter() - begun))

    return contestant


def in_small_groups(port: int, rows: int, count: int) -> Callable[[int], load.Figure]:
    """Return a contestant that has `count` groups of `_GROUP` posts applied, and counts only their transactions."""

    def contestant(number: int) -> load.Figure:
        bodies = [batch_body(batch) for batch in draw_batches(rows, seed=number, count=count, size=_GROUP)]
        before = read_metrics(port)
        asyncio.run(send_batches(port, BOARD, bodies, size=_GROUP, connections=1))
        after = read_metrics(port)
        seconds, groups = (
            after[name] - before[name] for name in ("rankcurve_write_seconds_sum", "rankcurve_write_seconds_count")
        )
        assert groups == count, f"{groups} transactions for {count} groups"
        return load.Figure(count * _GROUP / seconds)

    return contestant


def measure(options: Options, folder: Path) -> list[report.Bar]:
    store = prepare_store(options, folder, rows=options.rows)
    groups = max(1, round(options.seconds * _GROUPS_PER_S))
    count = max(_CONNECTIONS, round(options.seconds * _POSTS_PER_S / BATCH))
    with serve_file(store) as server, run_bare_loop(str(folder / "bare.db"), options.rows) as bare:
        contestants: dict[str, Callable[[int], load.Figure]] = {
            "posts over HTTP": through_http(server.port, options.rows, count),
            "bare sqlite3 loop": lambda number: bare.run_round(seed=number, count=count),
            "posts over HTTP, with post ids": through_http(server.port, options.rows, count, with_ids=True),
            f"transactions of {_GROUP}": in_small_groups(server.port, options.rows, groups),
            f"bare sqlite3 loop, {_GROUP} each": lambda number: bare.run_round(seed=number, count=groups, size=_GROUP),
        }
        figures = load.compare(contestants, rounds=options.rounds)
    bare_figures = figures["bare sqlite3 loop"]
    with_ids = load.median_ratio(figures["posts over HTTP, with post ids"], bare_figures)
    return [
        report.Bar(
            f"batches of {BATCH:,} / bare sqlite3 loop",
            load.median_ratio(figures["posts over HTTP"], bare_figures),
            0.8,
        ),
        report.Bar("with post ids / bare sqlite3 loop without", with_ids, 0.65),
        report.Bar(
            f"transaction of {_GROUP} posts / of the bare loop",
            load.median_ratio(figures[f"bare sqlite3 loop, {_GROUP} each"], figures[f"transactions of {_GROUP}"]),
            1.6,
            at_most=True,
        ),
    ]


if __name__ == "__main__":
    report.run_program(measure, __doc__, "batch posts: {rows:,} rows, {rounds} rounds of about {seconds:g} s")
