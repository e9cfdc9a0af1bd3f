"""Keeps the jobs of this process running. If a job raises, the error is logged and the job starts again after a pause.

Stopping never hangs: the runner waits at most `job_stop_s_max` seconds, and logs the names of jobs that did not end.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

import structlog

from config.settings import JobSettings

from .controls import JobControls, Sleep
from .errors import describe_failure, level_of

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
