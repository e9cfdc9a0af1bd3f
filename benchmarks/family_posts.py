"""Measure the rate of posts to a family of 25 boards (5 periods for each of 5 lists of facets), on both stores.

python -m benchmarks.family_posts [--rows N] [--seconds S] [--rounds N]

Posts are sent over HTTP. Every post is for a random owner who has an entry on all 25 boards. The post changes each of
these entries, carries a post id, and is durable when it is answered. A board update is a change of one row of one
board, so a post makes 25 board updates. On PostgreSQL there are two serving processes, because one process has one
event loop and cannot fully use two cores.

Bars: at least 10,000 board updates/s on SQLite, 25,000 on PostgreSQL.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import load, report
from benchmarks.boards import owner_at
from benchmarks.client import BadAnswerError, Connection, for_each
from benchmarks.options import Options, parse_options
from benchmarks.servers import POSTGRES_SETTINGS, serve_file, serve_store
from tests.servers import postgres

FAMILY = "game"
BOARDS = 25
SPEC: dict[str, Any] = {
    "columns": [{"name": "xp", "sorted": True, "merge": "sum"}],
    "periods": ["all", "year", "month", "week", "day"],
    "facets": [[], ["org"], ["location", "org"], ["location"], ["group"]],
    "time_zone": "Europe/Berlin",
}
_BATCH = 80  # posts per request; they make 2,000 board updates, as many as a group may hold
_FILL = 40
_CONNECTIONS = 8
_POSTGRES_WORKERS = 2
_POSTS_PER_S = 1_000  # an assumed rate, from which the number of posts for a round is computed


def _facets(index: int) -> dict[str, str]:
    return {"org": str(index % 200), "location": str(index % 50), "group": str(index % 2_000)}


def _bodies(indexes: list[int], size: int, prefix: str) -> list[bytes]:
    posts = [
        {
            "owner": owner_at(index),
            "stats": {"xp": 1 + number % 1_000},
            "facets": _facets(index),
            "post_id": f"{prefix}/{number}",
        }
        for number, index in enumerate(indexes)
    ]
    return [json.dumps({"posts": posts[at : at + size]}).encode() for at in range(0, len(posts), size)]


async def _send(port: int, bodies: Iterable[bytes]) -> None:
    async def one(connection: Connection, body: bytes) -> None:
        status, answer = await connection.call("POST", f"/v1/families/{FAMILY}/posts", body)
        if status != 200 or answer.count(b'"applied"') != body.count(b'"owner"') * (BOARDS + 1):
            raise BadAnswerError(f"{status} {answer[:400]!r}")

    await for_each(port, bodies, one, connections=_CONNECTIONS)


def _contestant(port: int, rows: int, seconds: float) -> Any:
    def contestant(number: int) -> load.Figure:
        chosen = random.Random(number)
        posts = [chosen.randrange(rows) for _ in range(round(seconds * _POSTS_PER_S))]
        bodies = _bodies(posts, _BATCH, f"round-{number}")
        begun = time.perf_counter()
        asyncio.run(_send(port, bodies))
        return load.Figure(len(posts) * BOARDS / (time.perf_counter() - begun))

    return contestant


async def _fill(port: int, rows: int) -> None:
    connection = Connection(port)
    await connection.call_ok("PUT", f"/v1/families/{FAMILY}", SPEC)
    connection.close()
    await _send(port, _bodies(list(range(rows)), _FILL, "fill"))


def _measure_one(name: str, port: int, options: Options) -> list[load.Figure]:
    begun = time.perf_counter()
    asyncio.run(_fill(port, options.rows))
    took_s = time.perf_counter() - begun
    made = options.rows * BOARDS
    print(f"   {name}: {made:,} rows of {options.rows:,} owners in {took_s:.0f} s, {made / took_s:,.0f}/s", flush=True)
    contestants = {name: _contestant(port, options.rows, options.seconds)}
    return load.run_alternately(contestants, rounds=options.rounds)[name]


def measure(options: Options, folder: Path) -> list[report.Bar]:
    figures: dict[str, list[load.Figure]] = {}
    with serve_file(folder / "family.db") as server:
        figures["SQLite"] = _measure_one("SQLite", server.port, options)
    workers = {"RANKCURVE_WORKERS": str(_POSTGRES_WORKERS)}
    with postgres(POSTGRES_SETTINGS) as cluster, serve_store(cluster.url(), folder, environment=workers) as server:
        figures["PostgreSQL"] = _measure_one("PostgreSQL", server.port, options)
    columns = ("", "board updates/s", "lowest", "highest", "posts/s")
    report.print_table(
        columns,
        [[*load.table_row(name, found)[:4], load.median_per_s(found) / BOARDS] for name, found in figures.items()],
    )
    return [
        report.Bar("board updates/s, SQLite", load.median_per_s(figures["SQLite"]), 10_000),
        report.Bar("board updates/s, PostgreSQL", load.median_per_s(figures["PostgreSQL"]), 25_000),
    ]


def main() -> int:
    options = parse_options(__doc__, rows=20_000)
    title = f"family posts: {options.rows:,} owners, {options.rounds} rounds of about {options.seconds:g} s"
    return report.run_benchmark(options, title, measure)


if __name__ == "__main__":
    sys.exit(main())
