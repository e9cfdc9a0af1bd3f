"""Measure the rate of durable posts in batches of 1,000 over HTTP, against a bare sqlite3 loop.

    python -m benchmarks.batch_posts [--rows N] [--seconds S] [--rounds N]

Both sides apply the same batches to boards of 1 M rows with the same content. The batches are made before the clock
starts. The two sides take turns, round by round. The posts of the bare loop have no post ids.

Bars: at least 80 % of the bare loop's rate, and with post ids at least 65 %.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import load, report
from benchmarks.bare_loop import run_bare_loop
from benchmarks.boards import BATCH, BOARD, batch_body, draw_batches, prepare_store, send_batches
from benchmarks.options import Options
from benchmarks.servers import serve_file

_CONNECTIONS = 4
_POSTS_PER_S = 10_000  # an assumed rate, from which the number of batches for a round is computed


def through_http(
    port: int, rows: int, count: int, *, board: str = BOARD, with_ids: bool = False, name: str = ""
) -> Callable[[int], load.Figure]:
    """Return a contestant that sends batches of posts to the service.

    If `with_ids` is true, each post has a post_id, which begins with `name`. The service then applies a repeated post
    only once; the bare loop cannot do that.
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


def measure(options: Options, folder: Path) -> list[report.Bar]:
    store = prepare_store(options, folder, rows=options.rows)
    count = max(_CONNECTIONS, round(options.seconds * _POSTS_PER_S / BATCH))
    with serve_file(store) as server, run_bare_loop(str(folder / "bare.db"), options.rows) as bare:
        contestants: dict[str, Callable[[int], load.Figure]] = {
            "posts over HTTP": through_http(server.port, options.rows, count),
            "bare sqlite3 loop": lambda number: bare.run_round(seed=number, count=count),
            "posts over HTTP, with post ids": through_http(server.port, options.rows, count, with_ids=True),
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
    ]


if __name__ == "__main__":
    report.run_program(measure, __doc__, "batch posts: {rows:,} rows, {rounds} rounds of about {seconds:g} s")
