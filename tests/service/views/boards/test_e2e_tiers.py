"""Test tiers over HTTP: how a board or a family gets them, and which views say the tier of whom.

The views run on every store. A plain model says which tier each rank has.
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.service.closing import close_as_of
from tests.service.event_stream import events_of
from tests.service.real_service import ONE_PROCESS, RARELY, Service, without

B = "/v1/leaderboards/b"
OWNERS = 60
TIERS = [
    {"name": "diamond", "to_rank": 2},
    {"name": "gold", "to_percent": 12.5},
    {"name": "silver", "value": "30.5"},
]
XP: dict[str, Any] = {"name": "xp", "sorted": True, "merge": "last", "scale": 1, "min": 0, "max": 1000, "tiers": TIERS}
PLAIN: dict[str, Any] = {"name": "plain", "sorted": True, "merge": "last"}
LAP: dict[str, Any] = {
    "name": "lap", "sorted": True, "merge": "min", "best": "low", "scale": 1,
    "tiers": [{"name": "fast", "value": 10}],
}  # fmt: skip


@pytest.fixture
async def service(either_store: dict[str, Any], tmp_path: Path) -> AsyncIterator[Service]:
    async with Service(tmp_path, jobs="none", **either_store).running() as made:
        yield made


def owner(number: int) -> str:
    return f"o{number:02}"


def tier_of(rank: int, xp: float, total: int = OWNERS) -> str | None:
    """Return the tier that `TIERS` give an entry."""
    if rank <= 2:
        return "diamond"
    if rank <= ceil(total / 8):
        return "gold"
    return "silver" if xp >= 30.5 else None


async def fill(service: Service, board: str = "b", *, at: str | None = None) -> None:
    """Post the values 1 to `OWNERS`, so that the owner with the value n has the rank `OWNERS` + 1 - n."""
    numbers = range(1, OWNERS + 1)
    timed = {} if at is None else {"at": at}
    await service.post(board, *({"owner": owner(n), "stats": {"xp": n, "plain": n}, **timed} for n in numbers))


async def board(service: Service, *columns: dict[str, Any], **spec: Any) -> dict[str, Any]:
    made: dict[str, Any] = await service.board("b", *(columns or (XP, PLAIN)), **spec)
    return made


async def test_a_spec_shows_its_tiers_and_confirms_itself(service: Service) -> None:
    made = await board(service, XP, PLAIN, LAP)
    xp, plain, lap = made["columns"]
    assert xp["tiers"] == [TIERS[0], TIERS[1], {"name": "silver", "value": 30.5}]
    assert "tiers" not in plain
    assert [str(tier["value"]) for tier in lap["tiers"]] == ["10.0"]
    xp["tiers"][1]["to_percent"] = float(xp["tiers"][1]["to_percent"])
    spec = {name: made[name] for name in ("columns", "ties", "table", "predictor")}
    assert await service.must("PUT", B, spec) == made
    assert without(await service.get(B), "curves") == without(made, "curves")


async def test_every_view_says_the_tier_of_a_column_that_has_tiers(service: Service) -> None:
    await board(service)
    await fill(service)
    page = await service.get(f"{B}/rankings/xp?limit={OWNERS}")
    assert [row["tier"] for row in page["entries"]] == [tier_of(row["rank"], row["value"]) for row in page["entries"]]
    assert {row["tier"] for row in page["entries"]} == {"diamond", "gold", "silver", None}
    for path in ("/rankings/xp?from_rank=7&limit=4", "/entries/o54/around?column=xp", "/rankings/xp/around?value=54",
                 "/rankings/xp?order=owner", "/rankings/xp?limit=3&profiles=true"):  # fmt: skip
        rows = (await service.get(B + path))["entries"]
        assert [row["tier"] for row in rows] == [tier_of(row["rank"], row["value"]) for row in rows], path
    positions = (await service.get(f"{B}/entries/o54/positions?next=true"))["positions"]
    assert [each.get("tier", "none") for each in positions] == ["gold", "none"]
    assert all("tier_certain" not in each for each in positions)
    values = (await service.get(f"{B}/rankings/xp/positions?values=60,59,53,30.5,30.4"))["positions"]
    assert [each["tier"] for each in values] == ["diamond", "diamond", "gold", "silver", None]
    found = await service.must("POST", f"{B}/entries/lookup", {"owners": ["o60", "o10"], "column": "xp"})
    assert [entry["position"]["tier"] for entry in found["entries"]] == ["diamond", None]
    many = await service.must("POST", "/v1/owners/o54/positions", {"boards": ["b"], "column": "xp"})
    assert [each["tier"] for each in many["positions"]] == ["gold"]
    for path in ("/rankings/plain", "/entries/o54/around?column=plain"):
        assert all("tier" not in row for row in (await service.get(B + path))["entries"])


async def test_a_low_value_is_at_least_as_good_as_the_limit_of_a_tier(service: Service) -> None:
    await board(service, LAP)
    await service.post("b", *({"owner": name, "stats": {"lap": lap}} for name, lap in
                              (("ada", "10.0"), ("bob", "10.1"), ("cy", 9))))  # fmt: skip
    rows = (await service.get(f"{B}/rankings/lap"))["entries"]
    assert [(row["owner"], row["tier"]) for row in rows] == [("cy", "fast"), ("ada", "fast"), ("bob", None)]


async def test_tie_columns_change_the_rank_and_so_the_tier_but_not_the_value(service: Service) -> None:
    tiers = [{"name": "first", "to_rank": 1}, {"name": "tied", "value": 30}]
    await board(service, {**XP, "tiers": tiers}, LAP, ties=["lap", "earliest"])
    laps = {"ada": 9, "bob": 7, "cy": 8}
    await service.post("b", *({"owner": each, "stats": {"xp": 30, "lap": lap}} for each, lap in laps.items()))
    rows = (await service.get(f"{B}/rankings/xp"))["entries"]
    assert [(row["owner"], row["tier"]) for row in rows] == [("bob", "first"), ("cy", "tied"), ("ada", "tied")]
    (found, _) = (await service.get(f"{B}/entries/bob/positions"))["positions"]
    assert (found["rank"], found["tier"]) == (1, "first")
    async with events_of(service.base, "/v1/leaderboards/b/stream?column=xp&owner=cy") as stream:
        assert (await stream.expect_event("position")).data["tier"] == "tied"
        await service.post("b", {"owner": "cy", "stats": {"lap": 6}})
        assert (await stream.expect_event("position")).data["tier"] == "first"


@ONE_PROCESS
@pytest.mark.parametrize("segments", [1, 3])
async def test_an_estimate_has_the_tier_of_its_rank_and_says_if_its_bracket_spans_several(
    either_store: dict[str, Any], tmp_path: Path, segments: int
) -> None:
    async with Service(tmp_path, **either_store).running() as service:
        tiers = [{"name": f"top_{rank}", "to_rank": rank} for rank in range(100, 400, 100)]
        predictor = {"samples": 24, "exact_top": 0}
        await board(service, {**XP, "scale": 0, "max": 10**6, "tiers": tiers}, predictor=predictor, segments=segments)
        await service.post("b", *({"owner": f"o{n}", "stats": {"xp": n * n}} for n in range(400)))
        await service.refresh("b", "xp")
        await service.wait_folded("b", "xp")
        values = ",".join(str(n * n + 3) for n in range(0, 400, 7))
        path = f"{B}/rankings/xp/positions?rank=estimate&values={values}"
        found = (await service.get(path))["positions"]
        for each in found:
            tier, first, last = (_band(each[name]) for name in ("rank", "low", "high"))
            assert each["tier"] == tier
            assert each.get("tier_certain") == (None if first == last else False), each
        assert {each.get("tier_certain") for each in found} == {None, False}
        exact = (await service.get(path.replace("estimate", "exact")))["positions"]
        assert all("tier_certain" not in each for each in exact)


def _band(rank: int) -> str | None:
    return f"top_{ceil(rank / 100) * 100}" if rank <= 300 else None


async def test_a_value_among_several_boards_has_the_tier_of_the_first_board(service: Service) -> None:
    await board(service)
    await service.board("c", {**XP, "tiers": [{"name": "other", "to_rank": 1000}]})
    await fill(service)
    await service.post("c", {"owner": "new", "stats": {"xp": 59.5}})
    (alone,) = (await service.get(f"{B}/rankings/xp/positions?values=59"))["positions"]
    (among,) = (await service.get(f"{B}/rankings/xp/positions?values=59&with=c"))["positions"]
    assert [(each["rank"], each["tier"]) for each in (alone, among)] == [(2, "diamond"), (3, "gold")]


async def test_tiers_change_at_any_time_and_the_next_request_shows_it(service: Service) -> None:
    await board(service)
    await fill(service)
    paths = ("/rankings/xp?limit=3", "/entries/o60/positions", "/entries/o60/around?column=xp", "/rankings/xp/buckets")
    tags = {path: (await service.call("GET", B + path)).headers.get("ETag") for path in paths}
    before = await service.get(f"{B}/rankings/xp")
    for name in ("first", "second"):
        await board(service, {**XP, "tiers": [{"name": name, "to_rank": 1}]}, PLAIN)
        for path in paths[:3]:
            for _ in range(2):  # each front of a store with fronts
                headers = {} if tags[path] is None else {"If-None-Match": tags[path]}
                answer = await service.call("GET", B + path, headers=headers)
                assert answer.status == 200, path
                rows = answer.body["entries" if "entries" in answer.body else "positions"]
                assert rows[0]["tier"] == name, path
    await board(service, without(XP, "tiers"), PLAIN)
    after = await service.get(f"{B}/rankings/xp")
    assert after["entries"] == without(before["entries"], "tier")


@ONE_PROCESS
async def test_a_change_of_tiers_keeps_the_curve_and_renews_its_document(either_store: Any, tmp_path: Path) -> None:
    async with Service(tmp_path, **either_store).running() as service:
        await board(service)
        await fill(service)
        await service.refresh("b", "xp")
        path = f"{B}/rankings/xp/curve"
        first = await service.call("GET", path)
        assert first.body["tiers"] == [TIERS[0], TIERS[1], {"name": "silver", "value": 30.5}]
        await board(service, {**XP, "tiers": TIERS[:1]}, PLAIN)
        second = await service.call("GET", path, headers={"If-None-Match": first.headers["ETag"]})
        assert (second.status, second.body["tiers"]) == (200, TIERS[:1])
        assert without(second.body, "tiers", "as_of") == without(first.body, "tiers", "as_of")
        state = (await service.get(B))["curves"]["xp"]
        assert (state["total"], state["moves"]) == (OWNERS, 0)


async def test_a_tier_that_is_no_tier_is_refused(service: Service) -> None:
    gold = {"name": "gold", "to_rank": 3}
    cases: list[tuple[dict[str, Any], tuple[int, str], str]] = [
        ({"tiers": [gold, {**gold, "to_rank": 9}]}, (422, "bad_spec"), "/columns/0/tiers/1/name"),
        ({"tiers": [{"name": "gold"}]}, (422, "bad_spec"), "/columns/0/tiers/0"),
        ({"tiers": [{**gold, "value": 1}]}, (422, "bad_spec"), "/columns/0/tiers/0"),
        ({"tiers": [{**gold, "to_percent": 1, "value": 1}]}, (422, "bad_spec"), "/columns/0/tiers/0"),
        ({"tiers": [gold, {"name": "a", "value": 1001}]}, (422, "value_out_of_range"), "/columns/0/tiers/1/value"),
        ({"tiers": [{"name": "a", "value": -1}]}, (422, "value_out_of_range"), "/columns/0/tiers/0/value"),
        ({"tiers": [{"name": "a", "value": "1.25"}]}, (422, "bad_value"), "/columns/0/tiers/0/value"),
        ({"tiers": [{"name": "", "to_rank": 1}]}, (400, "bad_request"), "/columns/0/tiers/0/name"),
        ({"tiers": [{"name": "Gold!", "to_rank": 1}]}, (400, "bad_request"), "/columns/0/tiers/0/name"),
        ({"tiers": [{"name": "a" * 33, "to_rank": 1}]}, (400, "bad_request"), "/columns/0/tiers/0/name"),
        ({"tiers": [{"name": "a", "to_rank": 0}]}, (400, "bad_request"), "/columns/0/tiers/0/to_rank"),
        ({"tiers": [{"name": "a", "to_percent": 0}]}, (400, "bad_request"), "/columns/0/tiers/0/to_percent"),
        ({"tiers": [{"name": "a", "to_percent": 100.1}]}, (400, "bad_request"), "/columns/0/tiers/0/to_percent"),
        ({"tiers": [{**gold, "colour": 1}]}, (400, "unknown_field"), "/columns/0/tiers/0/colour"),
        ({"tiers": [{"name": f"t{n}", "to_rank": 1} for n in range(33)]}, (400, "bad_request"), "/columns/0/tiers"),
        ({"tiers": [gold], "sorted": False}, (422, "bad_spec"), "/columns/0/tiers"),
        ({"name": "tag", "sorted": False, "merge": "last", "type": "text", "scale": 0, "tiers": [gold]},
         (422, "bad_spec"), "/columns/0/tiers"),
    ]  # fmt: skip
    for change, refusal, pointer in cases:
        column = {**(without(XP, "min", "max") if "type" in change else XP), **change}
        for path, more in ((B, {}), ("/v1/families/f", {"periods": ["all"]})):
            answer = await service.call("PUT", path, {"columns": [column], **more})
            assert (answer.status, answer.body["code"]) == refusal, (change, answer.body)
            assert answer.body["errors"][0]["pointer"] == pointer, (change, answer.body)
    most = [{"name": f"t{n}", "to_rank": 1} for n in range(32)]
    await service.must("PUT", B, {"columns": [{**XP, "tiers": most}]})


async def test_boards_of_a_family_get_the_tiers_of_the_family(service: Service) -> None:
    family: dict[str, Any] = {"columns": [XP, PLAIN], "periods": ["all", "day"], "predictor": RARELY}
    made = await service.must("PUT", "/v1/families/f", family)
    assert made["columns"][0]["tiers"][0] == TIERS[0]
    posts = [{"owner": owner(n), "stats": {"xp": n}} for n in range(1, 11)]
    await service.must("POST", "/v1/families/f/posts", {"posts": posts})
    day = quote(f"f:{datetime.now(UTC).date()}", safe="")
    for path in ("f%3Aall", day):
        (found,) = (await service.get(f"/v1/leaderboards/{path}/entries/o10/positions?columns=xp"))["positions"]
        assert found["tier"] == "diamond"
    changed = {**family, "columns": [{**XP, "tiers": [{"name": "all", "to_percent": 100}]}, PLAIN]}
    await service.must("PUT", "/v1/families/f", changed)
    for path in ("f%3Aall", day) * 2:
        (found,) = (await service.get(f"/v1/leaderboards/{path}/entries/o10/positions?columns=xp"))["positions"]
        assert found["tier"] == "all"
    compared = await service.get(f"/v1/leaderboards/{day}/entries/o10/positions?columns=xp&compare=previous")
    (position,) = compared["positions"]
    assert position["previous"]["value_position"]["tier"] is None, "nobody is ranked in the period before"
    again = await service.call("PUT", "/v1/families/f", changed)
    assert again.body["columns"][0]["tiers"] == [{"name": "all", "to_percent": 100}]


@ONE_PROCESS
async def test_the_history_of_an_owner_has_the_tiers_of_closed_periods(service: Service) -> None:
    family = {"columns": [XP], "periods": ["day"], "grace_seconds": 0, "keep": {"day": 1}, "predictor": RARELY}
    await service.must("PUT", "/v1/families/f", family)
    now = datetime.now(UTC)
    posts = [{"owner": owner(n), "stats": {"xp": n}} for n in range(1, 11)]
    await service.must("POST", "/v1/families/f/posts", {"posts": posts})
    for archived, days in ((False, 1), (True, 4)):
        await close_as_of(service, now + timedelta(days=days))
        day = f"f:{now.date()}"
        history = (await service.get("/v1/families/f/owners/o10/history?period=day&column=xp&limit=10"))["history"]
        (found,) = (each["position"]["tier"] for each in history if each["board"] == day and each["position"])
        assert found == "diamond", archived


async def test_an_archived_board_keeps_its_tiers(service: Service) -> None:
    end = datetime.now(UTC) + timedelta(hours=1)
    season = {"closes_at": end.isoformat(), "grace_seconds": 0, "keep_seconds": 60}
    await board(service, **season)
    await fill(service)
    paths = ("/rankings/xp?limit=9", "/entries/o54/positions", "/rankings/xp/positions?values=60,40,2",
             "/entries/o60/around?column=xp&worse=3", "/rankings/xp/curve")  # fmt: skip
    before = {path: await service.get(B + path) for path in paths if not path.endswith("curve")}
    await close_as_of(service, end + timedelta(seconds=61))
    assert (await service.get(B))["archived"] is True
    for path, expected in before.items():
        names = ("as_of", "method", "next", "prev")
        assert without(await service.get(B + path), *names) == without(expected, *names), path
    assert (await service.get(f"{B}/rankings/xp/curve"))["tiers"][0] == TIERS[0]
    await board(service, {**XP, "tiers": [{"name": "all", "to_percent": 100}]}, PLAIN, **season)
    (found, _) = (await service.get(f"{B}/entries/o54/positions"))["positions"]
    assert found["tier"] == "all"
