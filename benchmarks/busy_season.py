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
import sys
from pathlib import Path

from benchmarks import report
from benchmarks.boards import BOARD, COLUMN, board_spec, draw_values, fill_board, refresh_columns
from benchmarks.client import HOST
from benchmarks.options import Options, parse_options
from benchmarks.paced import Ask, PacedClient, build_post, run_punctually
from benchmarks.servers import serve_file

_WINS_PER_POST = 50
_POSTS_PER_S, _POSITIONS_PER_S, _AROUNDS_PER_S, _PAGES_PER_S = 50, 110, 55, 20
_READS_MS, _POSTS_MS = 10, 30
_WARM_S = 3.0
_Kinds = dict[str, tuple[Ask, int]]


def _owner(index: int) -> str:
    return f"player:{index:017d}"


def _kinds(rows: int, rng: random.Random) -> _Kinds:
    """Return for each kind of request what to send and how often per second."""

    def get(path: str) -> bytes:
        return f"GET /v1/leaderboards/{BOARD}/{path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()

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


async def _send_all(port: int, kinds: _Kinds, seconds: float, rng: random.Random) -> dict[str, list[float]]:
    """Send requests of all kinds at the same time. Return the milliseconds that each took, sorted, by kind."""

    async def send(ask: Ask, per_s: int) -> list[float]:
        async with PacedClient(port) as client:
            return sorted(await client.send_at_rate(ask, per_s=per_s, seconds=seconds, rng=rng))

    return dict(zip(kinds, await asyncio.gather(*(send(*kind) for kind in kinds.values())), strict=True))


def measure(options: Options, folder: Path) -> list[report.Bar]:
    rng, rows = random.Random(7), options.rows
    with serve_file(folder / "season.db") as server:
        named = {COLUMN: draw_values(rows)}
        owners = [_owner(index) for index in range(rows)]
        asyncio.run(fill_board(server.port, BOARD, owners=owners, named=named, body=board_spec([COLUMN])))
        asyncio.run(refresh_columns(server.port, BOARD, [COLUMN]))
        kinds = _kinds(rows, rng)
        run_punctually(_send_all(server.port, kinds, min(_WARM_S, options.seconds), rng))
        took = run_punctually(_send_all(server.port, kinds, options.seconds, rng))
    p99 = {kind: each[int(len(each) * 0.99)] for kind, each in took.items()}
    report.print_table(
        ["", "requests", "p50 ms", "p99 ms", "longest ms"],
        [[kind, len(each), statistics.median(each), p99[kind], each[-1]] for kind, each in took.items()],
    )
    return [
        report.Bar(f"{kind}, p99", each, _POSTS_MS if kind == "posts" else _READS_MS, " ms", at_most=True)
        for kind, each in p99.items()
    ]


def main() -> int:
    options = parse_options(__doc__, seconds=60)
    return report.run_benchmark(options, f"busy season: {options.rows:,} owners, {options.seconds:g} s", measure)


if __name__ == "__main__":
    sys.exit(main())
