"""Why here: a post at the edge of a day must count in one day, on the days too on which clocks change."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path

import pytest

from tests.schemas import fresh_schema
from tests.service.killed_closing import KilledClosing
from tests.service.played_days import Days
from tests.service.real_service import RARELY, Service, escaped

CASES = {
    "spring in Berlin": ("Europe/Berlin", date(2037, 3, 27), 5),
    "autumn in Berlin": ("Europe/Berlin", date(2037, 10, 24), 3),
    "midnight skipped in Santiago": ("America/Santiago", date(2037, 9, 4), 4),
    "an hour twice before midnight in Santiago": ("America/Santiago", date(2037, 4, 3), 3),
    "a year's end with a week 53": ("Australia/Sydney", date(2037, 12, 30), 6),
}


@pytest.fixture(params=["sqlite-shared", "postgres-shared", "sqlite-own"])
async def service(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Service, str]]:
    """A service that is not started yet, and where its families keep their rows."""
    store, table = request.param.split("-")
    if store == "sqlite":
        yield Service(tmp_path, jobs="none"), table
        return
    async with fresh_schema(request.getfixturevalue("postgres_url")) as url:
        yield Service(tmp_path, store=url, jobs="none"), table


@pytest.mark.parametrize("case", CASES)
async def test_every_post_counts_in_the_periods_of_its_time_and_in_no_other(
    service: tuple[Service, str], case: str
) -> None:
    made, table = service
    zone, first, days = CASES[case]
    played = Days(made, zone, first, seed=len(case))
    await made.start()
    try:
        await played.create(table=table, predictor={**RARELY, "exact_top": 7}, keep={"day": 2, "week": 1})
        closing = KilledClosing(made.context, played.clock, random.Random(len(case)))

        async def close() -> None:
            if played.day.day % 3:  # else it is late
                await closing.close_all()

        await played.play(days, after_day=close)
        await closing.close_all()
        assert closing.deaths > 0
        for board in played.plain.closed(played.clock.now_us):
            assert (await made.get(f"/v1/leaderboards/{escaped(board)}"))["closed"]
        assert await played.differences() == []
        assert await played.counted() == played.plain.counted
    finally:
        await made.stop()
