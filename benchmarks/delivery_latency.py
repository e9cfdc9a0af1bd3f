"""Measure how soon a webhook's receiver gets an event of a quiet service.

python -m benchmarks.delivery_latency [--store URL]

Boards are created one at a time, and each creation is an event. Measured on a SQLite file, or on the empty store that
`--store` names. `killed_seasons` has the same receiver beside kills.

Bar: p99 of the time from the answer to the request until the event arrives is at most 1 s.
"""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from benchmarks import report
from benchmarks.boards import board_spec, create_board
from benchmarks.client import HOST, call_service
from benchmarks.options import Options
from benchmarks.servers import serve_store
from service.stores import SQLITE_PREFIX
from tests.servers import free_port

HOOK = "/v1/webhooks/trial"
ENVIRONMENT = {"RANKCURVE_WEBHOOK_HOSTS": HOST}
_EVENTS = 200
_REFUSED, _CUT = 0.2, 0.1
_CAUGHT_UP_S = 120.0


class Receiver:
    """Remembers events in the order of their first delivery. While it is broken, it fails at random."""

    def __init__(self) -> None:
        self.rng, self.is_broken = random.Random(4), False
        self.seen: dict[int, str] = {}  # the board of each event, by its number, in the order of the first deliveries
        self.repeated = 0
        self.got = asyncio.Event()

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        event = json.loads(await request.read())
        drawn = self.rng.random() if self.is_broken else 1.0
        if drawn < _REFUSED:
            return web.Response(status=500)
        number = event["data"]["seq"]
        self.repeated += number in self.seen
        self.seen.setdefault(number, event["data"]["board"])
        self.got.set()
        if drawn < _REFUSED + _CUT and request.transport is not None:
            request.transport.abort()  # the event arrived, and its answer gets lost
        return web.Response(status=204)

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(_CAUGHT_UP_S):
            while len(self.seen) < count:
                self.got.clear()
                await self.got.wait()


@asynccontextmanager
async def run_receiver(port: int) -> AsyncIterator[Receiver]:
    receiver = Receiver()
    runner = web.ServerRunner(web.Server(receiver.serve))
    await runner.setup()
    await web.TCPSite(runner, HOST, port).start()
    try:
        yield receiver
    finally:
        await runner.cleanup()


async def deliver_quietly(port: int, count: int) -> list[float]:
    """Create boards one at a time. Return the seconds that each board's event took to arrive, sorted."""
    took_s, hook_port = [], free_port()
    async with run_receiver(hook_port) as receiver:
        await call_service(port, "PUT", HOOK, {"url": f"http://{HOST}:{hook_port}/"})
        for number in range(1, count + 1):
            await create_board(port, f"board-{number}", board_spec(["xp"]))
            begun_s = time.perf_counter()
            await receiver.wait_for(number)
            took_s.append(time.perf_counter() - begun_s)
    return sorted(took_s)


def measure(options: Options, folder: Path) -> list[report.Bar]:
    url = options.store or f"{SQLITE_PREFIX}{folder / 'events.db'}"
    with serve_store(url, folder, environment=ENVIRONMENT) as server:
        took_s = asyncio.run(deliver_quietly(server.port, _EVENTS))
    print(f"   {len(took_s)} events, median {1000 * took_s[len(took_s) // 2]:.0f} ms")
    return [report.Bar("event to receiver, quiet, p99", took_s[len(took_s) * 99 // 100], 1.0, " s", at_most=True)]


if __name__ == "__main__":
    report.run_program(measure, __doc__, f"webhooks: {_EVENTS} events, one at a time")
