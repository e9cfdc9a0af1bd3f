"""Test the log lines of requests: every failed or slow request has a line, and some others. No line holds a secret."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import ClientSession, web
from hypothesis import given, settings
from hypothesis import strategies as st
from yarl import URL

from jobs.request_origin import REQUEST_ID
from service.contract.api_keys import KeyRing, make_api_key
from service.contract.routes import Call, Route
from service.telemetry.logs import LineWriter, RequestLog, configure_logging
from storage.boards.api_keys import StoredKey
from storage.coalesce import Coalescer
from tests.service.raw_connection import exchange
from tests.service.real_service import Service, bearer
from tests.service.toy import ROUTES, ToyContext, key_limits, serving_toy

pytestmark = pytest.mark.usefixtures("logging_as_before")
B = "/v1/leaderboards/b"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
JSON = {"Content-Type": "application/json"}
SENT = {"X-Request-Id": "caller-1", "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}


class Toy:
    def __init__(self, *, sample_ratio: float = 0, slow_s: float = 60, keys: Iterable[StoredKey] = ()) -> None:
        self.stream = io.StringIO()
        self._writer: LineWriter = configure_logging(level="info", stream=self.stream)
        self.context = ToyContext(
            request_log=RequestLog(sample_ratio=sample_ratio, slow_s=slow_s),
            keyring=KeyRing(keys),
        )
        self.port = 0
        self._session: ClientSession

    @asynccontextmanager
    async def serve(self, routes: list[Route] = ROUTES, *, shutdown_s: float = 60) -> AsyncIterator[Toy]:
        """Run the service inside the `with` block. After the block, every log line is written."""
        async with (
            ClientSession() as self._session,
            serving_toy(self.context, routes, shutdown_s=shutdown_s) as self.port,
        ):
            yield self
        self._writer.close()

    async def call(self, method: str, path: str, *, data: Any = None, headers: Any = None) -> int:
        url = URL(f"http://127.0.0.1:{self.port}{path}", encoded=True)
        async with self._session.request(method, url, data=data, headers=headers) as answer:
            await answer.read()
            return answer.status

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    @property
    def requests(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == "request"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nothing", 404), ("GET", "/v1/%0Anothing", 404), ("PATCH", f"{B}/entries/a", 405),
        ("GET", f"{B}/entries/%FF", 400), ("GET", f"{B}/rankings/xp?limit=x", 400),
        ("GET", f"{B}/entries/full", 429), ("GET", f"{B}/entries/busy", 503), ("GET", f"{B}/entries/bug", 500),
        ("HEAD", f"{B}/entries/bug", 500), ("GET", f"{B}/entries/nowhere", 404),
    ],
)  # fmt: skip
async def test_every_failed_request_has_one_line_with_its_ids(method: str, path: str, status: int) -> None:
    async with Toy().serve() as toy:
        # This request is not slow, did not fail, and was not chosen at random. So it has no line.
        assert await toy.call("GET", f"{B}/entries/a") == 200
        assert await toy.call(method, path, headers=SENT) == status
    (line,) = toy.requests
    assert (line["status"], line["method"], line["level"]) == (status, method, "error" if status >= 500 else "info")
    for each in toy.lines:  # the line of the request and, after an unexpected error, a line with the traceback
        assert (each["request_id"], each["trace_id"]) == ("caller-1", TRACE)
    assert len(toy.lines) == (2 if status == 500 else 1)


async def test_each_unauthorized_or_unreadable_request_has_a_line() -> None:
    key, text = make_api_key("", "reader", 0)
    async with Toy(keys=[key]).serve() as toy:
        assert await toy.call("GET", f"{B}/entries/a") == 401
        assert await toy.call("GET", f"{B}/entries/a", headers={"Authorization": "Bearer rk_0_wrong"}) == 401
        assert await toy.call("DELETE", f"{B}/entries/a", headers=bearer(text)) == 403
        for line in (f"Authorization Bearer {text}", f"X: {text * 1000}"):
            assert b" 400 " in await exchange(toy.port, f"GET / HTTP/1.1\r\n{line}\r\n\r\n".encode())
    assert [line["status"] for line in toy.lines] == [401, 401, 403, 400, 400]
    assert [line["key"] for line in toy.lines] == ["-", "-", key.id, "-", "-"]
    assert text not in toy.stream.getvalue()


async def test_each_refused_body_has_a_line() -> None:
    toy = Toy()
    toy.context = replace(toy.context, key_limits=key_limits(reads_per_s=0.001))
    async with toy.serve() as toy:
        assert await toy.call("POST", f"{B}/posts", data=b"x" * 5000, headers=JSON) == 413
        assert await toy.call("POST", f"{B}/posts", data=b"{}", headers={"Content-Type": "image/png"}) == 415
        assert await toy.call("POST", f"{B}/posts", data=b"{", headers=JSON) == 400
        late = f"POST {B}/posts HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{{"
        assert b" 408 " in await exchange(toy.port, late.encode())
        statuses = [await toy.call("GET", f"{B}/entries/a") for _ in range(4)]
    assert statuses == [200, 200, 200, 429]
    assert [line["status"] for line in toy.requests] == [413, 415, 400, 408, 429]
    assert [line["code"] for line in toy.requests][-1] == "rate_limited"


async def test_a_slow_request_has_a_line_and_a_stream_counts_only_until_its_first_bytes() -> None:
    async def goes_on(context: ToyContext, call: Call) -> web.StreamResponse:
        call.answered_s = 0.0000001  # so short that the request is not slow
        return web.Response(text="")

    streaming = [replace(ROUTES[1], path="/v1/endless", handler=goes_on)]
    async with Toy(slow_s=0).serve([*ROUTES, *streaming]) as toy:
        assert await toy.call("GET", f"{B}/entries/a") == 200
        assert await toy.call("GET", "/v1/endless") == 200
    assert [line["path"] for line in toy.requests] == [B + "/entries/{owner}"]


async def test_a_request_that_a_stop_cuts_off_has_a_line() -> None:
    reached = asyncio.Event()

    async def hang(context: ToyContext, call: Call) -> bytes:
        reached.set()
        await asyncio.Event().wait()
        return b""

    hanging = replace(ROUTES[1], path="/v1/hang", handler=hang)
    toy = Toy()
    async with toy.serve([hanging], shutdown_s=0.01):
        _, writer = await asyncio.open_connection("127.0.0.1", toy.port)
        writer.write(b"GET /v1/hang HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reached.wait()
    writer.close()
    (line,) = toy.requests
    assert (line["status"], line["code"]) == (503, "cut_off")


async def test_a_share_of_fast_successful_requests_has_lines_that_name_the_share() -> None:
    chances = iter([0.1, 0.9, 0.1])
    toy = Toy()
    request_log = RequestLog(sample_ratio=0.25, slow_s=60, chance=lambda: next(chances))
    toy.context = replace(toy.context, request_log=request_log)
    async with toy.serve():
        for _ in range(2):
            await toy.call("GET", f"{B}/entries/a")
        await toy.call("GET", f"{B}/entries/busy")
        await toy.call("POST", f"{B}/entries/lookup", data=b'{"owners": ["a"]}', headers=JSON)
    assert [(line["status"], line.get("sampled")) for line in toy.requests] == [(200, 0.25), (503, None), (200, 0.25)]


HOSTILE = st.text(
    st.characters(codec="utf-8", exclude_characters="/?#") | st.sampled_from('\n\r\t\x00\x1b\x7f\x85\u2028"\\{}'),
    min_size=1,
    max_size=30,
)


def _escaped(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


@settings(deadline=None, max_examples=60)
@given(owner=HOSTILE, unrouted=HOSTILE, value=HOSTILE, request_id=HOSTILE, method=st.sampled_from(["GET", "BREW"]))
def test_no_line_holds_data_of_callers_and_no_caller_can_forge_a_line(
    owner: str, unrouted: str, value: str, request_id: str, method: str
) -> None:
    _, secret = make_api_key("", "reader", 0)
    marked = [f"Zq{text}qZ" for text in (owner, unrouted, value)]

    async def run() -> Toy:
        async with Toy(sample_ratio=1).serve() as toy:
            headers = bearer(secret) | {"traceparent": secret}
            body = json.dumps({"owner": marked[0], "stats": {"xp": marked[2], "key": secret}}).encode()
            sent = _escaped(marked[0])
            await toy.call("GET", f"{B}/entries/{sent}?key={secret}&{_escaped(marked[2])}=1", headers=headers)
            await toy.call("GET", f"{B}/entries/{sent}/positions?columns={_escaped(secret)}", headers=headers)
            await toy.call(method, f"/{_escaped(marked[1])}/{secret}/{sent}", headers=headers)
            await toy.call("POST", f"{B}/posts", data=body, headers=headers)
            await toy.call("GET", f"/v1/leaderboards/{secret}/rankings/xp", headers=headers)
            hostile = request_id.encode().replace(b"\r", b"").replace(b"\n", b"")
            await exchange(toy.port, b"GET %b/entries/a HTTP/1.0\r\nX-Request-Id: %b\r\n\r\n" % (B.encode(), hostile))
        return toy

    toy = asyncio.run(run())
    text = toy.stream.getvalue()
    assert len(toy.requests) == len(toy.lines) == 6
    assert secret not in text
    assert secret.rpartition("_")[2] not in text
    assert ("Zq" in text, "qZ" in text, text.isascii()) == (False, False, True)
    for line in toy.lines:
        assert re.fullmatch(r"[A-Za-z0-9._:-]+", line["request_id"])
        assert "trace_id" not in line


def _deep() -> Exception:
    try:
        raise KeyError("grace")
    except KeyError as error:
        failed = ValueError("could not convert 'grace'\nDETAIL: Key (owner)=(grace) exists")
        failed.__cause__ = error
        failed.add_note("owner was 'grace'")
        return failed


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: KeyError("grace"), ("KeyError", "'…'")),
        (lambda: AttributeError("'NoneType' object has no attribute 'cells'"), (
            "AttributeError", "'NoneType' object has no attribute 'cells'")),
        (_deep, ("ValueError", "could not convert '…'")),
        (lambda: RuntimeError('owner "grace" and the rest'), ("RuntimeError", "owner '…' and the rest")),
        (lambda: RuntimeError("it's grace"), ("RuntimeError", "it'…'")),
    ],
)  # fmt: skip
async def test_a_traceback_shows_where_an_error_happened_and_no_data_of_callers(
    make: Callable[[], Exception], told: tuple[str, str]
) -> None:
    async def fail(context: ToyContext, call: Call) -> bytes:
        raise make()

    failing = replace(ROUTES[1], path="/v1/fails", handler=fail)
    async with Toy().serve([failing]) as toy:
        assert await toy.call("GET", "/v1/fails") == 500
    (line,) = [line for line in toy.lines if line["event"] == "request_failed"]
    assert (line["exception"][0]["exc_type"], line["exception"][0]["exc_value"]) == told
    assert line["exception"][0]["frames"][-1]["name"] == "fail"
    assert "grace" not in json.dumps(line).replace("leaderboards", "")


async def test_work_for_several_requests_carries_no_request_id() -> None:
    seen: list[str] = []

    async def answer(questions: list[int]) -> list[int]:
        seen.append(REQUEST_ID.get())
        return questions

    REQUEST_ID.set("first")
    assert await Coalescer(answer, batch_max=10, waiting_max=10, tasks_max=1).ask("kind", 1) == 1
    assert seen == [""]


async def test_the_reader_of_streams_carries_no_request_id(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    await service.board("b", {"name": "xp"})
    await service.post_xp("b", ada=1)
    board = await service.context.catalog.find_board("b")
    feed, seen = service.context.feeds.find_feed(board), asyncio.Queue[str]()
    monkeypatch.setattr(feed, "_beat", lambda: seen.put_nowait(REQUEST_ID.get()))
    async with ClientSession(headers=SENT) as session, session.get(f"{service.base}{B}/stream?column=xp") as answer:
        assert answer.headers["X-Request-Id"] == "caller-1"
        assert await seen.get() == ""
