"""Test that operators take back posts, and that posts from before a reset are refused, on a real service."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.service.real_service import Service

COLUMNS: list[dict[str, Any]] = [
    {"name": "xp", "merge": "sum", "sorted": True},
    {"name": "best", "merge": "max", "sorted": True},
    {"name": "clan", "merge": "last", "sorted": False, "type": "text"},
]
B, F = "/v1/leaderboards/b", "/v1/families/game"
FAMILY = {"columns": COLUMNS, "periods": ["all", "week"], "facets": [[], ["org"]]}


@pytest.fixture
async def service(either_store: dict[str, Any], tmp_path: Path) -> AsyncIterator[Service]:
    async with Service(tmp_path, **either_store).running() as made:
        await made.board("b", *COLUMNS)
        await made.must("PUT", F, FAMILY)
        yield made


async def post_runs(service: Service) -> None:
    for xp in (5, 90, 7):
        await service.post("b", {"owner": "ada", "stats": {"xp": xp, "best": xp}, "post_id": f"run {xp}"})
    await service.post("b", {"owner": "bob", "stats": {"xp": 50, "best": 50, "clan": "fox"}, "post_id": "run 90"})


async def test_a_cheated_run_is_taken_back_and_stays_so(service: Service) -> None:
    await post_runs(service)
    path = f"{B}/posts/run%2090?owner=ada"
    voided = await service.must("DELETE", path)
    board = {"board": "b", "status": "recomputed", "stats": {"xp": 12, "best": 7, "clan": None}}
    assert voided == {"post_id": "run 90", "owner": "ada", "boards": [board]}
    page = await service.get(f"{B}/rankings/xp")
    assert [(row["rank"], row["owner"], row["value"]) for row in page["entries"]] == [(1, "bob", 50), (2, "ada", 12)]
    assert await service.must("DELETE", path) == voided
    assert await service.get(path) == {"post_id": "run 90", "owner": "ada", "status": "voided"}
    await service.restart()
    for stats in ({"xp": 90, "best": 90}, {"xp": 1}):
        answer = await service.call("POST", f"{B}/posts", {"owner": "ada", "stats": stats, "post_id": "run 90"})
        assert (answer.status, answer.body["code"]) == (409, "post_voided")
    assert await service.must("DELETE", path) == voided
    for post_id in ("5", "7"):
        voided = await service.must("DELETE", f"{B}/posts/run%20{post_id}?owner=ada")
    assert voided["boards"] == [{"board": "b", "status": "recomputed", "stats": None}]
    assert await service.refused("GET", f"{B}/entries/ada") == (404, "unknown_owner")


async def test_the_journal_and_the_owners_history_show_the_voiding(service: Service) -> None:
    await post_runs(service)
    for post_id in ("run%2090", "run%205", "run%207"):
        await service.must("DELETE", f"{B}/posts/{post_id}?owner=ada")
    journal = await service.get("/v1/journal?limit=1000")
    told = [(line["post_id"], line.get("stored")) for line in journal if line["kind"] == "void"]
    assert told == [
        ("run 90", {"xp": 12, "best": 7, "clan": None}), ("run 5", {"xp": 7, "best": 7, "clan": None}), ("run 7", None),
    ]  # fmt: skip
    assert {line["owner"] for line in journal if line["kind"] == "void"} == {"ada"}
    history = (await service.get("/v1/owners/ada/posts"))["posts"]
    assert [line["kind"] for line in history] == ["void"] * 3 + ["post"] * 3


async def test_a_voided_post_that_changed_nothing_has_the_time_of_the_voiding_in_the_journal(service: Service) -> None:
    await post_runs(service)
    await service.post("b", {"owner": "ada", "stats": {"best": 1}, "post_id": "weak"})
    await service.must("DELETE", f"{B}/posts/weak?owner=ada")
    journal = await service.get("/v1/journal?limit=1000")
    times = [line["accepted_at"] for line in journal if line["owner"] == "ada"]
    assert [line["kind"] for line in journal][-1] == "void"
    assert times[-1] > times[-2], "the voiding comes after the post"


async def test_what_cannot_be_taken_back_is_refused(service: Service) -> None:
    await post_runs(service)
    assert await service.refused("DELETE", f"{B}/posts/run%208?owner=ada") == (404, "unknown_post")
    assert await service.refused("DELETE", f"{B}/posts/run%205?owner=carl") == (404, "unknown_post")
    assert await service.refused("DELETE", f"{B}/posts/run%205") == (400, "bad_request")
    assert await service.refused("DELETE", "/v1/leaderboards/none/posts/p?owner=ada") == (404, "unknown_board")
    assert await service.refused("DELETE", "/v1/leaderboards/game:all/posts/p?owner=ada") == (409, "family_board")
    assert await service.refused("DELETE", "/v1/families/none/posts/p?owner=ada") == (404, "unknown_family")
    await service.must("DELETE", f"{B}/entries/bob")
    assert await service.refused("DELETE", f"{B}/posts/run%2090?owner=bob") == (404, "unknown_owner")


async def test_a_hidden_owners_post_is_taken_back_too(service: Service) -> None:
    await post_runs(service)
    await service.must("PUT", "/v1/owners/ada/hidden")
    voided = await service.must("DELETE", f"{B}/posts/run%2090?owner=ada")
    assert voided["boards"][0]["stats"] == {"xp": 12, "best": 7, "clan": None}
    assert (await service.get(f"{B}/rankings/xp"))["total"] == 1
    await service.must("DELETE", "/v1/owners/ada/hidden")
    assert (await service.get(f"{B}/entries/ada"))["stats"] == {"xp": 12, "best": 7, "clan": None}


async def test_a_post_to_a_family_is_taken_back_from_every_board_that_it_reached(service: Service) -> None:
    for xp, facets in ((5, {"org": "1"}), (90, {"org": "1"}), (7, {})):
        body = {"owner": "ada", "stats": {"xp": xp}, "post_id": f"p{xp}", "facets": facets}
        [posted] = (await service.must("POST", f"{F}/posts", [body]))["results"]
        assert posted["status"] == "applied"
    voided = await service.must("DELETE", f"{F}/posts/p90?owner=ada")
    left = {each["board"]: each["stats"]["xp"] for each in voided["boards"]}
    assert (left["game:all"], left["game:all:org=1"], sorted(left.values())) == (12, 5, [5, 5, 12, 12])
    assert await service.must("DELETE", f"{F}/posts/p90?owner=ada") == voided
    body = {"owner": "ada", "stats": {"xp": 90}, "post_id": "p90", "facets": {"org": "1"}}
    [again] = (await service.must("POST", f"{F}/posts", [body]))["results"]
    assert {each["error"]["code"] for each in again["boards"]} == {"post_voided"}


async def test_an_owners_family_entries_are_corrected_by_one_request(service: Service) -> None:
    await service.must("POST", f"{F}/posts", {"owner": "ada", "stats": {"xp": 5}, "facets": {"org": "1"}})
    body = {"owner": "ada", "set": {"xp": 2}, "facets": {"org": "1"}}
    [corrected] = (await service.must("POST", f"{F}/posts", [body]))["results"]
    assert [each["stats"]["xp"] for each in corrected["boards"]] == [2] * 4


async def test_a_queued_post_is_taken_back_once_it_is_applied(service: Service) -> None:
    for place, post_id in ((B, "q"), (F, "f")):
        body = {"owner": "ada", "stats": {"xp": 9}, "post_id": post_id}
        assert (await service.call("POST", f"{place}/posts?mode=queued", body)).status == 202
        async with asyncio.timeout(60):
            while (answer := await service.call("DELETE", f"{place}/posts/{post_id}?owner=ada")).status == 503:
                assert answer.body["code"] == "store_busy"
        assert answer.status == 200
        assert {each["stats"] for each in answer.body["boards"]} == {None}


async def test_old_posts_cannot_leak_through_a_reset(service: Service) -> None:
    before = (datetime.now(UTC) - timedelta(seconds=5)).isoformat()
    for place, reset in ((B, None), (F, {"period": "all"}), (F, {"period": "week"})):
        await service.must("POST", f"{place}/posts", {"owner": "ada", "stats": {"xp": 9}})
        await service.must("POST", f"{place}/reset", reset)
        [late] = (await service.must("POST", f"{place}/posts", [{"owner": "eve", "stats": {"xp": 1}, "at": before}]))[
            "results"
        ]
        errors = [each.get("error", {}).get("code") for each in late.get("boards", [late])]
        assert errors.count("before_reset") >= 1
        [now] = (await service.must("POST", f"{place}/posts", [{"owner": "eve", "stats": {"xp": 1}}]))["results"]
        assert now["status"] == "applied"


async def test_a_reset_of_the_week_leaves_the_other_periods(service: Service) -> None:
    for org in ("1", "2"):
        await service.must("POST", f"{F}/posts", {"owner": org, "stats": {"xp": 9}, "facets": {"org": org}})
    answer = await service.must("POST", f"{F}/reset", {"period": "week"})
    assert (answer["family"], answer["boards"]) == ("game", 3)
    assert answer["period"]["name"].count("-W") == 1
    totals = [
        (await service.get(f"/v1/leaderboards/game:{board}/rankings/xp"))["total"]
        for board in ("all", "all:org=1", "this-week", "this-week:org=1")
    ]
    assert totals == [2, 1, 0, 0]
    assert await service.refused("POST", f"{F}/reset", {"period": "day"}) == (404, "unknown_board")
    assert await service.refused("POST", f"{F}/reset", {"period": "an hour"}) == (400, "bad_request")
