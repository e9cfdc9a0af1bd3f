"""Why here: a post at the edge of a day must count in one day, on the days too on which clocks change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path

import pytest

from tests.schemas import fresh_schema
from tests.service.played_days import Days
from tests.service.real_service import Service

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
        yield Service(tmp_path), table
        return
    async with fresh_schema(request.getfixturevalue("postgres_url")) as url:
        yield Service(tmp_path, store=url), table


@pytest.mark.parametrize("case", CASES)
async def test_every_post_counts_in_the_periods_of_its_time_and_in_no_other(
    service: tuple[Service, str], case: str
) -> None:
    made, table = service
    zone, first, days = CASES[case]
    played = Days(made, zone, first, seed=len(case))
    await made.start()
    try:
        await played.create(table=table)
        await played.play(days)
        assert await played.differences() == []
        assert await played.counted() == played.plain.counted
    finally:
        await made.stop()
