"""Measure how much reads and posts of one board slow down while counts of another board keep a connection pool busy.

python -m benchmarks.pools [--rows N] [--seconds S] [--rounds N]

Sixteen clients request exact ranks on the noisy board; the service must count each of these ranks. Requests to the
quiet board come 100 times a second, at the same times with and without the noise, and their latency counts from when
they were due. Rounds with and without the noise take turns. All rounds are run twice. The first time the noisy board
has a connection pool of its own; the second time all boards share one connection pool.

Bar: with two connection pools, p99 of the quiet board is at most 2 times its value without noise. With one connection
pool, p99 is only reported.
"""

import asyncio
import random
import statistics
import sys
import time
from pathlib import Path

from benchmarks import report
from benchmarks.boards import COLUMN, board_spec, draw_values, fill_board, owner_at
from benchmarks.client import BadAnswerError, Connection
from benchmarks.options import Options, parse_options
from benchmarks.servers import Server, serve_store
from tests.servers import DURABLE, postgres

_QUIET, _NOISY = "season", "arena-1"
_QUIET_ROWS = 20_000
_POOLS = {"pooled": "arena=arena-*:2", "one pool for all": ""}
_NOISY_CLIENTS = 16
_CALLS_PER_S = 100
_CONNECTIONS = 16
_SERVER = {**DURABLE, "shared_buffers": "1GB", "max_wal_size": "4GB"}
# Requests may wait for a minute. So no request is refused, and each request to the noisy board makes the server count.
_SETTINGS = {"RANKCURVE_CONNECTION_WAIT_S_MAX": "60", "RANKCURVE_POST_WAIT_S_MAX": "60"}


async def _fill(port: int, rows: int) -> None:
    for board, count in ((_QUIET, _QUIET_ROWS), (_NOISY, rows)):
        names = [owner_at(index) for index in range(count)]
        await fill_board(port, board, owners=names, named={COLUMN: draw_values(count)}, body=board_spec([COLUMN]))


async def _count_until_ended(port: int, number: int, ended: asyncio.Event) -> int:
    rng, connection, answered = random.Random(number), Connection(port), 0
    try:
        while not ended.is_set():
            value = rng.randint(1, 5_000)  # a low value: the server must count most of the board
            status, _ = await connection.call(
                "GET", f"/v1/leaderboards/{_NOISY}/rankings/{COLUMN}/positions?values={value}&rank=exact"
            )
            answered += status == 200
    finally:
        connection.close()
    return answered


async def _time_quiet_board(port: int, seconds: float, seed: int) -> list[float]:
    """Send requests to the quiet board. Return the milliseconds of each request, from when it was due to its answer.

    Half of the requests are posts, and half read an owner's entry.
    """
    rng, free, took = random.Random(seed), asyncio.Queue[Connection](), list[float]()
    for _ in range(_CONNECTIONS):
        free.put_nowait(Connection(port))

    async def call(due: float, name: str, *, post: bool) -> None:
        connection = await free.get()
        try:
            if post:
                body = f'{{"posts": [{{"owner": "{name}", "stats": {{"{COLUMN}": 1}}}}]}}'.encode()
                status, answer = await connection.call("POST", f"/v1/leaderboards/{_QUIET}/posts", body)
            else:
                status, answer = await connection.call("GET", f"/v1/leaderboards/{_QUIET}/entries/{name}")
        finally:
            free.put_nowait(connection)
        if status != 200:
            raise BadAnswerError(f"{status} {answer[:300]!r}")
        took.append(1000 * (time.perf_counter() - due))

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as calls:
        for index in range(round(seconds * _CALLS_PER_S)):
            due = begun + index / _CALLS_PER_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            calls.create_task(call(due, owner_at(rng.randrange(_QUIET_ROWS)), post=index % 2 == 0))
    while not free.empty():
        free.get_nowait().close()
    return took


async def _run_round(port: int, seconds: float, seed: int, *, noisy: bool) -> tuple[float, float, float]:
    """Run one round. Return p50 and p99 of the quiet board in ms, and the noisy board's answers per second."""
    ended = asyncio.Event()
    noise = [
        asyncio.create_task(_count_until_ended(port, number, ended)) for number in range(_NOISY_CLIENTS if noisy else 0)
    ]
    begun = time.perf_counter()
    took = sorted(await _time_quiet_board(port, seconds, seed))
    ended.set()
    answered = sum(await asyncio.gather(*noise))
    return took[len(took) // 2], took[len(took) * 99 // 100], answered / (time.perf_counter() - begun)


def _run_rounds(server: Server, options: Options) -> dict[bool, list[tuple[float, float, float]]]:
    rounds: dict[bool, list[tuple[float, float, float]]] = {False: [], True: []}
    for number in range(options.rounds + 1):
        for noisy in (False, True):
            figures = asyncio.run(_run_round(server.port, options.seconds, number, noisy=noisy))
            if number:  # round 0 only warms up and is not counted
                rounds[noisy].append(figures)
    return rounds


def measure(options: Options, folder: Path) -> list[report.Bar]:
    lines: list[list[str]] = []
    bars: list[report.Bar] = []
    with postgres(_SERVER) as cluster:
        for name, pools in _POOLS.items():
            with serve_store(cluster.url(), folder, environment={**_SETTINGS, "RANKCURVE_POOLS": pools}) as server:
                if not lines:
                    asyncio.run(_fill(server.port, options.rows))
                    cluster.run_sql("VACUUM ANALYZE", "CHECKPOINT")
                rounds = _run_rounds(server, options)
            for noisy, figures in rounds.items():
                cells = [statistics.median(column) for column in zip(*figures, strict=True)]
                lines.append([f"{name}, {'other set busy' if noisy else 'quiet'}", *(f"{cell:,.1f}" for cell in cells)])
            quiet, busy = (statistics.median(each[1] for each in rounds[noisy]) for noisy in (False, True))
            bars.append(report.Bar(f"{name}: p99 busy / quiet", busy / quiet, 2.0 if pools else None, at_most=True))
    report.print_table(["", "p50 ms", "p99 ms", "counts/s of the other"], lines)
    return bars


def main() -> int:
    options = parse_options(__doc__, rows=300_000, seconds=8, rounds=3)
    return report.run_benchmark(options, f"pools: {options.rows:,} rows on the board that is busy", measure)


if __name__ == "__main__":
    sys.exit(main())
