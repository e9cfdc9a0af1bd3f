"""Measure goodput under too much load, while every statement of PostgreSQL takes twice as long for a minute.

python -m benchmarks.halved_capacity [--rows N] [--seconds S]

The service reaches the database through a proxy (`SlowProxy`). Posts are sent at 0.9 times the full capacity. Each
request is sent once, when it is due, even if earlier requests are still unanswered. Goodput is the rate of posts that
get status 200 within `post_wait_s_max`. The full and the halved capacity are measured earlier in the same run. While a
capacity is measured, each poster sends a request as soon as its last request is answered.

The proxy also doubles waits for locks, which a slow disk would not do. So groups that wait for the same row wait longer
than with a slow disk.

Bars: from 10 s after the halving, goodput is at least 90 % of the halved capacity. From 30 s after the recovery,
goodput is at least 95 % of the goodput before the halving.
"""

import asyncio
import random
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from benchmarks import report
from benchmarks.boards import (
    BATCH,
    BOARD,
    COLUMN,
    batch_body,
    board_spec,
    create_board,
    draw_batches,
    owner_at,
    send_batches,
)
from benchmarks.client import Connection
from benchmarks.options import Options
from benchmarks.proxies import run_slow_proxy
from benchmarks.servers import serve_store
from tests.servers import DURABLE, free_port, postgres

_POSTS = 100  # posts per request
_POSTERS = 48
_BODIES = 400
_WARM_S = 8.0  # seconds of load before a capacity is measured; the service's rate is then steady
_OFFERED_RATIO = 0.9  # offered rate / full capacity
_BEFORE_S, _AFTER_S = 15.0, 45.0
_SETTLED_S, _RECOVERED_S = 10.0, 30.0
_ANSWERED_S = 10.0  # the default of post_wait_s_max
_BIN_S = 5
_SLOW_S_MIN = _SETTLED_S + 2 * _BIN_S
_PATH = f"/v1/leaderboards/{BOARD}/posts"


@dataclass(slots=True)
class Bin:
    """The answers that arrived within one interval of `_BIN_S` seconds."""

    good: int = 0  # number of posts that count as goodput
    codes: Counter[int] = field(default_factory=Counter)  # number of posts, by the status of the answer
    times_s: list[float] = field(default_factory=list)


async def measure_capacity(port: int, made: list[bytes], seconds: float) -> float:
    """Return the rate of applied posts if each poster sends a request as soon as its last one is answered."""
    counted = 0
    begun = time.perf_counter()
    rng = random.Random(7)

    async def poster() -> None:
        nonlocal counted
        connection = Connection(port)
        while (passed_s := time.perf_counter() - begun) < _WARM_S + seconds:
            status, _ = await connection.call("POST", _PATH, rng.choice(made))
            counted += _POSTS if status == 200 and passed_s > _WARM_S else 0
        connection.close()

    await asyncio.gather(*(poster() for _ in range(_POSTERS)))
    return counted / seconds


class OpenLoad:
    """Requests at a steady rate, each on a free connection or, if there is none, on a new one."""

    def __init__(self, port: int, made: list[bytes], posts_per_s: float, factors: IO[str]) -> None:
        self._port, self._made, self._every_s, self._factors = port, made, _POSTS / posts_per_s, factors
        self._free: deque[Connection] = deque()
        self._begun = 0.0
        self.bins: dict[int, Bin] = defaultdict(Bin)

    async def run(self, factors: Mapping[float, float], seconds: float) -> None:
        """Send requests for `seconds` seconds.

        `factors` maps the seconds since the start to the proxy's factor from then on.
        """
        self._begun = time.perf_counter()
        changes = deque(sorted(factors.items()))
        rng = random.Random(5)
        async with asyncio.TaskGroup() as running:
            for number in range(round(seconds / self._every_s)):
                due_s = number * self._every_s
                await asyncio.sleep(max(0.0, due_s - self._passed_s()))
                while changes and due_s >= changes[0][0]:
                    self._factors.write(f"{changes.popleft()[1]}\n")
                running.create_task(self._send(due_s, rng.choice(self._made)))

    def _passed_s(self) -> float:
        return time.perf_counter() - self._begun

    def _bin(self, at_s: float) -> Bin:
        return self.bins[int(at_s // _BIN_S)]

    async def _send(self, due_s: float, body: bytes) -> None:
        connection = self._free.pop() if self._free else Connection(self._port)
        status, _ = await connection.call("POST", _PATH, body)
        self._free.append(connection)
        answered_s = self._passed_s()
        found = self._bin(answered_s)  # a post counts in the interval in which its answer came
        found.codes[status] += _POSTS
        if status == 200:
            found.times_s.append(answered_s - due_s)
            found.good += _POSTS if answered_s - due_s <= _ANSWERED_S else 0

    def good_per_s(self, from_s: float, to_s: float) -> float:
        """Return the mean goodput between two times, in seconds from the start. Both are multiples of `_BIN_S`."""
        wanted = range(round(from_s / _BIN_S), round(to_s / _BIN_S))
        return sum(self.bins[index].good for index in wanted) / (len(wanted) * _BIN_S)


def table_rows(load: OpenLoad, phases: Mapping[float, str]) -> Iterator[list[str | float]]:
    for index in sorted(load.bins):
        found, at_s = load.bins[index], index * _BIN_S
        phase = [name for since_s, name in phases.items() if at_s >= since_s][-1]
        times_ms = sorted(1000 * took_s for took_s in found.times_s) or [0.0]
        refused = (found.codes.total() - found.codes[200]) / _BIN_S
        yield [
            f"{phase} {at_s:.0f} s", found.good / _BIN_S, refused, times_ms[len(times_ms) // 2],
            times_ms[int(len(times_ms) * 0.99)],
        ]  # fmt: skip


async def measure_service(options: Options, port: int, factors: IO[str]) -> list[report.Bar]:
    await create_board(port, BOARD, board_spec([COLUMN]))
    made = [batch_body(batch) for batch in draw_batches(options.rows, seed=1, count=_BODIES, size=_POSTS)]
    starts = range(0, options.rows, BATCH)
    rows = ([(owner_at(index), 1) for index in range(start, min(start + BATCH, options.rows))] for start in starts)
    await send_batches(port, BOARD, map(batch_body, rows))
    whole = await measure_capacity(port, made, options.seconds / 4)
    factors.write("2\n")
    halved = await measure_capacity(port, made, options.seconds / 4)
    factors.write("1\n")
    await measure_capacity(port, made, _BIN_S)
    print(f"   capacity {whole:,.0f} posts/s, with statements that take twice as long {halved:,.0f}", flush=True)
    load = OpenLoad(port, made, whole * _OFFERED_RATIO, factors)
    slow_s, again_s = _BEFORE_S, _BEFORE_S + max(_BIN_S * round(options.seconds / _BIN_S), _SLOW_S_MIN)
    end_s = again_s + _AFTER_S
    await load.run({slow_s: 2.0, again_s: 1.0}, end_s)
    columns = ("", "good posts/s", "refused/s", "p50 ms", "p99 ms")
    report.print_table(columns, table_rows(load, {0.0: "before", slow_s: "halved", again_s: "again"}))
    carried, before = min(halved, whole * _OFFERED_RATIO), load.good_per_s(_BIN_S, slow_s)
    first = load.good_per_s(slow_s, slow_s + _SETTLED_S) / carried
    later = load.good_per_s(slow_s + _SETTLED_S, again_s) / carried
    recovered = load.good_per_s(again_s + _RECOVERED_S, end_s) / before
    return [
        report.Bar("goodput from 10 s after the halving, of the new capacity", later, 0.9),
        report.Bar("goodput from 30 s after the recovery, of that before", recovered, 0.95),
        report.Bar("goodput in the first 10 s after the halving, of the new capacity", first, None),
    ]


def measure(options: Options, folder: Path) -> list[report.Bar]:
    port = free_port()
    with postgres(DURABLE) as database, run_slow_proxy(port, database.port) as factors:
        store = database.url().replace(f":{database.port}/", f":{port}/")
        with serve_store(store, folder, jobs="none") as server:
            return asyncio.run(measure_service(options, server.port, factors))


if __name__ == "__main__":
    report.run_program(measure, __doc__, "halved_capacity: a store half as fast for a minute", rows=100_000, seconds=60)
