"""Test that operators can end or extend a job's pause between two rounds, but never interrupt a round."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from jobs.controls import JobControls, Runner, Sleep
from tests.jobs.world import LIMITS, ManualTime, within
from tests.meter import RecordingMeter


class World:
    """Jobs that report each round they finish, on a clock that the test never advances."""

    def __init__(self, time: ManualTime) -> None:
        self.time, self.meter = time, RecordingMeter()
        self.controls = JobControls(time.elapse, self.meter, monotonic=time.monotonic)
        self.runner = Runner(
            LIMITS, monotonic=time.monotonic, sleep=time.elapse, rng=random.Random(1), controls=self.controls
        )
        self.rounds: asyncio.Queue[str] = asyncio.Queue()

    def start(self, name: str, work: Callable[[Sleep], Awaitable[None]] | None = None, *, job: str = "") -> None:
        rest = self.controls.make_sleep(job or name)

        async def run() -> None:
            while True:
                self.rounds.put_nowait(name)
                if work is not None:
                    await work(rest)
                await rest(60)

        self.runner.start(name, run, job=job or name)

    async def skip_round(self) -> None:
        """Let the time of a round pass. Check that no job begins one."""
        self.time.advance(60)
        for _ in range(20):
            await asyncio.sleep(0)
        assert self.rounds.empty()

    async def finish_round(self) -> str:
        """Wait until a job has finished a round and pauses again. Return the job's name."""
        name = await within(self.rounds.get())
        await self.time.wait_for_sleeper(60)
        return name


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World(ManualTime())
    yield made
    await made.runner.stop()


async def test_run_ends_a_rest_at_once_and_the_next_rest_has_its_full_length(world: World) -> None:
    world.start("prune")
    assert await world.finish_round() == "prune"
    assert world.controls.run("prune")
    assert await world.finish_round() == "prune"
    world.time.advance(59)
    assert world.rounds.empty()
    world.time.advance(1)
    assert await world.finish_round() == "prune"
    assert not world.controls.run("nobody")


async def test_a_paused_job_works_only_when_told_to_until_it_is_resumed(world: World) -> None:
    world.start("prune")
    await world.finish_round()
    assert world.controls.pause("prune")
    assert world.meter.gauges["rankcurve_job_paused prune"] == 1
    await world.skip_round()
    world.controls.run("prune")
    await world.finish_round()
    await world.skip_round()
    assert world.controls.resume("prune")
    await world.finish_round()
    assert world.meter.gauges["rankcurve_job_paused prune"] == 0


async def test_the_controls_treat_workers_of_one_job_as_one_and_leave_other_jobs_alone(world: World) -> None:
    workers = {"refresh schedule", "refresh worker 1", "refresh worker 2"}
    for name in workers:
        world.start(name, job="refresh")
    world.start("prune")
    assert {await within(world.rounds.get()) for _ in range(4)} == {*workers, "prune"}
    await world.time.wait_for_sleeper(60)
    assert [world.meter.gauges[f"rankcurve_job_paused {job}"] for job in ("refresh", "prune")] == [0, 0]
    world.controls.run("refresh")
    assert {await within(world.rounds.get()) for _ in range(3)} == workers
    assert world.rounds.empty()


async def test_work_is_timed_without_the_rest_also_in_a_task_of_the_job(world: World) -> None:
    async def work(rest: Sleep) -> None:
        async def inner() -> None:
            await world.time.elapse(3)
            await rest(60)

        await asyncio.ensure_future(inner())

    world.start("fold", work)
    await world.time.end_sleep(3)
    await world.time.wait_for_sleeper(60)
    seconds = world.meter.events["rankcurve_job_busy_seconds fold"]
    assert [seconds.get_nowait() for _ in range(2)] == [0, 3], "the first shows that the job exists"
    assert seconds.empty()
    world.controls.run("fold")
    assert await within(seconds.get()) == 0
    assert world.meter.counts["rankcurve_job_rounds fold"] == 2


async def test_a_failure_is_reported_and_ends_no_round(world: World) -> None:
    async def work(_rest: Sleep) -> None:
        raise ValueError("broken")

    world.start("audit", work)
    await world.time.wait_for_sleeper()
    assert world.meter.by_label("rankcurve_job_failures") == {"audit": 1}
    assert world.meter.by_label("rankcurve_job_rounds") == {}
