"""Test families with periods of their own: seasons of any length, and bounds that are appended while posts go on."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.service.real_service import RARELY, Service

F = "/v1/families/arena"
NOW = datetime.now(UTC).replace(microsecond=0)


def local(**later: float) -> str:
    """Return a time in UTC as a family's spec names it."""
    return (NOW + timedelta(**later)).replace(tzinfo=None).isoformat()


BOUNDS = [local(days=-20), local(days=-10), local(days=10)]
SEASON = {"name": "season", "bounds": BOUNDS}
SPEC: dict[str, Any] = {
    "columns": [{"name": "xp", "merge": "sum"}], "periods": ["all", SEASON], "grace_seconds": 0, "predictor": RARELY,
}  # fmt: skip


@pytest.fixture
async def service(either_store: dict[str, Any], table: str, tmp_path: Path) -> AsyncIterator[Service]:
    async with Service(tmp_path, **either_store).running() as made:
        yield made


async def post(service: Service, xp: int, **later: float) -> dict[str, str]:
    """Post at a time, and return the status by board."""
    sent = {"owner": "ada", "stats": {"xp": xp}, "at": (NOW + timedelta(**later)).isoformat()}
    [result] = (await service.must("POST", f"{F}/posts", [sent]))["results"]
    return {each["board"]: each["status"] for each in result["boards"]}


async def test_a_post_reaches_the_season_of_its_time_which_aliases_name(service: Service) -> None:
    made = await service.must("PUT", F, SPEC)
    assert made["periods"] == ["all", SEASON]
    assert await post(service, 5) == {"arena:all": "applied", "arena:season-2": "applied"}
    assert await post(service, 1, days=-15) == {"arena:all": "applied", "arena:season-1": "rejected"}
    assert await post(service, 1, days=-30) == {"arena:all": "applied"}
    told = await service.get(f"{F}/boards?period=season")
    assert (told["board"], told["previous"], told["period"]["closed"]) == ("arena:season-2", "arena:season-1", False)
    assert told["period"]["starts_at"][:19] == BOUNDS[1]
    now = await service.get("/v1/leaderboards/arena:this-season/entries/ada")
    assert now["stats"] == {"xp": 5}
    assert (await service.get("/v1/leaderboards/arena:last-season"))["entries"] == 0
    path = "/v1/leaderboards/arena:season-2/entries/ada/positions?compare=previous"
    [position] = (await service.get(path))["positions"]
    assert position["previous"]["board"] == "arena:season-1"
    for board in ("arena:season-3", "arena:season-9", "arena:this-week", "arena:this-split", "arena:split-1"):
        assert await service.refused("GET", f"/v1/leaderboards/{board}") == (404, "unknown_board")
    early = (NOW - timedelta(days=21)).isoformat().replace("+", "%2B")
    assert await service.refused("GET", f"{F}/boards?period=season&at={early}") == (404, "unknown_board")


async def test_appended_bounds_count_at_once_at_every_process(service: Service) -> None:
    """With several processes, each request goes to the next one: none may use its copy of the old bounds."""
    ended = {**SEASON, "bounds": BOUNDS[:2]}
    await service.must("PUT", F, {**SPEC, "periods": ["all", ended]})
    for _ in range(3):
        assert await post(service, 1) == {"arena:all": "applied"}
        assert await service.refused("GET", "/v1/leaderboards/arena:this-season") == (404, "unknown_board")
    await service.must("PUT", F, SPEC)
    for number in range(3):
        assert await post(service, 1) == {"arena:all": "applied", "arena:season-2": "applied"}
        entry = await service.get("/v1/leaderboards/arena:this-season/entries/ada")
        assert entry["stats"] == {"xp": number + 1}


async def test_a_season_closes_is_archived_and_stays_in_the_history(service: Service) -> None:
    season = {"name": "season", "starts_at": local(hours=-50), "every": "PT24H"}
    spec = {**SPEC, "periods": [season], "grace_seconds": 86_400, "keep": {"season": 1}}
    await service.must("PUT", F, spec)
    assert await post(service, 7, hours=-27) == {"arena:season-1": "rejected"}
    assert await post(service, 7, hours=-20) == {"arena:season-2": "applied"}
    assert await post(service, 9) == {"arena:season-3": "applied"}
    await service.must("PUT", F, {**spec, "grace_seconds": 0})
    history = await service.get(f"{F}/owners/ada/history?period=season&column=xp")
    assert [(each["board"], each["position"]["value"]) for each in history["history"]] == [("arena:season-2", 7)]
    assert await post(service, 1, hours=-20) == {"arena:season-2": "rejected"}
    emptied = await service.must("POST", f"{F}/reset", {"period": "season"})
    assert (emptied["period"]["name"], emptied["boards"]) == ("season-3", 1)


@pytest.mark.parametrize(
    "period",
    [
        {"name": "season"},
        {"name": "season", "starts_at": local()},
        {"name": "season", "starts_at": local(), "every": "P1W", "bounds": BOUNDS},
        {"name": "week", "starts_at": local(), "every": "P1W"},
        {"name": "season", "starts_at": "2027-01-04T00:00:00Z", "every": "P1W"},
        {"name": "season", "starts_at": "2027-02-30T00:00:00", "every": "P1W"},
        {"name": "season", "bounds": BOUNDS[::-1]},
        {"name": "season", "bounds": [BOUNDS[0], BOUNDS[0]]},
    ],
)
async def test_periods_that_contradict_themselves_are_refused(service: Service, period: dict[str, Any]) -> None:
    assert await service.refused("PUT", F, {**SPEC, "periods": [period]}) == (422, "bad_spec")


@pytest.mark.parametrize(
    "later",
    [
        {**SEASON, "bounds": BOUNDS[:2]},
        {**SEASON, "bounds": [*BOUNDS[:2], local(days=30)]},
        {"name": "season", "starts_at": local(), "every": "P1W"},
        {**SEASON, "name": "split"},
    ],
)
async def test_bounds_that_posts_were_counted_by_never_change(service: Service, later: dict[str, Any]) -> None:
    await service.must("PUT", F, SPEC)
    assert await service.refused("PUT", F, {**SPEC, "periods": ["all", later]}) == (409, "spec_conflict")
    more = {**SEASON, "bounds": [*BOUNDS, local(days=30)]}
    assert (await service.must("PUT", F, {**SPEC, "periods": ["all", more]}))["periods"] == ["all", more]
