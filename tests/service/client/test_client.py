"""The HTTP client: what it retries, what it refuses, the texts of its errors, and which journals of peers it reads."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from decimal import Decimal

import pytest
from aiohttp import web

from jobs.leases.peers import PeerUnavailableError
from service.client.client import (
    ClientError,
    NotTheContractError,
    Patience,
    RefusedError,
    ServiceClient,
    UnreachableError,
    board_path,
    decode_answer,
    quote_segment,
    refusal_of,
)
from service.client.client_answers import Position
from service.client.lease_peers import open_peer_reader
from storage.leases.lease_journal import PublishedLeaseEvent
from tests.servers import free_port
from tests.service.client.served import serving_app

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Start = Callable[[Handler], Awaitable[str]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Yield a function that starts a server and returns its address. One handler answers requests to every path."""
    async with AsyncExitStack() as stack:

        async def serve(handler: Handler) -> str:
            app = web.Application()
            app.router.add_route("*", "/{tail:.*}", handler)
            return await stack.enter_async_context(serving_app(app))

        yield serve


class Waits:
    """A replacement for `sleep` that records the requested seconds and returns immediately."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def client(
    url: str, waits: Waits, patience: Patience | None = None, on_away: Callable[[ClientError], None] = lambda _: None
) -> ServiceClient:
    return ServiceClient(url, "rk_a_b", patience=patience, rng=random.Random(1), sleep=waits, on_away=on_away)


async def test_the_client_waits_the_requested_time_and_a_little_more(start: Start) -> None:
    answers = [(429, "3"), (503, "1"), (200, "")]

    async def handler(_: web.Request) -> web.Response:
        status, retry_after = answers.pop(0)
        return web.json_response({"results": []}, status=status, headers={"Retry-After": retry_after})

    waits = Waits()
    async with client(await start(handler), waits) as service:
        assert await service.apply_posts("b", []) == []
    assert 3 <= waits.seconds[0] <= 4.5
    assert 1 <= waits.seconds[1] <= 1.5


async def test_a_wait_is_never_longer_than_its_limit(start: Start) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.json_response({"code": "queue_full"}, status=429, headers={"Retry-After": "86400"})

    waits = Waits()
    with pytest.raises(RefusedError, match="queue_full"):
        async with client(await start(handler), waits, Patience(attempts_max=4, wait_s_max=2)) as service:
            await service.get_board("b")
    assert waits.seconds == [2, 2, 2]


async def test_a_refusal_without_retry_after_is_final(start: Start) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.json_response({"code": "no_job_process", "detail": "none alive"}, status=503)

    waits = Waits()
    with pytest.raises(RefusedError, match="no_job_process: none alive"):
        async with client(await start(handler), waits) as service:
            await service.refresh_curve("b", "xp")
    assert waits.seconds == []


async def test_the_client_reconnects_only_where_repeating_a_request_is_safe(start: Start) -> None:
    lost, told = [False], list[ClientError]()

    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        if lost[0]:
            request.transport.abort()
        return web.json_response({"columns": []})

    for patience in (Patience(), Patience(attempts_max=4, wait_base_s=1, reconnects=True)):
        url, waits, lost[0] = await start(handler), Waits(), False
        async with client(url, waits, patience, told.append) as service:
            await service.get_board("b")
            lost[0] = True
            with pytest.raises(UnreachableError, match="no answer from http"):
                await service.get_board("b")
    assert [1 <= waits.seconds[0] <= 2, 2 <= waits.seconds[1] <= 4, 4 <= waits.seconds[2] <= 8] == [True] * 3
    assert len(told) == 1, "reported once an outage, and only if the client waits"


async def test_the_client_waits_for_a_service_that_never_answered_only_if_told_to(unused_tcp_port: int) -> None:
    url, waits, told = f"http://127.0.0.1:{unused_tcp_port}", Waits(), list[ClientError]()
    for awaits in (False, True):
        patience = Patience(attempts_max=4, reconnects=True, awaits=awaits)
        with pytest.raises(UnreachableError, match="no answer from http"):
            async with client(url, waits, patience, told.append) as service:
                await service.get_board("b")
        assert (len(waits.seconds), len(told)) == ((3, 1) if awaits else (0, 0))


async def test_a_redirect_never_carries_the_key_elsewhere(start: Start) -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    with pytest.raises(RefusedError, match="http_307"):
        async with client(await start(handler), Waits()) as service:
            await service.get_board("b")
    assert seen == ["/v1/leaderboards/b"]


async def test_the_client_sends_a_bearer_token_and_keeps_hostile_names_in_one_segment(start: Start) -> None:
    seen: list[tuple[str, str]] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request.raw_path, request.headers["Authorization"]))
        return web.json_response({"owner": "x", "positions": []})

    async with client(await start(handler), Waits()) as service:
        for owner in ("a/b?c#d%41 é", "..", "."):
            path = f"{board_path('b:w,x=1')}/entries/{quote_segment(owner)}/positions"
            query = {"rank": "exact", "columns": "xp,lap", "next": None}
            assert await service.list_records(path, "positions", list[Position], query=query) == []
    board = "/v1/leaderboards/b%3Aw%2Cx%3D1/entries/"
    tail = "/positions?rank=exact&columns=xp%2Clap"
    assert seen == [(board + name + tail, "Bearer rk_a_b") for name in ("a%2Fb%3Fc%23d%2541%20%C3%A9", "%2E%2E", "%2E")]


@pytest.mark.parametrize(
    "body", [b"<html>", b"\xff", b"", b"[" * 50_000, b'{"results": 1}', b'{"results": [{"status": "applied"}]}']
)
async def test_an_answer_that_breaks_the_contract_is_an_error(start: Start, body: bytes) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=body)

    with pytest.raises(NotTheContractError):
        async with client(await start(handler), Waits()) as service:
            await service.apply_posts("b", [])


async def test_a_walk_ends_with_an_error_if_the_cursor_does_not_move_on(start: Start) -> None:
    entry = {"rank": 1, "owner": "a", "value": 1}

    async def handler(_: web.Request) -> web.Response:
        return web.json_response({"entries": [entry], "next": "same"})

    met: list[str] = []

    async def walk() -> None:
        async with client(await start(handler), Waits()) as service:
            async for page in service.walk_pages("b", "xp"):
                met.extend(each.owner for each in page.entries)

    with pytest.raises(NotTheContractError, match="does not move on"):
        await walk()
    assert met == ["a", "a"]


def test_decimals_keep_every_digit() -> None:
    document = decode_answer(b'{"value": 9223372036.854775807, "n": 9223372036854775807}', dict[str, object])
    assert document == {"value": Decimal("9223372036.854775807"), "n": 2**63 - 1}


def test_a_problem_reads_as_one_line_without_control_characters() -> None:
    body = (
        b'{"code":"bad_value","detail":"line\\none\\u001b[31m","errors":[{"pointer":"/posts/3/stats","detail":"NaN"}]}'
    )
    assert str(refusal_of(422, body)) == "bad_value: line?one?[31m (/posts/3/stats NaN)"
    many = b'{"code":"c","title":"t","errors":[' + b",".join([b'{"pointer":"/p","detail":"d"}'] * 9) + b"]}"
    assert str(refusal_of(422, many)) == "c: t (/p d; /p d; /p d; and 6 more)"
    once = b'{"code":"c","detail":"post 3: too large","errors":[{"pointer":"/posts/2/stats/xp","detail":"too large"}]}'
    assert str(refusal_of(422, once)) == "c: post 3: too large (/posts/2/stats/xp)"
    assert str(refusal_of(502, b"<html>bad gateway")) == "http_502: no problem document"


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8080", "ftp://x", "http://", "http://[", "http://x:y", "http://x?y", "file:///etc/passwd"]
)
def test_an_address_that_is_not_http_is_refused_before_any_request(url: str) -> None:
    with pytest.raises(ClientError):
        ServiceClient(url)


LINE = (
    b'{"seq":7,"at":"2026-11-21T10:00:00.000001Z","kind":"acquired","client_id":"acme","pool_id":"numbers",'
    b'"resource":"a","key":"k","region":"eu","version":3,"lease_expires":"2026-11-21T11:00:00.000000Z"}\n'
)


class FakePeer:
    """A peer whose answer a test chooses."""

    def __init__(self) -> None:
        self.answer, self.status = LINE, 200
        self.asked: list[web.Request] = []
        self.address = ""

    async def serve(self, request: web.Request) -> web.Response:
        self.asked.append(request)
        return web.Response(body=self.answer, status=self.status)


@pytest.fixture
async def peer() -> AsyncIterator[FakePeer]:
    made = FakePeer()
    app = web.Application()
    app.router.add_get("/v1/leases/journal", made.serve)
    async with serving_app(app) as url:
        made.address = url.removeprefix("http://")
        yield made


async def test_the_reader_sends_the_key_in_the_address_of_a_peer(peer: FakePeer) -> None:
    async with open_peer_reader({"us": f"http://:secret@{peer.address}"}) as read:
        events = await read("us", 5, 10)
    times_us = (1_795_255_200_000_001, 1_795_258_800_000_000)
    assert events == [PublishedLeaseEvent(7, "acme", "numbers", "acquired", "a", "k", "eu", 3, *times_us)]
    [request] = peer.asked
    assert dict(request.query) == {"after": "5", "limit": "10"}
    assert request.headers["Authorization"] == "Bearer secret"


async def failure_of(address: str) -> str:
    """Read from a peer that must be unavailable; return the text of the error."""
    async with open_peer_reader({"us": f"http://:secret@{address}"}) as read:
        with pytest.raises(PeerUnavailableError) as away:
            await read("us", 0, 10)
    return str(away.value)


@pytest.mark.parametrize(
    ("status", "answer"), [(503, LINE), (302, b""), (200, b"<html>"), (200, LINE.replace(b'"seq":7', b'"seq":"x"'))]
)
async def test_a_peer_that_answers_no_journal_is_unavailable(peer: FakePeer, status: int, answer: bytes) -> None:
    peer.status, peer.answer = status, answer
    assert "secret" not in await failure_of(peer.address)


async def test_a_missing_peer_is_unavailable() -> None:
    assert "secret" not in await failure_of(f"127.0.0.1:{free_port()}")
