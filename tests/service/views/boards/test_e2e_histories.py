"""Test an owner's history and the comparison with the previous period. Both agree with the boards of those times.

The tests run on every store.
"""

import random
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from service.views.boards import families
from storage.boards.families import delete_family, put_family
from tests.service.closing import close_as_of
from tests.service.killed_closing import KilledClosing
from tests.service.real_service import RARELY, Service, without
from tests.storage.deployment import Clock

F = "/v1/families/game"
HISTORY = f"{F}/owners/ada/history"
DAY_S, GRACE_S = 86_400, 3_600
# Two days before Berlin's clocks change, and far in the future. Jobs close boards by the clock of the store, so they
# close none of these boards.
FIRST = datetime(2037, 3, 27, 12, tzinfo=UTC)
SPEC: dict[str, Any] = {
    "columns": [
        {"name": "xp", "sorted": True, "merge": "sum"},
        {"name": "lap", "sorted": True, "merge": "last", "best": "low", "scale": 3, "min": 0},
    ],
    "periods": ["all", "week", "day"], "facets": [[], ["org"]], "time_zone": "Europe/Berlin", "grace_seconds": GRACE_S,
    "predictor": RARELY,
}  # fmt: skip


class Played(Service):
    """A service whose clock only the test moves."""

    def __init__(self, folder: Path, **settings: object) -> None:
        super().__init__(folder, **settings)
        self.now = Clock(round(FIRST.timestamp() * 1e6))
        self.clock = self.now

    def pass_days(self, days: int) -> None:
        self.now.now_us += days * DAY_S * 1_000_000

    async def post_all(self, **values: int) -> None:
        """Post a value of xp for each of these owners at the current time.

        Fail unless the service applies every post.
        """
        posts = [{"owner": owner, "stats": {"xp": value}} for owner, value in values.items()]
        results = (await self.must("POST", f"{F}/posts", {"posts": posts}))["results"]
        assert {each["status"] for each in results} == {"applied"}


@pytest.fixture
async def service(either_store: dict[str, Any], table: str, tmp_path: Path) -> AsyncIterator[Played]:
    async with Played(tmp_path, **either_store).running() as made:
        await made.must("PUT", F, {**SPEC, "table": table})
        yield made


def day(at: date) -> str:
    return f"game:{at.isoformat()}"


def path(board: str) -> str:
    return f"/v1/leaderboards/{quote(board, safe='')}"


async def positions(service: Service, board: str, query: str = "", owner: str = "ada") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await service.get(f"{path(board)}/entries/{owner}/positions?{query}"))["positions"]
    return found


TODAY = FIRST.date() + timedelta(days=1)
YESTERDAY = FIRST.date()


async def test_a_position_is_compared_with_the_period_before(service: Played) -> None:
    await service.post_all(ada=50, bob=70, cleo=60, dan=10)
    service.pass_days(1)
    await service.post_all(ada=65, bob=90, eve=80, dan=5)
    [now] = await positions(service, day(TODAY), "columns=xp&compare=previous")
    assert (now["rank"], now["value"], now["total"]) == (3, 65, 4)
    before = now["previous"]
    assert before["board"] == day(YESTERDAY)
    assert before["position"] == (await positions(service, day(YESTERDAY), "columns=xp"))[0] | {
        "as_of": before["position"]["as_of"]
    }
    assert (before["position"]["rank"], before["value_position"]["rank"]) == (3, 2)
    assert before["value_position"]["value"] == 65


async def test_a_comparison_ranks_a_fallen_value_below_the_owners_earlier_entry(service: Played) -> None:
    await service.post_all(ada=50, bob=20)
    service.pass_days(1)
    await service.post_all(ada=30, bob=20)
    [now] = await positions(service, day(TODAY), "columns=xp&compare=previous")
    values = await service.get(f"{path(day(YESTERDAY))}/rankings/xp/positions?values=30")
    assert now["previous"]["value_position"]["rank"] == values["positions"][0]["rank"] == 2


async def test_a_comparison_without_a_previous_position_is_null(service: Played) -> None:
    await service.post_all(ada=50)
    [first, lap] = await positions(service, day(YESTERDAY), "compare=previous")
    assert first["previous"]["position"] is None
    assert (first["previous"]["value_position"]["rank"], first["previous"]["value_position"]["total"]) == (1, 0)
    previous = {"board": day(YESTERDAY - timedelta(days=1)), "position": None, "value_position": None}
    assert lap == {"column": "lap", "value": None, "rank": None, "previous": previous}
    service.pass_days(1)
    await service.post_all(bob=70)
    [new] = await positions(service, day(TODAY), "columns=xp&compare=previous", "bob")
    assert new["previous"]["position"] is None
    assert (new["previous"]["value_position"]["rank"], new["previous"]["value_position"]["total"]) == (1, 1)
    [ever] = await positions(service, "game:all", "columns=xp&compare=previous")
    assert ever["previous"] is None
    assert "previous" not in (await positions(service, "game:all", "columns=xp"))[0]


async def test_a_comparison_is_possible_only_on_boards_of_periods_with_the_previous_one(service: Played) -> None:
    await service.board("plain", {"name": "xp"}, table="shared")
    await service.post_xp("plain", ada=1)
    plain = f"{path('plain')}/entries/ada/positions?compare=previous"
    assert await service.refused("GET", plain) == (400, "bad_request")
    assert await service.refused("GET", plain.replace("previous", "next")) == (400, "bad_request")
    today = f"{path(day(TODAY))}/entries/ada/positions?compare=previous"
    assert await service.refused("GET", today) == (404, "unknown_owner")


@pytest.mark.parametrize("mode", ["auto", "exact", "estimate"])
async def test_comparisons_and_histories_are_true_on_low_columns_curves_and_facets(service: Played, mode: str) -> None:
    rng = random.Random(7)
    laps: list[dict[str, int]] = []
    for number in range(3):
        laps.append({f"o{index}": rng.randrange(1_000, 9_000) for index in rng.sample(range(80), 60)})
        texts = {owner: f"{lap / 1000:.3f}" for owner, lap in laps[-1].items()}
        posts = [{"owner": owner, "stats": {"lap": text}, "facets": {"org": "7"}} for owner, text in texts.items()]
        await service.must("POST", f"{F}/posts", {"posts": posts})
        board = f"{day(YESTERDAY + timedelta(days=number))}:org=7"
        await service.refresh(quote(board, safe=""), "lap")
        service.pass_days(1)
    for owner in laps[2]:
        query = f"columns=lap&compare=previous&rank={mode}"
        [now] = await positions(service, board, query, owner)
        before = now["previous"]
        rank_then = sum(lap < laps[1].get(owner, 0) for lap in laps[1].values()) + 1
        value_rank = sum(lap < laps[2][owner] for lap in laps[1].values()) + 1
        assert before["value_position"]["low"] <= value_rank <= before["value_position"]["high"]
        assert (before["position"] is None) == (owner not in laps[1])
        if before["position"] is not None:
            assert before["position"]["low"] <= rank_then <= before["position"]["high"]
    for owner in laps[1]:
        told = await service.get(f"{F}/owners/{owner}/history?period=day&column=lap&org=7&rank={mode}")
        for each, day_laps in zip(told["history"], reversed(laps), strict=True):
            found = each["position"]
            assert (found is None) == (owner not in day_laps)
            if found is not None:
                true_rank = sum(lap < day_laps[owner] for lap in day_laps.values()) + 1
                assert found["low"] <= true_rank <= found["high"]
                assert mode != "exact" or found["rank"] == true_rank


async def test_a_history_lists_every_closed_period_with_posts_newest_first(service: Played) -> None:
    await service.post_all(ada=50, bob=70)
    service.pass_days(1)
    await service.post_all(bob=5)
    service.pass_days(1)
    await service.post_all(ada=50, bob=20)
    service.pass_days(2)
    await service.post_all(ada=1, bob=2)
    told = await service.get(f"{HISTORY}?period=day&column=xp")
    assert (told["owner"], told["column"], told["next"]) == ("ada", "xp", None)
    days = [YESTERDAY + timedelta(days=number) for number in (2, 1, 0)]
    assert [each["board"] for each in told["history"]] == [day(each) for each in days]
    assert all(each["period"]["closed"] for each in told["history"])
    ranks = [each["position"] and each["position"]["rank"] for each in told["history"]]
    assert ranks == [1, None, 2], "nobody played on the 30th, ada did not on the 28th"
    clocks_changed = {"starts_at": "2037-03-28T23:00:00.000000Z", "ends_at": "2037-03-29T22:00:00.000000Z"}
    assert told["history"][0]["period"] == {"name": "2037-03-29", "closed": True, **clocks_changed}
    weeks = await service.get(f"{HISTORY}?period=week&column=xp")
    assert [each["board"] for each in weeks["history"]] == ["game:2037-W13"]
    assert weeks["history"][0]["position"]["value"] == 100
    faceted = await service.get(f"{HISTORY}?period=day&column=xp&org=7")
    assert (faceted["history"], faceted["next"]) == ([], None)


async def test_a_history_with_long_breaks_is_read_to_its_end(service: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "HISTORY_EXAMINED_MAX", 8)
    for pause in (1, 5, 30, 1, 1, 40):
        await service.post_all(ada=pause)
        service.pass_days(pause)
    for limit in (1, 2, 5):
        pages = [page async for page in service.pages(f"{HISTORY}?period=day&column=xp&limit={limit}")]
        assert [each["position"]["value"] for page in pages for each in page["history"]] == [40, 1, 1, 30, 5, 1]
        assert all(len(page["history"]) <= limit for page in pages)


async def test_a_period_enters_the_history_when_its_grace_is_over(service: Played) -> None:
    await service.post_all(ada=50)
    closes = datetime(2037, 3, 27, 23, tzinfo=UTC) + timedelta(seconds=GRACE_S)
    service.now.now_us = round(closes.timestamp() * 1e6) - 1
    assert (await service.get(f"{HISTORY}?period=day&column=xp"))["history"] == []
    service.now.now_us += 1
    assert len((await service.get(f"{HISTORY}?period=day&column=xp"))["history"]) == 1


async def test_a_caller_reads_a_history_page_by_page(service: Played) -> None:
    for number in range(7):
        await service.post_all(ada=number + 1)
        service.pass_days(1)
    pages = [page async for page in service.pages(f"{HISTORY}?period=day&column=xp&limit=3")]
    assert [each["position"]["value"] for page in pages for each in page["history"]] == [7, 6, 5, 4, 3, 2, 1]
    for query, refusal in (
        (f"period=week&column=xp&cursor={pages[0]['next']}", (400, "bad_cursor")),
        (f"period=day&column=xp&org=1&cursor={pages[0]['next']}", (400, "bad_cursor")),
        ("period=day&column=no", (404, "unknown_column")),
        ("period=day", (400, "column_needed")),
        ("period=month&column=xp", (404, "unknown_board")),
        ("period=all&column=xp", (400, "bad_request")),
        ("period=day&column=xp&league=1", (404, "unknown_board")),
    ):
        assert await service.refused("GET", f"{HISTORY}?{query}") == refusal, query
    unknown = "/v1/families/none/owners/ada/history?period=day&column=xp"
    assert await service.refused("GET", unknown) == (404, "unknown_family")


async def test_a_history_of_archived_periods_answers_as_before(service: Played, table: str) -> None:
    rng = random.Random(4)
    owners = [f"o{number}" for number in range(30)] + ["ada"]
    for _ in range(5):
        await service.post_all(**{owner: rng.randint(1, 12) for owner in rng.sample(owners, 20)})
        service.pass_days(1)
    await service.post_all(ada=7)
    today = day(YESTERDAY + timedelta(days=5))
    history = f"{F}/owners/{{}}/history?period=day&column=xp"
    compared = "columns=xp&compare=previous&rank=exact"
    before = {owner: (await service.get(history.format(owner)))["history"] for owner in owners}
    [position] = await positions(service, today, compared)
    await service.must("PUT", F, {**SPEC, "table": table, "keep": {"day": 1}})
    await service.restart(jobs="none")
    closing = KilledClosing(service.context, service.clock, rng)
    for _ in range(2):  # the newest closed board keeps its rows until the board of the next day is closed
        await closing.close_all()
        after = {owner: (await service.get(history.format(owner)))["history"] for owner in owners}
        assert without(after, "as_of", "method") == without(before, "as_of", "method")
        [again] = await positions(service, today, compared)
        assert without(again, "as_of", "method") == without(position, "as_of", "method")
        service.pass_days(1)
        await service.post_all(ada=1)
        before = {owner: (await service.get(history.format(owner)))["history"] for owner in owners}
    archived = [(await service.get(path(each["board"])))["archived"] for each in before["ada"]]
    assert archived == [False, False, True, True, True, True, True]


async def test_a_history_notices_what_another_process_did_to_the_family(service: Played) -> None:
    await service.post_all(ada=50)
    service.pass_days(1)
    await service.post_all(ada=60)
    store = service.context.store
    family = await service.context.catalog.families.find_family("game")
    await store.write(lambda: delete_family(family_id="game"))
    now_us = service.now.now_us
    await store.write(lambda: put_family(family_id="game", spec=family.spec, now_us=now_us, families_max=9))
    told = await service.get(f"{HISTORY}?period=day&column=xp")
    assert told["history"] == [], "no period has closed since the family was created again"
    await store.write(lambda: delete_family(family_id="game"))
    assert await service.refused("GET", f"{HISTORY}?period=day&column=xp") == (404, "unknown_family")
    compared = f"{path(day(TODAY))}/entries/ada/positions?compare=previous"
    assert await service.refused("GET", compared) == (404, "unknown_board")


async def test_a_history_has_what_archives_keep_under_an_earlier_id(tmp_path: Path) -> None:
    async with Played(tmp_path, jobs="none").running() as service:
        await service.must("PUT", F, {**SPEC, "keep": {"day": 1, "week": 9}})
        for posted in ({"guest": 50, "bob": 70}, {"ada": 5, "bob": 7}, {"guest": 2, "ada": 3}):
            await service.post_all(**posted)
            service.pass_days(1)
        await close_as_of(service, datetime.fromtimestamp(service.now.now_us / 1e6, UTC))
        merged = (await service.must("POST", "/v1/owners/guest/merge", {"into": "ada"}))["boards"]
        found = {each["board"]: each.get("error", {}).get("code") or each["stats"]["xp"] for each in merged}
        assert found == {"game:all": 60, "game:2037-W13": 60, "game:2037-03-27": "archived", "game:2037-03-29": 5}
        told = await service.get(f"{HISTORY}?period=day&column=xp")
        assert [each["position"]["value"] for each in told["history"]] == [5, 5, 50]
        away = f"{F}/owners/guest/history?period=day&column=xp"
        assert await service.refused("GET", away) == (404, "owner_merged")
