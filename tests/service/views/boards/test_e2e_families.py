"""Test families of a real service. A post reaches each board for its time and facets, and these boards can be read."""

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from docs.route_words import ROUTE_WORDS
from storage.periods import PeriodKind, calendar_of
from tests.service.real_service import RARELY, Service

F = "/v1/families/game"
ZONE = "Europe/Berlin"
PERIODS = ["all", "year", "month", "week", "day"]
SPEC: dict[str, Any] = {
    "columns": [{"name": "xp", "sorted": True, "merge": "sum"}, {"name": "shots", "sorted": False, "merge": "sum"}],
    "periods": PERIODS, "time_zone": ZONE, "facets": [[], ["org"], ["org", "location"]], "predictor": RARELY,
}  # fmt: skip
NOW = datetime.now(UTC)
FACETS = {"org": "7", "location": "melb"}


@pytest.fixture
async def service(either_store: dict[str, Any], table: str, tmp_path: Path) -> AsyncIterator[Service]:
    async with Service(tmp_path, **either_store).running() as made:
        await made.must("PUT", F, {**SPEC, "table": table})
        yield made


def period_id(kind: str, at: datetime = NOW) -> str:
    return calendar_of(ZONE).period_at(PeriodKind(kind), round(at.timestamp() * 1e6)).id


def board(kind: str, facets: str = "", at: datetime = NOW) -> str:
    return "/v1/leaderboards/" + quote(f"game:{period_id(kind, at)}{facets}", safe="")


async def post(service: Service, *posts: dict[str, Any]) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = (await service.must("POST", f"{F}/posts", {"posts": posts}))["results"]
    return results


def xp(owner: str, value: int, **more: Any) -> dict[str, Any]:
    return {"owner": owner, "stats": {"xp": value}, "at": NOW.isoformat(), **more}


def statuses(result: dict[str, Any]) -> dict[str, str]:
    return {each["board"]: each["status"] for each in result["boards"]}


async def test_facet_values_of_any_script_name_boards_wherever_a_board_is_named(service: Service) -> None:
    composed, apart, cyrillic = "Côte d'Ivoire", "Co\u0302te d'Ivoire", "Орёл"
    facets = [{"org": composed}, {"org": apart}, {"org": cyrillic, "location": "日本"}]
    results = await post(service, *(xp(f"p{number}", number + 1, facets=each) for number, each in enumerate(facets)))
    assert [each["status"] for each in results] == ["applied"] * 3
    named = f"game:{period_id('week')}:org={composed}"
    assert named in statuses(results[1])
    retry = xp("p0", 1, facets={"org": composed}, post_id="run")
    repeated = {**retry, "facets": {"org": apart}}
    assert [each["status"] for each in await post(service, retry, repeated)] == ["applied", "duplicate"]
    for text in (named, f"game:{period_id('week')}:org={apart}", f"game:this-week:org={apart}"):
        found = await service.get(f"/v1/leaderboards/{quote(text, safe='')}")
        assert (found["id"], found["entries"]) == (named, 2)
        page = await service.get(f"/v1/leaderboards/{quote(text, safe='')}/rankings/xp")
        assert [each["owner"] for each in page["entries"]] == ["p0", "p1"]
        many = await service.must("POST", "/v1/owners/p1/positions", {"boards": [text], "column": "xp"})
        assert (many["positions"][0]["rank"], many["positions"][0]["total"]) == (1, 2)
        with_ = await service.get(
            f"{board('week', ':org=' + cyrillic)}/rankings/xp/positions?values=0&with={quote(text)}"
        )
        assert with_["positions"][0]["total"] == 3
    for value in (composed, apart):
        told = await service.get(f"{F}/boards?period=week&org={quote(value)}")
        assert told["board"] == named
        await service.get(f"{F}/owners/p1/history?period=week&column=xp&org={quote(value)}")
    values = await service.get(f"{F}/facets?facet=org&period=week")
    assert {each["value"] for each in values["values"]} == {composed, cyrillic}
    within = await service.get(f"{F}/facets?facet=location&period=week&org={quote(cyrillic)}")
    assert [(each["value"], each["entries"]) for each in within["values"]] == [("日本", 1)]
    listed = await service.get(f"/v1/leaderboards?contains={quote(composed)}")
    assert {each["id"] for each in listed["leaderboards"]} >= {named}
    assert {each["board"] for each in (await service.get("/v1/owners/p1/boards"))["boards"]} >= {named}
    [held] = [each for each in (await service.get("/v1/owners/p1/posts"))["posts"] if each["board"] == named]
    assert held["stored"]["xp"] == 2
    for value in ("a:b", "a=b", "€", " a", "x" * 65):
        [refused] = await post(service, xp("p9", 1, facets={"org": value}))
        assert refused["error"]["code"] == "bad_value"
        assert await service.refused("GET", f"{F}/boards?period=week&org={quote(value)}") == (400, "bad_request")
        assert await service.refused("GET", f"{F}/facets?facet=location&org={quote(value)}") == (400, "bad_request")
    new = "/v1/leaderboards/" + quote(f"nobody:all:org={composed}", safe="")
    assert await service.refused("PUT", new, {"columns": [{"name": "xp", "merge": "sum"}]}) == (400, "bad_request")
    await service.must("PUT", F, {**SPEC, "table": (await service.get(F))["table"], "keep": {"day": 1}})
    longest = {"org": "𠀀" * 64, "location": "ü" * 64}
    [widest] = await post(service, xp("p0", 1, facets=longest))
    assert widest["status"] == "applied"
    last = list(statuses(widest))[-1]
    assert (await service.get(f"/v1/leaderboards/{quote(last, safe='')}"))["entries"] == 1


async def test_a_post_reaches_every_period_of_every_facet_list_that_it_has_values_for(service: Service) -> None:
    ada, bob = await post(service, xp("ada", 5, facets=FACETS), xp("bob", 7, facets={"org": "7"}))
    facets = ["", ":org=7", ":location=melb,org=7"]
    assert list(statuses(ada)) == [f"game:{period_id(kind)}{each}" for kind in PERIODS for each in facets]
    assert set(statuses(ada).values()) == {"applied"}
    assert ada["status"] == "applied"
    assert {each["stats"]["xp"] for each in ada["boards"]} == {5}
    assert len(bob["boards"]) == 10, "bob has no location, so one facet list is left out"
    for kind in PERIODS:
        page = await service.get(f"{board(kind, ':org=7')}/rankings/xp")
        assert [(row["rank"], row["owner"], row["value"]) for row in page["entries"]] == [(1, "bob", 7), (2, "ada", 5)]
        alone = await service.get(f"{board(kind, ':location=melb,org=7')}/entries/ada/positions?columns=xp")
        assert (alone["positions"][0]["rank"], alone["positions"][0]["total"]) == (1, 1)
    await post(service, xp("ada", 4, facets={"org": "8"}))
    assert (await service.get(f"{board('day')}/entries/ada"))["stats"]["xp"] == 9
    assert (await service.get(f"{board('day', ':org=8')}/entries/ada"))["stats"]["xp"] == 4, (
        "ada's earlier points stay with org 7"
    )


async def test_a_repeated_post_id_answers_its_first_outcome_on_every_board_of_the_family(service: Service) -> None:
    [first, repeat] = await post(service, xp("ada", 5, post_id="p"), xp("ada", 5, post_id="p"))
    assert (first["status"], repeat["status"]) == ("applied", "duplicate")
    await post(service, xp("ada", 1))
    [again] = await post(service, xp("ada", 5, post_id="p"))
    assert set(statuses(again).values()) == {"duplicate"}
    assert [each["stats"] for each in again["boards"]] == [each["stats"] for each in first["boards"]]
    assert [each["board"] for each in again["boards"]] == [each["board"] for each in first["boards"]]
    posted = xp("ada", 5, post_id="p")
    untimed = {name: value for name, value in posted.items() if name != "at"}
    earlier = posted | {"at": (NOW - timedelta(microseconds=1)).isoformat()}
    others = [posted | change for change in ({"stats": {"xp": 6}}, {"facets": FACETS})]
    for other in (*others, untimed, earlier):
        [result] = await post(service, other)
        assert result["status"] == "rejected"
        assert {each["error"]["code"] for each in result["boards"]} == {"post_id_conflict"}
        refused = await service.call("POST", f"{F}/posts", other)
        assert (refused.status, refused.body["code"]) == (409, "post_id_conflict")
        assert "`at`" in refused.body["detail"]
        assert result["error"]["detail"] == result["boards"][0]["error"]["detail"] == refused.body["detail"]
    await service.restart()
    [after] = await post(service, xp("ada", 5, post_id="p"))
    assert after == again
    assert (await service.get(f"{board('all')}/entries/ada"))["stats"]["xp"] == 6


async def test_a_closed_period_rejects_a_late_post_on_that_board_alone(service: Service) -> None:
    late = NOW - timedelta(days=3 * 366)
    [result] = await post(service, xp("ada", 5) | {"at": late.isoformat(), "post_id": "p"})
    assert result["status"] == "applied"
    found = statuses(result)
    assert found.pop("game:all") == "applied"
    assert set(found.values()) == {"rejected"}
    assert len(found) == 4
    assert {each["error"]["code"] for each in result["boards"] if "error" in each} == {"period_closed"}
    assert await service.refused("GET", f"{board('day', at=late)}/entries/ada") == (404, "unknown_owner")
    await service.must("PUT", "/v1/families/days", {**SPEC, "periods": ["day"]})
    for body in (xp("ada", 5) | {"at": late.isoformat()}, xp("ada", 5) | {"at": late.isoformat(), "post_id": "q"}):
        assert await service.refused("POST", "/v1/families/days/posts", body) == (409, "period_closed")


async def test_a_listed_board_is_empty_before_its_first_post_and_others_are_unknown(service: Service) -> None:
    await post(service, xp("ada", 5))
    boards = (await service.get("/v1/leaderboards"))["leaderboards"]
    empty = board("week", ":org=1")
    answer = await service.get(empty)
    assert (answer["entries"], answer["columns"]) == (0, boards[0]["columns"])
    assert (await service.get(f"{empty}/rankings/xp"))["entries"] == []
    assert (await service.get(f"{empty}/rankings/xp/positions?values=3"))["positions"][0]["rank"] == 1
    assert (await service.get(f"{empty}/rankings/xp/values?ranks=1"))["values"][0]["value"] is None
    assert (await service.must("POST", f"{empty}/entries/lookup", {"owners": ["ada"]}))["missing"] == ["ada"]
    for path in ("/entries/ada", "/entries/ada/positions?columns=xp", "/entries/ada/around?column=xp"):
        assert await service.refused("GET", empty + path) == (404, "unknown_owner")
    assert await service.refused("DELETE", f"{empty}/entries/ada") == (404, "unknown_owner")
    assert (await service.get("/v1/leaderboards"))["leaderboards"] == boards, "a read creates no row"
    for unknown in ("game:2018-13", "game:all:location=melb", "game:all:org=1,location=melb", "game:all:x=1", "game:"):
        status, code = await service.refused("GET", f"/v1/leaderboards/{quote(unknown, safe='')}")
        assert (status, code) == (404, "unknown_board")
    await service.must("PUT", "/v1/families/days", {**SPEC, "periods": ["day"]})
    assert await service.refused("GET", "/v1/leaderboards/days:all") == (404, "unknown_board")


async def test_a_board_of_a_family_cannot_be_changed_deleted_or_posted_to_directly(service: Service) -> None:
    await post(service, xp("ada", 5))
    columns = {"columns": SPEC["columns"]}
    for made in ("game:all", "game:all:org=1", "game:anything"):
        path = f"/v1/leaderboards/{quote(made, safe='')}"
        assert await service.refused("PUT", path, columns) == (409, "family_board")
    for path in ("/v1/leaderboards/game:all", board("day")):
        assert await service.refused("DELETE", path) == (409, "family_board")
        assert await service.refused("POST", f"{path}/reset") == (409, "family_board")
        assert await service.refused("POST", f"{path}/posts", xp("ada", 1)) == (409, "family_board")
    several = {"owner": "ada", "stats": {"xp": 1}, "boards": ["game:all"]}
    assert await service.refused("POST", "/v1/posts", several) == (409, "family_board")
    [refused] = await service.post("game:all:org=9", xp("ada", 1))
    assert (refused["status"], refused["error"]["code"]) == ("rejected", "family_board")
    await service.must("PUT", "/v1/leaderboards/plain:all", columns)
    assert await service.refused("PUT", "/v1/families/plain", SPEC) == (409, "spec_conflict")


async def test_a_post_that_one_board_of_a_family_refuses_changes_no_board_and_is_not_remembered(
    service: Service,
) -> None:
    narrow = [{"name": "xp", "sorted": True, "merge": "sum", "max": 10}]
    await service.must("PUT", "/v1/families/few", {**SPEC, "columns": narrow, "periods": ["all", "day"]})
    early = NOW - timedelta(days=400)
    for at in (early, NOW):
        await service.must("POST", "/v1/families/few/posts", xp("ada", 4) | {"at": at.isoformat()})
    refused = {"posts": [xp("ada", 5, post_id="p")]}
    [result] = (await service.must("POST", "/v1/families/few/posts", refused))["results"]
    codes = {each["board"]: each["error"]["code"] for each in result["boards"]}
    assert codes == {"few:all": "value_out_of_range", f"few:{period_id('day')}": "post_rejected"}
    assert (await service.get(f"/v1/leaderboards/few:{period_id('day')}/entries/ada"))["stats"]["xp"] == 4
    [fits] = (await service.must("POST", "/v1/families/few/posts", xp("ada", 1, post_id="p")))["results"]
    assert set(statuses(fits).values()) == {"applied"}


async def test_an_invalid_post_to_a_family_is_refused_with_its_fault(service: Service) -> None:
    wrong: list[tuple[dict[str, Any], tuple[int, str]]] = [
        ({"stats": {"no": 1}}, (422, "unknown_column")),
        ({"stats": {"xp": "x"}}, (422, "bad_value")),
        ({"facets": {"league": "1"}}, (422, "unknown_facet")),
        ({"facets": {"org": "a:b"}}, (422, "bad_value")),
        ({"facets": {"org": 1}}, (400, "bad_request")),
        ({"at": (NOW + timedelta(hours=1)).isoformat()}, (422, "at_in_future")),
        ({"boards": ["game:all"]}, (400, "unknown_field")),
    ]
    for change, refusal in wrong:
        assert await service.refused("POST", f"{F}/posts", xp("ada", 5) | change) == refusal, change
    assert await service.refused("GET", "/v1/leaderboards/game:all/entries/ada") == (404, "unknown_owner")


async def test_a_family_names_the_board_of_a_time_with_its_bounds_and_its_predecessor(service: Service) -> None:
    at = "2018-12-05T00:00:00Z"
    answer = await service.get(f"{F}/boards?period=week&at={at}&org=123")
    assert answer["board"] == "game:2018-W49:org=123"
    bounds = {"starts_at": "2018-12-02T23:00:00.000000Z", "ends_at": "2018-12-09T23:00:00.000000Z"}
    assert answer["period"] == {"name": "2018-W49", "closed": True, **bounds}
    assert answer["previous"] == "game:2018-W48:org=123"
    everything = await service.get(f"{F}/boards?period=all")
    assert everything["period"] == {"name": "all", "starts_at": None, "ends_at": None, "closed": None}
    assert (everything["board"], everything["previous"]) == ("game:all", None)
    today = await service.get(f"{F}/boards?period=day&org=1&location=x")
    assert today["board"].endswith(":location=x,org=1")
    assert today["period"]["closed"] is False
    for path in ("period=an-hour", f"at={at}", "period=day&at=noon", "period=day&org="):
        assert await service.refused("GET", f"{F}/boards?{path}") == (400, "bad_request"), path
    for path in ("period=hour", "period=day&location=x", "period=day&facets=x"):
        assert await service.refused("GET", f"{F}/boards?{path}") == (404, "unknown_board"), path
    assert await service.refused("GET", f"{F}/boards?period=day&Org=x") == (400, "unknown_field")
    assert await service.refused("GET", f"{F}/boards?period=day&org=1&org=2") == (400, "duplicate_field")


async def test_a_family_lists_the_values_of_a_facet_with_their_totals_page_by_page(service: Service) -> None:
    where = [("1", "melb"), ("1", "rome"), ("2", "melb"), ("3", "oslo")]
    posts = [xp(f"o{i}", 1, facets={"org": org, "location": place}) for i, (org, place) in enumerate(where)]
    await post(service, *posts)
    answer = await service.get(f"{F}/facets?facet=org&period=week")
    assert [(each["value"], each["entries"]) for each in answer["values"]] == [("1", 2), ("2", 1), ("3", 1)]
    assert answer["values"][0]["board"] == f"game:{period_id('week')}:org=1"
    within = await service.get(f"{F}/facets?facet=org&period=all&location=melb")
    assert [each["value"] for each in within["values"]] == ["1", "2"]
    pages = service.pages(f"{F}/facets?facet=org&period=day&limit=1")
    assert [[each["value"] for each in page["values"]] async for page in pages] == [["1"], ["2"], ["3"]]
    assert (await service.get(f"{F}/facets?facet=org&period=week&at=2018-12-05T00:00:00Z"))["values"] == []
    assert await service.refused("GET", f"{F}/facets?facet=location&period=week") == (404, "unknown_board")
    other = await service.get(f"{F}/facets?facet=org&period=day&limit=1")
    path = f"{F}/facets?facet=org&period=week&cursor={other['next']}"
    assert await service.refused("GET", path) == (400, "bad_cursor")


async def test_a_family_can_be_confirmed_and_widened_and_not_changed_otherwise(service: Service, table: str) -> None:
    made = await service.get(F)
    assert (made["boards"], made["grace_seconds"], made["keep"]) == (0, 3600, {})
    assert (await service.call("PUT", F, {**SPEC, "table": table})).status == 200
    await post(service, xp("ada", 5))
    lap = {"name": "lap", "sorted": True, "merge": "min", "best": "low", "scale": 3, "min": 0}
    wider = {**SPEC, "table": table, "columns": [*SPEC["columns"], lap], "keep": {"day": 3}}
    answer = await service.must("PUT", F, wider)
    assert (answer["boards"], answer["keep"]) == (5, {"day": 3})
    await post(service, {"owner": "ada", "stats": {"lap": "60.25"}, "at": NOW.isoformat(), "facets": {"org": "1"}})
    for path in (board("all"), board("day", ":org=1")):
        stats = (await service.get(f"{path}/entries/ada"))["stats"]
        assert str(stats["lap"]) == "60.250"
    changes = {
        "time_zone": "UTC", "grace_seconds": 3_601, "periods": ["all", "day"], "facets": [[], ["org"]],
        "ties": "earliest", "table": "own" if table == "shared" else "shared", "columns": SPEC["columns"],
    }  # fmt: skip
    for name, value in changes.items():
        refused = await service.call("PUT", F, wider | {name: value})
        assert (refused.status, refused.body["errors"][0]["pointer"]) == (409, f"/{name}")
    accepted = {"predictor": {"refresh_seconds": 60}, "keep": {"day": 4}, "grace_seconds": 3_599}
    assert set(re.findall(r"`(\w+)`", ROUTE_WORDS["create_family"].description)) == accepted.keys()
    for name, value in accepted.items():
        assert (await service.call("PUT", F, wider | {name: value})).status == 200


async def test_a_family_that_is_confirmed_without_a_grace_keeps_its_own(service: Service) -> None:
    spec = {"columns": SPEC["columns"], "periods": ["week"]}
    week = {**spec, "grace_seconds": 691_200}
    assert (await service.must("PUT", "/v1/families/quiz", week))["grace_seconds"] == 691_200
    last_week = {**xp("ada", 5), "at": (NOW - timedelta(days=7)).isoformat()}
    await service.must("POST", "/v1/families/quiz/posts", last_week)
    assert (await service.must("PUT", "/v1/families/quiz", spec))["grace_seconds"] == 691_200
    [result] = (await service.must("POST", "/v1/families/quiz/posts", {"posts": [last_week]}))["results"]
    assert result["status"] == "applied", "no period was closed"
    assert (await service.must("PUT", "/v1/families/quiz", {**spec, "grace_seconds": 60}))["grace_seconds"] == 60
    assert (await service.must("PUT", "/v1/families/new", spec))["grace_seconds"] == 3600


async def test_a_deleted_family_takes_its_boards_with_it_and_can_be_created_again(service: Service, table: str) -> None:
    await post(service, xp("ada", 5, post_id="p"))
    answer = await service.call("DELETE", F)
    assert answer.status == 204
    assert await service.refused("GET", F) == (404, "unknown_family")
    assert await service.refused("POST", f"{F}/posts", xp("ada", 1)) == (404, "unknown_family")
    assert await service.refused("GET", "/v1/leaderboards/game:all/entries/ada") == (404, "unknown_board")
    assert (await service.get("/v1/leaderboards"))["leaderboards"] == []
    await service.must("PUT", F, {**SPEC, "table": table})
    [result] = await post(service, xp("ada", 2, post_id="p"))
    assert set(statuses(result).values()) == {"applied"}
    assert (await service.get("/v1/leaderboards/game:all/entries/ada"))["stats"]["xp"] == 2


async def test_a_board_with_long_facet_values_reads_like_any_other(service: Service) -> None:
    long = {"org": "o" * 64, "location": "l" * 64}
    [result] = await post(service, xp("ada", 5, facets=long))
    longest = max((each["board"] for each in result["boards"]), key=len)
    assert len(longest) > 128
    path = f"/v1/leaderboards/{quote(longest, safe='')}"
    assert (await service.get(f"{path}/entries/ada"))["stats"]["xp"] == 5
    many = await service.must("POST", "/v1/owners/ada/positions", {"boards": [longest], "column": "xp"})
    assert many["positions"][0]["rank"] == 1
    joined = f"/v1/leaderboards/game:all/rankings/xp/positions?values=1&with={quote(longest, safe='')}"
    for parameters in (joined, joined.replace("%2C", ","), f"{joined}&with=game:all:org=o"):
        [found] = (await service.get(parameters))["positions"]
        assert (found["rank"], found["total"]) == (3, 2), (
            "each board has one entry, the board of that organisation none"
        )
    too_long = f"/v1/leaderboards/{'b' * 129}"
    assert await service.refused("PUT", too_long, {"columns": SPEC["columns"]}) == (400, "bad_request")


async def test_a_family_that_another_process_recreated_takes_posts_by_its_spec(service: Service, table: str) -> None:
    await post(service, xp("ada", 5))
    context = service.context
    known = {board.id: board for board in context.catalog.list_boards()}
    family = await context.catalog.families.find_family("game")
    await service.call("DELETE", F)
    await service.must("PUT", F, {**SPEC, "table": table})
    context.catalog.families.keep_family(family)
    # Restore the catalog of a process that has not noticed the new family yet.
    for board in known.values():
        context.catalog.keep_board(board)
    [result] = await post(service, xp("ada", 2))
    assert result["status"] == "applied"
    assert (await service.get("/v1/leaderboards/game:all/entries/ada"))["stats"]["xp"] == 2
    await service.call("DELETE", F)
    context.catalog.families.keep_family(family)
    for board in known.values():
        context.catalog.keep_board(board)
    assert await service.refused("POST", f"{F}/posts", xp("ada", 1)) == (404, "unknown_family")


INCONSISTENT: dict[tuple[int, str], list[dict[str, Any]]] = {
    (400, "bad_request"): [
        {"periods": []}, {"periods": ["hour"]}, {"facets": [["Org"]]}, {"keep": {"day": 0}},
        {"grace_seconds": -1}, {"columns": []},
    ],
    (422, "bad_spec"): [
        {"periods": ["day", "day"]}, {"keep": {"all": 3}},
        {"time_zone": "Mars/Base"}, {"keep": {"day": 3}, "periods": ["all"]},
        {"facets": [["org"], ["org"]]}, {"facets": [["a", "b"], ["b", "a"]]}, {"facets": [["org", "org"]]},
        {"facets": [["a", "b", "c", "d"]]}, {"facets": [["period"]]}, {"facets": [["at"]]},
        {"facets": [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]},
    ],
}  # fmt: skip


async def test_an_inconsistent_family_is_refused(tmp_path: Path) -> None:
    async with Service(tmp_path).running() as service:
        for refusal, changes in INCONSISTENT.items():
            for change in changes:
                assert await service.refused("PUT", "/v1/families/new", {**SPEC, **change}) == refusal, change
        assert await service.refused("PUT", "/v1/families/no.id", SPEC) == (400, "bad_request")
