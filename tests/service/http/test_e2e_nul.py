"""Send text that PostgreSQL cannot store, in every string of a request of every route: NUL and lone surrogates."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.service.every_route import BODIES, NAMES, QUERIES
from tests.service.openapi_checks import ROUTE_TABLE
from tests.service.real_service import Service

ODD = ("x\0y", "x\ud800y")
REFUSED = (400, 404)


@pytest.fixture
async def service(store_url: str, tmp_path: Path) -> AsyncIterator[Service]:
    async with Service(tmp_path, store=store_url).running() as made:
        for view in ("create_board", "create_family", "put_pool", "add_resources", "post", "post_to_family"):
            [route] = [route for route in ROUTE_TABLE if route.view == view]
            await made.must(route.method, route.path.format(**NAMES), BODIES[view])
        yield made


def list_changed(body: Any) -> Iterator[Any]:
    """Yield the body once for each of its strings and names, with that one replaced by each odd text."""
    if isinstance(body, str):
        yield from ODD
    elif isinstance(body, list):
        for index, each in enumerate(body):
            yield from ([*body[:index], odd, *body[index + 1 :]] for odd in list_changed(each))
    elif isinstance(body, dict):
        for name, each in body.items():
            rest = {other: value for other, value in body.items() if other != name}
            yield from ({**rest, name: odd} for odd in list_changed(each))
            yield from ({**rest, odd: each} for odd in ODD)


async def test_no_name_in_a_path_may_have_nul_or_bytes_that_are_not_text(service: Service) -> None:
    names = {**NAMES, "id": "k"}
    for route in ROUTE_TABLE:
        for name in names:
            if f"{{{name}}}" in route.path:
                for odd in ("x%00y", "%00", "x%EDy", "x%ED%A0%80y"):
                    path = route.path.format(**{**names, name: odd}) + QUERIES.get(route.view, "")
                    answer = await service.call(route.method, path, BODIES.get(route.view))
                    assert answer.status in REFUSED, (path, answer.status, answer.body)


async def test_no_parameter_of_a_query_may_have_nul(service: Service) -> None:
    for route in ROUTE_TABLE:
        if route.query is not None:
            given = dict(pair.split("=") for pair in QUERIES.get(route.view, "?").removeprefix("?").split("&") if pair)
            for field in msgspec.structs.fields(route.query):
                query = "&".join(f"{name}={text}" for name, text in {**given, field.encode_name: "x%00y"}.items())
                path = f"{route.path.format(**NAMES, id='k')}?{query}"
                answer = await service.call(route.method, path, BODIES.get(route.view))
                assert answer.status in REFUSED, (path, answer.status, answer.body)


async def test_no_text_in_a_body_makes_the_store_fail(service: Service) -> None:
    set_post = {"owner": "ada", "set": {"xp": 3}, "post_id": "set", "at": "2026-01-01T00:00:00Z"}
    board = {"columns": [{"name": "clan", "sorted": False, "merge": "last", "type": "text"}], "opens_at": "2030-01-01"}
    more: dict[str, list[Any]] = {
        "post": [set_post, {"posts": [set_post]}],
        "create_board": [board],
        "put_profile": [{"a": ["x", {"b": "c"}]}],
    }
    for route in ROUTE_TABLE:
        for example in (*more.get(route.view, ()), BODIES.get(route.view)):
            for body in list_changed(example):
                path = route.path.format(**NAMES, id="k") + QUERIES.get(route.view, "")
                answer = await service.call(route.method, path, json.dumps(body).encode())
                assert answer.status < 500, (path, body, answer.status, answer.body)


async def test_a_text_column_and_queued_posts_refuse_nul_too(service: Service) -> None:
    columns = [{"name": "clan", "sorted": False, "merge": "last", "type": "text"}]
    await service.must("PUT", "/v1/leaderboards/texts", {"columns": columns})
    for mode in ("", "?mode=queued"):
        for odd in ODD:
            for post in ({"owner": "ada", "stats": {"clan": odd}}, {"owner": "ada", "set": {"clan": odd}}):
                body = json.dumps(post).encode()
                answer = await service.call("POST", f"/v1/leaderboards/texts/posts{mode}", body)
                assert answer.status < 500, (body, answer.status, answer.body)
                if answer.status == 200:
                    assert answer.body["results"][0]["status"] == "rejected"
