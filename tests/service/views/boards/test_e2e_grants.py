"""Test rewards and grants over HTTP: what a specification may say, previews, lists and claims."""

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from benchmarks.boards import draw_values, fill_board
from benchmarks.grants import measure_service
from benchmarks.killed_seasons import ENVIRONMENT, run_trial
from benchmarks.servers import serve_file, serve_store
from tests.schemas import fresh_store
from tests.service.closing import close_as_of
from tests.service.real_service import Service

CUP = "/v1/leaderboards/cup"
END = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
COLUMNS = [{"name": "xp", "merge": "sum"}, {"name": "lap", "merge": "min", "scale": 2, "min": 0, "max": 100}]
GOLD = {"name": "gold", "column": "xp", "to_rank": 1, "data": {"coins": 500, "skin": None}}
FAST = {"name": "fast", "column": "lap", "to_value": 9.5}
MANY = {"name": "many", "column": "xp", "to_percent": 50}
SEASON = {"columns": COLUMNS, "closes_at": END.isoformat(), "grace_seconds": 0}
WEEKS = {"columns": COLUMNS, "periods": ["all", "week"]}


@pytest.fixture
async def service(either_store: dict[str, Any], tmp_path: Path) -> Any:
    async with Service(tmp_path, jobs="none", **either_store).running() as made:
        yield made


async def test_rewards_that_nobody_can_get_are_refused(service: Service) -> None:
    for changed, pointer in (
        ({"rewards": [GOLD], "closes_at": None}, "/rewards"),
        ({"rewards": [GOLD, GOLD]}, "/rewards/1/name"),
        ({"rewards": [{**GOLD, "column": "clan"}]}, "/rewards/0/column"),
        ({"rewards": [{**GOLD, "to_percent": 5}]}, "/rewards/0"),
        ({"rewards": [{"name": "x", "column": "xp"}]}, "/rewards/0"),
        ({"rewards": [{**GOLD, "data": [1]}]}, "/rewards/0/data"),
        ({"rewards": [{**GOLD, "data": {"long": "x" * 1_000}}]}, "/rewards/0/data"),
        ({"rewards": [{"name": "x", "column": "lap", "to_value": 100.01}]}, "/rewards/0/to_value"),
    ):
        refused = await service.call("PUT", CUP, {**SEASON, **changed})
        assert (refused.status, refused.body["errors"][0]["pointer"]) == (422, pointer)
    for rewards in ({"all": [GOLD]}, {"day": [GOLD]}):
        assert await service.refused("PUT", "/v1/families/f", {**WEEKS, "rewards": rewards}) == (422, "bad_spec")


async def read_all(service: Service, path: str) -> list[dict[str, Any]]:
    """Return the grants on all pages of a list, whose pages have one each."""
    found, query = [], "?limit=1"
    while query:
        page = await service.get(path + query)
        found += page["grants"]
        query = f"?limit=1&cursor={page['next']}" if page["next"] else ""
    return found


async def test_owners_see_and_claim_what_the_preview_promised(service: Service) -> None:
    family = await service.must("PUT", "/v1/families/f", {**WEEKS, "rewards": {"week": [GOLD]}, "each": "all"})
    assert (family["rewards"], family["each"]) == ({"week": [GOLD]}, "all")
    assert (await service.get("/v1/leaderboards/f:this-week/grants"))["grants"] == []
    made = await service.must("PUT", CUP, {**SEASON, "rewards": [GOLD, FAST, MANY]})
    assert (made["rewards"], made["each"]) == ([GOLD, FAST, MANY], "first")
    stats = {"ada": {"xp": 9, "lap": 9.5}, "bob": {"xp": 8, "lap": 9.51}, "eve": {"xp": 8}, "joe": {"lap": 1}}
    stats |= {"sue": {"xp": 1}}
    posts = [{"owner": owner, "stats": theirs} for owner, theirs in stats.items()]
    await service.must("POST", f"{CUP}/posts", {"posts": posts})
    expected = [("ada", "gold", 1), ("joe", "fast", 1), ("bob", "many", 2), ("eve", "many", 2)]
    found = await read_all(service, f"{CUP}/rewards/preview")
    assert [(each["owner"], each["reward"], each["rank"]) for each in found] == expected
    assert (await service.get(f"{CUP}/grants")) == {"board": "cup", "made": False, "grants": [], "next": None}
    await close_as_of(service, END)
    assert await service.refused("PUT", CUP, SEASON) == (409, "spec_conflict")
    await service.must("PUT", CUP, {**SEASON, "rewards": [GOLD, FAST, MANY]})
    assert (await service.get(f"{CUP}/grants"))["made"]
    grants = await read_all(service, f"{CUP}/grants")
    assert [(each["owner"], each["reward"], each["rank"]) for each in grants] == expected
    assert [each["data"] for each in grants] == [GOLD["data"], {}, {}, {}]
    [own] = await read_all(service, "/v1/owners/ada/grants")
    assert own == grants[0]
    claim = f"/v1/grants/{own['id']}/claim"
    claims = await asyncio.gather(*(service.must("POST", claim) for _ in range(5)))
    assert sorted(each.pop("first") for each in claims) == [False] * 4 + [True]
    assert {each["claimed_at"] for each in claims} == {claims[0]["claimed_at"]}
    assert claims[0] == {**own, "claimed_at": claims[0]["claimed_at"]}
    assert (await service.get("/v1/owners/ada/grants?state=open"))["grants"] == []
    assert (await service.get("/v1/owners/ada/grants?state=claimed"))["grants"] == [claims[0]]
    for unknown in (f"{own['id']}0", "9-9"):
        assert await service.refused("POST", f"/v1/grants/{unknown}/claim") == (404, "unknown_grant")
    [event] = [each for each in await service.get("/v1/events") if each["type"] == "grant.claimed"]
    assert (event["board"], event["grant"], event["owner"]) == ("cup", own["id"], "ada")
    await service.must("POST", "/v1/owners/ada/merge", {"into": "bob"})
    assert await service.refused("GET", "/v1/owners/ada/grants") == (404, "owner_merged")
    assert [each["reward"] for each in await read_all(service, "/v1/owners/bob/grants")] == ["many", "gold"]


def test_a_short_run_of_the_benchmark_finds_each_grant_once(tmp_path: Path) -> None:
    with serve_file(tmp_path / "grants.db", workers=0) as server:
        asyncio.run(fill_board(server.port, rows=2_000, refresh=False))
        bars = measure_service("SQLite", server.port, draw_values(2_000), seconds=0.5)
    assert [bar.measured for bar in bars[2:]] == [0, 0]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_kills_lose_and_double_no_grant_no_claim_and_no_event(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Run a short form of `benchmarks.killed_seasons`."""
    async with AsyncExitStack() as stack:
        url = f"sqlite:///{tmp_path}/seasons.db"
        if kind == "postgres":
            url = await stack.enter_async_context(fresh_store(request.getfixturevalue("postgres_url")))
        server = stack.enter_context(serve_store(url, tmp_path, environment=ENVIRONMENT))
        trial = await run_trial(server, kills=2, contests=3, rows=50)
    assert (trial.faults.total(), trial.seen["grants"], trial.seen["claims"]) == (0, 60, 60)
