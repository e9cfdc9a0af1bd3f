"""The supervisor starts the processes of `rankcurve serve --workers N`, replaces those that crash, and stops them.

The docstring of the package draws the states of a process. The workers share one port (SO_REUSEPORT). The supervisor
keeps this port bound. The kernel distributes new connections among the workers.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from service.contract.problems import ServiceError

from .orders import Report, WorkKind

log = structlog.get_logger(__name__)
_DOUBLINGS_MAX = 30  # a pause that was doubled this often is longer than any bound


class NodeFailedError(ServiceError):
    """The processes of this node can't run; the message says why."""


@dataclass(frozen=True, slots=True)
class SupervisorLimits:
    """The bounds of the supervisor. Each field except `stop_s_max` is a setting of the same name."""

    worker_backoff_base_s: float
    worker_backoff_s_max: float
    worker_steady_s: float
    worker_crashes_max: int
    stop_s_max: float


@dataclass(frozen=True, slots=True)
class ProcessSlot:
    """A place in the node for one process. When that process crashes, another one takes the same place."""

    name: str
    work: WorkKind


class Child(Protocol):
    @property
    def pid(self) -> int:
        """The id of the process."""

    async def read_report(self) -> Report | None:
        """Return the report of the process about its start; None if it ended without a report."""

    async def wait(self) -> int:
        """Return the exit code once the process has ended. A negative code names the signal that ended it."""

    def terminate(self) -> None:
        """Ask the process to stop; harmless if it has ended."""

    def kill(self) -> None:
        """End the process now; harmless if it has ended."""


Spawn = Callable[[ProcessSlot], Awaitable[Child]]


class Supervisor:
    """Keeps one process running in every place."""

    def __init__(
        self,
        places: Sequence[ProcessSlot],
        limits: SupervisorLimits,
        spawn: Spawn,
        *,
        ended: Callable[[ProcessSlot], None],
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        rng: random.Random,
    ) -> None:
        """Prepare the places. `ended` is called for every process that has ended, before another takes its place."""
        self._places, self._limits, self._spawn, self._ended = places, limits, spawn, ended
        self._monotonic, self._sleep, self._rng = monotonic, sleep, rng
        self._children: dict[ProcessSlot, Child] = {}
        self._ready: set[ProcessSlot] = set()
        self._complete = asyncio.Event()
        self._stop = asyncio.Event()
        self._unclean: list[str] = []

    async def wait_ready(self) -> None:
        """Return once every place has had a process that reported ready."""
        await self._complete.wait()

    def stop(self) -> None:
        """Make `run` stop every process and return."""
        self._stop.set()

    async def run(self) -> None:
        """Keep one process running in every place until `stop` is called.

        Raises:
            NodeFailedError: the processes can't run, or one of them did not stop cleanly.
        """
        keepers = [asyncio.create_task(self._keep(place), name=place.name) for place in self._places]
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait([*keepers, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._stop.set()
            stopping.cancel()
            await self._end(keepers)
        for keeper in keepers:
            await keeper  # raises the error of a place that could not keep a process running
        if self._unclean:
            raise NodeFailedError(f"not stopped cleanly: {', '.join(sorted(self._unclean))}")

    async def _keep(self, place: ProcessSlot) -> None:
        crashes = 0  # crashes in a row
        while not self._stop.is_set():
            started = self._monotonic()
            report, code = await self._run_one(place)
            if self._stop.is_set():
                if report is not None and report.outcome == "ready" and code != 0:
                    self._unclean.append(f"{place.name} (exit code {code})")
                return
            steady = self._monotonic() - started >= self._limits.worker_steady_s
            crashes = 1 if steady else crashes + 1
            self._judge(place, report, crashes)
            pause_s = self._pause_s(crashes - 1)
            log.error("process_crashed", name=place.name, exit_code=code, crashes=crashes, pause_s=round(pause_s, 3))
            await self._pause(pause_s)

    async def _run_one(self, place: ProcessSlot) -> tuple[Report | None, int]:
        child = self._children[place] = await self._spawn(place)
        if self._stop.is_set():
            child.terminate()
        report = await child.read_report()
        if report is not None and report.outcome == "ready":
            log.info("process_ready", name=place.name, work=place.work, pid=child.pid)
            self._ready.add(place)
            if len(self._ready) == len(self._places):
                self._complete.set()
        code = await child.wait()
        del self._children[place]
        self._ended(place)
        return report, code

    def _judge(self, place: ProcessSlot, report: Report | None, crashes: int) -> None:
        """Raise NodeFailedError if another start would not help."""
        if report is not None and report.outcome != "ready" and place not in self._ready:
            raise NodeFailedError(report.detail)  # a node with a single process gives the same message
        # A store that can't be reached usually comes back. So the number of starts is not limited in this case.
        away = report is not None and report.outcome == "away"
        if crashes >= self._limits.worker_crashes_max and not away:
            detail = f": {report.detail}" if report is not None and report.detail else ""
            raise NodeFailedError(f"{place.name} crashed {crashes} times in a row, each time at once{detail}")

    def _pause_s(self, doublings: int) -> float:
        limits = self._limits
        longest = min(limits.worker_backoff_s_max, limits.worker_backoff_base_s * 2.0 ** min(doublings, _DOUBLINGS_MAX))
        return longest * self._rng.uniform(0.5, 1)

    async def _pause(self, pause_s: float) -> None:
        """Sleep for `pause_s` seconds, but return immediately when the node stops."""
        sleeping = asyncio.ensure_future(self._sleep(pause_s))
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait([sleeping, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            stopping.cancel()

    async def _end(self, keepers: Sequence[asyncio.Task[None]]) -> None:
        for child in self._children.values():
            child.terminate()
        _, left = await asyncio.wait(keepers, timeout=self._limits.stop_s_max)
        if left:
            log.error("processes_did_not_stop", names=[task.get_name() for task in left])
            for child in self._children.values():
                child.kill()
            await asyncio.wait(left)
