"""Test streams of boards that have not begun, are closed, or are archived."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from storage.leaves.row_rankings import RowRanking
from storage.store import Program
from tests.service.closing import close_as_of
from tests.service.event_stream import events_of
from tests.service.real_service import ONE_PROCESS, RARELY, Service

NOW = datetime.now(UTC).replace(microsecond=0)
HOUR = timedelta(hours=1)
COLUMNS = [{"name": "xp", "sorted": True, "merge": "last"}]
TOP = "/v1/leaderboards/{}/stream?column=xp&top=3"


@pytest.fixture
async def service(either_store: dict[str, Any], tmp_path: Path) -> AsyncIterator[Service]:
    """Start a service without jobs. The test itself runs the jobs that it needs."""
    async with Service(tmp_path, jobs="none", **either_store).running() as made:
        yield made


async def season(service: Service) -> None:
    times = {"closes_at": (NOW + HOUR).isoformat(), "grace_seconds": 0, "keep_seconds": 0}
    body: dict[str, Any] = {"columns": COLUMNS, "predictor": {**RARELY, "exact_top": 1}, **times}
    await service.must("PUT", "/v1/leaderboards/s", body)
    await service.post_xp("s", ada=30, bob=20, cleo=10)


@ONE_PROCESS
async def test_streams_of_a_closed_and_archived_board_show_its_final_ranks_and_stay_open(service: Service) -> None:
    await season(service)
    path, bob = TOP.format("s"), "/v1/leaderboards/s/stream?column=xp&owner=bob"
    async with events_of(service.base, path) as before:
        await before.expect_event("top")
        await close_as_of(service, NOW + HOUR)
        await close_as_of(service, NOW + 2 * HOUR)
        assert (await service.get("/v1/leaderboards/s"))["archived"] is True
        async with events_of(service.base, path) as top, events_of(service.base, bob) as owner:
            assert (await top.expect_event("top")).rows == [("ada", 30), ("bob", 20), ("cleo", 10)]
            assert (await owner.expect_event("position")).data["rank"] == 2
        assert service.context.feeds.clients >= 1, "the earlier stream is still open"
    nobody = bob.replace("bob", "nobody")
    assert await service.refused("GET", nobody) == (404, "unknown_owner"), "no post can come any more"


async def test_a_new_stream_of_an_archive_shows_no_erased_owner(service: Service) -> None:
    await season(service)
    await close_as_of(service, NOW + HOUR)
    await close_as_of(service, NOW + 2 * HOUR)
    async with events_of(service.base, TOP.format("s")) as early:
        assert (await early.expect_event("top")).rows[0] == ("ada", 30)
        await service.must("DELETE", "/v1/owners/ada")
        async with events_of(service.base, TOP.format("s")) as late:
            assert (await late.expect_event("top")).rows == [("bob", 20), ("cleo", 10)]


async def test_the_rank_of_a_moved_owner_is_counted_from_a_knot_and_not_from_the_top(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"columns": COLUMNS, "predictor": {**RARELY, "exact_top": 5, "samples": 20}}
    await service.must("PUT", "/v1/leaderboards/s", body)
    await service.post_xp("s", **{f"o{n:03}": n for n in range(300)})
    await service.restart(jobs="embedded")
    await service.refresh("s", "xp")
    counts: list[str] = []
    from_top = RowRanking.count_better

    def counted(ranking: RowRanking, cell: str) -> Program[int]:
        counts.append(cell)
        return from_top(ranking, cell)

    monkeypatch.setattr(RowRanking, "count_better", counted)
    async with events_of(service.base, "/v1/leaderboards/s/stream?column=xp&owner=o010") as stream:
        assert (await stream.expect_event("position")).data["rank"] == 290
        await service.post_xp("s", o020=7)
        assert (await stream.expect_event("position")).data["rank"] == 289
        await service.post_xp("s", o010=150, o200=151)
        moved = await stream.await_event("position", value=150)
        assert moved.data["rank"] == 150, "149 are better, o200 among them, and o150 shares the rank"
    assert counts == []
