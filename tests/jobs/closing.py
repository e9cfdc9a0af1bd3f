"""Helpers for tests of closing: create the closing job of a world, and run one step or all steps of the job."""

from jobs.boards.close_periods import RESOURCE, CloseJob
from tests.jobs.world import World

LEASE_US = 1_000_000_000


def make_close_job(world: World) -> CloseJob:
    return CloseJob(world.control_context(), clock=world.deployment.clock.read)


async def run_step(world: World, job: CloseJob) -> bool:
    """Run one step of closing. Return True if the step had work to do."""
    async with world.hold_job_lease(RESOURCE, LEASE_US) as held:
        return await job.close_due(held)


async def close_all(world: World, job: CloseJob | None = None) -> None:
    """Run steps of closing until none has work to do."""
    job = job or make_close_job(world)
    async with world.hold_job_lease(RESOURCE, LEASE_US) as held:
        while await job.close_due(held):
            pass
