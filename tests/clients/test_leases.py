"""Test that a lease never counts for longer than it lasts: another holder may get the same resource afterwards."""

import asyncio
import random
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from rankcurve import (
    AsyncClient,
    AsyncLeases,
    Client,
    Lease,
    RankcurveError,
    Retries,
    UnexpectedAnswerError,
)
from rankcurve.errors import ApiError, NoResourceAvailableError, StoreBusyError
from rankcurve.programs import Wait

from tests.clients.served import problem_answer, serving_app
from tests.service.real_service import ROOT, WAIT_S, Service

CODES_OF = {404: "unknown_pool", 409: "no_resource_available", 429: "queue_full", 503: "store_busy"}
ANSWERED_S = 0.4  # a lease of this length leaves a slow machine 0.1 s to answer an attempt to extend it
START = datetime(2026, 11, 21, tzinfo=UTC)


class FakeLeases:
    """Answer requests for leases as the service does. A test moves the clock that the answers take their times from."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.asked: list[dict[str, Any]] = []
        self.arrivals: asyncio.Queue[None] = asyncio.Queue()
        self.given_back: list[str] = []
        self.statuses: list[int] = []  # status codes of the next answers; an empty list means 200
        self.hold: asyncio.Event | None = None  # answers wait for it
        self.takes_s = 0.0  # before each answer, the clock advances by this number of seconds
        self.granted: tuple[str, int] | None = None  # the resource and the version of the next leases
        self.told_key = ""  # the key that answers name instead of the one asked for
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
        if status in CODES_OF:
            return problem_answer(CODES_OF[status], **({"Retry-After": "0"} if status in (429, 503) else {}))
        if status != 200:
            return web.Response(status=status, text="<html>of a proxy")
        if "lease_seconds" in body:
            expires = self.time_in(body["lease_seconds"])
        else:
            expires = datetime.fromisoformat(body["lease_expires"])
        left_s = (expires - self.now()).total_seconds()
        self.now_s += self.takes_s
        resource, version = self.granted or (f"r of {body['key']}", 7)
        told = {"key": self.told_key or body["key"], "region": body["region"], "lease_expires": expires.isoformat()}
        lease = {"resource": resource, "expires_in": left_s, "version": version, "acquired": True}
        return web.json_response(told | lease)

    async def give_back(self, request: web.Request) -> web.Response:
        self.given_back.append(request.match_info["key"])
        if self.hold is not None:
            await self.hold.wait()
        return web.Response(status=204)


@pytest.fixture
async def fake() -> AsyncIterator[FakeLeases]:
    made = FakeLeases()
    app = web.Application()
    app.router.add_post("/v1/leases", made.answer_lease)
    app.router.add_delete("/v1/leases/{client}/{pool}/{key}", made.give_back)
    async with serving_app(app) as made.url:
        yield made
        if made.hold is not None:
            made.hold.set()


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


@asynccontextmanager
async def holding(fake: FakeLeases, **options: Any) -> AsyncIterator[Lease]:
    """Hold a lease of 20 ms on the clock of the test, which stands still, so it is extended every 10 ms.

    An attempt to extend it takes at most a quarter of its length. A test that needs an answer holds it for longer.
    """
    async with AsyncClient(fake.url, pause=no_pause) as client:
        leases = client.leases("eu", monotonic=fake.monotonic, now=fake.now)
        async with leases.hold("acme", "numbers", "k", **{"lease_s": 0.02, **options}) as lease:
            await fake.arrivals.get()
            yield lease


async def test_a_held_lease_is_extended_and_then_given_back(fake: FakeLeases) -> None:
    async with holding(fake) as lease:
        until_s = lease.good_until_s
        for _ in range(2):
            await fake.arrivals.get()
        assert lease.lost is None
    assert lease.good_until_s == until_s, "the clock of the test stands still"
    assert fake.given_back == ["k"]


async def test_a_held_lease_that_is_refused_says_so(fake: FakeLeases) -> None:
    async with holding(fake, lease_s=ANSWERED_S) as lease:
        fake.statuses = [409]
        await fake.arrivals.get()
    assert isinstance(lease.lost, NoResourceAvailableError)


async def test_the_service_computes_the_end_of_a_held_lease(fake: FakeLeases) -> None:
    async with holding(fake):
        await fake.arrivals.get()
    assert [(body.get("lease_seconds"), "lease_expires" in body) for body in fake.asked[:2]] == [(0.02, False)] * 2


async def test_a_lease_is_lost_at_its_end_even_while_no_answer_comes(fake: FakeLeases) -> None:
    async with holding(fake) as lease:
        fake.hold = asyncio.Event()
        await fake.arrivals.get()
        before = lease.lost
        fake.now_s += 0.02
        after = lease.lost
        fake.hold.set()
    assert before is None
    assert isinstance(after, RankcurveError), "no answer and no timeout was waited for"


async def test_an_answer_after_the_end_does_not_bring_a_lost_lease_back(fake: FakeLeases) -> None:
    async with holding(fake, lease_s=ANSWERED_S) as lease:
        fake.takes_s = ANSWERED_S
        await fake.arrivals.get()
        fake.takes_s = 0.0
    assert (lease.lost is not None, len(fake.asked)) == (True, 2)
    fake.now_s -= ANSWERED_S
    assert lease.lost is not None, "what was lost stays lost"


async def test_no_attempt_to_extend_is_made_after_the_end(fake: FakeLeases) -> None:
    async with holding(fake, lease_s=0.05) as lease:
        fake.now_s += 0.05
        fake.granted = ("of another holder", 1)
    assert (lease.resource, isinstance(lease.lost, RankcurveError), len(fake.asked)) == ("r of k", True, 1)


@pytest.mark.parametrize(
    ("granted", "lost"),
    [(("r of k", 7), False), (("r of k", 8), False), (("r of k", 9), True), (("r of k", 6), True), (("b", 8), True)],
)
async def test_an_answer_with_another_lease_loses_the_held_one(
    fake: FakeLeases, granted: tuple[str, int], lost: bool
) -> None:
    async with holding(fake, lease_s=ANSWERED_S) as lease:
        fake.granted = granted
        for _ in range(1 if lost else 2):
            await fake.arrivals.get()
    assert (lease.lost is not None, lease.resource) == (lost, "r of k"), str(lease.lost)
    assert lease.version == (7 if lost else granted[1])


async def test_a_refusal_that_passes_does_not_lose_a_lease(fake: FakeLeases) -> None:
    async with holding(fake) as lease:
        fake.statuses = [503, 429, 403]
        for _ in range(5):
            await fake.arrivals.get()
        assert lease.lost is None


async def test_an_answer_about_another_key_is_no_lease(fake: FakeLeases) -> None:
    fake.told_key = "other"
    async with AsyncClient(fake.url, pause=no_pause) as client:
        with pytest.raises(UnexpectedAnswerError, match="'other'"):
            await client.leases("eu").get("acme", "numbers", "k", 60.0)


async def test_an_answer_about_a_lease_without_end_is_no_lease(fake: FakeLeases) -> None:
    async with AsyncClient(fake.url, pause=no_pause) as client:
        with pytest.raises(UnexpectedAnswerError, match="expires_in"):
            await client.leases("eu", now=fake.now).get("acme", "numbers", "k", datetime.max.replace(tzinfo=UTC))


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("stuck", ["extending", "giving back"])
async def test_a_block_is_left_while_no_answer_comes(
    fake: FakeLeases, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str, stuck: str
) -> None:
    monkeypatch.setattr("rankcurve.leases.LEAVE_S", 0.05)
    if stuck == "extending":  # at once, and not when half of the lease is over
        monkeypatch.setattr("rankcurve.leases.Wait", lambda signal, _: Wait(signal, 0.01))
    in_block, leave = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hold() -> None:
        with Client(fake.url) as client, client.leases("eu").hold("acme", "numbers", "k\n", lease_s=600.0):
            loop.call_soon_threadsafe(in_block.set)
            leave.wait(WAIT_S)

    async def hold_async() -> None:
        async with (
            AsyncClient(fake.url) as client,
            client.leases("eu").hold("acme", "numbers", "k\n", lease_s=600.0),
        ):
            in_block.set()
            await asyncio.to_thread(leave.wait, WAIT_S)

    async with asyncio.timeout(WAIT_S):  # shorter than the 30 s after which the client would give up an answer
        task = asyncio.create_task(asyncio.to_thread(hold) if kind == "sync" else hold_async())
        await in_block.wait()
        fake.hold = asyncio.Event()
        asked = len(fake.asked)
        while stuck == "extending" and len(fake.asked) == asked:
            await fake.arrivals.get()
        leave.set()
        await task
    assert fake.given_back == ([] if stuck == "extending" else ["k\n"])
    assert "the lease of k? is not given back, and ends by itself" in caplog.text


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
