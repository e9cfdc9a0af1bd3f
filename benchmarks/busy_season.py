"""Measure how long posts and reads of a busy game take on SQLite, at the rates of the game and not at saturation.

python -m benchmarks.busy_season [--rows N] [--seconds S]

Owners have ids of 24 characters. Every second, 50 requests post 50 wins each, and clients ask for 110 positions, for
the rows around 55 owners and for 20 pages of the best rows. Requests are sent at random moments, even if answers are
late.

Bars: 99 % of the reads of each kind take at most 10 ms, and 99 % of the posts at most 30 ms.
"""

import asyncio
import json
import random
import statistics
from pathlib import Path

from benchmarks import report
from benchmarks.boards import BOARD, COLUMN, fill_board
from benchmarks.options import Options
from benchmarks.paced import Kinds, build_get, build_post, run_punctually, send_kinds
from benchmarks.servers import serve_file

_WINS_PER_POST = 50
_POSTS_PER_S, _POSITIONS_PER_S, _AROUNDS_PER_S, _PAGES_PER_S = 50, 110, 55, 20
_READS_MS, _POSTS_MS = 10, 30
_WARM_S = 3.0


def _owner(index: int) -> str:
    return f"player:{index:017d}"


def _kinds(rows: int, rng: random.Random) -> Kinds:
    """Return the request and the rate per second for each kind of request."""

    def get(path: str) -> bytes:
        return build_get(f"/v1/leaderboards/{BOARD}/{path}")

    def wins() -> bytes:
        posts = [
            {"owner": _owner(rng.randrange(rows)), "stats": {COLUMN: rng.randint(1, 1000)}}
            for _ in range(_WINS_PER_POST)
        ]
        return build_post(f"/v1/leaderboards/{BOARD}/posts", json.dumps({"posts": posts}).encode())

    return {
        "posts": (wins, _POSTS_PER_S),
        "positions": (lambda: get(f"entries/{_owner(rng.randrange(rows))}/positions"), _POSITIONS_PER_S),
        "around": (lambda: get(f"entries/{_owner(rng.randrange(rows))}/around?column={COLUMN}"), _AROUNDS_PER_S),
        "top page": (lambda: get(f"rankings/{COLUMN}?limit=10"), _PAGES_PER_S),
    }


def measure(options: Options, folder: Path) -> list[report.Bar]:
    rng, rows = random.Random(7), options.rows
    with serve_file(folder / "season.db") as server:
        asyncio.run(fill_board(server.port, rows=rows, owner=_owner))
        kinds = _kinds(rows, rng)
        run_punctually(send_kinds(server.port, kinds, min(_WARM_S, options.seconds), rng))
        took = run_punctually(send_kinds(server.port, kinds, options.seconds, rng))
    p99 = {kind: each[int(len(each) * 0.99)] for kind, each in took.items()}
    report.print_table(
        ["", "requests", "p50 ms", "p99 ms", "longest ms"],
        [[kind, len(each), statistics.median(each), p99[kind], each[-1]] for kind, each in took.items()],
    )
    return [
        report.Bar(f"{kind}, p99", each, _POSTS_MS if kind == "posts" else _READS_MS, " ms", at_most=True)
        for kind, each in p99.items()
    ]


if __name__ == "__main__":
    report.run_program(measure, __doc__, "busy season: {rows:,} owners, {seconds:g} s", seconds=60)
