"""Test special boards of a family: boards of times long past, boards without posts, and closed boards."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.service.closing import close_as_of
from tests.service.real_service import ONE_PROCESS, RARELY
from tests.service.views.boards.test_e2e_histories import Played, path

F = "/v1/families/game"
NOW = datetime(2037, 3, 27, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=3 * 366)
SPEC: dict[str, Any] = {
    "columns": [
        {"name": "xp", "sorted": True, "merge": "sum"},
        {"name": "lap", "sorted": True, "merge": "min", "best": "low"},
    ],
    "periods": ["all", "month", "day"],
    "facets": [[], ["org"], ["location", "org"]],
    "predictor": RARELY,
}


@pytest.fixture
async def service(either_store: dict[str, Any], tmp_path: Path) -> AsyncIterator[Played]:
    async with Played(tmp_path, jobs="none", **either_store).running() as made:
        await made.must("PUT", F, SPEC)
        yield made


def xp(owner: str, value: int, at: datetime | None = None, **more: Any) -> dict[str, Any]:
    when = {} if at is None else {"at": at.isoformat()}
    return {"owner": owner, "stats": {"xp": value}, **when, **more}


async def post(service: Played, *posts: dict[str, Any]) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = (await service.must("POST", f"{F}/posts", {"posts": posts}))["results"]
    return results


def statuses(result: dict[str, Any]) -> list[str]:
    return [each["status"] for each in result["boards"]]


async def read_closed(service: Played, period: str, at: datetime) -> tuple[bool | None, bool]:
    """Return whether a board is closed, by the family's list of boards and by the answer about the board itself."""
    told = await service.get(f"{F}/boards?period={period}&at={quote(at.isoformat())}")
    return told["period"]["closed"], (await service.get(path(told["board"])))["closed"]


@ONE_PROCESS
async def test_a_refresh_of_a_board_without_posts_answers_an_empty_curve(service: Played) -> None:
    refresh = f"{path('game:all:org=7')}/rankings/xp/refresh"
    for _ in range(2):
        answer = await service.must("POST", refresh)
        assert (answer["column"], answer["method"], answer["total"], answer["certificate"]) == ("xp", "scan", 0, 0)
    assert await service.refused("POST", refresh.replace("/xp/", "/no/")) == (404, "unknown_column")
    assert await service.refused("GET", refresh.replace("refresh", "curve")) == (404, "no_curve")


@ONE_PROCESS
async def test_the_family_and_the_board_agree_whether_the_board_is_closed(service: Played) -> None:
    assert await read_closed(service, "day", LONG_AGO) == (True, True), "nobody posted to it"
    assert await read_closed(service, "day", NOW) == (False, False), "nobody posted to this board either"
    assert await read_closed(service, "all", NOW) == (None, False)
    await post(service, xp("ada", 5))
    assert await read_closed(service, "day", NOW) == (False, False)
    over = NOW + timedelta(days=1, hours=14)
    service.now.now_us = round(over.timestamp() * 1e6)
    assert await read_closed(service, "day", NOW) == (True, True), "closed before a job has run"
    await close_as_of(service, over)
    listed = (await service.get("/v1/leaderboards"))["leaderboards"]
    closed = {each["id"]: each["closed"] for each in listed}
    assert closed == {"game:all": False, "game:2037-03": False, "game:2037-03-27": True}
    service.pass_days(-2)
    assert await read_closed(service, "day", NOW) == (True, True), "the board stays closed after the clock steps back"
    assert await read_closed(service, "day", NOW - timedelta(days=1)) == (True, True), "the day before stays closed too"
    [late] = await post(service, xp("ada", 5, NOW))
    assert statuses(late) == ["applied", "applied", "rejected"]


async def test_every_page_of_facet_values_within_another_facet_is_full(service: Played) -> None:
    wanted = [("1", f"loc{number}") for number in range(5)]
    others = [(org, f"loc{number}") for org in ("0", "11", "2", "x1") for number in range(7)]
    await post(service, *(xp("ada", 1, facets={"org": org, "location": place}) for org, place in wanted + others))
    for facet, within, found in (
        ("location", "org=1", [place for _, place in wanted]),
        ("org", "location=loc3", ["0", "1", "11", "2", "x1"]),
    ):
        pages = service.pages(f"{F}/facets?facet={facet}&period=all&{within}&limit=2")
        walked = [[each["value"] for each in page["values"]] async for page in pages]
        assert walked == [found[:2], found[2:4], found[4:]]


async def test_a_facet_value_whose_entries_were_erased_is_listed_with_none(service: Played) -> None:
    await post(service, *(xp(f"o{org}", 1, facets={"org": str(org)}) for org in range(4)))
    for org in (0, 3):
        await service.must("DELETE", f"{path(f'game:all:org={org}')}/entries/o{org}")
    pages = service.pages(f"{F}/facets?facet=org&period=all&limit=2")
    walked = [[(each["value"], each["entries"]) for each in page["values"]] async for page in pages]
    assert walked == [[("0", 0), ("1", 1)], [("2", 1), ("3", 0)]]


async def test_an_owner_without_an_entry_this_period_still_sees_its_previous_position(service: Played) -> None:
    await post(service, xp("ada", 5), xp("bob", 7))
    today = f"{path('game:2037-03-28')}/entries/ada/positions"
    service.pass_days(1)
    for _ in range(2):  # in the first round nobody has posted on this day; in the second round bob has
        told = await service.get(f"{today}?columns=xp,lap&compare=previous")
        position, other = told["positions"]
        assert (position["column"], position["value"], position["rank"]) == ("xp", None, None)
        previous = position["previous"]
        assert (previous["board"], previous["position"]["rank"]) == ("game:2037-03-27", 2)
        assert previous["value_position"] is None
        assert (other["rank"], other["previous"]["position"]) == (None, None)
        await post(service, xp("bob", 1))
    assert await service.refused("GET", today) == (404, "unknown_owner")
    assert await service.refused("GET", f"{today}?columns=lap&compare=previous") == (404, "unknown_owner")
    nobody = today.replace("ada", "nobody")
    assert await service.refused("GET", f"{nobody}?compare=previous") == (404, "unknown_owner")
    await post(service, {"owner": "ada", "stats": {"lap": 60}})
    assert await service.refused("GET", f"{today}?columns=xp") == (404, "not_ranked")
    [position] = (await service.get(f"{today}?columns=xp&compare=previous"))["positions"]
    assert (position["rank"], position["previous"]["position"]["rank"]) == (None, 2)
