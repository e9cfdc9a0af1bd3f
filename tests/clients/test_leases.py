"""Test that a lease never counts for longer than it lasts: another holder may get the same resource afterwards."""

import asyncio
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from rankcurve import AsyncClient, AsyncLeases, Client, Retries, UnreachableError
from rankcurve.errors import ApiError, NoResourceAvailableError, StoreBusyError

from tests.clients.served import serving_app
from tests.servers import free_port
from tests.service.real_service import ROOT, Service

START = datetime(2026, 11, 21, tzinfo=UTC)


class FakeLeases:
    """Answer requests for leases as the service does. A test moves the clock that the answers take their times from."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.asked: list[dict[str, Any]] = []
        self.arrivals: asyncio.Queue[None] = asyncio.Queue()
        self.given_back: list[str] = []
        self.statuses: list[int] = []  # status codes of the next answers; an empty list means 200
        self.hold: asyncio.Event | None = None
        self.takes_s = 0.0  # before each answer, the clock advances by this number of seconds
        self.url = ""

    def monotonic(self) -> float:
        return self.now_s

    def now(self) -> datetime:
        return START + timedelta(seconds=self.now_s - 1_000)

    def time_in(self, seconds: float) -> datetime:
        return self.now() + timedelta(seconds=seconds)

    async def answer_lease(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append(body)
        self.arrivals.put_nowait(None)
        if self.hold is not None:
            await self.hold.wait()
        status = self.statuses.pop(0) if self.statuses else 200
        if status != 200:
            code = {409: "no_resource_available", 404: "unknown_pool"}.get(status, "store_busy")
            wait = {"Retry-After": "0"} if code == "store_busy" else {}
            return web.json_response({"code": code, "detail": "no"}, status=status, headers=wait)
        expires = datetime.fromisoformat(body["lease_expires"])
        left_s = (expires - self.now()).total_seconds()
        self.now_s += self.takes_s
        told = {name: body[name] for name in ("key", "region", "lease_expires")}
        lease = {"resource": f"r of {body['key']}", "expires_in": left_s, "version": 7, "acquired": True}
        return web.json_response(told | lease)

    async def give_back(self, request: web.Request) -> web.Response:
        self.given_back.append(request.match_info["key"])
        return web.Response(status=204)


@pytest.fixture
async def fake() -> AsyncIterator[FakeLeases]:
    made = FakeLeases()
    app = web.Application()
    app.router.add_post("/v1/leases", made.answer_lease)
    app.router.add_delete("/v1/leases/{client}/{pool}/{key}", made.give_back)
    async with serving_app(app) as made.url:
        yield made


@pytest.fixture
async def leases(fake: FakeLeases) -> AsyncIterator[AsyncLeases]:
    async with AsyncClient(fake.url, retries=Retries(rng=random.Random(1)), pause=no_pause) as client:
        yield make_leases(client, fake)


async def no_pause(_seconds: float) -> None:
    pass


def make_leases(client: AsyncClient, fake: FakeLeases) -> AsyncLeases:
    return client.leases("eu", leases_max=3, monotonic=fake.monotonic, now=fake.now)


async def get_resource(leases: AsyncLeases, fake: FakeLeases, key: str = "k", seconds: float = 60) -> str:
    """Ask the agent for a lease of `seconds` seconds. Return the name of the leased resource."""
    return (await leases.get("acme", "numbers", key, fake.time_in(seconds))).resource


async def test_a_program_asks_once_for_a_lease_until_just_before_its_end(leases: AsyncLeases, fake: FakeLeases) -> None:
    assert await get_resource(leases, fake) == "r of k"
    fake.now_s += 58.9
    await get_resource(leases, fake, seconds=1)
    assert len(fake.asked) == 1
    fake.now_s += 0.2
    await get_resource(leases, fake, seconds=1)
    assert len(fake.asked) == 2


async def test_the_time_of_a_lease_counts_from_before_the_request(leases: AsyncLeases, fake: FakeLeases) -> None:
    fake.takes_s = 20
    begun_s = fake.now_s
    lease = await leases.get("acme", "numbers", "k", fake.time_in(60))
    assert lease.good_until_s == begun_s + 60


async def test_a_program_asks_again_if_the_remaining_time_is_too_short(leases: AsyncLeases, fake: FakeLeases) -> None:
    await get_resource(leases, fake)
    await get_resource(leases, fake, seconds=119)
    assert len(fake.asked) == 1
    await get_resource(leases, fake, seconds=121)
    assert len(fake.asked) == 2


async def test_many_tasks_that_want_one_lease_send_one_request(leases: AsyncLeases, fake: FakeLeases) -> None:
    fake.hold = asyncio.Event()
    tasks = [asyncio.create_task(get_resource(leases, fake)) for _ in range(50)]
    other = asyncio.create_task(get_resource(leases, fake, "other"))
    for _ in range(2):
        await fake.arrivals.get()
    tasks[-1].cancel()
    fake.hold.set()
    assert set(await asyncio.gather(*tasks[:-1], other)) == {"r of k", "r of other"}
    assert len(fake.asked) == 2, "a cancelled task does not disturb the others"


async def test_a_task_takes_over_if_the_one_that_asked_is_cancelled(leases: AsyncLeases, fake: FakeLeases) -> None:
    fake.hold = asyncio.Event()
    tasks = [asyncio.create_task(get_resource(leases, fake)) for _ in range(3)]
    await fake.arrivals.get()
    tasks[0].cancel()
    fake.hold.set()
    assert await asyncio.gather(*tasks[1:]) == ["r of k"] * 2
    assert len(fake.asked) == 2


async def test_a_task_that_wants_more_than_the_running_request_asks_again(
    leases: AsyncLeases, fake: FakeLeases
) -> None:
    fake.hold = asyncio.Event()
    tasks = [asyncio.create_task(get_resource(leases, fake, seconds=seconds)) for seconds in (10, 60)]
    await fake.arrivals.get()
    fake.hold.set()
    await asyncio.gather(*tasks)
    assert [body["lease_expires"] for body in fake.asked] == [fake.time_in(s).isoformat() for s in (10, 60)]


async def test_a_program_remembers_a_bounded_number_of_last_used_leases(leases: AsyncLeases, fake: FakeLeases) -> None:
    for key in ("a", "b", "c", "a", "d"):
        await get_resource(leases, fake, key)
    assert len(fake.asked) == 4
    for key in ("a", "c", "d"):
        await get_resource(leases, fake, key)
    assert len(fake.asked) == 4
    await get_resource(leases, fake, "b")
    assert len(fake.asked) == 5


async def test_a_program_retries_a_busy_service_and_not_a_refusal(leases: AsyncLeases, fake: FakeLeases) -> None:
    fake.statuses = [503, 429]
    await get_resource(leases, fake)
    assert len(fake.asked) == 3
    fake.statuses = [409, 404]
    with pytest.raises(NoResourceAvailableError):
        await get_resource(leases, fake, "dry")
    with pytest.raises(ApiError) as refused:
        await get_resource(leases, fake, "nowhere")
    assert refused.value.code == "unknown_pool"
    assert len(fake.asked) == 5
    fake.statuses = [503] * 9
    with pytest.raises(StoreBusyError):
        await get_resource(leases, fake, "away")
    assert len(fake.asked) == 10


async def test_a_program_asks_again_for_a_lease_that_was_given_back(leases: AsyncLeases, fake: FakeLeases) -> None:
    await get_resource(leases, fake, "a/b")
    await leases.give_back("acme", "numbers", "a/b")
    assert fake.given_back == ["a/b"]
    await get_resource(leases, fake, "a/b")
    leases.forget("acme", "numbers", "a/b")
    await get_resource(leases, fake, "a/b")
    assert len(fake.asked) == 3


async def test_a_lease_of_a_missing_service_is_unreachable(fake: FakeLeases) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    async with AsyncClient(url, retries=Retries(attempts_max=2), pause=no_pause) as client:
        with pytest.raises(UnreachableError):
            await get_resource(make_leases(client, fake), fake)


async def test_a_held_lease_is_extended_and_then_given_back(fake: FakeLeases) -> None:
    async with AsyncClient(fake.url, pause=no_pause) as client:
        async with client.leases("eu", monotonic=fake.monotonic, now=fake.now).hold(
            "acme", "numbers", "k", lease_s=0.01
        ) as lease:
            until_s = lease.good_until_s
            for _ in range(3):
                await fake.arrivals.get()
            assert lease.lost is None
        assert lease.good_until_s == until_s, "the clock of the test stands still"
    assert fake.given_back == ["k"]


async def test_a_held_lease_that_is_refused_says_so(fake: FakeLeases) -> None:
    async with AsyncClient(fake.url, pause=no_pause) as client:
        leases = client.leases("eu", monotonic=fake.monotonic, now=fake.now)
        async with leases.hold("acme", "numbers", "k", lease_s=0.01) as lease:
            await fake.arrivals.get()
            fake.statuses = [409]
            await fake.arrivals.get()
    assert isinstance(lease.lost, NoResourceAvailableError)


async def test_both_clients_lease_from_the_real_service(service: Service) -> None:
    await service.must("PUT", "/v1/pools/acme/numbers")
    await service.must("POST", "/v1/pools/acme/numbers/resources", {"region": "eu", "resources": ["a"]})
    until = datetime.now(UTC) + timedelta(seconds=60)
    async with AsyncClient(service.base) as client:
        leases = client.leases("eu")
        lease = await leases.get("acme", "numbers", "k/ü", until)
        assert (lease.resource, lease.version, lease.acquired) == ("a", 1, True)
        assert await leases.get("acme", "numbers", "k/ü", until) is lease
        with pytest.raises(NoResourceAvailableError):
            await leases.get("acme", "numbers", "other", until)
        await leases.give_back("acme", "numbers", "k/ü")
        assert (await leases.get("acme", "numbers", "other", until)).version == 2
        await leases.give_back("acme", "numbers", "other")

    def hold() -> int:
        with Client(service.base) as client, client.leases("eu").hold("acme", "numbers", "third") as lease:
            return lease.version

    assert [await asyncio.to_thread(hold) for _ in range(2)] == [3, 4]


def test_the_client_imports_nothing_of_the_service() -> None:
    said = subprocess.run(
        [sys.executable, "-c", "import sys, rankcurve; rankcurve.Client('http://x'); print(*sys.modules)"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    loaded = {name.partition(".")[0] for name in said}
    assert not {"service", "storage", "jobs", "config", "querybuilder", "aiohttp", "pydantic", "typer"} & loaded
