"""Test posts whose results have the positions of their owners: the same as requests for positions get afterwards."""

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from service.views.posts import posted_positions
from service.views.posts.posted_positions import POSITIONED_POSTS_MAX
from storage.errors import StoreBusyError
from tests.service.real_service import ONE_PROCESS, Caller, Service, without

B, F = "/v1/leaderboards/b", "/v1/families/f"
XP: dict[str, Any] = {"name": "xp", "merge": "last"}
KILLS: dict[str, Any] = {"name": "kills", "merge": "max"}
LAP: dict[str, Any] = {"name": "lap", "merge": "last", "best": "low", "scale": 2}
FAMILY: dict[str, Any] = {"columns": [XP, KILLS], "periods": ["all", "day"], "facets": [[], ["clan"]]}
OWNERS = [f"o{number}" for number in range(12)]


@pytest.fixture
async def running(tmp_path: Path, either_store: dict[str, Any]) -> AsyncIterator[Service]:
    async with Service(tmp_path, **either_store).running() as service:
        yield service


async def take(service: Caller, query: str, *posts: object, path: str = B) -> list[dict[str, Any]]:
    body = await service.must("POST", f"{path}/posts?{query}", {"posts": posts})
    results: list[dict[str, Any]] = body["results"]
    return results


async def read(service: Caller, owner: str, columns: str, board: str = "b") -> list[dict[str, Any]]:
    """Return an owner's positions without the time, which differs from that of an earlier answer."""
    found = await service.get(f"/v1/leaderboards/{board}/entries/{owner}/positions?columns={columns}")
    positions: list[dict[str, Any]] = without(found["positions"], "as_of")
    return positions


def post(owner: str, post_id: str | None = None, **stats: object) -> dict[str, Any]:
    return {"owner": owner, "stats": stats} | ({} if post_id is None else {"post_id": post_id})


@pytest.mark.parametrize("spec", [{}, {"segments": 3}, {"ties": "earliest"}], ids=str)
async def test_results_have_the_positions_of_the_whole_request_in_the_order_asked_for(
    running: Service, spec: dict[str, Any]
) -> None:
    await running.board("b", XP, KILLS, {"name": "tag", "sorted": False, "type": "text"}, **spec)
    results = await take(running, "positions=kills,xp", post("a", xp=1, kills=5), post("b", xp=2), post("a", xp=3))
    for result in results:
        assert without(result["positions"], "as_of") == await read(running, result["owner"], "kills,xp")
    [_, without_kills, again] = results
    assert without_kills["positions"][0] == {"column": "kills", "value": None, "rank": None}
    assert [each["rank"] for each in again["positions"]] == [1, 1]
    single = await running.must("POST", f"{B}/posts?positions=xp", post("b", xp=4))
    assert [each["rank"] for each in single["results"][0]["positions"]] == [1]
    assert "positions" not in (await running.post("b", post("b", xp=5)))[0]


@pytest.mark.parametrize("segments", [1, 3])
async def test_ranks_before_are_those_of_the_earlier_values_now(running: Service, segments: int) -> None:
    await running.board("b", XP, LAP, segments=segments)
    await compare_with_a_plain_model(running, {})


@ONE_PROCESS
async def test_ranks_near_the_knots_of_a_curve_and_ranks_before_them_are_of_one_snapshot(running: Service) -> None:
    await running.board("b", XP, LAP, predictor={"samples": 16, "exact_top": 0})
    stored = await compare_with_a_plain_model(running, {})
    await running.refresh("b", "xp", "lap")
    await compare_with_a_plain_model(running, stored)


Stored = dict[str, dict[str, int]]  # values by column and by owner


async def compare_with_a_plain_model(service: Service, stored: Stored) -> Stored:
    """Post random values. Compare each rank, and each rank before a post, with the stored values."""
    rng, low = random.Random(len(stored)), {"xp": False, "lap": True}
    stored = stored or {name: {} for name in low}
    for _ in range(8):
        posts: list[dict[str, Any]] = []
        for owner in rng.choices(OWNERS, k=5):
            columns = rng.sample(sorted(low), rng.randint(1, 2))
            posts.append({"owner": owner, "stats": {name: rng.randrange(30) for name in columns}})
        before = []
        for each in posts:
            before.append({name: stored[name].get(each["owner"]) for name in low})
            for name, value in each["stats"].items():
                stored[name][each["owner"]] = value
        results = await take(service, "positions=xp,lap&moved=true", *posts)
        for had, result in zip(before, results, strict=True):
            for position in result["positions"]:
                column, owner = position["column"], result["owner"]
                values = had[column], stored[column].get(owner)
                expected = [rank_of(stored[column], each, owner, low=low[column]) for each in values]
                found = [position["rank_before"], position["rank"]]
                if position.get("method") != "knot":  # the curve knows the rank as of a time before the post
                    assert found == expected
    return stored


def rank_of(values: dict[str, int], value: int | None, owner: str, *, low: bool) -> int | None:
    """Return the rank that a value of an owner has among the values of the others."""
    others = [other for name, other in values.items() if name != owner]
    return None if value is None else 1 + sum(other < value if low else other > value for other in others)


async def test_the_rank_before_respects_the_order_of_equal_values(running: Service) -> None:
    await running.board("b", XP, ties="earliest")
    at = [f"2026-01-01T00:00:0{second}Z" for second in range(5)]
    await running.post("b", *({**post(owner, xp=5), "at": each} for owner, each in zip("abc", at, strict=False)))
    [result] = await take(running, "positions=xp&moved=true", {**post("b", xp=6), "at": at[3]})
    assert [(each["rank_before"], each["rank"]) for each in result["positions"]] == [(2, 1)]
    [result] = await take(running, "positions=xp&moved=true", {**post("b", xp=5), "at": at[4]})
    assert [(each["rank_before"], each["rank"]) for each in result["positions"]] == [(1, 3)]


async def test_a_value_that_is_cleared_has_only_a_rank_before(running: Service) -> None:
    await running.board("b", XP, KILLS)
    await running.post("b", post("a", xp=5, kills=1), post("b", xp=9))
    [result] = await take(running, "positions=xp&moved=true", {"owner": "a", "set": {"xp": None}})
    assert result["positions"] == [{"column": "xp", "value": None, "rank": None, "rank_before": 2}]


async def test_each_board_of_a_family_has_positions_of_its_own(running: Service) -> None:
    await running.must("PUT", F, FAMILY)
    await take(running, "", {**post("a", xp=9), "facets": {"clan": "red"}}, path=F)
    sent = {**post("b", "one", xp=5), "facets": {"clan": "fox"}}
    [result] = await take(running, "positions=xp,kills&moved=true", sent, path=F)
    assert "positions" not in result
    ranks = {each["board"].partition(":")[2]: each["positions"][0]["rank"] for each in result["boards"]}
    assert sorted(ranks.values()) == [1, 1, 2, 2]
    assert (ranks["all"], ranks["all:clan=fox"]) == (2, 1)
    for each in result["boards"]:
        assert [position.pop("rank_before") for position in each["positions"]] == [None, None]
        assert without(each["positions"], "as_of") == await read(running, "b", "xp,kills", each["board"])
    await take(running, "", {**post("c", xp=7), "facets": {"clan": "fox"}}, path=F)
    [again] = await take(running, "positions=xp&moved=true", sent, path=F)
    assert again["status"] == "duplicate"
    found = {each["board"].partition(":")[2]: each["positions"][0] for each in again["boards"]}
    assert found["all"]["rank"] == 3, "the position of now"
    assert not any("rank_before" in each for each in found.values())


async def test_a_closed_period_that_refuses_a_post_has_no_positions(running: Service) -> None:
    await running.must("PUT", F, {**FAMILY, "facets": [[]]})
    late = {**post("a", xp=9), "at": "2020-01-01T00:00:00Z"}
    [result] = await take(running, "positions=xp", late, path=F)
    assert {each["status"]: "positions" in each for each in result["boards"]} == {"applied": True, "rejected": False}


async def test_duplicates_have_positions_of_now_and_no_rank_before(running: Service) -> None:
    await running.board("b", XP)
    sent = post("a", "one", xp=5)
    first, second = await take(running, "positions=xp&moved=true", sent, sent)
    assert (first["status"], first["positions"][0]["rank_before"]) == ("applied", None)
    assert second["status"] == "duplicate"
    assert "rank_before" not in second["positions"][0]
    await running.post_xp("b", b=7)
    [again] = await take(running, "positions=xp&moved=true", sent)
    assert (again["positions"][0]["rank"], "rank_before" in again["positions"][0]) == (2, False)
    [unchanged] = await take(running, "positions=xp&moved=true", post("a", xp=5))
    assert (unchanged["status"], unchanged["positions"][0]["rank_before"]) == ("unchanged", 2)


async def test_refused_posts_have_no_positions_and_hidden_owners_no_ranks(running: Service) -> None:
    await running.board("b", {**XP, "max": 10})
    await running.post_xp("b", a=5, b=7)
    await running.must("PUT", "/v1/owners/a/hidden")
    hidden, refused, applied = await take(
        running, "positions=xp&moved=true", post("a", xp=9), post("b", xp=11), post("c", xp=6)
    )
    assert hidden["positions"] == [{"column": "xp", "value": None, "rank": None, "rank_before": None}]
    assert "positions" not in refused
    assert [(each["rank"], each["rank_before"]) for each in applied["positions"]] == [(2, None)]


REFUSED = [
    ("positions=no", 422, "unknown_column"), ("positions=tag", 422, "unknown_column"),
    ("positions=xp&mode=queued", 400, "bad_request"), ("positions=", 400, "bad_request"),
    ("moved=true", 400, "bad_request"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "status", "code"), REFUSED)
async def test_a_faulty_request_for_positions_applies_nothing(
    running: Service, query: str, status: int, code: str
) -> None:
    await running.board("b", XP, {"name": "tag", "sorted": False, "type": "text"})
    await running.must("PUT", F, {**FAMILY, "columns": [XP, {"name": "tag", "type": "text", "merge": "last"}]})
    for path in (B, F):
        assert await running.refused("POST", f"{path}/posts?{query}", post("a", xp=1)) == (status, code)
    assert await running.refused("GET", f"{B}/entries/a") == (404, "unknown_owner")


async def test_a_request_for_positions_has_a_bounded_number_of_posts_to_one_board(running: Service) -> None:
    await running.board("b", XP)
    many = [post(f"o{number}", xp=number) for number in range(POSITIONED_POSTS_MAX + 1)]
    refused = await running.call("POST", f"{B}/posts?positions=xp", {"posts": many})
    assert (refused.status, refused.body["code"]) == (400, "too_many_posts")
    assert "101" in refused.body["detail"]
    assert await running.refused("GET", f"{B}/entries/o1") == (404, "unknown_owner")
    results = await take(running, "positions=xp&moved=true", *many[1:])
    assert [each["positions"][0]["rank"] for each in results] == list(range(POSITIONED_POSTS_MAX, 0, -1))
    named = {**post("a", xp=1), "boards": ["b"]}
    assert await running.refused("POST", "/v1/posts?positions=xp", named) == (400, "unknown_field")


async def test_a_column_that_another_process_has_just_added_has_positions(
    tmp_path: Path, either_store: dict[str, Any]
) -> None:
    async with Service(tmp_path, jobs="none", **either_store).running() as first:
        other = first
        if "store" in either_store:
            other = Service(tmp_path, jobs="none", **either_store)
            await other.start()
        await first.board("b", XP)
        await first.must("PUT", F, {**FAMILY, "columns": [XP]})
        for _ in range(2):
            await other.post_xp("b", a=1)
            await take(other, "", post("a", xp=1), path=F)
        await first.board("b", XP, KILLS)
        await first.must("PUT", F, FAMILY)
        for path in (B, F, B, F):
            [result] = await take(other, "positions=kills", post("a", kills=3), path=path)
            found = result.get("boards", [result])[0]
            assert [each["value"] for each in found["positions"]] == [3]
        if other is not first:
            await other.stop()


@ONE_PROCESS
async def test_a_busy_process_reads_ranks_off_the_curve(tmp_path: Path, either_store: dict[str, Any]) -> None:
    async with Service(tmp_path, crowd_min=2, exact_gap_rows_max=0, **either_store).running() as service:
        await service.board("b", XP, predictor={"samples": 10, "exact_top": 0})
        await service.post("b", *(post(f"o{number:04}", xp=number) for number in range(1_000)))
        await service.refresh("b", "xp")
        service.keep_busy()
        [result] = await take(service, "positions=xp&moved=true", post("o0005", xp=505))
        [position] = result["positions"]
        assert position["method"] in ("curve", "knot")
        assert position["low"] <= 495 <= position["high"]
        assert position["rank"] <= position["rank_before"]


@ONE_PROCESS
async def test_positions_that_cannot_be_read_leave_the_outcome_to_a_retry(
    running: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running.board("b", XP)

    async def fail(*_: object) -> None:
        raise StoreBusyError

    monkeypatch.setattr(posted_positions, "_add_positions", fail)
    sent = post("a", "one", xp=5)
    assert await running.refused("POST", f"{B}/posts?positions=xp", sent) == (503, "timeout")
    monkeypatch.undo()
    [result] = await take(running, "positions=xp", sent)
    assert (result["status"], result["positions"][0]["rank"]) == ("duplicate", 1)
