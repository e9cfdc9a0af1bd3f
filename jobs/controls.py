"""Runs this process's jobs, restarts those that fail, and lets operators run, pause and resume them.

    work ──> sleep ──> work …        run: ends the sleep now
               └── paused: the sleep lasts until an operator resumes the job, or runs it once

A pause begins between two rounds of a job, so a paused job leaves nothing half done. To let operators control it, a job
only has to sleep with the function that `JobControls.make_sleep` returns.

If a job raises an error, the error is logged and the job starts again after a pause. Stopping never hangs, because the
runner waits at most `job_stop_s_max` seconds, and then logs the names of jobs that did not end.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from config.settings import JobSettings
from storage.meter import Meter

from .errors import describe_failure, level_of

Sleep = Callable[[float], Awaitable[None]]


async def sleep_until_set(event: asyncio.Event, sleeping: Awaitable[None]) -> bool:
    """Wait until the event is set or the sleep ends, and return whether the event is set."""
    tasks = asyncio.ensure_future(sleeping), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            tasks[0].result()  # raises if the sleep failed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return event.is_set()


@dataclass(slots=True)
class _Control:
    paused: bool = False
    sleeps: set[asyncio.Event] = field(default_factory=set)  # one for each sleeping task; a set event ends the sleep


class JobControls:
    def __init__(self, sleep: Sleep, meter: Meter, *, monotonic: Callable[[], float]) -> None:
        self._sleep, self.meter, self._monotonic = sleep, meter, monotonic
        self._controls: dict[str, _Control] = {}

    def make_sleep(self, job: str) -> Sleep:
        """Create the function with which one of a job's tasks sleeps. Operators control all tasks of a job together.

        The sleep is shorter than the given seconds if an operator runs the job, and longer if the job is paused.
        """
        if job not in self._controls:
            self._controls[job] = _Control()
            # Adding 0 lets each counter appear before its first event.
            self.meter.add("rankcurve_job_rounds", 0, job)
            self.meter.add("rankcurve_job_busy_seconds", 0, job)
            self.meter.add("rankcurve_job_failures", 0, job)
            self.meter.set("rankcurve_job_paused", 0, job)
        control, began_s = self._controls[job], self._monotonic()

        async def sleep(seconds: float) -> None:
            nonlocal began_s
            self.meter.add("rankcurve_job_rounds", 1, job)
            self.meter.add("rankcurve_job_busy_seconds", self._monotonic() - began_s, job)
            self.meter.set("rankcurve_job_last_round_timestamp_seconds", time.time(), job)
            over = asyncio.Event()
            control.sleeps.add(over)
            try:
                if not await sleep_until_set(over, self._sleep(seconds)) and control.paused:
                    await over.wait()
            finally:
                control.sleeps.discard(over)
                began_s = self._monotonic()

        return sleep

    def run(self, job: str) -> bool:
        """Run the next round of a job now, even if it is paused. Return whether this process has the job."""
        control = self._controls.get(job)
        for over in () if control is None else control.sleeps:
            over.set()
        return control is not None

    def pause(self, job: str) -> bool:
        """Pause a job after its current round. Return whether this process has the job."""
        return self._set_paused(job, paused=True)

    def resume(self, job: str) -> bool:
        """Resume a paused job and end its sleep. Return whether this process has the job."""
        return self._set_paused(job, paused=False) and self.run(job)

    def _set_paused(self, job: str, *, paused: bool) -> bool:
        control = self._controls.get(job)
        if control is not None:
            control.paused = paused
            self.meter.set("rankcurve_job_paused", int(paused), job)
        return control is not None


log = structlog.get_logger(__name__)

Job = Callable[[], Awaitable[None]]

_DOUBLINGS_MAX = 30  # after that many doublings, a pause exceeds any allowed `job_backoff_s_max`


class Runner:
    def __init__(
        self,
        limits: JobSettings,
        *,
        monotonic: Callable[[], float],
        sleep: Sleep,
        rng: random.Random,
        controls: JobControls | None = None,  # counts failures for operators; None: failures are only logged
    ) -> None:
        self._limits, self._controls = limits, controls
        self._monotonic, self._sleep, self._rng = monotonic, sleep, rng
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._stopping = False

    def start(self, name: str, work: Job, *, job: str | None = None) -> None:
        """Run `work` in a task until it returns or `stop` is called. Whenever it raises, call it again.

        Operators know the job by the name `job`, or by `name` if `job` is None. Several tasks may belong to one job.
        """
        if self._stopping:
            raise RuntimeError(f"job {name!r} was started after the stop")
        task = asyncio.create_task(self._keep_running(name, work, job or name), name=f"job {name}")
        self._tasks[task] = name
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def stop(self) -> list[str]:
        """Cancel every job, and wait up to `job_stop_s_max` seconds. Return the names of jobs that did not end."""
        self._stopping = True
        if not self._tasks:
            return []
        names = dict(self._tasks)
        for task in names:
            task.cancel()
        _, left = await asyncio.wait(names, timeout=self._limits.job_stop_s_max)
        stuck = sorted(names[task] for task in left)
        if stuck:
            log.error("jobs_did_not_stop", jobs=stuck, waited_s=self._limits.job_stop_s_max)
        return stuck

    async def _keep_running(self, name: str, work: Job, job: str) -> None:
        failures = 0
        while True:
            started = self._monotonic()
            try:
                await work()
            except (Exception, asyncio.CancelledError) as error:
                # If the job itself was not cancelled, but something that it awaits was, the job has failed.
                if isinstance(error, asyncio.CancelledError) and (self._stopping or _cancelled()):
                    raise
                if self._monotonic() - started > self._limits.job_backoff_s_max:
                    failures = 0
                longest = min(self._limits.job_backoff_s_max, self._limits.job_backoff_base_s * 2.0**failures)
                pause_s = longest * self._rng.uniform(0.5, 1)
                failures = min(failures + 1, _DOUBLINGS_MAX)
                if self._controls is not None:
                    self._controls.meter.add("rankcurve_job_failures", 1, job)
                log.log(level_of(error), "job_failed", job=name, pause_s=round(pause_s, 3), **describe_failure(error))
            else:
                return
            await self._sleep(pause_s)


def _cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
