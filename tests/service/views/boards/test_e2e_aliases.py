"""Test aliases of periods, such as `game:this-week`. Every request that takes the id of a board takes an alias."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.service.event_stream import events_of
from tests.service.real_service import ONE_PROCESS, RARELY, without
from tests.service.views.boards.test_e2e_histories import F, Played, path

SPEC: dict[str, Any] = {
    "columns": [{"name": "xp", "sorted": True, "merge": "sum"}],
    "periods": ["all", "year", "month", "week", "day"], "facets": [[], ["org"], ["loc", "org"]],
    "time_zone": "Europe/Berlin", "predictor": RARELY,
}  # fmt: skip
# A Sunday in Berlin, one minute before the next week. Berlin's clocks have skipped an hour on this day.
NOW = datetime(2037, 3, 29, 21, 59, tzinfo=UTC)
REAL = {
    "today": "2037-03-29", "yesterday": "2037-03-28", "this-week": "2037-W13", "last-week": "2037-W12",
    "this-month": "2037-03", "last-month": "2037-02", "this-year": "2037", "last-year": "2036",
}  # fmt: skip
FACETS = {"org": "7", "loc": "melb"}
CHANGING = ("as_of", "seconds")  # members of answers that differ between two equal requests


@pytest.fixture
async def service(either_store: dict[str, Any], table: str, tmp_path: Path) -> AsyncIterator[Played]:
    async with Played(tmp_path, **either_store).running() as made:
        made.now.now_us = round(NOW.timestamp() * 1e6)
        await made.must("PUT", F, {**SPEC, "table": table})
        yield made


async def post(service: Played, *owners: str, **more: Any) -> None:
    posts = [{"owner": owner, "stats": {"xp": 5 + number}, **more} for number, owner in enumerate(owners)]
    results = (await service.must("POST", f"{F}/posts", {"posts": posts}))["results"]
    assert {each["status"] for each in results} == {"applied"}


def pass_minutes(service: Played, minutes: int) -> None:
    service.now.now_us += minutes * 60_000_000


async def test_an_alias_stands_for_a_period_of_the_family(service: Played) -> None:
    for posted in (False, True):
        for alias, period in REAL.items():
            is_current = alias == "today" or alias.startswith("this")
            for facets in ("", ":org=7", ":loc=melb,org=7"):
                found = await service.get(path(f"game:{alias}{facets}"))
                assert (found["id"], found["entries"]) == (f"game:{period}{facets}", int(posted and is_current))
        await post(service, "ada", facets=FACETS)


READS = [
    ("GET", ""), ("GET", "/entries/ada"), ("GET", "/entries/ada/positions"),
    ("GET", "/entries/ada/positions?next=true"), ("GET", "/entries/ada/positions?compare=previous"),
    ("GET", "/entries/ada/around?column=xp"),
    ("GET", "/rankings/xp"), ("GET", "/rankings/xp?from_rank=2"), ("GET", "/rankings/xp/positions?values=6"),
    ("GET", "/rankings/xp/around?value=6"), ("GET", "/rankings/xp/values?ranks=1,2"), ("GET", "/rankings/xp/curve"),
    ("GET", "/rankings/xp/buckets?buckets=2"), ("GET", "/posts/once"), ("POST", "/entries/lookup"),
    ("POST", "/rankings/xp/refresh"), ("POST", "/rankings/xp/audit?owners=2"), ("DELETE", ""), ("POST", "/reset"),
    ("GET", "/entries/nobody"), ("GET", "/rankings/no"), ("GET", "/stream?column=no&owner=nobody"),
]  # fmt: skip


@ONE_PROCESS
async def test_every_request_about_a_board_is_answered_under_an_alias_as_under_the_id(service: Played) -> None:
    await post(service, "ada", facets=FACETS, post_id="once")
    await post(service, "bob", "cleo", facets=FACETS)
    real, alias = path("game:2037-W13:loc=melb,org=7"), path("game:this-week:loc=melb,org=7")
    await service.must("POST", f"{real}/rankings/xp/refresh")
    await service.wait_folded("game:2037-W13:loc=melb,org=7", "xp")
    for method, rest in READS:
        body = {"owners": ["ada", "nobody"], "column": "xp"} if "lookup" in rest else None
        by_alias, by_id = [await service.call(method, each + rest, body) for each in (alias, real)]
        assert by_alias.status == by_id.status, rest
        assert without(by_alias.body, *CHANGING) == without(by_id.body, *CHANGING), rest
        etag = by_id.headers.get("ETag")
        assert by_alias.headers.get("ETag") == etag, rest
        if etag is not None and method == "GET":
            assert (await service.call("GET", alias + rest, headers={"If-None-Match": etag})).status == 304, rest
    assert (await service.call("DELETE", alias)).body["code"] == "family_board"
    head = await service.call("HEAD", f"{alias}/rankings/xp")
    assert head.status == 200
    await service.must("DELETE", f"{alias}/entries/ada")
    assert await service.refused("GET", f"{real}/entries/ada") == (404, "unknown_owner")


async def test_every_request_that_writes_is_refused_under_an_alias_as_under_the_id(service: Played) -> None:
    one = {"owner": "ada", "stats": {"xp": 1}}
    for facets in ("", ":loc=melb,org=7"):
        for reached in (False, True):
            if reached:
                await post(service, "ada", facets=FACETS)
            real, alias = f"game:2037-W13{facets}", f"game:this-week{facets}"
            for method, rest, body in (
                ("POST", "/posts", one), ("POST", "/posts", {"posts": [one]}), ("POST", "/posts?mode=queued", one),
                ("POST", "/reset", None), ("DELETE", "", None),
            ):  # fmt: skip
                by_alias, by_id = [await service.call(method, path(each) + rest, body) for each in (alias, real)]
                listed = by_id.body.get("results")
                refused = by_id.body if listed is None else listed[0]["error"]
                assert (refused["status"], refused["code"]) == (409, "family_board"), (method, rest)
                assert (by_alias.status, by_alias.body) == (by_id.status, by_id.body), (method, rest)
            assert await service.refused("PUT", path(alias), {"columns": SPEC["columns"]}) == (409, "family_board")
            for mode in ("", "?mode=queued"):
                several = {**one, "boards": [alias]}
                assert await service.refused("POST", f"/v1/posts{mode}", several) == (409, "family_board")
    for unknown in ("game:tomorrow", "game:this-week:loc=melb", "other:today"):
        assert await service.refused("POST", path(unknown) + "/posts", one) == (404, "unknown_board")


async def test_an_owner_on_many_boards_is_answered_with_the_ids_of_the_boards(service: Played) -> None:
    await post(service, "ada", facets=FACETS)
    asked = ["game:today", "game:all", "game:last-week", "game:this-month:loc=melb,org=7", "game:2037-03-29"]
    found = await service.must("POST", "/v1/owners/ada/positions", {"boards": asked, "column": "xp"})
    ids = ["game:2037-03-29", "game:all", "game:2037-W12", "game:2037-03:loc=melb,org=7", "game:2037-03-29"]
    assert [each["board"] for each in found["positions"]] == ids
    assert [each["rank"] for each in found["positions"]] == [1, 1, None, 1, 1]
    many = {"boards": ["game:today"] * 1_002, "column": "xp"}
    assert await service.refused("POST", "/v1/owners/ada/positions", many) == (400, "too_many_boards")


async def test_boards_to_be_counted_together_may_be_named_by_aliases(service: Played) -> None:
    await post(service, "ada", "bob", facets=FACETS)
    rest = "/rankings/xp/positions?values=1&with="
    for first, others in (
        ("game:today", "game:this-week"),
        ("game:today:org=7", "game:2037:loc=melb,org=7"),
        ("game:2037", "game:this-month:loc=melb,org=7"),
    ):
        [together] = (await service.get(f"{path(first)}{rest}{others}"))["positions"]
        assert (together["rank"], together["total"]) == (5, 4)
    three = await service.get(f"{path('game:all')}{rest}game:today,game:2037")
    assert three["positions"][0]["total"] == 6
    twice = await service.call("GET", f"{path('game:today')}{rest}game:2037-03-29")
    assert (twice.status, twice.body["code"]) == (400, "bad_request")


async def test_a_cursor_under_an_alias_is_one_of_the_board_and_ends_with_the_period(service: Played) -> None:
    await post(service, "ada", "bob", "cleo")
    real, alias = (f"{path(each)}/rankings/xp?limit=1" for each in ("game:2037-W13", "game:this-week"))
    first = await service.get(alias)
    assert first == await service.get(real)
    second = await service.get(f"{real}&cursor={first['next']}")
    assert [each["owner"] for each in second["entries"]] == ["bob"]
    assert await service.get(f"{alias}&cursor={first['next']}") == second
    pass_minutes(service, 1)
    for _ in range(2):  # in the first round nobody has posted in the new week
        assert await service.refused("GET", f"{alias}&cursor={first['next']}") == (400, "bad_cursor")
        assert await service.get(f"{real}&cursor={first['next']}") == second
        last_week = path("game:last-week")
        assert await service.get(f"{last_week}/rankings/xp?limit=1&cursor={first['next']}") == second
        await post(service, "dan")


async def test_a_tag_under_an_alias_does_not_outlive_the_period(service: Played) -> None:
    await post(service, "ada")
    alias = f"{path('game:today')}/rankings/xp"
    etag = (await service.call("GET", alias)).headers["ETag"]
    pass_minutes(service, 1)
    after = await service.call("GET", alias, headers={"If-None-Match": etag})
    assert (after.status, after.body["entries"]) == (200, [])
    assert (await service.get(path("game:yesterday")))["id"] == "game:2037-03-29", "the day had 23 hours"


async def test_a_stream_under_an_alias_starts_with_the_state_of_the_present_board(service: Played) -> None:
    await post(service, "ada")
    top = f"{path('game:this-week')}/stream?column=xp&top=3"
    async with events_of(service.base, top) as stream:
        first = await stream.expect_event("top")
        assert first.rows == [("ada", 5)]
        pass_minutes(service, 1)
        await post(service, "bob")
        late = {"owner": "cleo", "stats": {"xp": 9}, "at": NOW.isoformat()}
        await service.must("POST", f"{F}/posts", late)
        last = await stream.expect_event("top")
        assert last.rows == [("cleo", 9), ("ada", 5)], "the stream stays with its board"
    async with events_of(service.base, top, last_id=last.id) as stream:
        assert (await stream.expect_event("top")).rows == [("bob", 5)]
    async with events_of(service.base, f"{path('game:today')}/stream?column=xp&owner=bob", last_id=last.id) as stream:
        assert (await stream.expect_event("position")).data["rank"] == 1


async def test_an_alias_of_a_period_that_the_family_lacks_is_unknown(service: Played) -> None:
    await service.must("PUT", "/v1/families/days", {**SPEC, "periods": ["day"], "facets": [[]]})
    assert (await service.get(path("days:today")))["id"] == "days:2037-03-29"
    for board in (
        "days:this-week", "days:today:org=7", "game:today:loc=melb", "game:tomorrow", "other:today", "game:Today"
    ):  # fmt: skip
        for rest in ("", "/entries/ada", "/rankings/xp", "/stream?column=xp"):
            assert await service.refused("GET", path(board) + rest) == (404, "unknown_board"), board
        asked = {"boards": ["game:all", board], "column": "xp"}
        assert await service.refused("POST", "/v1/owners/ada/positions", asked) == (404, "unknown_board")
    assert await service.refused("GET", path("game:today:org")) == (404, "unknown_board")


async def test_a_board_outside_a_family_may_have_an_id_that_looks_aliased(service: Played) -> None:
    for board in ("x:today", "x:last-week:org=7"):
        await service.board(board.replace(":", "%3A"), {"name": "xp"})
        await service.post_xp(board, ada=3)
        assert (await service.get(path(board)))["id"] == board
        assert (await service.get(f"{path(board)}/rankings/xp"))["entries"][0]["owner"] == "ada"
    for _ in range(2):  # in the second round the service has read the boards anew
        asked = {"boards": ["x:today", "game:today", "x:last-week:org=7"], "column": "xp"}
        found = await service.must("POST", "/v1/owners/ada/positions", asked)
        assert [each["board"] for each in found["positions"]] == ["x:today", "game:2037-03-29", "x:last-week:org=7"]
        await service.restart()
    top = f"{path('x:today')}/stream?column=xp"
    async with events_of(service.base, top) as stream:
        last = await stream.expect_event("top")
    await service.post_xp("x:today", bob=4)
    async with events_of(service.base, top, last_id=last.id) as stream:
        missed = await stream.expect_event("top")
        assert missed.rows == [("bob", 4), ("ada", 3)]
    async with events_of(service.base, top, last_id=missed.id) as stream:
        await service.post_xp("x:today", cleo=5)
        assert (await stream.expect_event("top")).rows[0] == ("cleo", 5), "nothing is sent twice"
    assert await service.refused("GET", path("x:yesterday")) == (404, "unknown_board")
    assert await service.refused("PUT", path("game:today"), {"columns": SPEC["columns"]}) == (409, "family_board")
    await service.must("DELETE", path("x:today"))
    assert await service.refused("GET", path("x:today")) == (404, "unknown_board")


@ONE_PROCESS
async def test_all_aliases_of_a_request_are_resolved_at_one_time(service: Played) -> None:
    """Let the clock advance by a day whenever it is asked. All boards of a request are of the same day all the same."""
    clock = service.now

    def advancing_clock() -> int:
        clock.now_us += timedelta(days=1) // timedelta(microseconds=1)
        return clock.now_us

    object.__setattr__(service.context, "now_us", advancing_clock)
    asked = {"boards": ["game:today", "game:today:org=7", "game:yesterday"], "column": "xp"}
    found = await service.must("POST", "/v1/owners/ada/positions", asked)
    assert [each["board"] for each in found["positions"]] == [
        "game:2037-03-30",
        "game:2037-03-30:org=7",
        f"game:{REAL['today']}",
    ]
