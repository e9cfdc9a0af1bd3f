"""Test the runner of jobs. If a job ended unnoticed, curves would become old.

If it never ended, shutdown would hang.
"""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from config.settings import JobSettings
from jobs.controls import Runner
from storage.errors import StoreBusyError, StoreDamagedError
from tests.jobs.world import LIMITS, ManualTime, within


@pytest.fixture
async def time() -> ManualTime:
    return ManualTime()


@pytest.fixture
async def runner(time: ManualTime) -> AsyncIterator[Runner]:
    """Provide a runner. All its jobs must end when the test stops it."""
    made = make_runner(time)
    yield made
    assert await within(made.stop()) == []


def make_runner(time: ManualTime, limits: JobSettings = LIMITS) -> Runner:
    return Runner(limits, monotonic=time.monotonic, sleep=time.elapse, rng=random.Random(1))


async def fail() -> None:
    raise ValueError("broken")


async def test_a_job_that_raises_runs_again_after_pauses_that_grow_up_to_a_bound(
    time: ManualTime, runner: Runner
) -> None:
    runner.start("broken", fail)
    pauses = [await time.end_sleep() for _ in range(8)]
    assert all(longest / 2 <= pause <= longest for pause, longest in zip(pauses, [1, 2, 4, 8, 8, 8, 8, 8], strict=True))


@pytest.mark.parametrize(
    "error", [StoreDamagedError(), StoreBusyError("the store failed: it is old"), ValueError("no")]
)
async def test_only_an_error_that_the_store_does_not_explain_is_logged_with_its_traceback(
    time: ManualTime, runner: Runner, error: Exception
) -> None:
    async def broken() -> None:
        raise error

    with capture_logs() as lines:
        runner.start("broken", broken)
        await time.end_sleep()
    told = {"exc_info": error} if isinstance(error, ValueError) else {"detail": str(error)}
    level = "debug" if isinstance(error, StoreDamagedError) else "error"  # the store itself logs the damage
    assert lines[0] == {"event": "job_failed", "log_level": level, "job": "broken", **told} | {
        "pause_s": lines[0]["pause_s"]
    }


async def test_a_job_that_ran_well_for_long_begins_with_short_pauses_again(time: ManualTime, runner: Runner) -> None:
    async def broken() -> None:
        await time.elapse(100)
        await fail()

    runner.start("broken", broken)
    for _ in range(4):
        await time.end_sleep(100)
        assert await time.end_sleep() <= 1


async def test_a_job_runs_again_after_something_that_it_awaits_is_cancelled(time: ManualTime, runner: Runner) -> None:
    runs: asyncio.Queue[None] = asyncio.Queue()

    async def awaits_something_cancelled() -> None:
        runs.put_nowait(None)
        gone = asyncio.get_running_loop().create_future()
        gone.cancel()
        await gone

    runner.start("awaits", awaits_something_cancelled)
    await within(runs.get())
    await time.end_sleep()
    await within(runs.get())


def list_running() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("job ")}


async def test_a_job_that_returns_has_ended_and_other_jobs_run_on(time: ManualTime, runner: Runner) -> None:
    ended = asyncio.Event()

    async def short() -> None:
        ended.set()

    runner.start("long", lambda: time.elapse(1))
    runner.start("short", short)
    assert list_running() == {"job long", "job short"}
    await within(ended.wait())
    await asyncio.sleep(0)
    assert list_running() == {"job long"}
    assert await runner.stop() == []
    assert list_running() == set()


async def test_stopping_cancels_a_pause_as_well_as_a_run(time: ManualTime, runner: Runner) -> None:
    runner.start("broken", fail)
    await time.wait_for_sleeper()
    assert await within(runner.stop()) == []
    with pytest.raises(RuntimeError):
        runner.start("late", fail)


async def test_stopping_leaves_behind_a_job_that_does_not_end_within_the_bound(time: ManualTime) -> None:
    let_go, started = asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        started.set()
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    runner = make_runner(time, LIMITS.model_copy(update={"job_stop_s_max": 0.1}))
    runner.start("stubborn", stubborn)
    runner.start("willing", lambda: time.elapse(1))
    await within(started.wait())
    assert await within(runner.stop()) == ["stubborn"]
    let_go.set()
