"""Test what a web page of another site may read: CORS, callers without a key, entity tags, and compressed answers."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from service.contract.api_keys import Role
from tests.service.cli_fake_service import make_key
from tests.service.every_route import BODIES, NAMES, QUERIES
from tests.service.openapi_checks import ROUTE_TABLE
from tests.service.real_service import WAIT_S, Service, bearer

GAME = "https://game.example"
B = "/v1/leaderboards/b"
FREE: dict[str, Any] = {"anonymous_reads_per_s": 0, "anonymous_total_reads_per_s": 0}


@pytest.fixture
async def game(tmp_path: Path) -> AsyncIterator[Service]:
    """Start a service with a key, a board, and readers without a key. Requests carry no key unless the test adds it."""
    service = Service(tmp_path, anonymous_role="reader", cors_origins=(GAME,), **FREE)
    async with service.running():
        await service.board("b", {"name": "xp", "min": 0, "max": 10**6})
        await service.post("b", *({"owner": f"o{number}", "stats": {"xp": number}} for number in range(100)))
        await service.must("POST", "/v1/keys", {"name": "operator", "role": "ops"})
        yield service


async def test_without_a_key_every_reading_route_but_posts_answers_and_no_other(game: Service) -> None:
    for route in ROUTE_TABLE:
        query = "?top=0" if route.view == "stream" else QUERIES.get(route.view, "")
        path = route.path.format(**NAMES, id="nobody") + query
        answer = await game.call(route.method, path, BODIES.get(route.view))
        if route.role in (None, Role.READER) and route.view != "owner_posts":
            assert answer.status not in (401, 403), route.view
        else:
            assert (answer.status, answer.body["code"]) == (401, "unauthorized"), route.view


async def test_an_unknown_key_is_refused_where_no_key_is_accepted(game: Service) -> None:
    assert await game.refused("GET", f"{B}/entries/o1", Authorization="Bearer rk_0_0") == (401, "unauthorized")


async def test_callers_without_a_key_have_a_rate(tmp_path: Path, game: Service) -> None:
    rates = {"anonymous_reads_per_s": 0.001, "anonymous_reads_burst": 2}
    await game.stop()
    key = await asyncio.to_thread(make_key, tmp_path, "reader")
    async with Service(tmp_path, anonymous_role="reader", **rates).running() as slow:
        assert [(await slow.call("GET", f"{B}/entries/o1")).status for _ in range(3)] == [200, 200, 429]
        answer = await slow.call("GET", f"{B}/entries/o1", headers=bearer(key))
        assert answer.status == 200
    await game.restart()


async def test_a_page_of_a_named_origin_may_see_answers_and_problems_of_reads(game: Service) -> None:
    for path, status in ((f"{B}/rankings/xp?limit=3", 200), (f"{B}/entries/nobody", 404)):
        for origin, shown in ((GAME, GAME), ("https://other.example", None)):
            answer = await game.call("GET", path, headers={"Origin": origin})
            assert (answer.status, answer.headers.get("Access-Control-Allow-Origin")) == (status, shown)
    refused = await game.call("POST", f"{B}/posts", {"owner": "o1", "stats": {"xp": 1}}, {"Origin": GAME})
    assert (refused.status, "Access-Control-Allow-Origin" in refused.headers) == (401, False)


async def test_answers_vary_by_origin_wherever_origins_are_listed(game: Service) -> None:
    paths = [f"{B}/entries/o1", f"{B}/rankings/xp", f"{B}/entries/nobody", "/nowhere", "/healthz", "/", "/v1/keys"]
    for path in paths:
        for headers in ({}, {"Origin": GAME}, {"Origin": "https://other.example"}):
            answer = await game.call("GET", path, headers=headers)
            assert "Origin" in answer.headers.get("Vary", "").split(", "), (path, headers)
    streamed = await game.call("HEAD", f"{B}/stream?column=xp&top=1")
    assert streamed.headers["Vary"] == "Origin"
    refused = await game.call("POST", f"{B}/posts", {"owner": "o1", "stats": {"xp": 1}})
    assert (refused.status, refused.headers["Vary"]) == (401, "Origin")
    for origins in (("*",), ()):
        await game.restart(cors_origins=origins)
        assert "Vary" not in (await game.call("GET", f"{B}/entries/o1", headers={"Origin": GAME})).headers


async def test_pages_post_with_player_tokens_only_where_tokens_are_configured(game: Service) -> None:
    asked = {"Origin": GAME, "Access-Control-Request-Method": "POST"}
    assert (await game.call("OPTIONS", f"{B}/posts", headers=asked)).status == 405
    await game.restart(player_token_keys=("s" * 32,))
    answer = await game.call("OPTIONS", f"{B}/posts", headers=asked)
    assert (answer.status, answer.headers["Access-Control-Allow-Methods"]) == (204, "POST")
    assert "Authorization" in answer.headers["Access-Control-Allow-Headers"]
    refused = await game.call("POST", f"{B}/posts", {"owner": "o1", "stats": {"xp": 1}}, {"Origin": GAME})
    assert (refused.status, refused.headers["Access-Control-Allow-Origin"]) == (401, GAME)
    assert (await game.call("OPTIONS", f"{B}/reset", headers=asked)).status == 405


async def test_a_preflight_allows_reads_only(game: Service) -> None:
    asked = {"Origin": GAME, "Access-Control-Request-Method": "GET"}
    answer = await game.call("OPTIONS", f"{B}/entries/o1/positions", headers=asked)
    assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (204, GAME)
    assert answer.headers["Vary"] == "Origin"
    assert answer.headers["Access-Control-Allow-Methods"] == "GET, HEAD"
    assert "If-None-Match" in answer.headers["Access-Control-Allow-Headers"]
    lookup = await game.call("OPTIONS", f"{B}/entries/lookup", headers=asked)
    assert "POST" in lookup.headers["Access-Control-Allow-Methods"].split(", ")
    board = await game.call("OPTIONS", B, headers=asked)
    assert board.headers["Access-Control-Allow-Methods"] == "GET, HEAD", "a page may not delete the board"
    other = await game.call("OPTIONS", f"{B}/entries/o1", headers={**asked, "Origin": "https://other.example"})
    assert (other.status, "Access-Control-Allow-Origin" in other.headers, other.headers["Vary"]) == (
        204,
        False,
        "Origin",
    )
    assert (await game.call("OPTIONS", f"{B}/posts", headers=asked)).status == 405


async def test_any_origin_may_read_if_the_setting_is_a_star(game: Service) -> None:
    await game.restart(cors_origins=("*",))
    answer = await game.call("GET", f"{B}/entries/o1", headers={"Origin": "https://any.example"})
    assert answer.headers["Access-Control-Allow-Origin"] == "*"


async def test_without_origins_no_page_sees_an_answer(game: Service) -> None:
    await game.restart(cors_origins=())
    assert "Access-Control-Allow-Origin" not in (await game.call("GET", B, headers={"Origin": GAME})).headers
    assert (await game.call("OPTIONS", B, headers={"Origin": GAME})).status == 405


async def test_a_page_may_follow_a_stream(game: Service) -> None:
    async with (
        ClientSession() as session,
        session.get(f"{game.base}{B}/stream?column=xp&top=1", headers={"Origin": GAME}) as stream,
    ):
        assert (stream.status, stream.headers["Access-Control-Allow-Origin"]) == (200, GAME)
        async with asyncio.timeout(WAIT_S):
            assert b"o99" in b"".join([await stream.content.readline() for _ in range(5)])


TAGGED = (
    f"{B}/entries/o5",
    f"{B}/entries/o5/around?column=xp",
    f"{B}/rankings/xp/around?value=7",
    f"{B}/rankings/xp/buckets?buckets=4",
)


@pytest.mark.parametrize("path", TAGGED)
async def test_an_unchanged_answer_is_304_without_a_read_of_rows_until_the_board_changes(
    service: Service, path: str
) -> None:
    await service.board("b", {"name": "xp", "min": 0, "max": 10**6})
    await service.post("b", *({"owner": f"o{number}", "stats": {"xp": number}} for number in range(10)))
    first = await service.call("GET", path)
    etag = first.headers["ETag"]
    before = await service.figures()
    for known in (etag, etag.removeprefix("W/"), f'"older", {etag}', "*"):
        again = await service.call("GET", path, headers={"If-None-Match": known})
        assert (again.status, again.body, again.headers["ETag"]) == (304, None, etag)
    read = {name: count - before[name] for name, count in (await service.figures()).items() if name in before}
    answered = [count for name, count in read.items() if name[0] == "rankcurve_reads_total"]
    assert sum(answered) <= 1, "only `*` needs a read"
    await service.post("b", {"owner": "o9", "stats": {"xp": 100}})
    changed = await service.call("GET", path, headers={"If-None-Match": etag})
    assert (changed.status, changed.headers["ETag"] == etag) == (200, False)


async def test_an_unknown_or_hidden_owner_has_no_tag(service: Service) -> None:
    await service.board("b", {"name": "xp", "min": 0, "max": 10**6})
    await service.post_xp("b", ada=1, bob=2)
    etag = (await service.call("GET", f"{B}/entries/ada")).headers["ETag"]
    assert (await service.call("GET", f"{B}/entries/nobody", headers={"If-None-Match": "*"})).status == 404
    await service.must("PUT", "/v1/owners/ada/hidden")
    hidden = await service.call("GET", f"{B}/entries/ada", headers={"If-None-Match": etag})
    assert (hidden.status, hidden.body["hidden"], "ETag" in hidden.headers) == (200, True, False)
    profiled = await service.call("GET", f"{B}/entries/bob?profiles=true", headers={"If-None-Match": "*"})
    assert (profiled.status, "ETag" in profiled.headers) == (200, False)


async def test_long_reads_are_compressed_for_callers_that_accept_it(game: Service) -> None:
    paths = {f"{B}/rankings/xp?limit=100": True, f"{B}/rankings/xp?limit=3": False, "/openapi.json": True}
    async with ClientSession(auto_decompress=False) as session:
        for path, long in paths.items():
            plain: dict[str, bytes] = {}
            for accepted in ("identity", "gzip"):
                headers = {"Accept-Encoding": accepted, "Origin": GAME}
                async with session.get(game.base + path, headers=headers) as answer:
                    body = await answer.read()
                packed = answer.headers.get("Content-Encoding") == "gzip"
                assert packed is (long and accepted == "gzip"), path
                assert int(answer.headers["Content-Length"]) == len(body)
                if packed:
                    assert answer.headers["Vary"] == "Accept-Encoding, Origin"
                    assert len(body) * 2 < len(plain["identity"])
                    body = zlib.decompress(body, wbits=31)
                plain[accepted] = body
            assert json.loads(plain["gzip"]) == json.loads(plain["identity"])


async def test_results_of_posts_are_not_compressed(service: Service) -> None:
    await service.board("b", {"name": "xp", "min": 0, "max": 10**6})
    posts = [{"owner": f"o{number}", "stats": {"xp": number}} for number in range(100)]
    answer = await service.call("POST", f"{B}/posts", {"posts": posts}, {"Accept-Encoding": "gzip"})
    assert (answer.status, "Content-Encoding" in answer.headers) == (200, False)
