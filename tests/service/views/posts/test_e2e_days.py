"""Test that a post near midnight counts for exactly one day, even on days when the clocks change."""

import random
from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path

import pytest

from tests.schemas import fresh_store
from tests.service.killed_closing import KilledClosing
from tests.service.played_days import Days
from tests.service.real_service import RARELY, Service

KEPT_DAYS = 3
CASES = {
    "spring in Berlin": ("Europe/Berlin", date(2037, 3, 27), 5),
    "autumn in Berlin": ("Europe/Berlin", date(2037, 10, 24), 3),
    "midnight skipped in Santiago": ("America/Santiago", date(2037, 9, 4), 4),
    "an hour twice before midnight in Santiago": ("America/Santiago", date(2037, 4, 3), 3),
    "a year's end with a week 53": ("Australia/Sydney", date(2037, 12, 30), 6),
}


STORES = {
    "sqlite-shared": list(CASES),
    "sqlite-own": ["midnight skipped in Santiago"],
    "postgres-shared": ["autumn in Berlin"],
    "postgres-own": ["an hour twice before midnight in Santiago"],
}
PLAYED = [(store, case) for store, cases in STORES.items() for case in cases]


@pytest.fixture
async def service(request: pytest.FixtureRequest, tmp_path: Path, store: str) -> AsyncIterator[Service]:
    """Yield a service without jobs that is not started. The test closes the boards itself."""
    if store.startswith("sqlite"):
        yield Service(tmp_path, jobs="none")
        return
    async with fresh_store(request.getfixturevalue("postgres_url")) as url:
        yield Service(tmp_path, store=url, jobs="none")


@pytest.mark.parametrize(("store", "case"), PLAYED)
async def test_a_post_counts_in_the_periods_of_its_time_and_no_others(service: Service, store: str, case: str) -> None:
    zone, first, days = CASES[case]
    played = Days(service, zone, first, seed=len(case))
    async with service.running():
        predictor = {**RARELY, "exact_top": 7}
        await played.create(table=store.partition("-")[2], predictor=predictor, keep={"day": KEPT_DAYS})
        closing = KilledClosing(service.context, played.clock, random.Random(len(case)))

        async def close() -> None:
            if played.day.day % 3:  # skip the closing on every third day
                await closing.close_all()

        await played.play(days, after_day=close)
        await closing.close_all()
        assert closing.deaths > 0
        closed = set(played.plain.closed(played.clock.now_us))
        boards = {each["id"]: each for each in await played.boards()}
        assert {board for board in closed if boards[board]["closed"]} == closed
        assert any(each["archived"] for each in boards.values()) == (days > KEPT_DAYS)
        assert await played.differences() == []
        assert await played.counted() == played.plain.counted
