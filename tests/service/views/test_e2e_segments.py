"""Compare a board of four segments in four partitions with a board of one segment that got the same posts."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from service.ranks.locator import WantedRank
from storage.boards.boards import find_board
from storage.leaves.count_policy import RankMode
from tests.service.cli_fake_service import run
from tests.service.event_stream import events_of
from tests.service.real_service import Service, without

OWNERS = [f"o{number:02}" for number in range(60)]
COLUMNS: list[dict[str, Any]] = [
    {"name": "xp", "sorted": True, "merge": "sum"},
    {"name": "lap", "sorted": True, "merge": "min", "best": "low", "scale": 2, "min": 0},
]
SPEC = {"columns": COLUMNS, "predictor": {"samples": 6, "exact_top": 4}}


@pytest.fixture
async def service(partitions_url: str, tmp_path: Path) -> AsyncIterator[Service]:
    async with Service(tmp_path, store=partitions_url).running() as made:
        yield made


async def fill(service: Service) -> None:
    await service.must("PUT", "/v1/leaderboards/one", SPEC)
    made = await service.must("PUT", "/v1/leaderboards/four", {**SPEC, "segments": 4})
    assert made["segments"] == 4
    assert "partition" not in made
    rng = random.Random(3)
    posts = []
    for owner in OWNERS:
        stats: dict[str, Any] = {"xp": rng.randrange(20)}
        if rng.random() < 0.7:
            stats["lap"] = f"{rng.randrange(30)}.5"
        posts.append({"owner": owner, "stats": stats, "post_id": "match", "at": "2026-01-01T00:00:00Z"})
    for board in ("one", "four"):
        answer = await service.must("POST", f"/v1/leaderboards/{board}/posts", {"posts": posts})
        assert {result["status"] for result in answer["results"]} == {"applied"}
        answer = await service.must("POST", f"/v1/leaderboards/{board}/posts", {"posts": posts})
        assert {result["status"] for result in answer["results"]} == {"duplicate"}
        listed = await service.get(f"/v1/leaderboards/{board}/posts/match")
        assert [each["owner"] for each in listed["posts"]] == OWNERS
        assert listed["posts"][7] == await service.get(f"/v1/leaderboards/{board}/posts/match?owner={OWNERS[7]}")


READS = [
    "/entries/o07", "/entries/o07/positions?rank=exact", "/entries/o07/positions?rank=exact&next=true",
    "/entries/o07/around?column=xp&better=3&worse=4", "/entries/o31/around?column=lap&better=30&worse=30",
    "/rankings/xp?limit=7", "/rankings/xp?limit=100", "/rankings/lap?limit=5&from_rank=9",
    "/rankings/xp/positions?values=0,5,19,30&rank=exact", "/rankings/xp/around?value=8&better=2&worse=3",
    "/rankings/xp/values?ranks=1,2,10,59,60", "/rankings/lap/values?percentiles=0,50,99",
    "/rankings/xp/buckets?buckets=4",
]  # fmt: skip


async def answers(service: Service, board: str) -> list[Any]:
    told = [await service.get(f"/v1/leaderboards/{board}{read}") for read in READS]
    return [without(each, "as_of", "updated_at", "method", "next", "prev", "board") for each in told]


async def test_every_answer_is_that_of_one_board(service: Service) -> None:
    await fill(service)
    for read, four, one in zip(READS, await answers(service, "four"), await answers(service, "one"), strict=True):
        assert four == one, read
    for column in ("xp", "lap"):
        for board in ("one", "four"):
            await service.must("POST", f"/v1/leaderboards/{board}/rankings/{column}/refresh")
    for read, four, one in zip(READS, await answers(service, "four"), await answers(service, "one"), strict=True):
        if "rank=exact" in read or "limit" in read:  # other answers may be read off the curves, which differ
            assert four == one, read
    audit = await service.must("POST", "/v1/leaderboards/four/rankings/xp/audit")
    assert (audit["outcome"], audit["brackets_broken"], audit["certificates_broken"]) == ("compared", 0, 0)
    assert audit["owners"] == len(OWNERS)
    for owner in OWNERS:
        (exact, *_) = (await service.get(f"/v1/leaderboards/one/entries/{owner}/positions?rank=exact"))["positions"]
        told = await service.get(f"/v1/leaderboards/four/entries/{owner}/positions?rank=estimate&columns=xp")
        assert told["positions"][0]["low"] <= exact["rank"] <= told["positions"][0]["high"]


async def test_pages_meet_every_entry_once_and_owners_leave_every_segment(service: Service) -> None:
    await fill(service)
    pages = service.pages("/v1/leaderboards/four/rankings/xp?limit=7")
    assert sorted([entry["owner"] async for page in pages for entry in page["entries"]]) == OWNERS
    for owner in OWNERS[:8]:
        assert (await service.call("DELETE", f"/v1/leaderboards/four/entries/{owner}")).status == 204
        assert (await service.call("DELETE", f"/v1/leaderboards/one/entries/{owner}")).status == 204
    await service.must("PUT", "/v1/owners/o20/hidden")
    assert await entries_of(service, "four") == await entries_of(service, "one") == len(OWNERS) - 9
    assert sorted(await owners_told(service)) == OWNERS[8:]  # the names of erased owners are erased there, too
    await service.must("POST", "/v1/leaderboards/four/reset")
    assert (await service.get("/v1/leaderboards/four"))["entries"] == 0
    assert (await service.call("DELETE", "/v1/leaderboards/four")).status == 204
    assert await service.refused("GET", "/v1/leaderboards/four") == (404, "unknown_board")


async def test_an_erased_owner_leaves_the_log_of_earlier_segments(service: Service, partitions_url: str) -> None:
    await fill(service)
    await asyncio.to_thread(run, "board", "split", "four", "3", "--store", partitions_url, code=0)
    post = {"owner": "o07", "stats": {"xp": 1}}
    await service.must("POST", "/v1/leaderboards/four/posts", post)
    assert (await service.call("DELETE", "/v1/leaderboards/four/entries/o07")).status == 204
    assert sorted(await owners_told(service)) == [owner for owner in OWNERS if owner != "o07"]
    lines = await service.get("/v1/journal?after=0&limit=1000")
    assert [line["kind"] for line in lines if line["board"] == "four"].count("move") == 1


async def test_a_split_board_keeps_its_time_in_the_order_by_activity(service: Service, partitions_url: str) -> None:
    await fill(service)
    await service.must("PUT", "/v1/leaderboards/idle", SPEC)
    await service.must("POST", "/v1/leaderboards/four/posts", {"owner": "o07", "stats": {"xp": 1}})

    async def list_active() -> list[tuple[str, str, int]]:
        listed = (await service.get("/v1/leaderboards?order=activity"))["leaderboards"]
        return [(board["id"], board["active_at"], board["entries"]) for board in listed]

    before = await list_active()
    assert [board for board, *_ in before] == ["four", "idle", "one"]
    for segments in ("3", "2"):
        await asyncio.to_thread(run, "board", "split", "four", segments, "--store", partitions_url, code=0)
        [first, *others] = await list_active()
        assert (first[0], first[2], others) == ("four", len(OWNERS), before[1:])
        assert first[1] >= before[0][1]


@pytest.mark.parametrize("ties", ["shared", "earliest"])
@pytest.mark.parametrize("has_curve", [False, True])
async def test_a_counted_rank_is_exact_as_of_its_time_whatever_arrives_in_the_segments_meanwhile(
    service: Service, ties: str, *, has_curve: bool
) -> None:
    spec = {**SPEC, "columns": [{"name": "xp", "merge": "last"}], "ties": ties, "segments": 4}
    await service.must("PUT", "/v1/leaderboards/b", spec)
    await service.post("b", *({"owner": owner, "stats": {"xp": 10 * i}} for i, owner in enumerate(OWNERS)))
    if has_curve:
        await service.refresh("b", "xp")
    context = service.context
    locator = context.ranks.find_locator(await context.catalog.find_board("b"))
    wanted = WantedRank(0, locator.entries.rankings[0].padding.pad_arrival(305), None)
    modes: tuple[RankMode, ...] = ("auto", "exact")
    begins = {mode: locator.begin_count(0, mode) for mode in modes}
    await service.post("b", *({"owner": f"new{i}", "stats": {"xp": 1000 + i}} for i in range(40)))
    await service.post("b", *({"owner": owner, "stats": {"xp": 1}} for owner in OWNERS[50:]))
    await service.must("DELETE", f"/v1/leaderboards/b/entries/{OWNERS[40]}")
    store = context.store.at(locator.board.reading_partition)
    for mode, begin in begins.items():
        assert (begin.start is not None) == has_curve
        found = await store.read(lambda: locator.count_rank(wanted, mode, begin))  # noqa: B023
        assert (found.rank, found.low, found.high, found.as_of_us) == (30, 30, 30, begin.asked_us), mode
        assert found.method == ("gap" if has_curve else "count")
        position = locator.make_position(wanted, found, {0: 20})
        assert position.total == 29, "no rank is past the entries plus one"
    (now,) = (await service.get("/v1/leaderboards/b/rankings/xp/positions?values=305&rank=exact"))["positions"]
    assert (now["rank"], now["exact"]) == (30 + 40 - 11, True)


async def entries_of(service: Service, board: str) -> int:
    return int((await service.get(f"/v1/leaderboards/{board}"))["entries"])


async def owners_told(service: Service) -> set[str]:
    """Return the owners of the applied posts in the journal of the board with segments."""
    lines = await service.get("/v1/journal?after=0&limit=1000")
    return {line["owner"] for line in lines if line["board"] == "four"} - {None}


async def test_a_stream_follows_the_top_of_all_segments_and_resumes(service: Service) -> None:
    await fill(service)
    path = "/v1/leaderboards/four/stream?column=xp&top=3"
    async with events_of(service.base, path) as stream:
        first = await stream.expect_event("top")
        assert first.data["total"] == len(OWNERS)
        for number, owner in enumerate(OWNERS[:8]):  # some in each segment
            await service.must(
                "POST", "/v1/leaderboards/four/posts", {"owner": owner, "stats": {"xp": 100 * (number + 1)}}
            )
            event = await stream.expect_event("top")
            assert event.rows[0][0] == owner
        last = event.text_id
    await service.must("POST", "/v1/leaderboards/four/posts", {"owner": "late", "stats": {"xp": 9_000}})
    async with events_of(service.base, path, last_id=last) as stream:
        event = await stream.expect_event("top")
        assert event.rows[0] == ("late", 9_000)
    async with events_of(service.base, path, last_id=17) as stream:  # the id of an event in one partition
        await stream.expect_event("reset")


async def test_a_process_that_follows_changed_segments_answers_as_the_process_that_changed_them(
    service: Service, partitions_url: str, tmp_path: Path
) -> None:
    tiers = [[{"name": name, "to_rank": 5}] for name in ("gold", "diamond")]
    board, path = "/v1/leaderboards/four", "/v1/leaderboards/four/rankings/xp?limit=7"
    await service.must(
        "PUT", board, {**SPEC, "columns": [{**COLUMNS[0], "tiers": tiers[0]}, COLUMNS[1]], "segments": 4}
    )
    await service.post("four", *({"owner": owner, "stats": {"xp": 1}} for owner in OWNERS))
    async with Service(tmp_path, store=partitions_url, jobs="none").running() as other:
        catalog = other.context.catalog
        for columns in (
            [{**COLUMNS[0], "tiers": tiers[1]}, COLUMNS[1]],
            [{**COLUMNS[0], "tiers": tiers[1]}, COLUMNS[1], {"name": "wins", "sorted": True, "merge": "sum"}],
        ):
            await other.get(path)
            await service.must("PUT", board, {**SPEC, "columns": columns, "segments": 4})
            await catalog.reread_boards(["four"])  # as the job that follows changes of boards does
            one, two = await service.call("GET", path), await other.call("GET", path)
            assert (two.status, two.body, two.headers["ETag"]) == (200, one.body, one.headers["ETag"])
            assert two.body["entries"][0]["tier"] == "diamond"
            assert catalog.find_known("four") == await other.context.store.read(lambda: find_board("four"))


async def test_what_cannot_have_segments_is_refused(service: Service) -> None:
    more: dict[str, Any]
    for more in ({"segments": 0}, {"segments": 65}):
        assert await service.refused("PUT", "/v1/leaderboards/b", {**SPEC, **more}) == (400, "bad_request")
    for more in ({"segments": 2, "table": "shared"}, {"segments": 2, "partition": 0}):
        assert await service.refused("PUT", "/v1/leaderboards/b", {**SPEC, **more}) == (422, "bad_spec")
    family = {**SPEC, "periods": ["all"], "facets": [[]], "segments": 2}
    assert (await service.call("PUT", "/v1/families/f", family)).status in (400, 422)
    await service.must("PUT", "/v1/leaderboards/b", {**SPEC, "segments": 2})
    assert await service.refused("PUT", "/v1/leaderboards/b", {**SPEC, "segments": 3}) == (409, "spec_conflict")
