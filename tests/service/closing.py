"""Close and archive the boards that are due at a time that a test chooses.

The test runs the service's own closing job on the service's store. Only the clock of the job is replaced.
"""

import asyncio
import random
import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from jobs.boards.close_periods import RESOURCE, CloseJob
from jobs.controls import Sleep
from jobs.job_context import JobContext
from jobs.ownership import JOB_WORK, HeldLease
from service.context import Context
from service.wiring import make_work_leases
from storage.boards.catalog import Catalog
from storage.curves.stored_curves import CurveBook
from storage.leases.work_leases import WorkLeases
from storage.meter import NO_METER
from storage.reads.open_boards import OpenBoards
from storage.store import Program, Store
from tests.service.real_service import Service

LEASE_US = 100_000_000


def us(at: datetime) -> int:
    return round(at.timestamp() * 1e6)


class Times(NamedTuple):
    """The clock of a job, and the function by which the job pauses."""

    now_us: Callable[[], int]
    sleep: Sleep


def close_job(
    context: Context,
    store: Store,
    book: CurveBook,
    catalog: Catalog,
    boards: OpenBoards,
    leases: WorkLeases,
    times: Times,
) -> CloseJob:
    """Return a closing job with the settings of a service. The clock of `times` decides which boards the job closes."""
    now_us, sleep = times

    def clock() -> Program[int]:
        yield from ()
        return now_us()

    job_context = JobContext(
        store=store,
        catalog=catalog,
        book=book,
        open_boards=boards,
        leases=leases,
        holder="test",
        limits=context.settings,
        meter=NO_METER,
        now_us=now_us,
        monotonic=time.monotonic,
        sleep=sleep,
        rng=random.Random(1),
    )
    return CloseJob(job_context, clock=clock)


async def close_as_of(service: Service, at: datetime, *, steps: int = sys.maxsize) -> None:
    """Set the service's clock to `at`, and close every board that is due at that time, in at most `steps` steps."""
    context, now_us = service.context, us(at)
    object.__setattr__(context, "now_us", lambda: now_us)
    store, leases = context.store, make_work_leases(context.settings)
    book, times = context.curves.book, Times(lambda: now_us, asyncio.sleep)
    job = close_job(context, store, book, context.catalog, context.boards, leases, times)
    lease = await store.write(lambda: leases.claim(JOB_WORK, RESOURCE, holder="test", lease_us=LEASE_US))
    held = HeldLease(lease, leases, LEASE_US)
    while steps and await job.close_due(held):
        steps -= 1
    await store.write(held.release)
