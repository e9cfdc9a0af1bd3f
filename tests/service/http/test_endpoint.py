"""Test the endpoint around every handler over real HTTP: it identifies callers, reads requests and writes answers."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from aiohttp import ClientSession
from yarl import URL

from tests.service.raw_connection import exchange
from tests.service.toy import ToyContext, serving_toy

B = "/v1/leaderboards/b"
JSON = {"Content-Type": "application/json"}
HEAD = f"POST {B}/posts HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000\r\nExpect: 100-continue\r\n\r\n".encode()


class Caller:
    """Send requests without changing their paths, and keep the last answer."""

    def __init__(self, port: int, session: ClientSession) -> None:
        self.port, self.session = port, session
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.body: Any = None

    async def __call__(self, method: str, path: str, *, data: Any = None, headers: Any = None) -> Any:
        """Send a request. Return the status of the answer or, if the answer is a problem, its status and code."""
        url = URL(f"http://127.0.0.1:{self.port}{path}", encoded=True)
        async with self.session.request(method, url, data=data, headers=headers) as response:
            self.status, self.headers = response.status, response.headers
            content = await response.read()
        is_json = "json" in self.headers.get("Content-Type", "") and content
        self.body = json.loads(content) if is_json else content
        if self.status < 400:
            return self.status
        assert self.headers["Content-Type"] == "application/problem+json"
        assert self.body["status"] == self.status
        return self.status, self.body["code"]


@pytest.fixture
async def call() -> AsyncIterator[Caller]:
    async with serving_toy(ToyContext()) as port, ClientSession() as session:
        yield Caller(port, session)


async def test_a_handler_may_set_its_own_status_and_headers(call: Caller) -> None:
    assert await call("DELETE", f"{B}/entries/a") == 204
    assert (call.body, "Content-Type" in call.headers) == (b"", False)
    assert await call("GET", f"{B}/rankings/xp") == 200
    assert call.headers["ETag"] == '"1"'


FAILURES = {
    (404, "not_found"): ["/v1/nothing", "/a%0Ab", f"{B}/entries/", f"{B}/entries//positions"],
    (400, "bad_request"): [
        f"{B}/entries/%00", f"{B}/entries/%FF", f"{B}/entries/%ED%A0%80", "/v1/leaderboards/b%27%3B--/rankings/xp",
        f"{B}/rankings/xp%27", f"{B}/rankings/xp?limit=x",
    ],
    (400, "too_many_entries"): [f"{B}/rankings/xp?limit=9999"],
    (422, "bad_rank"): [f"{B}/rankings/xp?from_rank=0"],
    (400, "unknown_field"): [f"{B}/entries/a?x=1"],
    (503, "store_busy"): [f"{B}/entries/busy"],
    (429, "queue_full"): [f"{B}/entries/full"],
    (404, "unknown_board"): [f"{B}/entries/nowhere"],
    (404, "no_curve"): [f"{B}/entries/problem"],
    (500, "internal"): [f"{B}/entries/bug"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "problem"), [(path, problem) for problem, paths in FAILURES.items() for path in paths]
)
async def test_every_failure_is_answered_with_its_problem(call: Caller, path: str, problem: tuple[int, str]) -> None:
    assert await call("GET", path) == problem


async def test_a_busy_service_says_when_to_retry(call: Caller) -> None:
    for owner, retry_after in (("busy", "7"), ("full", "7"), ("draining", "12"), ("stalled", "20")):
        await call("GET", f"{B}/entries/{owner}")
        assert call.headers["Retry-After"] == retry_after


async def test_a_body_may_be_json_or_lines(call: Caller) -> None:
    line = b'{"owner":"x","stats":{"xp":1}}'
    assert await call("POST", f"{B}/posts", data=line, headers=JSON) == 200
    assert call.body == {"posts": 1, "single": True}
    charset = {"Content-Type": "application/json; charset=UTF-8"}
    assert await call("POST", f"{B}/posts", data=line, headers=charset) == 200
    lines = {"Content-Type": "application/x-ndjson"}
    assert await call("POST", f"{B}/posts", data=line + b"\n" + line, headers=lines) == 200
    assert call.body == {"posts": 2, "single": False}
    assert await call("POST", f"{B}/entries/lookup", data=b'{"owners":["a"]}', headers=JSON) == 200
    assert call.body == {"entries": [], "missing": ["a"]}


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"a=b", {"Content-Type": "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"),
        (b"{}", {"Content-Type": "application/json; charset=utf-16"}, 415, "unsupported_media_type"),
        (b"{}", {"Content-Type": "application/x-ndjson"}, 415, "unsupported_media_type"),
        (b"{}", {**JSON, "Content-Encoding": "gzip"}, 415, "unsupported_media_type"),
        (b" " * 5000, JSON, 413, "body_too_large"),
        (b"", JSON, 400, "bad_json"),
        (b"[" * 4000, JSON, 400, "bad_request"),
        (b'{"owners":"a"}', JSON, 400, "bad_request"),
        (b'{"owners":["a"],"x":1}', JSON, 400, "unknown_field"),
        (b'{"owners":["a"],"owners":["b"]}', JSON, 400, "duplicate_field"),
        (b'{"owners":["\xff"]}', JSON, 400, "bad_json"),
        (b'{"owners":["\\ud800"]}', JSON, 400, "bad_json"),
    ],
)
async def test_a_body_that_differs_from_its_headers_is_refused(
    call: Caller, body: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    assert await call("POST", f"{B}/entries/lookup", data=body, headers=headers) == (status, code)


async def test_a_caller_that_leaves_in_mid_body_is_not_counted_as_a_server_error(call: Caller) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", call.port)
    writer.write(HEAD)
    assert b"100 Continue" in await reader.readline()  # now the service waits for the body
    writer.close()
    await writer.wait_closed()
    for _ in range(1000):  # give the server time to notice the closed connection
        await call("GET", "/metrics")
        if b'route="posting",status="4xx"' in call.body:
            break
    assert b'status="5xx"' not in call.body
    assert b'route="posting",status="4xx"' in call.body


async def test_a_body_past_the_bound_of_all_bodies_is_answered_503_with_a_time_to_retry(call: Caller) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", call.port)
    writer.write(HEAD)
    assert b"100 Continue" in await reader.readline()  # now the service waits for the body
    waits, second = await asyncio.open_connection("127.0.0.1", call.port)
    second.write(HEAD)
    async with asyncio.timeout(30):
        answer = await waits.readuntil(b"}")
    assert b"HTTP/1.1 503 " in answer
    assert b'"code":"too_many_bodies"' in answer
    assert b"\r\nRetry-After: 7\r\n" in answer
    assert await call("POST", f"{B}/posts", data=b'{"owner":"x","stats":{"xp":1}}', headers=JSON) == 200
    for each in (writer, second):
        each.close()


WHOLE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("begun", [(), (b"GET /healthz HTTP/1.1\r\nHost: lo",)])
async def test_a_connection_without_a_whole_request_is_closed_without_an_answer(
    call: Caller, begun: tuple[bytes, ...]
) -> None:
    asked, writer = await asyncio.open_connection("127.0.0.1", call.port)
    writer.write(WHOLE)
    assert await asked.readuntil(b"}")
    assert await exchange(call.port, *begun) == b""
    writer.write(WHOLE)
    assert b"HTTP/1.1 200 OK" in await asked.readuntil(b"}"), "a connection with an answered request stays open"
    writer.close()


async def test_headers_may_arrive_in_pieces(call: Caller) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", call.port)
    for piece in (WHOLE, *WHOLE.partition(b"Host"), *WHOLE.partition(b"/")):
        writer.write(piece)
        # After this answer, the service has also received everything that was sent before.
        await call("GET", "/healthz")
    for _ in range(3):
        assert b"HTTP/1.1 200 OK" in await reader.readuntil(b"}")
    writer.close()


async def test_an_empty_line_after_a_request_does_not_begin_another(call: Caller) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", call.port)
    writer.write(WHOLE + b"\r\n")
    assert await reader.readuntil(b"}")
    writer.write(b"\r\n")
    assert await exchange(call.port) == b""
    writer.write(WHOLE)
    assert b"HTTP/1.1 200 OK" in await reader.readuntil(b"}")
    writer.close()
