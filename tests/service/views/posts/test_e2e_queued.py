"""Test queued posts.

The service applies each accepted post once, soon and in order, and never applies a refused post.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.service.real_service import Caller, Service, escaped

XP = {"name": "xp", "merge": "sum", "best": "high", "max": 1000}
LAST = {"name": "last", "merge": "last", "sorted": False}
BOARD = "/v1/leaderboards/b"
QUEUED = "/posts?mode=queued"
WAIT_S = 60
COLUMNS = [{"name": "xp", "sorted": True, "merge": "sum"}]
FAMILY: dict[str, Any] = {"columns": COLUMNS, "periods": ["all", "year"], "facets": [[], ["org"]]}


@pytest.fixture
async def service(either_store: dict[str, Any], tmp_path: Path) -> AsyncIterator[Service]:
    async with Service(tmp_path, **either_store).running() as made:
        await made.board("b", XP, LAST)
        yield made


async def wait_settled(caller: Caller, post_id: str, board: str = BOARD, owner: str = "ada") -> dict[str, Any]:
    """Wait until an owner's post is applied or rejected. Return the state of the post."""
    async with asyncio.timeout(WAIT_S):
        while True:
            state: dict[str, Any] = await caller.get(f"{board}/posts/{escaped(post_id)}?owner={escaped(owner)}")
            if state["status"] != "pending":
                return state


async def queue_posts(caller: Caller, path: str, body: object) -> int:
    """Send a request with posts to the queue. Return the number of accepted posts."""
    answer = await caller.call("POST", path, body)
    assert answer.status == 202, answer.body
    count: int = answer.body["accepted"]
    return count


async def test_a_queued_post_is_applied_and_its_outcome_can_be_asked(service: Service) -> None:
    post = {"owner": "ada", "stats": {"xp": 5, "last": 1}, "post_id": "match-8812/ada"}
    assert await queue_posts(service, BOARD + QUEUED, post) == 1
    state = await wait_settled(service, "match-8812/ada")
    entry = await service.get(f"{BOARD}/entries/ada")
    applied = {"status": "applied", "updated_at": entry["updated_at"], "stats": {"xp": 5, "last": 1}}
    assert state == {"post_id": "match-8812/ada", "owner": "ada", **applied}
    assert await queue_posts(service, BOARD + QUEUED, {"posts": [post, {**post, "post_id": "more"}]}) == 2
    assert (await wait_settled(service, "more"))["stats"] == {"xp": 10, "last": 1}
    [directly] = await service.post("b", post)
    assert (directly["status"], directly["stats"]) == ("duplicate", {"xp": 5, "last": 1})
    assert await service.refused("GET", f"{BOARD}/posts/nobodys") == (404, "unknown_post")
    assert await service.refused("GET", f"{BOARD}/posts/more?owner=bob") == (404, "unknown_post")
    assert await service.refused("GET", f"{BOARD}/posts/more?owner=%00") == (400, "bad_request")
    assert await service.refused("GET", "/v1/leaderboards/none/posts/more") == (404, "unknown_board")


async def test_all_posts_with_an_id_are_listed(service: Service) -> None:
    await service.restart(ingest_workers=0)
    await service.post("b", {"owner": "ada", "stats": {"xp": 1}, "post_id": "match"})
    posts = [{"owner": owner, "stats": {"xp": xp}, "post_id": "match"} for owner, xp in (("bob", 2), ("cleo", 10**12))]
    await queue_posts(service, BOARD + QUEUED, {"posts": posts})
    await service.post("b", {"owner": "dan", "stats": {"xp": 1}, "post_id": "matches"})
    listed = await service.get(f"{BOARD}/posts/match")
    assert (listed["post_id"], listed["more"]) == ("match", False)
    states = [(each["owner"], each["status"]) for each in listed["posts"]]
    assert states == [("ada", "applied"), ("bob", "pending"), ("cleo", "pending")]
    await service.restart(ingest_workers=1)
    settled = [await wait_settled(service, "match", owner=owner) for owner in ("ada", "bob", "cleo")]
    assert [state["status"] for state in settled] == ["applied", "applied", "rejected"]
    assert (await service.get(f"{BOARD}/posts/match"))["posts"] == settled
    await service.must("DELETE", "/v1/owners/ada")
    erased = {**settled[0], "owner": None}
    assert (await service.get(f"{BOARD}/posts/match"))["posts"] == [*settled[1:], erased]


async def test_one_invalid_post_refuses_its_whole_queued_request(service: Service) -> None:
    good, ada = {"owner": "bob", "stats": {"xp": 1}, "post_id": "good"}, {"owner": "ada", "stats": {"xp": 1}}
    invalid: list[tuple[dict[str, Any], tuple[int, str]]] = [
        ({**ada, "stats": {"none": 1}}, (422, "unknown_column")),
        ({**ada, "stats": {"xp": "1.5"}}, (422, "bad_value")),
        ({**ada, "at": "2999-01-01T00:00:00Z"}, (422, "at_in_future")),
        ({**ada, "stats": {}}, (400, "bad_request")),
        ({**ada, "more": 1}, (400, "unknown_field")),
    ]
    for post, refusal in invalid:
        assert await service.refused("POST", BOARD + QUEUED, post) == refusal
        answer = await service.call("POST", BOARD + QUEUED, {"posts": [good, post]})
        assert (answer.status, answer.body["code"]) == refusal
        assert all(error["pointer"].startswith("/posts/1") for error in answer.body["errors"])
    assert await service.refused("GET", f"{BOARD}/posts/good") == (404, "unknown_post"), "nothing was queued"


async def test_unknown_boards_and_modes_are_refused(service: Service) -> None:
    post = {"owner": "ada", "stats": {"xp": 1}}
    assert await service.refused("POST", "/v1/leaderboards/none/posts?mode=queued", post) == (404, "unknown_board")
    several = {**post, "boards": ["b", "none"]}
    assert await service.refused("POST", "/v1/posts?mode=queued", several) == (404, "unknown_board")
    assert await service.refused("POST", "/v1/families/none/posts?mode=queued", post) == (404, "unknown_family")
    assert await service.refused("POST", f"{BOARD}/posts?mode=later", post) == (400, "bad_request")


async def test_posts_to_several_boards_and_to_families_are_queued_too(service: Service) -> None:
    await service.board("c", XP)
    both = {"owner": "ada", "stats": {"xp": 3}, "boards": ["b", "c"], "post_id": "both"}
    assert await queue_posts(service, "/v1/posts?mode=queued", both) == 1
    assert (await wait_settled(service, "both"))["stats"]["xp"] == 3
    assert (await wait_settled(service, "both", "/v1/leaderboards/c"))["stats"] == {"xp": 3}
    await service.must("PUT", "/v1/families/game", FAMILY)
    post = {"owner": "ada", "stats": {"xp": 7}, "facets": {"org": "1"}, "post_id": "f", "at": "2026-06-01T00:00:00Z"}
    assert await queue_posts(service, "/v1/families/game/posts?mode=queued", {"posts": [post, post]}) == 2
    for board in ("game:all", "game:all:org=1"):
        path = f"/v1/leaderboards/{escaped(board)}"
        assert (await wait_settled(service, "f", path))["stats"] == {"xp": 7}
        assert (await service.get(f"{path}/entries/ada"))["stats"] == {"xp": 7}
    late = {**post, "at": "2000-06-01T00:00:00Z", "post_id": "late"}
    queued = await queue_posts(service, "/v1/families/game/posts?mode=queued", late)
    assert queued == 1, "the all-time period never closes"


async def test_a_season_that_is_over_or_not_yet_open_refuses_queued_posts_at_once(service: Service) -> None:
    now = datetime.now(UTC)
    long_ago, soon = (now - timedelta(days=2)).isoformat(), (now + timedelta(days=2)).isoformat()
    season = {"columns": COLUMNS, "grace_seconds": 0}
    await service.must("PUT", "/v1/leaderboards/over", {**season, "closes_at": (now - timedelta(days=1)).isoformat()})
    await service.must("PUT", "/v1/leaderboards/early", {**season, "opens_at": soon})
    post = {"owner": "ada", "stats": {"xp": 1}}
    assert await service.refused("POST", "/v1/leaderboards/over" + QUEUED, post) == (409, "period_closed")
    assert await service.refused("POST", "/v1/leaderboards/early" + QUEUED, post) == (409, "not_open_yet")
    late = {**post, "at": long_ago}
    assert await service.refused("POST", "/v1/leaderboards/over" + QUEUED, late) == (409, "period_closed")
    several = {**post, "boards": ["over", "b"], "post_id": "several"}
    assert await queue_posts(service, "/v1/posts?mode=queued", several) == 1
    assert (await wait_settled(service, "several"))["stats"]["xp"] == 1
    state = await wait_settled(service, "several", "/v1/leaderboards/over")
    assert (state["status"], state["error"]["code"]) == ("rejected", "period_closed")


async def test_a_post_and_the_journal_tell_of_a_rejection_that_came_after_the_answer(service: Service) -> None:
    await service.board("gone", XP)
    await service.restart(ingest_workers=0)
    posts = [
        {"owner": "ada", "stats": {"xp": xp}, "post_id": f"{xp}", "boards": boards}
        for xp, boards in ((600, ["b"]), (700, ["b"]), (5, ["gone", "b"]), (6, ["gone"]))
    ]
    assert await queue_posts(service, "/v1/posts?mode=queued", {"posts": posts}) == 4
    await service.must("DELETE", "/v1/leaderboards/gone")
    await service.restart(ingest_workers=1)
    assert (await wait_settled(service, "5"))["error"]["code"] == "post_rejected"
    state = await wait_settled(service, "700")
    assert (state["status"], state["error"]["code"]) == ("rejected", "value_out_of_range")
    assert state["error"]["status"] == 422
    await service.wait_applied()  # other partitions settle their posts at other times
    told = (await service.get("/v1/owners/ada/posts"))["posts"]
    found = {(line["post_id"], line["board"], line["status"], line.get("error", {}).get("code")) for line in told}
    assert found == {
        ("600", "b", "applied", None), ("700", "b", "rejected", "value_out_of_range"),
        ("5", "b", "rejected", "post_rejected"), ("5", "gone", "rejected", "unknown_board"),
        ("6", "gone", "rejected", "unknown_board"),
    }  # fmt: skip
    [refused] = [line for line in told if line["post_id"] == "700"]
    assert (refused["kind"], refused["stats"], "stored" in refused) == ("post", {"xp": 700}, False)
    assert len({line["seq"] for line in told}) == len(told), "each line has its own number"
    entry = await service.get(f"{BOARD}/entries/ada")
    await service.must("DELETE", "/v1/owners/ada")
    assert entry["stats"]["xp"] == 600
    assert (await service.get("/v1/owners/ada/posts"))["posts"] == []


async def test_without_a_worker_queued_posts_stay_and_a_full_queue_refuses_more(service: Service) -> None:
    await service.restart(ingest_workers=0, ingest_posts_max=3, ingest_look_s=0.01)
    posts = [{"owner": f"p{n}", "stats": {"xp": 1}, "post_id": f"{n}"} for n in range(3)]
    assert await queue_posts(service, BOARD + QUEUED, {"posts": posts}) == 3
    assert (await service.get(f"{BOARD}/posts/1?owner=p1"))["status"] == "pending"
    answer = await service.call("POST", BOARD + QUEUED, {"owner": "q", "stats": {"xp": 1}})
    assert (answer.status, answer.body["code"]) == (429, "queue_full")
    assert int(answer.headers["Retry-After"]) >= 1
    await service.restart(ingest_workers=1)
    for n in range(3):
        assert (await wait_settled(service, f"{n}", owner=f"p{n}"))["status"] == "applied"
    async with asyncio.timeout(WAIT_S):
        while (await service.call("POST", BOARD + QUEUED, {"owner": "q", "stats": {"xp": 1}})).status != 202:
            continue


async def test_operators_see_the_waiting_posts_and_the_worker_of_each_shard(service: Service) -> None:
    await service.restart(ingest_workers=0, ingest_workers_max=3)
    posts = [{"owner": f"p{n}", "stats": {"xp": 1}, "post_id": f"{n}"} for n in range(50)]
    await queue_posts(service, BOARD + QUEUED, {"posts": posts})
    state = await service.get("/v1/queue")
    assert (state["posts"], state["workers"], state["workers_max"], state["capacity"]) == (50, 0, 3, None)
    assert set(Counter(shard.get("partition") for shard in state["shards"]).values()) == {10}
    assert sum(shard["posts"] for shard in state["shards"]) == 50
    assert all(shard["posts"] == 0 or shard["age_seconds"] > 0 for shard in state["shards"])
    assert {shard["worker"] for shard in state["shards"]} == {None}
    await service.restart(ingest_workers=1, ingest_lease_s=600)
    await wait_settled(service, "49", owner="p49")
    await service.wait_applied()
    state = await service.get("/v1/queue")
    assert state["workers"] == 1
    assert sum(shard["applied"] for shard in state["shards"]) == 50
    assert len({shard["worker"] for shard in state["shards"]}) == 1
    assert state["age_seconds"] == 0


async def test_waiting_posts_do_not_bring_back_an_erased_owner(service: Service) -> None:
    await service.restart(ingest_workers=0)
    posts = [{"owner": owner, "stats": {"xp": 1}, "post_id": owner} for owner in ("ada", "bob", "cleo")]
    await queue_posts(service, BOARD + QUEUED, {"posts": posts})
    await service.must("DELETE", f"{BOARD}/entries/ada")
    await service.must("DELETE", "/v1/owners/bob")
    assert await service.refused("DELETE", f"{BOARD}/entries/ada") == (404, "unknown_owner")
    await service.restart(ingest_workers=1)
    assert (await wait_settled(service, "cleo", owner="cleo"))["status"] == "applied"
    for owner in ("ada", "bob"):
        assert await service.refused("GET", f"{BOARD}/entries/{owner}") == (404, "unknown_owner")
        assert await service.refused("GET", f"{BOARD}/posts/{owner}?owner={owner}") == (404, "unknown_post")
        assert await service.refused("GET", f"{BOARD}/posts/{owner}") == (404, "unknown_post")


async def _restart_days_later(service: Service, days: int) -> None:
    now_us = service.clock() + days * 86_400_000_000
    await service.stop()
    service.clock = lambda: now_us
    await service.restart()


async def test_a_queued_post_to_a_day_counts_although_the_day_was_over_before_a_worker_took_it(
    service: Service,
) -> None:
    await service.must("PUT", "/v1/families/daily", {**FAMILY, "periods": ["day"], "grace_seconds": 0})
    await service.restart(ingest_workers=0)
    day = (await service.get("/v1/families/daily/boards?period=day"))["board"]
    path, post = "/v1/families/daily/posts?mode=queued", {"owner": "ada", "stats": {"xp": 7}, "post_id": "p"}
    assert await queue_posts(service, path, post) == 1
    await _restart_days_later(service, 1)
    late = {**post, "post_id": "late", "at": datetime.now(UTC).isoformat()}
    assert await service.refused("POST", path, late) == (409, "period_closed")
    await service.restart(ingest_workers=1)
    state = await wait_settled(service, "p", f"/v1/leaderboards/{escaped(day)}")
    assert (state["status"], state["stats"]) == ("applied", {"xp": 7})
    assert (await service.get(f"/v1/leaderboards/{escaped(day)}"))["closed"] is True


async def test_a_queued_retry_is_a_duplicate_even_after_its_period_closed(service: Service) -> None:
    await service.must("PUT", "/v1/families/daily", {**FAMILY, "periods": ["day"], "grace_seconds": 0})
    path = "/v1/families/daily/posts"
    post = {"owner": "ada", "stats": {"xp": 7}, "post_id": "p", "at": datetime.now(UTC).isoformat()}
    await service.must("POST", path, post)
    await _restart_days_later(service, 2)
    assert await _count_duplicates(service, f"{path}?mode=queued", post) == 1
    await _check_others_refused(service, f"{path}?mode=queued", post)
    [directly] = (await service.must("POST", path, {"posts": [post]}))["results"]
    assert directly["status"] == "duplicate"


async def test_a_queued_retry_is_a_duplicate_even_after_its_season_closed(service: Service) -> None:
    ends_at = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    for board in ("s", "t"):
        season = {"columns": COLUMNS, "closes_at": ends_at, "grace_seconds": 0}
        await service.must("PUT", f"/v1/leaderboards/{board}", season)
    post = {"owner": "ada", "stats": {"xp": 7}, "post_id": "p"}
    await service.must("POST", "/v1/leaderboards/s/posts", post)
    await _restart_days_later(service, 2)
    for path, body in (("leaderboards/s/posts", post), ("posts", {**post, "boards": ["t", "s"]})):
        assert await _count_duplicates(service, f"/v1/{path}?mode=queued", body) == 1
        await _check_others_refused(service, f"/v1/{path}?mode=queued", body)
    state = await service.get("/v1/leaderboards/s/posts/p?owner=ada")
    assert (state["status"], state["stats"]) == ("applied", {"xp": 7})
    assert await service.refused("POST", "/v1/leaderboards/t/posts?mode=queued", post) == (409, "period_closed")


async def _count_duplicates(service: Service, path: str, body: object) -> int:
    answer = await service.call("POST", path, body)
    assert answer.status == 202, answer.body
    count: int = answer.body["duplicates"]
    return count


async def _check_others_refused(service: Service, path: str, applied: dict[str, Any]) -> None:
    """Check that the service accepts repeated posts, but refuses new posts to the same boards, alone or in a list."""
    other, unnamed = {**applied, "stats": {"xp": 8}}, {**applied, "post_id": "other"}
    assert await service.refused("POST", path, other) == (409, "post_id_conflict")
    assert await service.refused("POST", path, unnamed) == (409, "period_closed")
    answer = await service.call("POST", path, {"posts": [applied, unnamed]})
    assert (answer.status, answer.body["code"]) == (409, "period_closed")
    assert [error["pointer"] for error in answer.body["errors"]] == ["/posts/1/at"]
    assert await _count_duplicates(service, path, {"posts": [applied, applied]}) == 2
    assert (await service.get("/v1/queue"))["posts"] == 0, "no retry waits"


async def test_a_list_may_hold_retries_of_a_closed_period_beside_new_posts(service: Service) -> None:
    await service.must("PUT", "/v1/families/daily", {**FAMILY, "periods": ["day"], "grace_seconds": 0})
    old = {"owner": "ada", "stats": {"xp": 7}, "post_id": "old", "at": datetime.now(UTC).isoformat()}
    await service.must("POST", "/v1/families/daily/posts", old)
    await _restart_days_later(service, 2)
    new = {"owner": "ada", "stats": {"xp": 5}, "post_id": "new"}
    answer = await service.call("POST", "/v1/families/daily/posts?mode=queued", {"posts": [old, new]})
    assert (answer.status, answer.body) == (202, {"accepted": 2, "duplicates": 1})
    board = (await service.get("/v1/families/daily/boards?period=day"))["board"]
    assert (await wait_settled(service, "new", f"/v1/leaderboards/{escaped(board)}"))["stats"] == {"xp": 5}
