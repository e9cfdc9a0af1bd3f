"""Lets operators run, pause and resume jobs, and reports the rounds and failures of jobs to operators.

    work ──> sleep ──> work …        run: ends the sleep now
               └── paused: the sleep lasts until an operator resumes the job, or runs it once

A pause begins between two rounds of a job, so a paused job leaves nothing half done. To be controlled, a job only
has to sleep with the function that `JobControls.make_sleep` returns.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from storage.meter import Meter

Sleep = Callable[[float], Awaitable[None]]


async def sleep_until_set(event: asyncio.Event, sleeping: Awaitable[None]) -> bool:
    """Wait until the event is set or the sleep ends. Return whether the event is set."""
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
        """Return the function with which one task of a job sleeps. Operators control all tasks of a job together.

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
        """Let a job run its next round now, even if the job is paused. Return whether this process has the job."""
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
