"""The supervisor starts the processes of `rankcurve serve --workers N`, replaces those that crash, and stops them.

The states of a process are drawn in the docstring of the package. The workers share one port (SO_REUSEPORT), and the
kernel distributes new connections among them. The supervisor keeps the port bound, but does not listen on it.

Orders travel through a pipe instead of a command line or the environment, because the store's URL may hold a password.
"""

import asyncio
import signal
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import msgspec
import structlog

from config import Settings
from jobs.controls import sleep_until_set
from service.contract.problems import ServiceError

log = structlog.get_logger(__name__)
PAUSE_S = 0.1  # the time between a crash and the start of another process; it doubles with every further crash
PAUSE_S_MAX = 30.0  # the longest pause
STEADY_S = 3.0  # if a process ran for this long, the next pause is PAUSE_S
BEAT_S = 1.0  # how often a process that is ready writes an empty line
STOP_GRACE_S = 5.0  # for closing the store and writing the last log lines, after requests and jobs have ended
# `own`: owns a SQLite store, writes to it and runs its jobs. `front`: serves requests beside such a process.
WorkKind = Literal["serve", "jobs", "own", "front"]


class Orders(msgspec.Struct, frozen=True):
    """A new process's orders, which the supervisor sends as the only line on the process's standard input."""

    name: str  # such as `worker1`; a process that replaces another one has the same name
    work: WorkKind
    folder: str  # the folder for the metrics of the node's processes
    settings: dict[str, Any]
    listening: list[int] = []  # for `own`: the descriptors of the sockets on which the process listens


class Report(msgspec.Struct, frozen=True):
    """The first line that a process writes to standard output. A process that ends without one has crashed."""

    outcome: Literal["ready", "refused"]
    detail: str = ""


decode_orders = msgspec.json.Decoder(Orders).decode
decode_report = msgspec.json.Decoder(Report).decode
encode_line = msgspec.json.encode


def stop_s_max(settings: Settings) -> float:
    return settings.shutdown_s + settings.job_stop_s_max + STOP_GRACE_S


class NodeFailedError(ServiceError):
    """The processes of this node can't run; the message says why."""


class ProcessSlot(NamedTuple):
    """A place for one process of the node, such as `worker1`. If the process crashes, another starts in its place."""

    name: str
    work: WorkKind


Spawn = Callable[[ProcessSlot], Awaitable[Process]]


class Supervisor:
    """Keeps one process running in each `ProcessSlot` of a node. `node` makes one supervisor and runs it."""

    def __init__(
        self,
        places: Sequence[ProcessSlot],
        spawn: Spawn,
        *,
        stop_s_max: float,
        hang_s_max: float,
        ready: Callable[[], object],
        ended: Callable[[ProcessSlot], None],
        sleep: Callable[[float], Awaitable[None]],
        monotonic: Callable[[], float],
    ) -> None:
        """Prepare to run a process in each of `places`. `ready` is called once, when a process has been ready in each.

        `ended` is called after the end of each process, before another one is started in the same place. A process that
        takes longer than `stop_s_max` seconds to stop is killed, and so is one that hangs for `hang_s_max` seconds,
        unless this is 0.
        """
        self._places, self._spawn = places, spawn
        self._all_ready, self._ended = ready, ended
        self._sleep, self._monotonic, self._stop_s_max, self._hang_s_max = sleep, monotonic, stop_s_max, hang_s_max
        self._children: dict[ProcessSlot, Process] = {}
        self._ready: set[ProcessSlot] = set()
        self._stop = asyncio.Event()
        self._unclean: list[str] = []

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        """Keep one process running in each `ProcessSlot` until `stop` is called.

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
            await keeper  # raises `NodeFailedError` if this place failed
        if self._unclean:
            raise NodeFailedError(f"not stopped cleanly: {', '.join(sorted(self._unclean))}")

    async def _keep(self, place: ProcessSlot) -> None:
        pause_s = PAUSE_S
        while not self._stop.is_set():
            started_s = self._monotonic()
            report, code = await self._run_one(place)
            if self._stop.is_set():
                if report is not None and report.outcome == "ready" and code != 0:
                    self._unclean.append(f"{place.name} (exit code {code})")
                return
            if place not in self._ready:  # no process with this name was ever ready, so another start would not help
                detail = report.detail if report is not None else f"{place.name} crashed (exit code {code})"
                raise NodeFailedError(detail)  # `serve` without `--workers` fails with the same detail
            detail = "" if report is None else report.detail
            log.error("process_crashed", name=place.name, exit_code=code, detail=detail)
            if self._monotonic() - started_s >= STEADY_S:
                pause_s = PAUSE_S
            await sleep_until_set(self._stop, self._sleep(pause_s))
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _run_one(self, place: ProcessSlot) -> tuple[Report | None, int]:
        child = self._children[place] = await self._spawn(place)
        if self._stop.is_set():
            _send_signal(child, signal.SIGTERM)
        assert child.stdout is not None
        line = await child.stdout.readline()
        report = decode_report(line) if line else None
        if report is not None and report.outcome == "ready":
            log.info("process_ready", name=place.name, work=place.work, pid=child.pid)
            if place not in self._ready:
                self._ready.add(place)
                if len(self._ready) == len(self._places):
                    self._all_ready()
            if await self._hangs(child.stdout):
                log.error("process_hangs", name=place.name)
                _send_signal(child, signal.SIGKILL)
        code = await child.wait()
        del self._children[place]
        self._ended(place)
        return report, code

    async def _hangs(self, lines: asyncio.StreamReader) -> bool:
        """Wait until a process ends or hangs. Count missed lines, because the whole machine may have been stopped."""
        silent_s = 0.0
        while not self._hang_s_max or silent_s < self._hang_s_max:
            try:
                async with asyncio.timeout(BEAT_S):
                    if not await lines.readline():
                        return False
                silent_s = 0.0
            except TimeoutError:
                silent_s += BEAT_S
        return True

    async def _end(self, keepers: Sequence[asyncio.Task[None]]) -> None:
        for child in self._children.values():
            _send_signal(child, signal.SIGTERM)
        _, left = await asyncio.wait(keepers, timeout=self._stop_s_max)
        if left:
            log.error("processes_did_not_stop", names=[task.get_name() for task in left])
            for child in self._children.values():
                _send_signal(child, signal.SIGKILL)
            await asyncio.wait(left)


def _send_signal(child: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # the process has already ended
        child.send_signal(number)
