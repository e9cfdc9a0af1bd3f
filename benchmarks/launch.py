"""Measure positions on a board that is filled from nothing, as at the launch of a game, on both stores.

    python -m benchmarks.launch [--rows N] [--seconds S]

Four clients post the new owners in batches of 1,000, evenly over the given seconds, or as fast as the service takes
them if that is slower. Meanwhile 32 clients ask for positions of owners who have been posted. Each of them waits 50 ms
on average between an answer and its next question. Another client looks at the state of the curve.

Bars: from 2 s after the first post to the last one, 99 % of the positions take at most 100 ms. No position takes more
than 1 s. The column has a curve 2 s after an answer to posts passes `exact_top`. From then on, the curve was fitted to
at least a tenth of the entries that had been posted 2 s earlier.
"""

import asyncio
import json
import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import report
from benchmarks.boards import BATCH, BOARD, COLUMN, FILL_CONNECTIONS, batch_body, board_spec, draw_values, owner_at
from benchmarks.client import BadAnswerError, Connection, call_service
from benchmarks.options import Options
from benchmarks.servers import POSTGRES_SETTINGS, serve_store
from service.stores import SQLITE_PREFIX
from tests.servers import postgres

_READERS = 32
_PAUSE_S = 0.05
_LOOK_S = 0.1
_GRACE_S = 2.0
_TAIL_S = 5.0  # how long the readers and the client that watches the curve go on after the last post
_P99_MS, _LONGEST_MS, _FITTED_SHARE = 100, 1000, 0.1
_EXACT_TOP = 500  # the default of a board's specification


@dataclass(slots=True)
class Launch:
    """The answers that clients have seen. Times are in seconds since the first post."""

    begun_s: float = field(default_factory=time.perf_counter)
    posted: list[tuple[float, int]] = field(default_factory=lambda: [(0.0, 0)])  # (time, how many posts were answered)
    asked: list[tuple[float, float, str]] = field(default_factory=list)  # (time, milliseconds, method) of positions
    # (time, the entries of the fit); 0 entries: no curve.
    fitted: list[tuple[float, int]] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def now_s(self) -> float:
        return time.perf_counter() - self.begun_s

    def posted_until(self, at_s: float) -> int:
        return max((count for answered_s, count in self.posted if answered_s <= at_s), default=0)

    def find_late_s(self) -> float:
        """Return the seconds from passing `exact_top` until a curve was first seen.

        If no curve was seen, return the length of the run.
        """
        passed_s = next(at_s for at_s, count in self.posted if count > _EXACT_TOP)
        return next((at_s - passed_s for at_s, entries in self.fitted if entries), self.now_s())

    def find_share(self) -> float:
        """Return the smallest ratio of the entries in a fit to the entries that had been posted `_GRACE_S` earlier."""
        known = [(entries, self.posted_until(at_s - _GRACE_S)) for at_s, entries in self.fitted]
        return min((entries / posted for entries, posted in known if posted > _EXACT_TOP), default=0.0)


async def _post(port: int, seen: Launch, batches: "list[tuple[float, bytes]]") -> None:
    connection = Connection(port)
    while batches:
        due_s, body = batches.pop()
        await asyncio.sleep(max(0.0, due_s - seen.now_s()))
        status, answer = await connection.call("POST", f"/v1/leaderboards/{BOARD}/posts", body)
        if status != 200:
            raise BadAnswerError(f"batch: {status} {answer[:300]!r}")
        seen.posted.append((seen.now_s(), seen.posted[-1][1] + BATCH))
    connection.close()


async def _read(port: int, seen: Launch, rng: random.Random) -> None:
    connection = Connection(port)
    while not seen.ended.is_set():
        await asyncio.sleep(rng.expovariate(1 / _PAUSE_S))
        # The clients post at the same time, so the last batches may be answered in another order.
        known = seen.posted[-1][1] - FILL_CONNECTIONS * BATCH
        if known <= 0:
            continue
        path = f"/v1/leaderboards/{BOARD}/entries/{owner_at(rng.randrange(known))}/positions"
        asked_s = seen.now_s()
        (position,) = (await connection.call_ok("GET", path))["positions"]
        seen.asked.append((asked_s, 1000 * (seen.now_s() - asked_s), position["method"]))
    connection.close()


async def _look(port: int, seen: Launch) -> None:
    connection = Connection(port)
    while not seen.ended.is_set():
        [curve] = (await connection.call_ok("GET", f"/v1/leaderboards/{BOARD}"))["curves"].values() or [None]
        # Every post brings a new owner, so each of them is one move since the fit.
        seen.fitted.append((seen.now_s(), 0 if curve is None else curve["total"] - curve["moves"]))
        await asyncio.sleep(_LOOK_S)
    connection.close()


async def launch(port: int, rows: int, seconds: float) -> Launch:
    await call_service(port, "PUT", f"/v1/leaderboards/{BOARD}", board_spec([COLUMN]))
    values = draw_values(rows)
    starts = range(0, rows, BATCH)
    batches = [
        (seconds * start / rows, batch_body([(owner_at(at), values[at]) for at in range(start, start + BATCH)]))
        for start in starts
    ]
    batches.reverse()
    seen = Launch()
    async with asyncio.TaskGroup() as group:
        others = [group.create_task(_read(port, seen, random.Random(number))) for number in range(_READERS)]
        others.append(group.create_task(_look(port, seen)))
        await asyncio.gather(*(_post(port, seen, batches) for _ in range(FILL_CONNECTIONS)))
        await asyncio.sleep(_TAIL_S)
        seen.ended.set()
    return seen


def measure_on(name: str, url: str, folder: Path, options: Options) -> list[report.Bar]:
    rows = max(BATCH * 2 * FILL_CONNECTIONS, options.rows // BATCH * BATCH)
    with serve_store(url, folder) as server:
        seen = asyncio.run(launch(server.port, rows, options.seconds))
    last_s = seen.posted[-1][0]
    took_ms = sorted(ms for at_s, ms, _ in seen.asked if _GRACE_S <= at_s <= last_s) or [0.0]
    longest_ms = max(ms for _, ms, _ in seen.asked)
    methods = [method for _, _, method in seen.asked]
    print(f"   {name}: {rows:,} posts in {last_s:.1f} s, {len(methods):,} positions, load {os.getloadavg()[0]:.1f}:")
    print(f"   {json.dumps({method: methods.count(method) for method in sorted({*methods})})}")
    steps = [one for before, one in zip(seen.fitted, seen.fitted[1:], strict=False) if one[1] > 1.5 * before[1]]
    print("   fits: " + ", ".join(f"{entries:,} entries at {at_s:.1f} s" for at_s, entries in steps), flush=True)
    return [
        report.Bar(f"{name}: positions, p99", took_ms[int(len(took_ms) * 0.99)], _P99_MS, " ms", at_most=True),
        report.Bar(f"{name}: longest position", longest_ms, _LONGEST_MS, " ms", at_most=True),
        report.Bar(f"{name}: curve after exact_top", seen.find_late_s(), _GRACE_S, " s", at_most=True),
        report.Bar(f"{name}: entries of the fit / entries 2 s earlier", seen.find_share(), _FITTED_SHARE),
    ]


def measure(options: Options, folder: Path) -> list[report.Bar]:
    bars = measure_on("SQLite", f"{SQLITE_PREFIX}{folder / 'launch.db'}", folder, options)
    with postgres(POSTGRES_SETTINGS) as cluster:
        return bars + measure_on("PostgreSQL", cluster.url(), folder, options)


if __name__ == "__main__":
    report.run_program(measure, __doc__, "launch: {rows:,} owners in {seconds:g} s", seconds=16)
