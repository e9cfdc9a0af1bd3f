"""Close and archive the boards that are due at a time that a test chooses.

The test runs the service's own closing job on the service's store. Only the clock of the job is replaced.
"""

import asyncio
import random
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from jobs.boards.close_periods import RESOURCE, CloseJob
from jobs.job_context import JobContext
from jobs.ownership import JOB_WORK, HeldLease
from service.context import Context
from service.wiring import make_work_leases
from storage.meter import NO_METER
from storage.store import Program
from tests.service.real_service import WAIT_S, Service

LEASE_US = 100_000_000


def us(at: datetime) -> int:
    return round(at.timestamp() * 1e6)


def make_job_context(context: Context) -> JobContext:
    """Return what a job of this service receives."""
    return JobContext(
        store=context.store,
        catalog=context.catalog,
        book=context.curves.book,
        open_boards=context.boards,
        leases=make_work_leases(context.settings),
        holder="test",
        limits=context.settings,
        meter=NO_METER,
        now_us=context.now_us,
        monotonic=time.monotonic,
        sleep=asyncio.sleep,
        rng=random.Random(1),
    )


def close_job(job_context: JobContext) -> CloseJob:
    """Return a closing job that closes the boards which are due by the clock of `job_context`."""

    def clock() -> Program[int]:
        yield from ()
        return job_context.now_us()

    return CloseJob(job_context, clock=clock)


async def close_as_of(service: Service, at: datetime, *, steps: int = sys.maxsize) -> None:
    """Set the service's clock to `at`, and close every board that is due at that time, in at most `steps` steps."""
    context, now_us = service.context, us(at)
    object.__setattr__(context, "now_us", lambda: now_us)
    job_context = make_job_context(context)
    job, store, leases = close_job(job_context), context.store, job_context.leases
    lease = await store.write(lambda: leases.claim(JOB_WORK, RESOURCE, holder="test", lease_us=LEASE_US))
    held = HeldLease(lease, leases, LEASE_US)
    while steps and await job.close_due(held):
        steps -= 1
    await store.write(held.release)


async def grant_prize(service: Service) -> None:
    """Let the service end the contest `prize`, which ada wins, and return when the grants are made."""
    contest: dict[str, Any] = {"columns": [{"name": "xp", "merge": "sum"}], "grace_seconds": 0}
    await service.must("PUT", "/v1/leaderboards/prize", contest)
    await service.post_xp("prize", ada=1)
    gold = {"name": "gold", "column": "xp", "to_rank": 1, "data": {"coins": 5}}
    ends_at = datetime.now(UTC) + timedelta(seconds=0.5)
    await service.must("PUT", "/v1/leaderboards/prize", {**contest, "closes_at": ends_at, "rewards": [gold]})
    async with asyncio.timeout(WAIT_S):
        while not (await service.get("/v1/leaderboards/prize/grants"))["made"]:
            pass
