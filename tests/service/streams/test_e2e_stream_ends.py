"""Streams of boards that have not begun, are closed, or were archived."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from storage.entries.rankings import Ranking
from storage.store import Program
from tests.schemas import fresh_schema
from tests.service.closing import close_as_of
from tests.service.event_stream import Seen, events_of
from tests.service.real_service import RARELY, Service

NOW = datetime.now(UTC).replace(microsecond=0)
HOUR = timedelta(hours=1)
COLUMNS = [{"name": "xp", "sorted": True, "merge": "last"}]
TOP = "/v1/leaderboards/{}/stream?column=xp&top=3"


@pytest.fixture(params=["sqlite", "postgres"])
async def service(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Service]:
    """A service whose jobs are the test's to run, on either store."""
    async with AsyncExitStack() as stack:
        more: dict[str, object] = {}
        if request.param == "postgres":
            more = {"store": await stack.enter_async_context(fresh_schema(request.getfixturevalue("postgres_url")))}
        made = Service(tmp_path, jobs="none", **more)
        await made.start()
        stack.push_async_callback(made.stop)
        yield made


async def season(service: Service) -> None:
    """A board that ends within the hour and is archived at once."""
    times = {"closes_at": (NOW + HOUR).isoformat(), "grace_seconds": 0, "keep_seconds": 0}
    body: dict[str, Any] = {"columns": COLUMNS, "predictor": {**RARELY, "exact_top": 1}, **times}
    await service.must("PUT", "/v1/leaderboards/s", body)
    await post(service, ada=30, bob=20, cleo=10)


async def post(service: Service, **xp: int) -> None:
    await service.post("s", *({"owner": owner, "stats": {"xp": value}} for owner, value in xp.items()))


def rows(event: Seen) -> list[tuple[str, int]]:
    return [(entry["owner"], entry["value"]) for entry in event.data["entries"]]


async def test_the_streams_of_a_board_that_is_closed_and_archived_tell_its_end_and_stay(service: Service) -> None:
    await season(service)
    path, bob = TOP.format("s"), "/v1/leaderboards/s/stream?column=xp&owner=bob"
    async with events_of(service.base, path) as before:
        await before.must("top")
        await close_as_of(service, NOW + HOUR)
        await close_as_of(service, NOW + 2 * HOUR)
        assert (await service.get("/v1/leaderboards/s"))["archived"] is True
        async with events_of(service.base, path) as top, events_of(service.base, bob) as owner:
            assert rows(await top.must("top")) == [("ada", 30), ("bob", 20), ("cleo", 10)]
            assert (await owner.must("position")).data["rank"] == 2
        assert service.context.feed.clients >= 1, "nothing has ended the stream from before"


async def test_who_is_erased_from_an_archive_is_not_told_to_who_comes_later(service: Service) -> None:
    await season(service)
    await close_as_of(service, NOW + HOUR)
    await close_as_of(service, NOW + 2 * HOUR)
    async with events_of(service.base, TOP.format("s")) as early:
        assert rows(await early.must("top"))[0] == ("ada", 30)
        await service.must("DELETE", "/v1/owners/ada")
        async with events_of(service.base, TOP.format("s")) as late:
            assert rows(await late.must("top")) == [("bob", 20), ("cleo", 10)]


async def test_the_stream_of_a_board_that_no_post_has_reached_ends_when_one_does(service: Service) -> None:
    await service.must("PUT", "/v1/families/f", {"columns": COLUMNS, "periods": ["all", "year"], "facets": [[]]})
    every, year = TOP.format("f:all"), TOP.format(f"f:{NOW.year}")
    async with events_of(service.base, every) as all_time, events_of(service.base, year) as of_year:
        first = await all_time.must("top")
        assert rows(first) == rows(await of_year.must("top")) == []
        posts = {"posts": [{"owner": "ada", "stats": {"xp": 5}, "at": NOW.isoformat()}]}
        await service.must("POST", "/v1/families/f/posts", posts)
        assert await all_time.next() is None
        assert await of_year.next() is None
    async with events_of(service.base, every, last_id=first.id) as all_time:
        assert rows(await all_time.must("top")) == [("ada", 5)]


async def test_boards_of_a_family_that_no_post_has_reached_are_streams_of_their_own(service: Service) -> None:
    await service.must("PUT", "/v1/families/f", {"columns": COLUMNS, "periods": ["all"], "facets": [[], ["org"]]})
    one, other = TOP.format("f:all"), TOP.format(quote("f:all:org=o1", safe=""))
    async with events_of(service.base, one) as everybody, events_of(service.base, other) as of_org:
        await everybody.must("top")
        await of_org.must("top")
        await service.must("POST", "/v1/families/f/posts", {"posts": [{"owner": "ada", "stats": {"xp": 5}}]})
        assert await everybody.next() is None
        facets = {"owner": "ada", "stats": {"xp": 5}, "facets": {"org": "o1"}}
        await service.must("POST", "/v1/families/f/posts", {"posts": [facets]})
        assert await of_org.next() is None


async def test_an_owner_that_moves_is_counted_from_the_curve_and_not_from_the_top(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"columns": COLUMNS, "predictor": {**RARELY, "exact_top": 5, "samples": 20}}
    await service.must("PUT", "/v1/leaderboards/s", body)
    await post(service, **{f"o{n:03}": n for n in range(300)})
    await service.restart(jobs="embedded")
    await service.refresh("s", "xp")
    counts: list[str] = []
    from_top = Ranking.count_better

    def counted(ranking: Ranking, cell: str) -> Program[int]:
        counts.append(cell)
        return from_top(ranking, cell)

    monkeypatch.setattr(Ranking, "count_better", counted)
    async with events_of(service.base, "/v1/leaderboards/s/stream?column=xp&owner=o010") as stream:
        assert (await stream.must("position")).data["rank"] == 290
        await post(service, o020=7)
        assert (await stream.must("position")).data["rank"] == 289
        await post(service, o010=150, o200=151)
        moved = await stream.until("position", value=150)
        assert moved.data["rank"] == 150, "149 are better, o200 among them, and o150 shares the rank"
    assert counts == []
