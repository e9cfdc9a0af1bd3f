"""Test which requests the Python client retries, which it refuses, and the texts of its errors."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from decimal import Decimal
from functools import partial
from typing import Any
from urllib.parse import unquote

import pytest
from aiohttp import web
from rankcurve import (
    ApiError,
    AsyncClient,
    Client,
    RankcurveError,
    Retries,
    UnexpectedAnswerError,
    UnreachableError,
)
from rankcurve.answers import Record, decode
from rankcurve.errors import BadRequestError, NoJobProcessError, PostsRejectedError, QueueFullError, refusal_of

from service.contract.problems import CODES
from tests.clients.served import problem_answer, serving_handler

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Start = Callable[[Handler], Awaitable[str]]
QUICK = {"attempts_max": 3, "before_first_answer": False}


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Yield a function that starts a server and returns its address. One handler answers requests to every path."""
    async with AsyncExitStack() as stack:
        yield lambda handler: stack.enter_async_context(serving_handler(handler))


class Pauses:
    """A replacement for `sleep` that records the requested seconds and returns immediately."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


class Asked:
    """Either client, as coroutines. The sync one runs in a thread, because its server runs on this event loop."""

    def __init__(
        self, kind: str, url: str, pauses: Pauses, told: list[RankcurveError], key: Any = "rk_a_b", **retries: Any
    ) -> None:
        async def pause(seconds: float) -> None:
            pauses(seconds)

        settings = Retries(rng=random.Random(1), **retries)
        self._sync = kind == "sync"
        self._client: Any
        if self._sync:
            self._client = Client(url, key, retries=settings, pause=pauses, on_unreachable=told.append)
        else:
            self._client = AsyncClient(url, key, retries=settings, pause=pause, on_unreachable=told.append)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._client, name)
        return partial(asyncio.to_thread, method) if self._sync else method

    async def __aenter__(self) -> "Asked":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


Make = Callable[..., Asked]


@pytest.fixture(params=["sync", "async"])
def make(request: pytest.FixtureRequest) -> Make:
    """Return a function that makes a client. Each test runs with both clients."""

    def make(url: str, pauses: Pauses | None = None, told: list[RankcurveError] | None = None, **retries: Any) -> Asked:
        return Asked(request.param, url, pauses or Pauses(), [] if told is None else told, **{**QUICK, **retries})

    return make


async def test_the_client_waits_the_requested_time_and_a_little_more(start: Start, make: Make) -> None:
    answers = [(429, "3"), (503, "1"), (200, "")]

    async def handler(_: web.Request) -> web.Response:
        status, retry_after = answers.pop(0)
        return web.json_response({"results": []}, status=status, headers={"Retry-After": retry_after})

    pauses = Pauses()
    async with make(await start(handler), pauses) as client:
        assert await client.post("b", []) == []
    assert 3 <= pauses.seconds[0] <= 4.5
    assert 1 <= pauses.seconds[1] <= 1.5


async def test_a_pause_is_never_longer_than_its_limit(start: Start, make: Make) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.json_response({"code": "queue_full"}, status=429, headers={"Retry-After": "86400"})

    pauses = Pauses()
    with pytest.raises(QueueFullError, match="queue_full"):
        async with make(await start(handler), pauses, attempts_max=4, pause_s_max=2) as client:
            await client.board("b")
    assert pauses.seconds == [2, 2, 2]


async def test_a_refusal_without_retry_after_is_final(start: Start, make: Make) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.json_response({"code": "no_job_process", "detail": "none alive"}, status=503)

    pauses = Pauses()
    with pytest.raises(NoJobProcessError, match="no_job_process: none alive"):
        async with make(await start(handler), pauses) as client:
            await client.refresh_curve("b", "xp")
    assert pauses.seconds == []


async def test_a_request_is_repeated_only_where_that_does_no_harm(start: Start, make: Make) -> None:
    lost, told = [False], list[RankcurveError]()

    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        if lost[0]:
            request.transport.abort()
        return web.json_response({"columns": []})

    pauses = Pauses()
    async with make(await start(handler), pauses, told, attempts_max=4, pause_s=1) as client:
        await client.board("b")
        lost[0] = True
        for harmful in (client.reset_board, client.delete_board, client.erase_owner, partial(client.erase_entry, "b")):
            with pytest.raises(UnreachableError, match="no answer from http"):
                await harmful("b")
        assert pauses.seconds == []
        with pytest.raises(UnreachableError, match="no answer from http"):
            await client.board("b")
    assert [1 <= pauses.seconds[0] <= 2, 2 <= pauses.seconds[1] <= 4, 4 <= pauses.seconds[2] <= 8] == [True] * 3
    assert len(told) == 1, "reported once an outage, and only if the client waits"


async def test_a_request_that_may_have_been_applied_is_not_repeated(start: Start, make: Make) -> None:
    statuses: list[int] = []

    async def handler(_: web.Request) -> web.Response:
        return web.json_response({"code": "x"}, status=statuses.pop(0), headers={"Retry-After": "0"})

    async with make(await start(handler)) as client:
        for status in (503, 502, 504):
            statuses[:] = [status, 200]
            with pytest.raises(ApiError):
                await client.reset_board("b")
        statuses[:] = [429, 204]
        await client.reset_board("b")
    assert statuses == []


async def test_the_client_waits_for_a_service_that_never_answered_if_told_to(unused_tcp_port: int, make: Make) -> None:
    for waits in (False, True):
        pauses, told = Pauses(), list[RankcurveError]()
        with pytest.raises(UnreachableError, match="no answer from http"):
            async with make(
                f"http://127.0.0.1:{unused_tcp_port}", pauses, told, attempts_max=4, before_first_answer=waits
            ) as client:
                await client.board("b")
        assert (len(pauses.seconds), len(told)) == ((3, 1) if waits else (0, 0))


async def test_a_redirect_never_carries_the_key_elsewhere(start: Start, make: Make) -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    with pytest.raises(ApiError, match="http_307"):
        async with make(await start(handler)) as client:
            await client.board("b")
    assert seen == ["/v1/leaderboards/b"]


async def test_the_client_sends_a_bearer_token_and_keeps_hostile_names_in_one_segment(start: Start, make: Make) -> None:
    seen: list[tuple[str, str]] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request.raw_path, request.headers["Authorization"]))
        owner = unquote(request.raw_path.split("/")[6])
        return web.json_response({"owner": owner, "positions": []})

    async with make(f"{await start(handler)}/behind/") as client:
        for owner in ("a/b?c#d%41 é", "..", "."):
            assert await client.positions("b:w,x=1", owner, ("xp", "lap"), rank="exact") == []
    board = "/behind/v1/leaderboards/b%3Aw%2Cx%3D1/entries/"
    tail = "/positions?columns=xp%2Clap&rank=exact"
    assert seen == [(board + name + tail, "Bearer rk_a_b") for name in ("a%2Fb%3Fc%23d%2541%20%C3%A9", "%2E%2E", "%2E")]


@pytest.mark.parametrize(
    "body", [b"<html>", b"\xff", b"", b"[" * 50_000, b'{"results": 1}', b'{"results": [{"status": "applied"}]}']
)
async def test_an_answer_that_breaks_the_contract_is_an_error(start: Start, make: Make, body: bytes) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=body)

    with pytest.raises(UnexpectedAnswerError):
        async with make(await start(handler)) as client:
            await client.post("b", [])


async def test_a_walk_ends_with_an_error_if_the_cursor_does_not_move_on(start: Start) -> None:
    entry = {"rank": 1, "exact": True, "owner": "a", "value": 1, "updated_at": "2026-11-20T10:00:00Z", "stats": {}}

    async def handler(_: web.Request) -> web.Response:
        return web.json_response({"column": "xp", "total": 1, "entries": [entry], "next": "same"})

    met: list[str] = []

    async def walk() -> None:
        async with AsyncClient(await start(handler)) as client:
            async for each in client.entries("b", "xp"):
                met.append(each.owner)

    with pytest.raises(UnexpectedAnswerError, match="does not move on"):
        await walk()
    assert met == ["a", "a"]


async def test_one_post_without_a_valid_form_is_rejected_alone_if_the_request_may_be_split(
    start: Start, make: Make
) -> None:
    sizes: list[int] = []

    async def handler(request: web.Request) -> web.Response:
        posts = (await request.json())["posts"]
        sizes.append(len(posts))
        if any(post["owner"] == "bad" for post in posts):
            return problem_answer("bad_request")
        return web.json_response({"results": [{"owner": post["owner"], "status": "applied"} for post in posts]})

    posts = [{"owner": owner, "stats": {"xp": 1}} for owner in ("a", "b", "bad", "c")]
    async with make(await start(handler)) as client:
        with pytest.raises(BadRequestError):
            await client.post("b", posts)
        with pytest.raises(
            PostsRejectedError, match=r"1 of 4 posts were rejected; post 3: bad_request: Malformed request"
        ) as met:
            await client.post("b", posts, split=True)
        results = met.value.results
    assert [result.status for result in results] == ["applied", "applied", "rejected", "applied"]
    assert results[2].error is not None
    assert results[2].error.code == "bad_request"
    assert sizes == [4, 4, 2, 2, 1, 1]


@pytest.mark.parametrize("key", ["rk_a_b\n", "rk_a\r\nX: y", "rk_a b", "rk_ä", "rk_\x1b[31m"])
def test_a_key_that_no_header_can_carry_is_refused_when_the_client_is_made_and_not_shown(key: str) -> None:
    for client in (Client, AsyncClient):
        with pytest.raises(RankcurveError, match="the API key has a line end") as refused:
            client("http://127.0.0.1:9", key)
        assert "rk_" not in str(refused.value)


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff\xfe\n\n",
        b"data: \xc3\n\n",
        b"event: top\ndata: {\n\n",
        b'event: top\ndata: {"column": "xp", "total": 1e99999999999999999999, "entries": []}\n\n',
        b"event: top\ndata: " + b"[" * 50_000 + b"\n\n",
        b"id: \xc3\xa9\nevent: x\ndata: {}\n\n",
        b"id: 1\r\nevent: x\ndata: {}\n\n",
        b"x" * ((1 << 20) + 1),
    ],
)
async def test_nonsense_on_a_stream_is_an_error_of_the_client(start: Start, sent: bytes) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=sent, content_type="text/event-stream")

    async with AsyncClient(await start(handler)) as client:
        with pytest.raises(UnexpectedAnswerError):
            await anext(client.stream("b", "xp"))


@pytest.mark.parametrize("retry", ["9" * 400, "9" * 5_000, "1e400", "-5", "nan", "٣"])
async def test_the_pause_that_a_stream_asks_for_is_bounded(start: Start, retry: str) -> None:
    pauses, answers = list[float](), [200, 404]

    async def handler(_: web.Request) -> web.Response:
        if answers.pop(0) == 404:
            return problem_answer("unknown_board")
        return web.Response(text=f"retry: {retry}\n\n", content_type="text/event-stream")

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    async with AsyncClient(await start(handler), pause=pause) as client:
        with pytest.raises(ApiError, match="unknown_board"):
            await anext(client.stream("b", "xp"))
    assert len(pauses) == 1
    assert 0 < pauses[0] < 61


async def test_a_stream_goes_on_after_no_id_that_a_header_can_not_carry() -> None:
    async with AsyncClient("http://127.0.0.1:9") as client:
        with pytest.raises(UnexpectedAnswerError, match="is not the id of an event"):
            await anext(client.stream("b", "xp", last_event_id="7\nX: y"))


async def test_a_foreign_tag_of_a_curve_is_sent_back_as_it_came(start: Start, make: Make) -> None:
    asked: list[str | None] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.headers.get("If-None-Match"))
        document = {"column": "xp", "method": "skip", "total": 0, "as_of": "2026-11-20T10:00:00Z", "knots": []}
        return web.json_response(document, headers={"ETag": '"é"'})

    async with make(await start(handler)) as client:
        await client.renew_curve(await client.curve("b", "xp"))
    assert asked == [None, '"é"']


@pytest.mark.parametrize("value", [b"1e99999999999999999999", b"1." + b"9" * 400 + b"e-99999999999999999999"])
def test_a_number_beyond_all_bounds_is_an_unexpected_answer(value: bytes) -> None:
    with pytest.raises(UnexpectedAnswerError):
        decode(b'{"value": ' + value + b"}", Record)


async def test_no_error_shows_the_password_of_an_address(unused_tcp_port: int) -> None:
    url = f"http://ada:secret@127.0.0.1:{unused_tcp_port}"
    async with AsyncClient(url, retries=Retries(attempts_max=1)) as client:
        with pytest.raises(UnreachableError, match=f"no answer from http://127.0.0.1:{unused_tcp_port}: "):
            await client.board("b")


def test_decimals_keep_every_digit() -> None:
    document = decode(b'{"value": 9223372036.854775807, "n": 9223372036854775807}', Record)
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


def test_every_code_of_the_service_has_an_error_of_its_own_below_that_of_its_status() -> None:
    assert set(ApiError.codes) == set(CODES)
    for code, (status, *_) in CODES.items():
        error = refusal_of(status, json.dumps({"code": code}).encode())
        assert (type(error), error.status, error.code) == (ApiError.codes[code], status, code)
        assert isinstance(error, type(refusal_of(status, b'{"code": "a code of a newer service"}')))
    names = [error.__name__ for error in ApiError.codes.values()]
    spelled = ["".join(word.capitalize() for word in code.split("_")) + "Error" for code in ApiError.codes]
    assert [pair for pair in zip(names, spelled, strict=True) if pair[0] != pair[1]] == [
        ("AnswerTimeoutError", "TimeoutError")
    ]


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8080", "ftp://x", "http://", "http://[", "http://x:y", "http://x?y", "file:///etc/passwd"]
)
def test_an_address_that_is_not_http_is_refused_before_any_request(url: str) -> None:
    for client in (Client, AsyncClient):
        with pytest.raises(RankcurveError):
            client(url)
