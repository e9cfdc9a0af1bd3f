"""Simulate a year of a family day by day, in two time zones with summer time, and compare every answer with a model.

python -m benchmarks.simulated_year [--rows N]     (fewer rows: fewer days)

The same year is simulated on SQLite and on PostgreSQL. Posts arrive in the last microsecond of every day, in the first
microsecond of the next day, within the time of grace, in the last microsecond of the grace, and after the grace. Some
posts arrive twice. A job closes and archives boards. It dies at random steps, as if its process were killed, and is
late on random days. Every answer, and in the end every board, is compared with a model in plain Python that shares no
code with the service.

Bars: no board differs from the model, no post counts in two periods of the same kind, no board is open after its end.
"""

import asyncio
import logging
import random
import time
from datetime import date
from pathlib import Path

import structlog

from benchmarks import report
from benchmarks.options import Options
from benchmarks.servers import POSTGRES_SETTINGS
from tests.schemas import fresh_schema
from tests.servers import postgres
from tests.service.killed_closing import KilledClosing
from tests.service.played_days import Days
from tests.service.real_service import Service

ZONES = ("Europe/Berlin", "America/Santiago")  # in Santiago clocks change at midnight
FIRST = date(2037, 3, 1)
KEEP = {"day": 30, "week": 8, "month": 3}
_CLOSING_RATIO = 0.7  # probability that the job runs on a day; otherwise it is late
_YEAR_DAYS = 366
_ROWS_A_DAY = 600  # about this many rows are written on a day: 48 posts to up to 15 boards each


async def _play_year(service: Service, zone: str, days: int) -> list[float]:
    """Simulate the year in one store and one zone. Return one row of the printed table."""
    played, rng = Days(service, zone, FIRST, seed=days), random.Random(days)
    await service.start()
    try:
        begun = time.perf_counter()
        closing = KilledClosing(service.context, played.clock, rng)

        async def close() -> None:
            if rng.random() < _CLOSING_RATIO:
                await closing.close_all()

        await played.create(table="shared", keep=KEEP, predictor={"refresh_seconds": 86_400, "exact_top": 8})
        await played.play(days, after_day=close)
        await closing.close_all()
        played_s = time.perf_counter() - begun
        counted, expected = await played.counted(), played.plain.counted
        off = sum(counted[kind] != expected[kind] for kind in counted | expected)
        boards = await played.boards()
        still_open = {each["id"] for each in boards if not each["closed"]}
        late = len(still_open.intersection(played.plain.closed(played.clock.now_us)))
        archived = sum(each["archived"] for each in boards)
        differing = len(await played.differences())
        return [days, played_s, played.accepted, len(boards), archived, closing.deaths, differing, off, late]
    finally:
        await service.stop()


async def _play_stores(days: int, folder: Path, url: str) -> dict[str, list[float]]:
    found = {}
    for number, zone in enumerate(ZONES):
        async with fresh_schema(url) as place:
            for name, store in (("SQLite", f"sqlite:///{folder}/year-{number}.db"), ("PostgreSQL", place)):
                service = Service(folder, store=store, jobs="none", log_sample_ratio=0)
                found[f"{name}, {zone}"] = await _play_year(service, zone, days)
    return found


def measure(options: Options, folder: Path) -> list[report.Bar]:
    # A closing job logs a traceback each time it dies, thousands in a year. So this process logs critical events only.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    days = min(_YEAR_DAYS, max(2, options.rows // _ROWS_A_DAY))
    with postgres(POSTGRES_SETTINGS) as cluster:
        found = asyncio.run(_play_stores(days, folder, cluster.url()))
    columns = ("", "days", "seconds", "posts", "boards", "archived", "deaths", "differ", "miscounted", "open")
    report.print_table(columns, [[name, *figures] for name, figures in found.items()])
    return [
        report.Bar("boards that differ from the model", sum(each[6] for each in found.values()), 0, at_most=True),
        report.Bar("kinds of periods miscounted", sum(each[7] for each in found.values()), 0, at_most=True),
        report.Bar("boards open past their time", sum(each[8] for each in found.values()), 0, at_most=True),
    ]


if __name__ == "__main__":
    report.run_program(
        measure, __doc__, "a simulated year, its days' edges and its clock changes", rows=_YEAR_DAYS * _ROWS_A_DAY
    )
