"""How long a lease takes through HTTP, got and newly acquired, with 1,000 to 1,000,000 resources a sub-partition.

Rule kept: sizes take turns within one run, all in one store, at half of the rate that saturates the service; a request
has its time from when it was due, not from when the client came round to it.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import report
from benchmarks.client import BadAnswer, Connection
from benchmarks.lease_fill import CLIENT, PARTITIONS, REGION, fill, key
from benchmarks.options import Options, parse
from benchmarks.servers import service_on
from service.stores import SQLITE_PREFIX
from tests.servers import DURABLE, postgres

CONNECTIONS = 32
_SERVER = {**DURABLE, "shared_buffers": "1GB", "max_wal_size": "4GB"}
_FLAT = 1.5
_P99_MS = {("PostgreSQL", "get"): 3.0, ("PostgreSQL", "acquire"): 7.0}
_LEASE_S = 3_600
_ALL = 15_500_000

Body = Callable[[], bytes]


class Asker:
    """Requests for leases of one pool."""

    def __init__(self, pool_id: str, size: int, rng: random.Random) -> None:
        self._pool_id, self._size, self._rng, self._new = pool_id, size, rng, 0

    def get(self) -> bytes:
        """Of a key that has one for longer than it asks."""
        return self._body(key(self._rng.randrange(self._size // 2) * 2), lease_seconds=1)

    def acquire(self) -> bytes:
        """Of a key that has none."""
        self._new += 1
        return self._body(f"new-{self._rng.getrandbits(60)}", lease_seconds=_LEASE_S)

    def _body(self, name: str, **lasts: object) -> bytes:
        return json.dumps(
            {"client_id": CLIENT, "pool_id": self._pool_id, "key": name, "region": REGION, **lasts}
        ).encode()


async def _asked(connection: Connection, body: bytes) -> None:
    status, answer = await connection.call("POST", "/v1/leases", body)
    if status != 200:
        raise BadAnswer(f"{status} {answer[:300]!r}")


async def saturated(port: int, body: Body, seconds: float) -> float:
    """Requests a second from so many connections that ask one after the other."""
    done, until = 0, time.perf_counter() + seconds

    async def worker() -> None:
        nonlocal done
        connection = Connection(port)
        try:
            while time.perf_counter() < until:
                await _asked(connection, body())
                done += 1
        finally:
            connection.close()

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(CONNECTIONS):
            group.create_task(worker())
    return done / (time.perf_counter() - begun)


async def paced(port: int, body: Body, *, per_s: float, seconds: float, rng: random.Random) -> list[float]:
    """Ms of each request, from when it was due; as many are due at random moments."""
    due: asyncio.Queue[float | None] = asyncio.Queue()
    took: list[float] = []

    async def worker() -> None:
        connection = Connection(port)
        try:
            while (at := await due.get()) is not None:
                await _asked(connection, body())
                took.append(1000 * (time.perf_counter() - at))
        finally:
            connection.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(CONNECTIONS):
            group.create_task(worker())
        at, until = time.perf_counter(), time.perf_counter() + seconds
        while at < until:
            at += rng.expovariate(per_s)
            pause = at - time.perf_counter()
            if pause > 0:
                await asyncio.sleep(pause)
            due.put_nowait(at)
        for _ in range(CONNECTIONS):
            due.put_nowait(None)
    return took


Figures = dict[tuple[str, int], tuple[float, float]]  # p50 and p99 by what and size


async def measure_service(port: int, sizes: list[int], options: Options) -> tuple[Figures, dict[str, float]]:
    rng = random.Random(5)
    askers = {size: Asker(f"p{size}", size * PARTITIONS, rng) for size in sizes}
    rates: dict[str, float] = {}
    rounds: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for what in ("get", "acquire"):
        bodies: dict[int, Body] = {size: getattr(asker, what) for size, asker in askers.items()}
        largest = bodies[sizes[-1]]
        await saturated(port, largest, 1.0)  # warm
        rates[what] = await saturated(port, largest, options.seconds)
        for number in range(options.rounds + 1):
            for size in sizes if number % 2 else sizes[::-1]:
                # The smallest pool has only so many free ones: a round of it is as short as they last.
                free = size * PARTITIONS // 2 / (options.rounds + 1) if what == "acquire" else float("inf")
                seconds = min(options.seconds, 0.9 * free / (rates[what] / 2))
                took = await paced(port, bodies[size], per_s=rates[what] / 2, seconds=seconds, rng=rng)
                if number:
                    ordered = sorted(took)
                    rounds.setdefault((what, size), []).append(
                        (ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)])
                    )
    figures = {
        place: (statistics.median(one[0] for one in found), statistics.median(one[1] for one in found))
        for place, found in rounds.items()
    }
    return figures, rates


def measure_on(name: str, url: str, folder: Path, sizes: list[int], options: Options) -> list[report.Bar]:
    with service_on(url, folder) as server:
        figures, rates = asyncio.run(measure_service(server.port, sizes, options))
    print(f"   {name}: saturated at {rates['get']:,.0f} gets/s, {rates['acquire']:,.0f} acquisitions/s")
    report.table(
        [name, "resources a sub-partition", "p50 ms", "p99 ms"],
        [[what, size, p50, p99] for (what, size), (p50, p99) in figures.items()],
    )
    bars = []
    for what in ("get", "acquire"):
        for at, quantile in enumerate(("p50", "p99")):
            found = [figures[what, size][at] for size in sizes]
            title = f"{name}: {what} {quantile}, {sizes[-1]:,} / {sizes[0]:,} a sub-partition"
            bars.append(report.Bar(title, found[-1] / found[0], _FLAT, at_most=True))
        worst = max(figures[what, size][1] for size in sizes)
        bars.append(report.Bar(f"{name}: {what} p99, any size", worst, _P99_MS.get((name, what)), " ms", at_most=True))
    return bars


def measure(options: Options, folder: Path) -> list[report.Bar]:
    sizes = [size for size in (1_000, 10_000, 100_000, 1_000_000) if size <= options.rows]
    pools = {f"p{size}": size * PARTITIONS for size in sizes}
    if options.rows >= sizes[-1] == 1_000_000:
        pools["rest"] = _ALL - sum(pools.values())
    store = folder / "leases.db"
    fill(f"{SQLITE_PREFIX}{store}", pools)
    bars = measure_on("SQLite", f"{SQLITE_PREFIX}{store}", folder, sizes, options)
    store.unlink()
    with postgres(_SERVER) as cluster:
        fill(cluster.url(), pools)
        cluster.run_sql("VACUUM ANALYZE")
        return bars + measure_on("PostgreSQL", cluster.url(), folder, sizes, options)


def main() -> int:
    options = parse(__doc__, rounds=3)
    return report.run(options, f"leases: pools of up to {options.rows:,} resources a sub-partition", measure)


if __name__ == "__main__":
    sys.exit(main())
