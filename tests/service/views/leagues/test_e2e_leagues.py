"""Test leagues over HTTP: what a specification may say, cohorts, zones, promotion, history, and who may do what."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from benchmarks.leagues import run_kills
from tests.service.closing import close_as_of, us
from tests.service.event_stream import events_of
from tests.service.views.boards.test_e2e_histories import Played

LEAGUE = "/v1/leagues/climb"
XP = {"name": "xp", "merge": "sum"}
DIVISIONS: list[dict[str, Any]] = [
    {"name": "bronze", "promote": 1}, {"name": "silver", "promote": 1, "relegate": 1}, {"name": "gold", "relegate": 1},
]  # fmt: skip
NOW = datetime.now(UTC)
HOURS = {"name": "round", "starts_at": f"{NOW - timedelta(days=2):%Y-%m-%d}T00:00:00", "every": "PT1H"}
SPEC: dict[str, Any] = {"columns": [XP], "column": "xp", "period": HOURS, "cohort": 3, "divisions": DIVISIONS}


@pytest.fixture
async def service(either_store: dict[str, Any], tmp_path: Path) -> Any:
    async with Played(tmp_path, jobs="none", **either_store).running() as made:
        yield made


def set_clock(service: Played, at: datetime) -> None:
    service.now.now_us = us(at)


async def post(service: Played, **values: int) -> None:
    posts = [{"owner": owner, "stats": {"xp": value}} for owner, value in values.items()]
    found = await service.must("POST", f"{LEAGUE}/posts", {"posts": posts})
    assert {each["status"] for each in found["results"]} == {"applied"}


def zones(shown: dict[str, Any]) -> list[tuple[str, int | None, str]]:
    return [(each["owner"], each["rank"], each["zone"]) for each in shown["entries"]]


async def test_specifications_that_contradict_themselves_are_refused(service: Played) -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({"period": "all"}, "/period"),
        ({"period": {"name": "round", "every": "PT1H"}}, "/period"),
        ({"column": "kills"}, "/column"),
        ({"divisions": [DIVISIONS[0], DIVISIONS[0]]}, "/divisions/1/name"),
        ({"divisions": [DIVISIONS[1], DIVISIONS[2]]}, "/divisions/0/relegate"),
        ({"divisions": [DIVISIONS[0], DIVISIONS[1]]}, "/divisions/1/promote"),
        ({"divisions": [{"name": "bronze", "promote": 4}, {"name": "silver"}]}, "/divisions/0"),
        ({"rewards": [{"name": "cup", "to_rank": 1, "division": "lead"}]}, "/rewards/0/division"),
        ({"rewards": [{"name": "cup", "to_rank": 1, "data": [1]}]}, "/rewards/0/data"),
        ({"time_zone": "Mars/Olympus"}, "/time_zone"),
    ]
    for changed, pointer in bad:
        refused = await service.call("PUT", LEAGUE, {**SPEC, **changed})
        assert (refused.status, refused.body["errors"][0]["pointer"]) == (422, pointer)
    for changed in ({"cohort": 1}, {"cohort": 201}, {"divisions": []}, {"absent": "die"}, {"facets": [["clan"]]}):
        assert (await service.call("PUT", LEAGUE, {**SPEC, **changed})).status == 400
    made = await service.must("PUT", LEAGUE, SPEC)
    assert (made["column"], made["cohort"], made["absent"], made["grace_seconds"], made["keep"]) == (
        "xp", 3, "stay", 0, 10,
    )  # fmt: skip
    assert (made["period"], made["ties"], made["divisions"]) == (HOURS, "earliest", DIVISIONS)
    assert await service.get(LEAGUE) == made == await service.must("PUT", LEAGUE, SPEC)
    changed = {"columns": [XP], "periods": [HOURS], "time_zone": "UTC"}
    assert await service.refused("PUT", "/v1/families/climb", changed) == (409, "spec_conflict")
    await service.must("PUT", "/v1/families/plain", changed)
    assert await service.refused("PUT", "/v1/leagues/plain", SPEC) == (409, "spec_conflict")
    assert await service.refused("GET", "/v1/leagues/plain") == (404, "unknown_family")
    assert await service.refused("PUT", LEAGUE, {**SPEC, "divisions": DIVISIONS[:1]}) == (422, "bad_spec")
    fewer = [DIVISIONS[0], {"name": "silver"}]
    assert await service.refused("PUT", LEAGUE, {**SPEC, "divisions": fewer}) == (409, "spec_conflict")
    rewards = [{"name": "cup", "to_rank": 1, "division": "gold", "data": {"coins": 5}}, {"name": "medal", "to_rank": 3}]
    grown = await service.must("PUT", LEAGUE, {**SPEC, "cohort": 5, "keep": 2, "rewards": rewards})
    assert (grown["cohort"], grown["keep"], grown["rewards"]) == (5, 2, [rewards[0], {**rewards[1], "data": {}}])
    shown = await service.get("/v1/families/climb")
    assert (shown["rewards"]["round"][0]["to_rank"], shown["league"]) == (1, True)
    for name in ("a", "b"):
        await service.must("PUT", f"/v1/leagues/{name}", SPEC)
    first = await service.get("/v1/leagues?limit=2")
    assert [each["id"] for each in first["leagues"]] == ["a", "b"]
    assert (await service.get(f"/v1/leagues?cursor={first['next']}"))["leagues"] == [grown]
    await service.must("DELETE", "/v1/leagues/a")
    assert await service.refused("DELETE", "/v1/leagues/plain") == (404, "unknown_family")
    assert len((await service.get("/v1/leagues"))["leagues"]) == 2


async def test_owners_climb_from_period_to_period(service: Played) -> None:
    await service.must("PUT", LEAGUE, SPEC)
    assert await service.refused("GET", f"{LEAGUE}/owners/ada") == (404, "unknown_owner")
    await service.must("PUT", "/v1/owners/ada/profile", {"name": "Ada"})
    at = NOW.replace(minute=30)
    set_clock(service, at)
    await post(service, ada=5, bob=9, eve=7, joe=1)
    own = await service.get(f"{LEAGUE}/owners/ada")
    assert (own["division"], own["cohort"], own["seats"], own["position"], own["zone"], own["waiting"]) == (
        "bronze", "bronze-1", 3, 3, "safe", False,
    )  # fmt: skip
    assert zones(own) == [("bob", 1, "promotion"), ("eve", 2, "safe"), ("ada", 3, "safe")]
    assert own["entries"][2] | {"updated_at": ""} == {
        "rank": 3, "owner": "ada", "value": 5, "zone": "safe", "updated_at": "", "stats": {"xp": 5},
        "profile": {"name": "Ada"},
    }  # fmt: skip
    assert own["ends_at"] == f"{at + timedelta(minutes=30):%Y-%m-%dT%H}:00:00.000000Z"
    cohort = await service.get(f"{LEAGUE}/cohorts/bronze-1")
    assert (cohort["settled"], cohort["entries"]) == (False, own["entries"])
    divisions = (await service.get(f"{LEAGUE}/divisions"))["divisions"]
    assert divisions == [
        {"name": "bronze", "owners": 4, "cohorts": 2}, {"name": "silver", "owners": 0, "cohorts": 0},
        {"name": "gold", "owners": 0, "cohorts": 0},
    ]  # fmt: skip
    for name in ("bronze-9", "lead-1"):
        assert await service.refused("GET", f"{LEAGUE}/cohorts/{name}") == (404, "unknown_board")
    assert (await service.call("GET", f"{LEAGUE}/cohorts/Bronze-1")).status == 400
    await service.must("PUT", "/v1/owners/eve/hidden")
    assert zones(await service.get(f"{LEAGUE}/owners/ada")) == [("bob", 1, "promotion"), ("ada", 2, "safe")]
    hidden = await service.get(f"{LEAGUE}/owners/eve")
    assert (hidden["division"], hidden["position"], hidden["zone"], hidden["seats"]) == ("bronze", None, None, 2)
    await service.must("PUT", "/v1/owners/eve/hidden", {"shadow": True})
    assert zones(await service.get(f"{LEAGUE}/owners/eve"))[1] == ("eve", 2, "safe")
    assert zones(await service.get(f"{LEAGUE}/owners/ada")) == [("bob", 1, "promotion"), ("ada", 2, "safe")]
    set_clock(service, at + timedelta(minutes=30))
    await post(service, bob=1, sue=4)
    waiting = await service.get(f"{LEAGUE}/owners/bob")
    assert (waiting["waiting"], waiting["division"], waiting["cohort"], waiting["entries"]) == (True, None, None, [])
    set_clock(service, at + timedelta(minutes=31))
    await close_as_of(service, at + timedelta(minutes=31))
    risen = await service.get(f"{LEAGUE}/owners/bob")
    assert (risen["waiting"], risen["cohort"], risen["position"], risen["zone"]) == (False, "silver-1", 1, "promotion")
    stayed = await service.get(f"{LEAGUE}/owners/ada")
    assert (stayed["division"], stayed["cohort"], stayed["waiting"]) == ("bronze", None, False)
    [past] = (await service.get(f"{LEAGUE}/owners/bob/history"))["history"]
    assert (past["cohort"], past["rank"], past["seats"], past["outcome"]) == ("bronze-1", 1, 3, "promoted")
    earlier = await service.get(f"{LEAGUE}/cohorts/bronze-1?period={past['period']}")
    assert (earlier["settled"], zones(earlier)[0]) == (True, ("bob", 1, "promotion"))
    assert await service.refused("GET", f"{LEAGUE}/cohorts/bronze-1?period=2020-W01") == (404, "unknown_board")
    assert (await service.get(f"{LEAGUE}/owners/eve/history"))["history"][0]["rank"] is None
    assert (await service.call("DELETE", f"{LEAGUE}/owners/bob")).status == 204
    assert await service.refused("GET", f"{LEAGUE}/owners/bob") == (404, "unknown_owner")
    assert await service.refused("DELETE", f"{LEAGUE}/owners/bob") == (404, "unknown_owner")
    await post(service, bob=2)
    assert (await service.get(f"{LEAGUE}/owners/bob"))["cohort"] == "bronze-1"
    await service.must("DELETE", "/v1/owners/ada")
    assert (await service.get(f"{LEAGUE}/owners/ada/history"))["history"] == []


async def test_a_writer_names_the_division_of_a_newcomer_once(service: Played) -> None:
    await service.must("PUT", LEAGUE, SPEC)
    set_clock(service, NOW.replace(minute=30))
    named = {"owner": "ada", "stats": {"xp": 1}, "division": "gold"}
    refused = await service.call("POST", f"{LEAGUE}/posts", {**named, "division": "lead"})
    assert (refused.status, refused.body["code"]) == (422, "bad_value")
    results = await service.must("POST", f"{LEAGUE}/posts", {"posts": [named, {**named, "division": "lead"}]})
    assert [each["status"] for each in results["results"]] == ["applied", "rejected"]
    await service.must("POST", f"{LEAGUE}/posts", {**named, "division": "silver"})
    assert (await service.get(f"{LEAGUE}/owners/ada"))["cohort"] == "gold-1"
    await service.must("POST", f"{LEAGUE}/posts?mode=queued", {**named, "owner": "bob", "division": "silver"})
    assert await service.refused("POST", "/v1/leagues/none/posts", named) == (404, "unknown_family")
    await service.must("POST", "/v1/families/climb/posts", {"owner": "eve", "stats": {"xp": 1}})
    assert (await service.get(f"{LEAGUE}/owners/eve"))["division"] == "bronze"


async def test_a_stream_shows_a_cohort_as_it_changes(service: Played) -> None:
    await service.must("PUT", LEAGUE, SPEC)
    path = f"{LEAGUE}/cohorts/bronze-1/stream"
    assert await service.refused("GET", path) == (404, "unknown_board")
    assert await service.refused("GET", f"{LEAGUE}/cohorts/copper-1/stream") == (404, "unknown_board")
    await post(service, ada=5)
    async with events_of(service.base, path) as stream:
        first = await stream.expect_event("cohort")
        assert zones(first.data) == [("ada", 1, "promotion")]
        await post(service, bob=7, cleo=6)  # newcomers who take the last seats
        assert zones((await stream.expect_event("cohort")).data) == [
            ("bob", 1, "promotion"), ("cleo", 2, "safe"), ("ada", 3, "safe"),
        ]  # fmt: skip
        await post(service, dan=90)  # sits in another cohort
        await post(service, ada=3)
        third = await stream.expect_event("cohort")
        assert (zones(third.data)[0], third.data["cohort"]) == (("ada", 1, "promotion"), "bronze-1")
        await service.must("PUT", "/v1/owners/ada/hidden", {})
        assert zones((await stream.expect_event("cohort")).data)[0] == ("bob", 1, "promotion")
    shown = await service.get(f"{LEAGUE}/cohorts/bronze-1")
    await post(service, dan=1)
    async with events_of(service.base, path, last_id=third.id) as stream:
        missed = await stream.expect_event("cohort")
        assert zones(missed.data) == zones(shown)
    async with events_of(service.base, path, last_id=missed.id) as stream:
        await post(service, bob=1)  # the first event, because the client has missed nothing
        assert zones((await stream.expect_event("cohort")).data)[0] == ("bob", 1, "promotion")


def test_a_short_run_of_the_benchmark_moves_each_owner_as_a_model_says(tmp_path: Path) -> None:
    kills, wrong = run_kills(f"sqlite:///{tmp_path}/league.db", tmp_path, kills=2, rows=1_000)
    assert (kills >= 2, wrong) == (True, 0)
