"""Kill the service at random while a receiver of events fails at random. Check that it gets each event, in order.

python -m benchmarks.webhook_faults [--kills N]

Boards are created all the time, and each creation is an event. The receiver refuses a fifth of the deliveries, and
hangs up in the middle of a tenth. After the kills it accepts everything. Then a quiet service delivers 200 more
events, one at a time.

Bars: no event is missing, none comes before an earlier one, and a quiet delivery takes at most 1 s (p99).
"""

import asyncio
import json
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

from aiohttp import web

from benchmarks import report
from benchmarks.boards import board_spec, create_board
from benchmarks.client import HOST, Connection
from benchmarks.options import Options
from benchmarks.servers import Server, free_port, serve_file

_QUIET = 200
_REFUSED, _CUT = 0.2, 0.1
_PAUSE_S_MAX = 0.6  # between two kills
_CAUGHT_UP_S = 120.0
_HOOK = "/v1/webhooks/trial"


class Receiver:
    """Remembers the events in the order of their first delivery."""

    def __init__(self) -> None:
        self.rng, self.is_broken = random.Random(4), True
        self.first_s: dict[int, float] = {}  # by number of the event: when it first came
        self.repeated = 0
        self.boards: list[str] = []
        self.got = asyncio.Event()

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        event = json.loads(await request.read())
        drawn = self.rng.random() if self.is_broken else 1.0
        if drawn < _REFUSED:
            return web.Response(status=500)
        number = event["data"]["seq"]
        if number in self.first_s:
            self.repeated += 1
        else:
            self.first_s[number] = time.perf_counter()
            self.boards.append(event["data"]["board"])
            self.got.set()
        if drawn < _REFUSED + _CUT and request.transport is not None:
            request.transport.abort()  # the event arrived, and its answer gets lost
        return web.Response(status=204)

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(_CAUGHT_UP_S):
            while len(self.boards) < count:
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


async def create_boards(server: Server, kills: int, made: list[str]) -> None:
    """Create boards, one after the other, while the service is killed and started again `kills` times."""
    rng = random.Random(5)
    for number in range(kills):
        until_s = time.perf_counter() + rng.uniform(0, _PAUSE_S_MAX)
        while time.perf_counter() < until_s:
            made.append(f"b{number}-{len(made)}")
            await create_board(server.port, made[-1], board_spec(["xp"]))
        await asyncio.to_thread(server.stop, signal.SIGKILL)
        server.spawn()
        await asyncio.to_thread(server.wait_ready, poll_s=0.005)


async def deliver_quietly(server: Server, receiver: Receiver, made: list[str], count: int) -> list[float]:
    """Create boards one at a time. Return how long the event of each took to arrive, in seconds."""
    took_s = []
    for number in range(count):
        made.append(f"quiet-{number}")
        await create_board(server.port, made[-1], board_spec(["xp"]))
        begun_s = time.perf_counter()
        await receiver.wait_for(len(made))
        took_s.append(time.perf_counter() - begun_s)
    return sorted(took_s)


async def run_trial(
    server: Server, port: int, kills: int, *, quiet: int = _QUIET
) -> tuple[Receiver, list[str], list[float]]:
    made: list[str] = []
    async with run_receiver(port) as receiver:
        connection = Connection(server.port)
        await connection.call_ok("PUT", _HOOK, {"url": f"http://{HOST}:{port}/"})
        connection.close()
        await create_boards(server, kills, made)
        receiver.is_broken = False
        connection = Connection(server.port)
        await connection.call_ok("POST", f"{_HOOK}/resume")
        connection.close()
        await receiver.wait_for(len(made))
        return receiver, made, await deliver_quietly(server, receiver, made, quiet)


def measure(options: Options, folder: Path) -> list[report.Bar]:
    port = free_port()
    with serve_file(folder / "events.db", environment={"RANKCURVE_WEBHOOK_HOSTS": HOST}) as server:
        receiver, made, took_s = asyncio.run(run_trial(server, port, options.kills))
    print(f"   {len(made):,} events, {receiver.repeated:,} deliveries repeated")
    numbers = list(receiver.first_s)
    return [
        report.Bar("missing events", len(set(made) - set(receiver.boards)), 0, at_most=True),
        report.Bar("events before an earlier one", sum(a > b for a, b in pairwise(numbers)), 0, at_most=True),
        report.Bar("event to receiver, quiet, p99", took_s[len(took_s) * 99 // 100], 1.0, " s", at_most=True),
    ]


if __name__ == "__main__":
    report.run_program(measure, __doc__, "webhook faults: {kills} kills")
