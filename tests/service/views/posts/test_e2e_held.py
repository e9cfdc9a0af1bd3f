"""Test limits of columns, held posts and verdicts over HTTP, on a service with an owner and fronts."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.real_service import Service
from tests.service.views.posts.test_e2e_queued import wait_settled

BOARD = "/v1/leaderboards/b"
LIMITS = {"post_min": -2, "post_max": 10, "gain_per_hour_max": 25}
XP = {"name": "xp", "merge": "sum", "sorted": True}
HOLD = {**XP, **LIMITS, "on_breach": "hold"}


@pytest.fixture
async def service(either_store: dict[str, Any], tmp_path: Path) -> AsyncIterator[Service]:
    async with Service(tmp_path, **either_store).running() as made:
        await made.board("b", HOLD)
        yield made


async def list_held(service: Service, board: str = BOARD) -> list[dict[str, Any]]:
    """Return all held posts, read in pages of two."""
    found, cursor = [], ""
    while True:
        page = await service.get(f"{board}/held?limit=2{cursor}")
        found += page["posts"]
        if page["next"] is None:
            return found
        cursor = f"&cursor={page['next']}"


async def judge(service: Service, post_id: str, verdict: str, board: str = BOARD, **more: str) -> Any:
    return await service.must("PUT", f"{board}/held/{post_id}?owner=ada", {"verdict": verdict, **more})


def post_of(xp: float, post_id: str | None = None, owner: str = "ada", **more: Any) -> dict[str, Any]:
    return {"owner": owner, "stats": {"xp": xp}, **({} if post_id is None else {"post_id": post_id}), **more}


async def test_a_suspected_post_waits_for_a_verdict(service: Service) -> None:
    fits, big, small = await service.post("b", post_of(10, "fits"), post_of(11, "big"), post_of(-3))
    assert (fits["status"], fits["stats"]) == ("applied", {"xp": 10})
    assert big == {"owner": "ada", "status": "held", "post_id": "big"}
    assert (small["status"], small["post_id"][:5]) == ("held", "held:")
    await service.post("b", post_of(9))
    assert [each["status"] for each in await service.post("b", post_of(7, "gain"), post_of(11, "big"))] == ["held"] * 2
    held, order = await list_held(service), lambda each: ("big", "held", "gain").index(each["post_id"][:4])
    assert [(each["post_id"][:5], each["stats"]["xp"], each["reason"]) for each in sorted(held, key=order)] == [
        ("big", 11, "xp: 11 is more than post_max, 10"),
        ("held:", -3, "xp: -3 is less than post_min, -2"),
        ("gain", 7, "xp: 7 after 19 in the last hour is more than gain_per_hour_max, 25"),
    ]
    assert (await service.get(f"{BOARD}/posts/big?owner=ada"))["status"] == "held"
    assert await service.refused("DELETE", f"{BOARD}/posts/big?owner=ada") == (404, "unknown_post")
    assert (await service.get(f"{BOARD}/entries/ada"))["stats"] == {"xp": 19}
    accepted = [await judge(service, "big", "accept", reason="a real record") for _ in range(2)]
    assert [(each["status"], each["stats"]) for each in accepted] == [("applied", {"xp": 30})] * 2
    refused = [await judge(service, "gain", "refuse") for _ in range(2)]
    assert [each["status"] for each in refused] == ["voided"] * 2
    for post_id, verdict in (("big", "refuse"), ("gain", "accept")):
        path = f"{BOARD}/held/{post_id}?owner=ada"
        assert await service.refused("PUT", path, {"verdict": verdict}) == (409, "verdict_conflict")
    assert await service.refused("PUT", f"{BOARD}/held/x?owner=ada", {"verdict": "accept"}) == (404, "unknown_post")
    assert [each["stats"] for each in await list_held(service)] == [{"xp": -3}]
    again = await service.call("POST", f"{BOARD}/posts", post_of(7, "gain"))
    assert (again.status, again.body["code"]) == (409, "post_voided")
    acts = (await service.get("/v1/acts?owner=ada"))["acts"]
    assert [(each["act"], each["board"], each["reason"]) for each in acts] == [
        ("post.refused", "b", None),
        ("post.accepted", "b", "a real record"),
    ]


async def test_any_post_can_ask_to_be_held_also_in_the_queue_and_to_a_family(service: Service) -> None:
    await service.board("plain", XP)
    assert (await service.post("plain", post_of(1, "p", hold=True)))[0]["status"] == "held"
    asked = "/v1/leaderboards/plain"
    await service.must("POST", f"{asked}/posts?mode=queued", {"posts": [post_of(2, "q", hold=True)]})
    assert (await wait_settled(service, "q", asked))["status"] == "held"
    assert [each["post_id"] for each in await list_held(service, asked)] == ["p", "q"]
    assert (await judge(service, "q", "accept", asked))["stats"] == {"xp": 2}
    assert (await service.post("plain", post_of(3, "r", hold=False)))[0]["stats"] == {"xp": 5}

    await service.must("PUT", "/v1/families/f", {"columns": [HOLD], "periods": ["all", "year"]})
    body = await service.must("POST", "/v1/families/f/posts", post_of(11, "p"))
    assert [body["results"][0]["status"], *(each["status"] for each in body["results"][0]["boards"])] == ["held"] * 3
    everybody = "/v1/leaderboards/f:all"
    assert len(await list_held(service, everybody)) == 1
    assert (await judge(service, "p", "accept", everybody))["stats"] == {"xp": 11}
    assert [each["rank"] for each in (await service.get("/v1/leaderboards/f:this-year/rankings/xp"))["entries"]] == [1]
    repeated = await service.must("POST", "/v1/families/f/posts", post_of(11, "p"))
    assert repeated["results"][0]["status"] == "duplicate"


async def test_limits_change_at_any_time_and_reject_by_default(service: Service) -> None:
    columns = (await service.get(BOARD))["columns"]
    assert {name: columns[0][name] for name in (*LIMITS, "on_breach")} == {**LIMITS, "on_breach": "hold"}
    for fronts in range(2):  # each front has a copy of the board
        await service.must("PUT", BOARD, {"columns": [{**XP, "post_max": 5 + fronts}]})
        for _ in range(2):
            answer = await service.call("POST", f"{BOARD}/posts", post_of(8))
            assert (answer.status, answer.body["code"], answer.body["errors"][0]["pointer"]) == (
                422, "post_limit", "/stats/xp",
            )  # fmt: skip
    await service.must("PUT", BOARD, {"columns": [XP]})
    assert "post_max" not in (await service.get(BOARD))["columns"][0]
    assert (await service.post("b", post_of(8), {"owner": "bob", "set": {"xp": 80}}))[0]["status"] == "applied"


async def test_limits_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    nonsense: list[dict[str, Any]] = [
        {**XP, "on_breach": "hold"},
        {**XP, "post_min": 3, "post_max": 2},
        {**XP, "gain_per_hour_max": 0},
        {"name": "xp", "merge": "max", "gain_per_hour_max": 5},
        {"name": "xp", "merge": "last", "type": "text", "post_max": 5},
        {**XP, "post_max": 0.5},
    ]
    async with Service(tmp_path, jobs="none").running() as service:
        for column in nonsense:
            status, code = await service.refused("PUT", "/v1/leaderboards/c", {"columns": [column]})
            assert (status, code) in {(422, "bad_spec"), (422, "bad_value")}, column
