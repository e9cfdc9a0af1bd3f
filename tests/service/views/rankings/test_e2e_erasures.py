"""Test requests that erase many entries of a leaderboard: they leave what erasing the entries one by one leaves."""

import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from storage import entry_erasures
from storage.queue.queue_erasure import drop_queued_of
from tests.service.closing import close_as_of
from tests.service.real_service import ONE_PROCESS, Service, without

B = "/v1/leaderboards/b"
ERASE = "/entries/erase"
XP: dict[str, Any] = {"name": "xp", "merge": "last"}
LAP: dict[str, Any] = {"name": "lap", "merge": "last", "best": "low", "scale": 2}
SPECS: list[dict[str, Any]] = [{}, {"segments": 3}, {"ties": "earliest"}]


@pytest.fixture
async def running(tmp_path: Path, either_store: dict[str, Any]) -> AsyncIterator[Service]:
    async with Service(tmp_path, jobs="none", **either_store).running() as service:
        yield service


async def fill(service: Service, *boards: str, owners: int = 40, **spec: Any) -> None:
    """Create boards with the same random values, some of them equal, and some missing."""
    rng = random.Random(owners)
    posts = [
        {
            "owner": f"o{number:02}",
            "stats": {"xp": rng.randrange(12)} | ({"lap": f"{rng.randrange(9)}.5"} if number % 3 else {}),
            "post_id": f"p{number}",
        }
        for number in range(owners)
    ]
    for board in boards:
        await service.board(board, XP, LAP, **spec)
        await service.post(board, *posts)


async def rows(service: Service, column: str = "xp", board: str = "b") -> list[dict[str, Any]]:
    page = await service.get(f"/v1/leaderboards/{board}/rankings/{column}?limit=1000")
    assert page["total"] == len(page["entries"])
    entries: list[dict[str, Any]] = without(page["entries"], "updated_at", "reached_at")
    return entries


async def journal(service: Service, board: str) -> list[Any]:
    lines = (await service.call("GET", "/v1/journal?limit=1000")).body
    return [without(line, "seq", "accepted_at", "board") for line in lines if line.get("board") == board]


@pytest.mark.parametrize("spec", SPECS, ids=str)
async def test_owners_are_erased_as_one_by_one(running: Service, spec: dict[str, Any]) -> None:
    await fill(running, "b", "single", **spec)
    await running.must("PUT", "/v1/owners/o05/hidden")
    gone = [f"o{number:02}" for number in (1, 5, 7, 20, 39)]
    sent = {"owners": [*gone, "o01", "nobody"]}
    assert await running.must("POST", B + ERASE, sent) == {"erased": 5, "more": False}
    assert await running.must("POST", B + ERASE, sent) == {"erased": 0, "more": False}
    for owner in gone:
        await running.must("DELETE", f"/v1/leaderboards/single/entries/{owner}")
    for column in ("xp", "lap"):
        assert await rows(running, column) == await rows(running, column, "single")
    found, single = await journal(running, "b"), await journal(running, "single")
    assert sorted(map(str, found)) == sorted(map(str, single))
    assert not any(line.get("owner") in gone for line in found)
    assert (await running.get(B))["entries"] == (await running.get("/v1/leaderboards/single"))["entries"] == 35
    [again] = await running.post("b", {"owner": "o01", "stats": {"xp": 3}, "post_id": "new"})
    assert again["status"] == "applied"
    assert any(line.get("owner") == "o01" for line in await journal(running, "b"))


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("column", ["xp", "lap"])
async def test_rows_are_erased_from_a_row_of_the_pages_on(running: Service, spec: dict[str, Any], column: str) -> None:
    await fill(running, "b", **spec)
    before = await rows(running, column)
    without_value = (await running.get(B))["entries"] - len(before)
    for left in (len(before) - 1, 17, 10, 1, 0):
        erased = {"erased": len(before) - left, "more": False}
        assert await running.must("POST", B + ERASE, {"column": column, "from_rank": left + 1}) == erased
        before = before[:left]
        assert await rows(running, column) == before
        assert await running.must("POST", B + ERASE, {"column": column, "from_rank": left + 1}) == {
            "erased": 0,
            "more": False,
        }
    assert (await running.get(B))["entries"] == without_value, "entries without a value stay"


@pytest.mark.parametrize("spec", SPECS, ids=str)
async def test_rows_worse_than_a_value_are_erased(running: Service, spec: dict[str, Any]) -> None:
    await fill(running, "b", **spec)
    for column, limits in (("xp", (-1, 4, "7")), ("lap", (100, "6.5", 3.5))):
        for limit in limits:
            before, low = await rows(running, column), column == "lap"
            kept = [row for row in before if (row["value"] <= float(limit) if low else row["value"] >= float(limit))]
            expected = {"erased": len(before) - len(kept), "more": False}
            assert await running.must("POST", B + ERASE, {"column": column, "worse_than": limit}) == expected
            assert [row["owner"] for row in await rows(running, column)] == [row["owner"] for row in kept]


@pytest.mark.parametrize("segments", [1, 3])
async def test_a_request_erases_a_bounded_number_of_rows_and_says_whether_more_are_left(
    running: Service, monkeypatch: pytest.MonkeyPatch, segments: int
) -> None:
    monkeypatch.setattr(entry_erasures, "ERASED_ROWS_MAX", 10)
    monkeypatch.setattr(entry_erasures, "STEP_ROWS", 4)
    await fill(running, "b", segments=segments)
    kept = (await rows(running))[:15]
    sent = {"column": "xp", "from_rank": 16}
    answers = [await running.must("POST", B + ERASE, sent) for _ in range(4)]
    assert [each["erased"] for each in answers] == [10, 10, 5, 0]
    assert [each["more"] for each in answers] == [True, True, False, False]
    assert await rows(running) == kept


@ONE_PROCESS
async def test_an_owner_who_improves_meanwhile_stays(running: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    await running.board("b", XP)
    await running.post_xp("b", a=1, b=2, c=9)

    async def improve(*given: Any) -> None:
        await running.post_xp("b", a=10)
        await drop_queued_of(*given)

    monkeypatch.setattr(entry_erasures, "drop_queued_of", improve)
    assert (await running.must("POST", B + ERASE, {"worse_than": 5}))["erased"] == 1
    assert [row["owner"] for row in await rows(running)] == ["a", "c"]


async def test_queued_posts_of_erased_owners_are_dropped(running: Service) -> None:
    await running.board("b", XP)
    await running.post_xp("b", a=1, b=9)
    queued = [{"owner": owner, "stats": {"xp": 8}} for owner in "ab"]
    assert (await running.call("POST", f"{B}/posts?mode=queued", {"posts": queued})).status == 202
    assert (await running.must("POST", B + ERASE, {"worse_than": 5}))["erased"] == 1
    assert (await running.get("/v1/queue"))["posts"] == 1


async def test_an_archived_leaderboard_keeps_its_entries(tmp_path: Path) -> None:
    end = datetime.now(UTC) + timedelta(days=1)
    async with Service(tmp_path, jobs="none").running() as service:
        times = {"closes_at": end.isoformat(), "grace_seconds": 0, "keep_seconds": 0}
        await service.board("b", XP, **times)
        await service.post_xp("b", a=1)
        await close_as_of(service, end)
        for sent in ({"owners": ["a"]}, {"from_rank": 1}, {"worse_than": 5}):
            assert await service.refused("POST", B + ERASE, sent) == (410, "archived")


REFUSED: list[tuple[dict[str, Any], tuple[int, str]]] = [
    ({}, (400, "bad_request")), ({"column": "xp"}, (400, "bad_request")),
    ({"owners": ["a"], "column": "xp"}, (400, "bad_request")),
    ({"owners": ["a"], "from_rank": 1}, (400, "bad_request")),
    ({"from_rank": 1, "worse_than": 1}, (400, "bad_request")), ({"owners": ["\n"]}, (400, "bad_request")),
    ({"owners": ["a"] * 1001}, (400, "too_many_owners")), ({"column": "no", "from_rank": 1}, (404, "unknown_column")),
    ({"column": "xp", "from_rank": 0}, (422, "bad_rank")), ({"column": "xp", "worse_than": "x"}, (422, "bad_value")),
    ({"column": "xp", "worse_than": 1.5}, (422, "bad_value")), ({"from_rank": 1}, (400, "column_needed")),
    ({"column": "xp", "worse_than": 10**16}, (422, "value_out_of_range")),
]  # fmt: skip


async def test_a_faulty_request_erases_nothing(service: Service) -> None:
    await fill(service, "b")
    before = await rows(service)
    for sent, refusal in REFUSED:
        assert await service.refused("POST", B + ERASE, sent) == refusal, sent
    assert await rows(service) == before
    assert await service.refused("POST", f"/v1/leaderboards/none{ERASE}", {"owners": ["a"]}) == (404, "unknown_board")
    ops = await service.create_first_key()
    writer = (await service.must("POST", "/v1/keys", {"name": "writer", "role": "writer"}))["key"]
    body = {"owners": ["o01"]}
    denied = await service.call("POST", B + ERASE, body, {"Authorization": f"Bearer {writer}"})
    assert denied.status == 403
    assert ops


@pytest.mark.parametrize("spec", SPECS, ids=str)
async def test_rows_around_a_place_fill_the_page_at_an_edge(running: Service, spec: dict[str, Any]) -> None:
    await fill(running, "b", **spec)
    every = await rows(running)
    edges = [*range(7), 20, *range(len(every) - 7, len(every))]
    for better, worse in ((3, 2), (0, 4), (5, 0), (45, 2), (0, 0)):
        size = min(len(every), better + worse + 1)
        for number, row in ((number, every[number]) for number in edges):
            path = f"{B}/entries/{row['owner']}/around?column=xp&better={better}&worse={worse}"
            first = max(0, min(number - better, len(every) - size))
            page = await running.get(f"{path}&fill=true")
            assert without(page["entries"], "updated_at", "reached_at") == every[first : first + size]
            assert (page["prev"] is None, page["next"] is None) == (first == 0, first + size == len(every))
            plain = await running.get(path)
            expected = every[max(0, number - better) : number + worse + 1]
            assert without(plain["entries"], "updated_at", "reached_at") == expected
    for value, first in ((100, 0), (-100, len(every) - 6)):
        page = await running.get(f"{B}/rankings/xp/around?value={value}&better=4&worse=2&fill=true")
        assert without(page["entries"], "updated_at", "reached_at") == every[first : first + 6]
