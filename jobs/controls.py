"""What operators do to a job: have it work now, pause it, resume it; and what they see of it.

    work ──> rest (its sleep) ──> work …        run: the rest is over now
               └── paused: the rest lasts until the job is resumed, or is told to run once

The rule: a job is stopped between two rounds only, never within one, so that it holds nothing halfway. A job knows
nothing of this: it sleeps by `JobControls.sleep`, which knows by its context whose sleep it is.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextvars import ContextVar
from typing import Protocol

from .runner import Sleep

_PART_OF = re.compile(r" (?:schedule|worker \d+)$")  # several tasks that are one job to an operator


class JobObserver(Protocol):
    """What is told of jobs; `job` is a name of the code."""

    def job_round_ended(self, job: str, seconds: float) -> None:
        """A job rests, after it worked for so long."""

    def job_failed(self, job: str) -> None:
        """A job raised; it begins again."""

    def job_paused(self, job: str, *, paused: bool) -> None:
        """A job was paused or resumed, or began."""


class _Control:
    """One job of this process, however many tasks it has."""

    def __init__(self) -> None:
        self.paused = False
        self.rests: set[asyncio.Event] = set()  # set to end a rest

    def end_rests(self) -> None:
        for rest in self.rests:
            rest.set()


class _Task:
    """One task of a job; what it starts is a part of it."""

    def __init__(self, name: str, control: _Control, began_s: float) -> None:
        self.name, self.control, self.began_s = name, control, began_s


_CURRENT: ContextVar[_Task | None] = ContextVar("job", default=None)


class JobControls:
    """The jobs of this process, by name."""

    def __init__(self, sleep: Sleep, observer: JobObserver, *, monotonic: Callable[[], float]) -> None:
        self.steady_sleep, self._observer, self._monotonic = sleep, observer, monotonic
        self._controls: dict[str, _Control] = {}

    @property
    def names(self) -> list[str]:
        """The jobs that began here."""
        return list(self._controls)

    def begin(self, name: str) -> str:
        """The calling task is a part of this job from now on; answers the name that operators know it by."""
        job = _PART_OF.sub("", name)
        if job not in self._controls:
            self._controls[job] = _Control()
            self._observer.job_paused(job, paused=False)
        _CURRENT.set(_Task(job, self._controls[job], self._monotonic()))
        return job

    def failed(self, job: str) -> None:
        """It raised."""
        self._observer.job_failed(job)

    async def sleep(self, seconds: float) -> None:
        """Rest as the job that calls; anybody else just sleeps."""
        task = _CURRENT.get()
        if task is None:
            await self.steady_sleep(seconds)
            return
        self._observer.job_round_ended(task.name, self._monotonic() - task.began_s)
        try:
            await self._rest(task.control, seconds)
        finally:
            task.began_s = self._monotonic()

    async def _rest(self, control: _Control, seconds: float) -> None:
        over = asyncio.Event()
        control.rests.add(over)
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
            control.rests.discard(over)

    def run(self, job: str) -> bool:
        """End the job's rest, also of one that is paused: it works once; whether the job is here."""
        control = self._controls.get(job)
        if control is not None:
            control.end_rests()
        return control is not None

    def pause(self, job: str) -> bool:
        """Let the job begin no further round; whether it is here."""
        return self._set_paused(job, paused=True)

    def resume(self, job: str) -> bool:
        """Let it go on; whether it is here."""
        resumed = self._set_paused(job, paused=False)
        return self.run(job) and resumed

    def _set_paused(self, job: str, *, paused: bool) -> bool:
        control = self._controls.get(job)
        if control is not None:
            control.paused = paused
            self._observer.job_paused(job, paused=paused)
        return control is not None
