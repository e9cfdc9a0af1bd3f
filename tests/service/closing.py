"""A service whose boards are closed and archived as of the times that a test says.

The rule it keeps: the job is the service's own, on the service's store; only its clock is the test's.
"""

from __future__ import annotations

import asyncio
import time
from datetime import datetime

from jobs.archive import Archiver
from jobs.close_periods import POOL, RESOURCE, CloseJob
from jobs.fitting import Fitting
from jobs.ownership import Held, Ownership
from service.lease_wiring import leases_of
from service.metrics import Metrics
from service.wiring import job_limits
from storage.store import Program
from tests.service.real_service import Service

LEASE_US = 100_000_000


def us(at: datetime) -> int:
    """Microseconds since 1970."""
    return round(at.timestamp() * 1e6)


async def close_as_of(service: Service, at: datetime) -> None:
    """Do what is due by then, and have that be the service's time from now on."""
    context, now_us, metrics = service.context, us(at), Metrics()
    object.__setattr__(context, "now_us", lambda: now_us)
    store, limits, leases = context.store, job_limits(context.settings), leases_of(context.settings, context.store)

    def clock() -> Program[int]:
        yield from ()
        return now_us

    fitting = Fitting(
        store,
        store,
        context.boards,
        limits.refresh.fitting,
        metrics,
        now_us=lambda: now_us,
        monotonic=time.monotonic,
    )
    job = CloseJob(
        store,
        context.book,
        fitting,
        Archiver(store, context.catalog, context.boards, limits.archive, metrics.closings),
        Ownership(store, leases, limits.lease, holder="test", sleep=asyncio.sleep),
        limits.close,
        limits.archive,
        metrics.closings,
        clock=clock,
        monotonic=time.monotonic,
        sleep=asyncio.sleep,
    )
    lease = await store.write(lambda: leases.claim(POOL, RESOURCE, holder="test", lease_us=LEASE_US))
    held = Held(lease, leases, LEASE_US)
    while await job.step(held):
        pass
    await store.write(held.release)
