"""Measure the time to close and archive a season and 10,000 small boards, and the size of the archive, on both stores.

    python -m benchmarks.archives [--rows N]

The large board is a season of 200,000 owners with 6 ranked columns. The small boards belong to one day of a family.
Posts write the rows, and the service's own job closes and archives the boards. Requests for positions are timed before
and after the job replaces the rows by an archive.

All figures are only reported; there is no bar.
"""

import asyncio
import random
import statistics
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.boards import board_spec, column_names
from benchmarks.options import Options
from benchmarks.servers import POSTGRES_SETTINGS
from querybuilder import col, select
from storage.archive.blocks import OWNERS
from storage.schema.tables import ARCHIVE_BLOCKS
from tests.schemas import fresh_schema
from tests.servers import postgres
from tests.service.closing import close_as_of
from tests.service.real_service import Service

_COLUMNS = 6
_BATCH = 5_000
_SMALL = 10_000
_OWNERS = 20
_READS = 300
_END = datetime.now(UTC) + timedelta(hours=2)


def _owner(rng: random.Random) -> str:
    return str(rng.randrange(10**18, 10**19))


async def _fill_season(service: Service, rows: int, rng: random.Random) -> list[str]:
    body = {**board_spec(column_names(_COLUMNS)), "closes_at": _END.isoformat(), "grace_seconds": 0, "keep_seconds": 60}
    await service.must("PUT", "/v1/leaderboards/season", body)
    owners = [_owner(rng) for _ in range(rows)]
    for start in range(0, rows, _BATCH):
        posts = [
            {"owner": owner, "stats": {name: rng.randrange(1_000_000) for name in column_names(_COLUMNS)}}
            for owner in owners[start : start + _BATCH]
        ]
        await service.must("POST", "/v1/leaderboards/season/posts", {"posts": posts})
    return owners


async def _time_positions(service: Service, owners: list[str], rng: random.Random) -> float:
    took = []
    for owner in rng.choices(owners, k=_READS):
        begun = time.perf_counter()
        await service.get(
            f"/v1/leaderboards/season/entries/{owner}/positions?columns={column_names(_COLUMNS)[0]}&rank=exact"
        )
        took.append(1000 * (time.perf_counter() - begun))
    return statistics.median(took)


async def _bytes_an_owner(service: Service, rows: int) -> tuple[float, float]:
    """Return the archive's bytes per owner, first for its blocks of rows and then for all its other blocks."""
    store = service.context.store
    found = await store.read_query(select(col("section"), col("document")).from_(ARCHIVE_BLOCKS).bind())
    owners = sum(len(document) for section, document in found if section == OWNERS)
    return owners / rows, sum(len(document) for _, document in found) / rows - owners / rows


async def _measure_season(service: Service, rows: int) -> list[float]:
    rng = random.Random(1)
    owners = await _fill_season(service, rows, rng)
    begun = time.perf_counter()
    await close_as_of(service, _END)
    closed_s = time.perf_counter() - begun
    before_ms = await _time_positions(service, owners, rng)
    begun = time.perf_counter()
    await close_as_of(service, _END + timedelta(seconds=60))
    archived_s = time.perf_counter() - begun
    after_ms = await _time_positions(service, owners, rng)
    return [rows, closed_s, rows / archived_s, *(await _bytes_an_owner(service, rows)), before_ms, after_ms]


async def _measure_small(service: Service, boards: int) -> list[float]:
    """Close and archive the small boards. Return the boards closed per second and the boards archived per second."""
    family: dict[str, Any] = {**board_spec(["xp"]), "periods": ["day"], "facets": [["org"]], "grace_seconds": 0}
    await service.must("PUT", "/v1/families/small", {**family, "keep": {"day": 1}})
    rng, now = random.Random(2), datetime.now(UTC)
    posts = [
        {"owner": str(owner), "stats": {"xp": rng.randrange(1_000)}, "facets": {"org": str(org)}, "at": now.isoformat()}
        for org in range(boards)
        for owner in range(_OWNERS)
    ]
    for start in range(0, len(posts), _BATCH):
        await service.must("POST", "/v1/families/small/posts", {"posts": posts[start : start + _BATCH]})
    rates = []
    for days in (1, 2):
        begun = time.perf_counter()
        await close_as_of(service, datetime(now.year, now.month, now.day, tzinfo=UTC) + timedelta(days=days))
        rates.append(boards / (time.perf_counter() - begun))
    return rates


async def _measure_stores(options: Options, folder: Path, url: str) -> tuple[list[list[Any]], list[list[Any]]]:
    large, small = [], []
    boards = max(10, min(_SMALL, options.rows // _OWNERS))
    async with fresh_schema(url) as place:
        for name, store in (("SQLite", f"sqlite:///{folder}/archives.db"), ("PostgreSQL", place)):
            service = Service(folder, store=store, jobs="none", log_sample_ratio=0, sqlite_cache_mib=256)
            await service.start()
            try:
                large.append([name, *(await _measure_season(service, options.rows))])
                small.append([name, boards, *(await _measure_small(service, boards))])
            finally:
                await service.stop()
    return large, small


def measure(options: Options, folder: Path) -> list[report.Bar]:
    with postgres(POSTGRES_SETTINGS) as cluster:
        large, small = asyncio.run(_measure_stores(options, folder, cluster.url()))
    report.print_table(
        ("", "owners", "closed s", "archived/s", "bytes/owner", "bytes/owner ranks", "rows ms", "archive ms"), large
    )
    report.print_table(("", "boards", "closed/s", "archived/s"), small)
    return [
        report.Bar("bytes an owner of an archive, most", max(sum(each[4:6]) for each in large), None),
        report.Bar("boards closed a second, least", min(each[2] for each in small), None),
        report.Bar("boards archived a second, least", min(each[3] for each in small), None),
    ]


if __name__ == "__main__":
    report.run_program(measure, __doc__, f"closing and archiving, {{rows:,}} owners x {_COLUMNS} columns", rows=200_000)
