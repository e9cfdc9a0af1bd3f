"""Lets operators run, pause and resume jobs, and reports the rounds and failures of jobs to operators.

    work ──> sleep ──> work …        run: ends the sleep now
               └── paused: the sleep lasts until an operator resumes the job, or runs it once

A pause begins between two rounds of a job, so a paused job leaves nothing half done. A job only has to sleep with
`JobControls.sleep`, which finds the job of the calling task in a context variable.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Protocol

Sleep = Callable[[float], Awaitable[None]]

_PART_OF = re.compile(r" (?:schedule|worker \d+)$")  # matches the part of a task's name after the name of its job


class JobObserver(Protocol):
    """Reports of the jobs to operators. `job` is the name that operators know."""

    def job_round_ended(self, job: str, seconds: float) -> None:
        """Record that a job worked for `seconds` and begins to sleep."""

    def job_failed(self, job: str) -> None:
        """Record that a job raised an error; it will start again."""

    def job_paused(self, job: str, *, paused: bool) -> None:
        """Record that a job was started, paused or resumed, and whether it is paused now."""


class _Control:
    def __init__(self) -> None:
        self.paused = False
        self.sleeps: set[asyncio.Event] = set()  # one event for each sleeping task; setting the event ends the sleep

    def end_sleeps(self) -> None:
        for over in self.sleeps:
            over.set()


class _Task:
    """One task of a job. The tasks that this task starts belong to the same job."""

    def __init__(self, name: str, control: _Control, began_s: float) -> None:
        self.name, self.control, self.began_s = name, control, began_s


_CURRENT: ContextVar[_Task | None] = ContextVar("job", default=None)


class JobControls:
    def __init__(self, sleep: Sleep, observer: JobObserver, *, monotonic: Callable[[], float]) -> None:
        self.steady_sleep, self._observer, self._monotonic = sleep, observer, monotonic
        self._controls: dict[str, _Control] = {}

    @property
    def names(self) -> list[str]:
        return list(self._controls)

    def begin(self, name: str) -> str:
        """Make the calling task part of the job `name` from now on. Return the name by which operators know the job."""
        job = _PART_OF.sub("", name)
        if job not in self._controls:
            self._controls[job] = _Control()
            self._observer.job_paused(job, paused=False)
        _CURRENT.set(_Task(job, self._controls[job], self._monotonic()))
        return job

    def failed(self, job: str) -> None:
        self._observer.job_failed(job)

    async def sleep(self, seconds: float) -> None:
        """Sleep between two rounds of the calling task's job. A task without a job sleeps exactly `seconds`.

        The sleep of a job is shorter if an operator runs the job, and longer if the job is paused.
        """
        task = _CURRENT.get()
        if task is None:
            await self.steady_sleep(seconds)
            return
        self._observer.job_round_ended(task.name, self._monotonic() - task.began_s)
        try:
            await self._sleep_until_ended(task.control, seconds)
        finally:
            task.began_s = self._monotonic()

    async def _sleep_until_ended(self, control: _Control, seconds: float) -> None:
        over = asyncio.Event()
        control.sleeps.add(over)
        sleeping = asyncio.ensure_future(self.steady_sleep(seconds))
        ending = asyncio.ensure_future(over.wait())
        try:
            await asyncio.wait((sleeping, ending), return_when=asyncio.FIRST_COMPLETED)
            if sleeping.done() and not ending.done():
                sleeping.result()
                if control.paused:
                    await ending
        finally:
            sleeping.cancel()
            ending.cancel()
            control.sleeps.discard(over)

    def run(self, job: str) -> bool:
        """End the sleep of a job for one round, even if it is paused. Return whether this process has the job."""
        control = self._controls.get(job)
        if control is not None:
            control.end_sleeps()
        return control is not None

    def pause(self, job: str) -> bool:
        """Pause a job after its current round. Return whether this process has the job."""
        return self._set_paused(job, paused=True)

    def resume(self, job: str) -> bool:
        """Resume a paused job and end its sleep. Return whether this process has the job."""
        resumed = self._set_paused(job, paused=False)
        return self.run(job) and resumed

    def _set_paused(self, job: str, *, paused: bool) -> bool:
        control = self._controls.get(job)
        if control is not None:
            control.paused = paused
            self._observer.job_paused(job, paused=paused)
        return control is not None
