"""Let 64 clients race for 1,000 resources over three front ends, and count how often two hold the same resource.

python -m benchmarks.lease_race [--seconds S]

The front ends share one PostgreSQL database. Clients and front ends are killed, and the clock of one front end is
stepped an hour ahead and back. A *holding* is the time in which a client believes that it has a lease. It begins when
the answer to the client's request arrives. It ends when the client gives the lease back, or `expires_in` after the
request was sent. All times are from one monotonic clock. Two holdings of one resource may never overlap, even if
different front ends answered.

Bars: no resource has two holders at a time, the fencing numbers of each resource grow, and after the leases are
liberated every resource is free.
"""

import asyncio
import json
import random
import signal
import sys
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.client import HOST, Connection
from benchmarks.options import Options
from benchmarks.servers import Server, serve_store
from tests.servers import DURABLE, free_port, postgres

CLIENTS, RESOURCES, KEYS_A_CLIENT = 64, 1_000, 40
POOL = "/v1/pools/race/all"
MARGIN_S = 0.2
_LEASE_S = (0.5, 5.0)
_STEP_S = 2.0  # seconds between two steps of the clock
_HOUR_NS = 3_600 * 10**9
_KILL_EVERY_S = 4.0  # seconds between two kills of a front end
_WAIT_S = 30.0
_ENVIRONMENT = {"RANKCURVE_LEASE_MARGIN_S": str(MARGIN_S), "RANKCURVE_LIBERATE_INTERVAL_S": "1"}


@dataclass(slots=True)
class Holding:
    """A client's lease, and the time during which the client believes that it has this lease."""

    resource: str
    version: int
    key: str
    begun_s: float
    until_s: float


@dataclass(slots=True)
class Race:
    holdings: list[Holding] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    stop: bool = False


class Client:
    """A client that leases resources for its keys, gives some back, and sometimes dies without giving any back."""

    def __init__(self, number: int, ports: list[int], race: Race) -> None:
        self._name, self._ports, self._race = f"c{number}", ports, race
        self._rng = random.Random(number)
        self._keys = 0
        self._held: dict[str, Holding] = {}

    async def run(self) -> None:
        while not self._race.stop:
            connection = Connection(self._rng.choice(self._ports))
            try:
                for _ in range(self._rng.randrange(200)):
                    await self._act(connection)
            except (OSError, EOFError, TimeoutError):
                self._race.seen["unanswered"] += 1
                await asyncio.sleep(0.05)
            finally:
                connection.close()
            self._held.clear()  # the client forgets its leases, as if it had died; the leases expire
            self._race.seen["clients killed"] += 1

    async def _act(self, connection: Connection) -> None:
        now_s = time.monotonic()
        self._held = {key: holding for key, holding in self._held.items() if holding.until_s > now_s}
        if self._held and self._rng.random() < 0.2:
            await self._give_back(connection, self._held.pop(self._rng.choice(list(self._held))))
        elif self._held and self._rng.random() < 0.2:
            await self._ask(connection, self._rng.choice(list(self._held)))
        elif len(self._held) < KEYS_A_CLIENT:
            self._keys += 1
            await self._ask(connection, f"{self._name}-{self._keys}")
        else:
            await asyncio.sleep(0.01)

    async def _ask(self, connection: Connection, key: str) -> None:
        lease_s = round(self._rng.uniform(*_LEASE_S), 3)
        body = {"client_id": "race", "pool_id": "all", "key": key, "region": "eu", "lease_seconds": lease_s}
        asked_s = time.monotonic()
        status, answer = await connection.call("POST", "/v1/leases", json.dumps(body).encode())
        self._race.seen[str(status)] += 1
        if status != 200:
            await asyncio.sleep(0.005)
            return
        lease: dict[str, Any] = json.loads(answer)
        until_s = asked_s + lease["expires_in"]
        known = self._held.get(key)
        if known is not None and known.version == lease["version"]:
            known.until_s = max(known.until_s, until_s)
            self._race.seen["extended"] += 1
            return
        holding = Holding(lease["resource"], lease["version"], key, time.monotonic(), until_s)
        self._held[key] = holding
        self._race.holdings.append(holding)

    async def _give_back(self, connection: Connection, holding: Holding) -> None:
        holding.until_s = min(holding.until_s, time.monotonic())  # the holding ends before the request is sent
        status, _ = await connection.call("DELETE", f"/v1/leases/race/all/{holding.key}")
        self._race.seen[f"given back {status}"] += 1


def count_overlaps(holdings: list[Holding]) -> tuple[int, int]:
    """Count the wrong pairs among successive holdings of each resource.

    Return the number of pairs of different keys that overlap, and the number of pairs in which the version does not
    grow.
    """
    by_resource: dict[str, list[Holding]] = defaultdict(list)
    for holding in holdings:
        by_resource[holding.resource].append(holding)
    overlapping = backwards = 0
    for found in by_resource.values():
        found.sort(key=lambda holding: holding.version)
        for first, second in pairwise(found):
            overlapping += second.begun_s < first.until_s and second.key != first.key
            backwards += second.begun_s < first.begun_s or second.version == first.version
    return overlapping, backwards


async def kill_front_ends(servers: list[Server], race: Race) -> None:
    """Kill the front ends in turn and start each again, while clients use the others."""
    number = 0
    while not race.stop:
        await asyncio.sleep(_KILL_EVERY_S)
        server = servers[number % len(servers)]
        number += 1
        await asyncio.to_thread(server.stop, signal.SIGKILL)
        race.seen["front ends killed"] += 1
        server.spawn()
        await asyncio.to_thread(server.wait_ready)


async def run_race(servers: list[Server], seconds: float) -> tuple[Race, dict[str, Any], list[str]]:
    """Run the race until all leases are liberated.

    Return the race, the state of the pool at the end, and the resources that are still not free.
    """
    connection = Connection(servers[-1].port)
    await connection.call_ok("PUT", POOL, {})
    names = [f"r{number}" for number in range(RESOURCES)]
    await connection.call_ok("POST", POOL + "/resources", {"region": "eu", "resources": names})
    race = Race()
    async with asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            group.create_task(Client(number, [server.port for server in servers], race).run())
        killing = group.create_task(kill_front_ends(servers[:-1], race))
        await asyncio.sleep(seconds)
        race.stop = True
        await killing
    await asyncio.sleep(_LEASE_S[1] + MARGIN_S)
    listed: list[dict[str, Any]] = []
    until = time.monotonic() + _WAIT_S
    while time.monotonic() < until:
        listed = (await connection.call_ok("GET", f"{POOL}/resources?limit=1000"))["resources"]
        if not any(each["key"] for each in listed):
            break
        await asyncio.sleep(0.2)
    pool = await connection.call_ok("GET", POOL)
    connection.close()
    left = [each["resource"] for each in listed if each["key"]]
    left += sorted(set(names) - {each["resource"] for each in listed})
    return race, pool["regions"]["eu"], left


def measure(options: Options, folder: Path) -> list[report.Bar]:
    with ExitStack() as stack:
        url = stack.enter_context(postgres(DURABLE)).url()
        port = free_port()
        command = [sys.executable, "-m", "benchmarks.lease_race", "clock", "serve", "--host", HOST]
        command += ["--port", str(port), "--store", url, "--jobs", "none"]
        settled = stack.enter_context(serve_store(url, folder, environment=_ENVIRONMENT))
        stepped = Server(command, folder, port=port, ready_path="/readyz", environment=_ENVIRONMENT)
        front_end = serve_store(url, folder, jobs="none", environment=_ENVIRONMENT)
        servers = [stack.enter_context(server) for server in (stepped, front_end)]
        race, pool, left = asyncio.run(run_race([*servers, settled], options.seconds))
    overlapping, backwards = count_overlaps(race.holdings)
    print(f"   {len(race.holdings):,} holdings, {dict(race.seen)}")
    print(f"   afterwards: {pool}")
    return [
        report.Bar("two live holders of one resource", overlapping, 0, at_most=True),
        report.Bar("numbers that do not grow from holder to holder", backwards, 0, at_most=True),
        report.Bar("resources leaked after liberation", len(left), 0, at_most=True),
        report.Bar("resources that are not counted as available", RESOURCES - pool["available"], 0, at_most=True),
        report.Bar("holdings", len(race.holdings), RESOURCES),
        report.Bar("holders killed", race.seen["clients killed"], CLIENTS),
        report.Bar("front ends killed", race.seen["front ends killed"], 2),
    ]


def serve_with_stepped_clock() -> None:
    """Run `rankcurve` in this process, whose clock is correct, then an hour ahead, then an hour behind, and so on.

    Only the time of day that Python returns is changed. The monotonic clock and the store's clock stay correct.
    """
    true_ns, begun_s = time.time_ns, time.monotonic()

    def stepped_ns() -> int:
        return true_ns() + (0, _HOUR_NS, -_HOUR_NS)[int((time.monotonic() - begun_s) / _STEP_S) % 3]

    time.time_ns = stepped_ns
    time.time = lambda: stepped_ns() / 1e9
    from service.cli import main as rankcurve

    rankcurve()


if __name__ == "__main__":
    if sys.argv[1:2] == ["clock"]:
        del sys.argv[1]
        serve_with_stepped_clock()
    report.run_program(
        measure,
        __doc__,
        f"{CLIENTS} clients race for {RESOURCES:,} resources for {{seconds:.0f}} s, one clock an hour off",
        seconds=60,
    )
