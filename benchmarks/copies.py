"""Change boards through one process at random, and compare the answers of another one with those of a fresh process.

python -m benchmarks.copies [--rows N]     (fewer rows: fewer steps)

The other process has copies of boards and families, which the changes make outdated. The walk is taken on SQLite with
two fronts, with several services on PostgreSQL, with four partitions, and with segments there. The suite takes some of
these steps (`tests/service/views/test_copied_boards.py`).

Bar: in 10,000 steps on each store, no answer differs, no 304 is sent for a changed body, and no request fails with 500.
"""

import asyncio
import logging
import random
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import structlog

from benchmarks import report
from benchmarks.options import Options
from benchmarks.servers import POSTGRES_SETTINGS
from tests.schemas import PARTITIONS, add_partitions, fresh_schema
from tests.servers import postgres
from tests.service.copied_boards import Processes, Walk, fronts_and_owner, services

STEPS = 10_000
SEGMENTS = 3
_ROWS_A_STEP = 100
_STEPS_A_PROCESS = 500  # after this many, all processes are restarted on the same store


async def _walk(
    started: AbstractAsyncContextManager[Processes], seed: int, steps: int, *, segments: int, partitions: int
) -> Walk:
    async with started as processes:
        walk = Walk(processes, random.Random(seed), segments=segments, partitions=partitions)
        await walk.take_steps(steps)
        return walk


async def _measure(folder: Path, url: str, steps: int) -> dict[str, list[Walk]]:
    found: dict[str, list[Walk]] = {}
    async with fresh_schema(url) as plain, fresh_schema(url) as parted:
        await add_partitions(parted)
        for name, store, segments in (
            ("SQLite, two fronts", None, SEGMENTS),
            ("PostgreSQL", plain, 1),
            ("PostgreSQL, four partitions", parted, 1),
            ("PostgreSQL, segments", parted, SEGMENTS),
        ):
            partitions = PARTITIONS if store == parted else 1
            for begin in range(0, steps, _STEPS_A_PROCESS):
                started = fronts_and_owner(folder) if store is None else services(folder, store)
                taken = min(_STEPS_A_PROCESS, steps - begin)
                walk = await _walk(started, begin, taken, segments=segments, partitions=partitions)
                found.setdefault(name, []).append(walk)
    return found


def measure(options: Options, folder: Path) -> list[report.Bar]:
    # Each step logs its requests, so this process logs critical events only.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with postgres(POSTGRES_SETTINGS) as cluster:
        found = asyncio.run(_measure(folder, cluster.url(), min(STEPS, max(1, options.rows // _ROWS_A_STEP))))
    rows: list[list[str | float]] = []
    bars = []
    for name, walks in found.items():
        differing = [each for walk in walks for each in walk.differences]
        for difference in differing[:3]:
            print(difference)
        counts = [
            sum(counts) for counts in zip(*((each.steps, each.answered, each.unchanged) for each in walks), strict=True)
        ]
        rows.append([name, *counts])
        bars.append(report.Bar(f"{name}: differences", len(differing), 0, at_most=True))
    report.print_table(["store", "steps", "answers 200", "answers 304"], rows)
    return bars


if __name__ == "__main__":
    report.run_program(measure, __doc__, "Random changes of boards beside requests of another process")
