"""A real service answers a connection in order, closes it as HTTP says, and survives callers that read no answers."""

import asyncio
import json
import re

import pytest

from storage.posting.waiting_posts import GATHER_TURNS
from storage.records import BoardPost, ColumnChange, Post
from tests.service.raw_connection import exchange
from tests.service.real_service import Service

B = "/v1/leaderboards/b"


async def send_requests(service: Service, *requests: str) -> bytes:
    """Send requests on one connection. Return all bytes that the service sends until it closes the connection."""
    return await exchange(service.port, "".join(requests).encode())


def request_text(path: str, *headers: str, method: str = "GET", version: str = "1.1") -> str:
    return "\r\n".join([f"{method} {path} HTTP/{version}", "Host: localhost", *headers, "", ""])


@pytest.fixture
async def b(service: Service) -> Service:
    """Start a service with a board of 900 owners whose long names make pages of the ranking large."""
    await service.board("b", {"name": "xp"})
    await service.post("b", *({"owner": f"p{i}-{'x' * 100}", "stats": {"xp": i}} for i in range(900)))
    await service.post_xp("b", a=1)
    return service


async def test_pipelined_requests_are_answered_in_order(b: Service) -> None:
    small = [f"{B}/entries/a/positions", f"{B}/entries/nobody", f"{B}/entries/a", "/healthz"]
    paths = [*small, f"{B}/rankings/xp?limit=900"] * 5
    ids = [f"id-{number}" for number in range(len(paths))]
    texts = [request_text(path, f"X-Request-Id: {each}") for path, each in zip(paths, ids, strict=True)]
    answer = await send_requests(b, *texts, request_text("/readyz", "Connection: close"))
    found = re.findall(rb"^x-request-id: (\S+)\r$", answer, re.MULTILINE | re.IGNORECASE)
    assert [each.decode() for each in found[:-1]] == ids
    statuses = [int(each) for each in re.findall(rb"HTTP/1\.1 (\d+) ", answer)]
    assert statuses == [404 if path.endswith("nobody") else 200 for path in paths] + [200]


def _encode_chunks(body: str, size: int) -> str:
    pieces = (body[start : start + size] for start in range(0, len(body), size))
    return "".join([*(f"{len(piece):x}\r\n{piece}\r\n" for piece in pieces), "0\r\n\r\n"])


async def test_requests_behind_bodies_that_fill_their_buffers_are_answered(b: Service) -> None:
    small, large = (
        json.dumps({"posts": [{"owner": f"p{i}-{'x' * 100}", "stats": {"xp": 1}} for i in range(count)]})
        for count in (3, 900)
    )
    plain, long = (request_text(f"{B}/posts", f"Content-Length: {len(body)}", method="POST") for body in (small, large))
    chunked = request_text(f"{B}/posts", "Transfer-Encoding: chunked", method="POST")
    slow = [chunked + _encode_chunks(small, 1), chunked + _encode_chunks(large, 7), long + large]
    texts = [plain + small] * 40 + slow * 3
    answer = await send_requests(b, *texts, plain + small, request_text("/readyz", "Connection: close"))
    assert re.findall(rb"HTTP/1\.1 (\d+) ", answer) == [b"200"] * (len(texts) + 2)


@pytest.mark.parametrize("path", [f"{B}/entries/a/positions", f"{B}/rankings/xp?limit=900", f"{B}/entries/nobody"])
async def test_the_service_closes_connections_of_http_1_0_and_of_connection_close(b: Service, path: str) -> None:
    whole = (await b.call("GET", path)).status
    for text in (request_text(path, version="1.0"), request_text(path, "Connection: close")):
        head, _, body = (await send_requests(b, text)).partition(b"\r\n\r\n")
        assert int(head.split()[1]) == whole
        assert json.loads(body)


@pytest.mark.parametrize("path", [f"{B}/entries/a/positions", f"{B}/entries/a", f"{B}/rankings/xp", "/healthz"])
async def test_head_answers_the_length_without_a_body(b: Service, path: str) -> None:
    text = request_text(path, "Connection: close")
    (head, _, body), (bare, _, nothing) = [
        (await send_requests(b, each)).partition(b"\r\n\r\n") for each in (text, text.replace("GET", "HEAD"))
    ]
    assert nothing == b""
    for each in (head, bare):
        assert f"content-length: {len(body)}".encode() in each.lower()


async def test_every_answer_has_the_callers_request_id_or_a_new_one(b: Service) -> None:
    for path in (f"{B}/entries/a/positions", f"{B}/rankings/xp", f"{B}/entries/nobody", "/nothing", "/metrics"):
        given = await b.call("GET", path, headers={"X-Request-Id": "mine-1"})
        assert given.headers["X-Request-Id"] == "mine-1"
        invalid = {"", "a b", "x" * 65, "<script>"}
        answers = [await b.call("GET", path, headers={"X-Request-Id": wrong}) for wrong in invalid]
        made = {answer.headers["X-Request-Id"] for answer in answers}
        assert (len(made), made & invalid) == (4, set())


LONG = "x" * 70_000


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("garbage\r\n\r\n", "invalid method encountered"),
        (request_text("/", "Authorization Bearer rk_secret"), "invalid header token"),
        (request_text(f"/{LONG}"), "a line of it is too long"),
        (request_text("/", f"X-Long: {LONG}"), "a line of it is too long"),
        (request_text("/", version="9.9"), "bad status line"),
        (request_text("http://[rk_secret"), "its target is not a path"),
        (request_text(f"{B}/posts", "Content-Length: -1", method="POST"), "invalid character in content-length"),
        ("\x16\x03\x01\x02rk_secret", "received https traffic on an http port"),
    ],
)
async def test_unreadable_bytes_are_answered_with_a_problem(
    service: Service, caplog: pytest.LogCaptureFixture, text: str, detail: str
) -> None:
    answer = await send_requests(service, text)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split()[1] == b"400"
    headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    assert headers[b"content-type"] == b"application/problem+json"
    assert headers[b"x-request-id"]
    problem = json.loads(body)
    assert (problem["status"], problem["code"]) == (400, "bad_request")
    assert problem["detail"] == f"the request can't be read: {detail}"
    assert b"rk_secret" not in answer
    assert "rk_secret" not in caplog.text
    metrics = (await service.get("/metrics")).decode()
    assert 'rankcurve_requests_total{route="none",status="4xx"} 1.0' in metrics


@pytest.mark.parametrize("expected", ["100-continue", "cake"])
async def test_a_request_with_any_expect_header_is_answered(b: Service, expected: str) -> None:
    post = '{"owner": "c", "stats": {"xp": 1}}'
    headers = (f"Expect: {expected}", f"Content-Length: {len(post)}", "Connection: close")
    answer = await send_requests(b, request_text(f"{B}/posts", *headers, method="POST"), post)
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\n") == (expected == "100-continue")
    assert b"HTTP/1.1 200 OK" in answer
    assert b'"applied"' in answer


POST = '{"owner": "c", "stats": {"xp": 1}}'
CHUNKED = f"{len(POST):x}\r\n{POST}\r\n0\r\n\r\n"


@pytest.mark.parametrize("coding", ["chunked", "Chunked", " chunked "])
async def test_a_chunked_body_is_read(b: Service, coding: str) -> None:
    sent = request_text(f"{B}/posts", f"Transfer-Encoding: {coding}", "Connection: close", method="POST")
    assert (await send_requests(b, sent, CHUNKED)).startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(
    "codings",
    [
        ["gzip, chunked"], ["gzip", "chunked"], ["identity, chunked"], ["chunked, chunked"], ["x,chunked"],
        ["gzip,,chunked"],
    ],
)  # fmt: skip
async def test_a_transfer_coding_besides_chunked_is_refused(b: Service, codings: list[str]) -> None:
    headers = [f"Transfer-Encoding: {each}" for each in codings]
    sent = request_text(f"{B}/posts", *headers, "Connection: close", method="POST")
    answer = await send_requests(b, sent, CHUNKED)
    assert answer.split()[1] == b"400"
    assert b'"code":"bad_request"' in answer
    assert await b.refused("GET", f"{B}/entries/c") == (404, "unknown_owner")


async def test_no_answer_names_the_software_that_made_it(b: Service) -> None:
    paths = [f"{B}/entries/a", f"{B}/rankings/xp?limit=900", f"{B}/entries/nobody", "/nothing", "/metrics", "/"]
    texts = [request_text(path, method=method) for path in paths for method in ("GET", "HEAD")]
    texts += [request_text(f"{B}/stream?column=xp"), request_text("/healthz", version="1.0"), "garbage\r\n\r\n"]
    for text in texts:
        reader, writer = await asyncio.open_connection("127.0.0.1", b.port)
        writer.write(text.encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        writer.close()
        assert [word for word in (b"\r\nserver:", b"aiohttp", b"python") if word in head] == [], text


async def test_the_writer_survives_a_request_that_is_cancelled_while_it_gathers(service: Service) -> None:
    await service.board("b", {"name": "xp", "merge": "sum"})
    writer = service.context.posting.writer
    board = await service.context.catalog.find_board("b")
    post = Post("a", [BoardPost(board.leaf, [ColumnChange(0, 1, False)])], None, None, "")
    for turns in range(GATHER_TURNS + 2):
        given_up = asyncio.ensure_future(writer.submit([post]))
        for _ in range(turns):
            await asyncio.sleep(0)
        given_up.cancel()
        for _ in range(2 * GATHER_TURNS + 4):
            await asyncio.sleep(0)
        assert writer.alive
        answer = await service.call("POST", "/v1/leaderboards/b/posts", {"owner": "b", "stats": {"xp": 1}})
        assert answer.status == 200


async def test_unread_answers_delay_the_further_requests_of_their_connection(service: Service) -> None:
    await service.board("b", {"name": "xp"})
    await service.post("b", *({"owner": f"owner-{i:06}", "stats": {"xp": i}} for i in range(400)))
    page = b"GET /v1/leaderboards/b/rankings/xp?limit=400 HTTP/1.1\r\nHost: localhost\r\n\r\n"  # each answer has 50 kB
    _, writer = await asyncio.open_connection("127.0.0.1", service.port, limit=1024)
    writer.write(page * 2000)

    def answered() -> float:
        lines = service.context.metrics.text().decode().splitlines()
        lines = [line for line in lines if line.startswith('rankcurve_requests_total{route="page"')]
        return float(lines[0].split()[-1]) if lines else 0.0

    before, after = -1.0, 0.0
    while before != after or not after:  # wait until the service answers no further request of this connection
        before = after
        for _ in range(50):  # send requests on other connections; each request uses the store
            await service.call("GET", "/readyz")
        after = answered()
    assert 0 < after < 1000  # only as many answers as fit into the buffers of the sockets and of the service
    writer.close()


async def test_no_row_around_an_owner_has_a_rank_past_the_ends_of_the_board(service: Service) -> None:
    await service.board("b", {"name": "xp"}, predictor={"samples": 2, "exact_top": 1})
    # The curve is a straight line. Most values lie near the lowest one, so the line gives them ranks near the end.
    values = [0, *range(1, 20), 1000]
    await service.post("b", *({"owner": f"o{i:02}", "stats": {"xp": value}} for i, value in enumerate(values)))
    await service.refresh("b", "xp")
    for owner in ("o01", "o19"):
        page = await service.get(f"/v1/leaderboards/b/entries/{owner}/around?column=xp&better=2&worse=3")
        ranks = [entry["rank"] for entry in page["entries"]]
        assert 1 <= min(ranks) <= max(ranks) <= page["total"]
        assert page["next"] is not None or ranks[-1] == page["total"]
        assert page["prev"] is not None or ranks[0] == 1
