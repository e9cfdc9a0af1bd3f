"""Test the pages of a tier: they are those rows of the whole ranking that say this tier, with their ranks there."""

import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.service.closing import close_as_of
from tests.service.real_service import Service, without

B = "/v1/leaderboards/b"
RANKING = f"{B}/rankings/xp"
TIERS: list[dict[str, Any]] = [{"name": "top", "to_rank": 5}, {"name": "rest", "to_percent": 100}]
XP: dict[str, Any] = {"name": "xp", "merge": "last", "min": 0, "max": 1000}
SPECS: list[dict[str, Any]] = [{}, {"segments": 3}, {"ties": "earliest"}]
KINDS = ("to_rank", "to_percent", "value")


@pytest.fixture
async def running(tmp_path: Path, either_store: dict[str, Any]) -> AsyncIterator[Service]:
    async with Service(tmp_path, **either_store).running() as service:
        yield service


def draw_tiers(rng: random.Random, *, low: bool) -> list[dict[str, Any]]:
    """Return random tiers. Some have no rows, because an earlier tier reaches further down."""
    limits = {"to_rank": lambda: rng.randint(1, 40), "to_percent": lambda: rng.randint(1, 100),
              "value": lambda: rng.randrange(14)}  # fmt: skip
    kinds = rng.choices(KINDS, k=rng.randint(1, 6))
    tiers = [{"name": f"tier{number}", kind: limits[kind]()} for number, kind in enumerate(kinds)]
    return sorted(tiers, key=lambda tier: tier.get("value", 0), reverse=not low) if rng.random() < 0.7 else tiers


async def post(service: Service, rng: random.Random, owners: int) -> None:
    posts = [{"owner": f"o{rng.randrange(owners):02}", "stats": {"xp": rng.randrange(12)}} for _ in range(owners)]
    if posts:
        await service.post("b", *posts)


async def expect(service: Service, tier: str) -> list[dict[str, Any]]:
    """Return the rows of a tier as the pages of the whole ranking show them, with the rank among them."""
    every = (await service.get(f"{RANKING}?limit=1000"))["entries"]
    found = [row for row in every if row["tier"] == tier]
    return [{**row, "tier_rank": row["rank"] - found[0]["rank"] + 1} for row in found]


async def walk(service: Service, path: str, way: str = "next") -> list[list[dict[str, Any]]]:
    """Return the rows of each page that follows on this way. The first page is that of the path."""
    pages, page = [], await service.get(path)
    while True:
        pages.append(page["entries"])
        if page[way] is None:
            return pages
        page = await service.get(f"{path}&cursor={page[way]}")


async def compare(service: Service, tiers: list[dict[str, Any]], limit: int) -> None:
    for tier in tiers:
        path, rows = f"{RANKING}?limit={limit}&tier={tier['name']}", await expect(service, tier["name"])
        pages = await walk(service, path)
        assert pages == [rows[at : at + limit] for at in range(0, len(rows), limit)] or [rows] == pages == [[]]
        last, cursor = None, await service.get(path)
        while cursor["next"] is not None:
            last = cursor["next"]
            cursor = await service.get(f"{path}&cursor={last}")
        assert [page["entries"] for page in [cursor]] == pages[-1:]
        back = []
        while cursor["prev"] is not None:
            cursor = await service.get(f"{path}&cursor={cursor['prev']}")
            back.append(cursor["entries"])
        assert back == pages[-2::-1]


@pytest.mark.parametrize("best", ["high", "low"])
@pytest.mark.parametrize("spec", SPECS, ids=str)
async def test_pages_of_random_tiers_are_those_of_the_whole_ranking(
    running: Service, spec: dict[str, Any], best: str
) -> None:
    rng = random.Random(f"{spec}{best}")
    column = {**XP, "best": best}
    await running.board("b", column, **spec)
    for owners in (0, 1, 30, 30, 30):
        tiers = draw_tiers(rng, low=best == "low")
        await running.board("b", {**column, "tiers": tiers}, **spec)
        await post(running, rng, owners)
        if owners and rng.random() < 0.5:
            await running.refresh("b", "xp")
        if owners == 30:
            await running.must("PUT", f"/v1/owners/o{rng.randrange(owners):02}/hidden")
        await compare(running, tiers, rng.randint(1, 9))


async def test_a_walk_over_a_changing_board_loses_no_row_that_did_not_move(running: Service) -> None:
    await running.board("b", {**XP, "tiers": TIERS})
    await running.post("b", *({"owner": f"o{value:02}", "stats": {"xp": value}} for value in range(30)))
    path = f"{RANKING}?limit=4&tier=rest"
    first = await running.get(path)
    assert [row["owner"] for row in first["entries"]] == ["o24", "o23", "o22", "o21"]
    await running.post("b", *({"owner": f"new{value}", "stats": {"xp": 900 + value}} for value in range(9)))
    second = await running.get(f"{path}&cursor={first['next']}")
    assert [(row["owner"], row["tier_rank"]) for row in second["entries"]][:2] == [("o20", 14), ("o19", 15)]
    for value in range(9):
        await running.must("DELETE", f"{B}/entries/new{value}")
    # The tier begins below the cursor now: its rows begin with its first one.
    await running.board("b", {**XP, "tiers": [{"name": "top", "to_rank": 20}, TIERS[1]]})
    third = await running.get(f"{path}&cursor={first['next']}")
    assert [(row["owner"], row["tier_rank"]) for row in third["entries"]][:2] == [("o09", 1), ("o08", 2)]
    assert third["prev"] is None
    # The tier ends above the cursor now: the page before it has its last rows.
    top = f"{RANKING}?limit=4&tier=top"
    page = await running.get(top)
    for _ in range(4):
        page = await running.get(f"{top}&cursor={page['next']}")
    await running.board("b", {**XP, "tiers": TIERS})
    before = await running.get(f"{top}&cursor={page['prev']}")
    assert [row["owner"] for row in before["entries"]] == ["o28", "o27", "o26", "o25"]


async def test_an_archive_has_the_rows_of_tiers_down_to_its_last_row(tmp_path: Path) -> None:
    end = datetime.now(UTC) + timedelta(days=1)
    tiers = [{"name": "few", "to_rank": 4}, {"name": "many", "value": 15}, {"name": "rest", "to_percent": 100}]
    bounds = {"archive_top_rows": 20, "archive_block_rows": 8, "archive_step_rows": 16}
    async with Service(tmp_path, jobs="none", **bounds).running() as service:
        times = {"closes_at": end.isoformat(), "grace_seconds": 0, "keep_seconds": 0}
        await service.board("b", {**XP, "tiers": tiers}, **times)
        await service.post("b", *({"owner": f"o{value:02}", "stats": {"xp": value // 2}} for value in range(60)))
        before = {tier["name"]: await expect(service, str(tier["name"])) for tier in tiers}
        await close_as_of(service, end)
        pages = await walk(service, f"{RANKING}?limit=3&tier=few")
        assert without([row for page in pages for row in page], "updated_at") == without(before["few"], "updated_at")
        many = await service.get(f"{RANKING}?limit=16&tier=many")
        assert without(many["entries"], "updated_at") == without(before["many"][:16], "updated_at")
        assert await service.refused("GET", f"{RANKING}?tier=many&cursor={many['next']}") == (410, "archived")
        assert await service.refused("GET", f"{RANKING}?tier=rest") == (410, "archived")
        await service.must("PUT", "/v1/owners/o59/hidden")
        every = (await service.get(f"{RANKING}?limit=12"))["entries"]
        for name in ("few", "many"):
            expected = [row for row in every if row["tier"] == name]
            shown = (await service.get(f"{RANKING}?limit={len(expected)}&tier={name}"))["entries"]
            assert without(shown, "tier_rank") == expected
            assert shown[0]["tier_rank"] == 1


REFUSED = [
    ("tier=none", 404, "unknown_tier"), ("tier=", 400, "bad_request"), ("tier=top&from_rank=2", 400, "bad_request"),
    ("tier=top&order=owner", 400, "bad_request"),
]  # fmt: skip


async def test_faulty_requests_and_cursors_of_other_pages_are_refused(running: Service) -> None:
    await running.board("b", {**XP, "tiers": TIERS}, {"name": "plain", "merge": "last"})
    await running.post("b", *({"owner": f"o{value}", "stats": {"xp": value, "plain": 1}} for value in range(30)))
    for query, status, code in REFUSED:
        assert await running.refused("GET", f"{RANKING}?{query}") == (status, code), query
    assert await running.refused("GET", f"{B}/rankings/plain?tier=top") == (404, "unknown_tier")
    of_tier = (await running.get(f"{RANKING}?limit=2&tier=rest"))["next"]
    of_all = (await running.get(f"{RANKING}?limit=2"))["next"]
    for query in (f"cursor={of_tier}", f"tier=top&cursor={of_tier}", f"tier=rest&cursor={of_all}"):
        assert await running.refused("GET", f"{RANKING}?{query}") == (400, "bad_cursor")
    top = await running.get(f"{B}/rankings?column=xp&tier=top&profiles=true")
    assert [row["tier_rank"] for row in top["entries"]] == [1, 2, 3, 4, 5]
    answer = await running.call("GET", f"{RANKING}?tier=top")
    again = await running.call("GET", f"{RANKING}?tier=top", None, {"If-None-Match": answer.headers["ETag"]})
    assert again.status == 304
