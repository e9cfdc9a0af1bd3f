"""Test that two accounts of one person become one, through one process while another one answers."""

import asyncio
import signal
from pathlib import Path
from typing import Any

from tests.service.copied_boards import Processes, fronts_and_owner, services
from tests.service.killed_merges import BOARDS, KilledMerges
from tests.service.real_service import Caller, Process, Service, Spawn

XP = {"name": "xp", "merge": "sum", "sorted": True}


async def test_what_one_front_merges_another_one_refuses_and_reads(tmp_path: Path) -> None:
    async with fronts_and_owner(tmp_path) as processes:
        await merge_and_read(processes)


async def test_what_one_service_merges_another_one_refuses_and_reads(tmp_path: Path, store_url: str) -> None:
    async with services(tmp_path, store_url) as processes:
        await merge_and_read(processes)


async def test_owners_are_merged_across_partitions(tmp_path: Path, partitions_url: str) -> None:
    async with services(tmp_path, partitions_url) as processes:
        await merge_and_read(processes)


async def merge_and_read(two: Processes) -> None:
    one, other = two.one, two.other
    for board in ("a", "b"):
        await one.board(board, XP, **({"segments": 3} if board == "b" else {}))
        await other.post_xp(board, guest=1, ada=2, bob=9)
        await other.post(board, {"owner": "guest", "stats": {"xp": 4}, "post_id": "run"})
    await one.must("PUT", "/v1/owners/guest/profile", {"name": "Guest"})
    merged = await one.must("POST", "/v1/owners/guest/merge", {"into": "ada", "from": "journal"})
    assert merged == {
        "owner": "guest",
        "into": "ada",
        "boards": [{"board": board, "status": "merged", "stats": {"xp": 7}} for board in ("a", "b")],
    }
    for caller in (one, other):
        assert await caller.must("POST", "/v1/owners/guest/merge", {"into": "ada"}) == merged
        for board in ("a", "b"):
            await check_merged(caller, board)
        assert await caller.get("/v1/owners/ada/profile") == {"owner": "ada", "profile": {"name": "Guest"}}
        await check_away(caller)
        assert {post["owner"] for post in (await caller.get("/v1/owners/ada/posts"))["posts"]} == {"guest", "ada"}
    voided = await other.must("DELETE", "/v1/leaderboards/b/posts/run?owner=ada")
    assert voided["boards"] == [{"board": "b", "status": "recomputed", "stats": {"xp": 3}}]
    assert await one.must("DELETE", "/v1/leaderboards/b/posts/run?owner=ada") == voided
    [line] = [line for line in (await one.get("/v1/owners/ada/posts"))["posts"] if line["kind"] == "void"]
    assert (line["owner"], line["stored"]) == ("ada", {"xp": 3})
    await one.must("DELETE", "/v1/owners/ada")
    assert await other.refused("GET", "/v1/leaderboards/a/entries/guest") == (404, "unknown_owner")
    await other.post_xp("a", guest=5)
    assert (await one.get("/v1/leaderboards/a/entries/guest"))["stats"] == {"xp": 5}


async def check_merged(caller: Caller, board: str) -> None:
    page = await caller.get(f"/v1/leaderboards/{board}/rankings/xp")
    assert [(row["owner"], row["value"]) for row in page["entries"]] == [("bob", 9), ("ada", 7)]
    [refused] = await caller.post(board, {"owner": "guest", "stats": {"xp": 1}, "post_id": "later"})
    assert (refused["status"], refused["error"]["code"]) == ("rejected", "owner_merged")
    [again] = await caller.post(board, {"owner": "guest", "stats": {"xp": 4}, "post_id": "run"})
    assert again["status"] == "duplicate"


async def check_away(caller: Caller) -> None:
    """Check that every request that names the earlier id says into whom it was merged."""
    at = "/v1/leaderboards/a/entries/guest"
    requests: list[tuple[str, str, Any]] = [
        ("GET", at, None), ("GET", f"{at}/positions", None), ("GET", f"{at}/around?column=xp", None),
        ("GET", "/v1/owners/guest/profile", None), ("PUT", "/v1/owners/guest/profile", {"name": "G"}),
        ("GET", "/v1/owners/guest/boards", None), ("GET", "/v1/owners/guest/posts", None), ("DELETE", at, None),
        ("PUT", "/v1/owners/guest/hidden", None), ("DELETE", "/v1/owners/guest/hidden", None),
        ("DELETE", "/v1/owners/guest", None), ("DELETE", "/v1/leaderboards/a/posts/run?owner=guest", None),
        ("GET", "/v1/leaderboards/a/posts/never?owner=guest", None),
    ]  # fmt: skip
    for method, path, body in requests:
        answer = await caller.call(method, path, body)
        found = answer.status, answer.body["code"], answer.body.get("into")
        assert found == (404, "owner_merged", "ada"), f"{method} {path}"


async def test_merges_that_make_no_sense_change_nothing(service: Service) -> None:
    await service.board("a", XP)
    await service.post_xp("a", ada=1, bob=2)
    refused = service.refused
    assert await refused("POST", "/v1/owners/ada/merge", {"into": "ada"}) == (422, "bad_value")
    assert await refused("POST", "/v1/owners/ada/merge", {"into": "bob", "from": "air"}) == (400, "bad_request")
    assert await refused("POST", "/v1/owners/ada/merge", {}) == (400, "bad_request")
    await service.must("POST", "/v1/owners/ada/merge", {"into": "bob"})
    assert await refused("POST", "/v1/owners/cy/merge", {"into": "ada"}) == (409, "merge_conflict")
    assert await refused("POST", "/v1/owners/ada/merge", {"into": "cy"}) == (409, "merge_conflict")
    assert (await service.get("/v1/leaderboards/a/entries/bob"))["stats"] == {"xp": 3}
    kinds = [
        (line["kind"], line["owner"], line.get("into"), line.get("stored")) for line in await service.get("/v1/journal")
    ]
    assert kinds[-2:] == [("merge", "ada", "bob", None), ("merge", "bob", None, {"xp": 3})]


async def test_a_queued_post_to_a_merged_owner_is_rejected_in_its_outcome(service: Service) -> None:
    await service.board("a", XP)
    await service.post_xp("a", ada=1, bob=2)
    await service.must("POST", "/v1/owners/ada/merge", {"into": "bob"})
    post = {"owner": "ada", "stats": {"xp": 1}, "post_id": "late"}
    await service.must("POST", "/v1/leaderboards/a/posts?mode=queued", post)
    await service.wait_applied()
    state = await service.get("/v1/leaderboards/a/posts/late?owner=ada")
    assert (state["status"], state["error"]["code"]) == ("rejected", "owner_merged")


async def test_a_hidden_account_hides_the_one_that_it_is_merged_into(service: Service) -> None:
    await service.board("a", XP)
    await service.post_xp("a", ada=1, bob=2, cy=3)
    await service.must("PUT", "/v1/owners/ada/hidden?reason=cheated")
    await service.must("POST", "/v1/owners/ada/merge", {"into": "bob"})
    page = await service.get("/v1/leaderboards/a/rankings/xp")
    assert [row["owner"] for row in page["entries"]] == ["cy"]
    entry = await service.get("/v1/leaderboards/a/entries/bob")
    assert (entry["hidden"], entry["stats"]) == (True, {"xp": 3})
    assert [each["owner"] for each in (await service.get("/v1/owners?hidden=true"))["owners"]] == ["bob"]
    await service.must("DELETE", "/v1/owners/bob/hidden")
    assert (await service.get("/v1/leaderboards/a"))["entries"] == 2


async def test_each_post_counts_once_although_the_service_is_killed_during_merges(spawn: Spawn) -> None:
    running: list[Process] = [spawn().ready()]

    async def kill(caller: Caller, new: str, asked: asyncio.Task[object]) -> None:
        path = f"/v1/leaderboards/{merges.rng.choice(BOARDS)}/entries/{new}"
        # Neither owner may have a post on this board. Then the merge ends first, and does not count as killed.
        while not asked.done() and (await caller.call("GET", path)).status != 200:
            pass
        running[-1].end(signal.SIGKILL)
        running.append(spawn().ready())
        caller.base = running[-1].url

    async with Caller(running[0].url) as caller:
        merges = KilledMerges(caller, kill, posts=40)
        await merges.create_boards()
        await merges.run(kills=1)
    assert merges.faults == []


async def test_erasing_entries_of_a_board_removes_the_earlier_ids_from_its_journal(service: Service) -> None:
    for board in ("a", "b"):
        await service.board(board, XP)
        await service.post_xp(board, ada=1, bob=2)
    await service.must("POST", "/v1/owners/ada/merge", {"into": "bob"})
    assert (await service.must("POST", "/v1/leaderboards/a/entries/erase", {"owners": ["bob"]}))["erased"] == 1
    await service.must("DELETE", "/v1/leaderboards/b/entries/bob")
    assert {line["owner"] for line in await service.get("/v1/journal")} == {None}
    assert (await service.must("POST", "/v1/owners/ada/merge", {"into": "bob"}))["boards"] == []
