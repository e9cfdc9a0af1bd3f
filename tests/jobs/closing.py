"""Helpers for tests of closing: create the closing job of a world, and run one step or all steps of the job."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from jobs.boards.close_periods import RESOURCE, CloseJob
from jobs.ownership import JOB_POOL, HeldLease
from tests.jobs.world import World

LEASE_US = 1_000_000_000


def make_close_job(world: World) -> CloseJob:
    return CloseJob(world.context(), clock=world.store_clock)


@asynccontextmanager
async def hold_closing_lease(world: World) -> AsyncIterator[HeldLease]:
    lease = await world.store.write(
        lambda: world.leases.claim(JOB_POOL, RESOURCE, holder=world.holder, lease_us=LEASE_US)
    )
    held = HeldLease(lease, world.leases, LEASE_US)
    try:
        yield held
    finally:
        await world.store.write(held.release)


async def run_step(world: World, job: CloseJob) -> bool:
    """Run one step of closing. Return True if the step had work to do."""
    async with hold_closing_lease(world) as held:
        return await job.close_due(held)


async def close_all(world: World, job: CloseJob | None = None) -> None:
    """Run steps of closing until none has work to do."""
    job = job or make_close_job(world)
    async with hold_closing_lease(world) as held:
        while await job.close_due(held):
            pass
