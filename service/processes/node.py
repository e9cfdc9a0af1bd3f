"""`rankcurve serve --workers N`, put together: the port, the processes and the folder of their figures.

The rule: what a node needs is checked and chosen before the first process starts.
"""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import structlog

from config import Settings

from ..logs import configure
from ..metrics.cells import SharedCells
from ..metrics.loop import LoopCounter
from ..metrics.node import SUPERVISOR, leave, make_folder, write_pid
from ..terminal import show_urls
from .orders import Orders, Report, decode_report, encode_line, stop_s_max
from .supervisor import Place, Supervisor, SupervisorLimits

log = structlog.get_logger(__name__)
# -P: a folder of the working directory that happens to be called `service` is not this one.
_COMMAND = (sys.executable, "-P", "-m", "service.processes.worker")


def run(settings: Settings) -> None:
    """Serve by several processes until SIGTERM or SIGINT.

    Raises:
        NodeFailed: the processes can't run; its message is what one process alone would have said.
        OSError: the address can't be bound.
    """
    lines = configure(level=settings.log_level, style=settings.log_format, process=SUPERVISOR)
    try:
        with ExitStack() as stack:
            addresses = _reserve(settings, stack)
            folder = Path(stack.enter_context(make_folder()))
            chosen = settings.model_copy(update={"port": addresses[0][1]})
            asyncio.run(_supervise(chosen, folder, [f"{host}:{port}" for host, port in addresses]))
    finally:
        lines.close()


def places(settings: Settings) -> list[Place]:
    """The processes of these settings: jobs have one of their own, so that no request waits for a fit."""
    front_ends = [Place(f"worker{number + 1}", "serve") for number in range(settings.workers)]
    return front_ends + ([Place("jobs1", "jobs")] if settings.jobs == "embedded" else [])


def _reserve(settings: Settings, stack: ExitStack) -> list[tuple[str, int]]:
    """Bind the address without listening, so that it is this node's until the end; answers host and port of each."""
    found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    addresses: list[tuple[str, int]] = []
    port = settings.port
    for family, _, _, _, address in dict.fromkeys(found):
        # First alone: another node of the same user would share the port without a word.
        with _bound(family, str(address[0]), port, reuse_port=False) as alone:
            port = alone.getsockname()[1]
        stack.enter_context(_bound(family, str(address[0]), port, reuse_port=True))
        addresses.append((str(address[0]), port))
    return addresses


def _bound(family: int, host: str, port: int, *, reuse_port: bool) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((host, port))
    except BaseException:
        made.close()
        raise
    return made


async def _supervise(settings: Settings, folder: Path, addresses: list[str]) -> None:
    write_pid(folder, SUPERVISOR)
    crashes = LoopCounter(
        SharedCells(folder / f"counter_{SUPERVISOR}.db"),
        "rankcurve_process_ends",
        "Processes of the node that ended, asked to or not",
        ("work",),
    )

    def ended(place: Place) -> None:
        leave(folder, place.name)
        crashes.add((place.work,))

    supervisor = Supervisor(
        places(settings),
        supervisor_limits(settings),
        lambda place: spawn(place, settings, folder),
        ended=ended,
        monotonic=time.monotonic,
        sleep=asyncio.sleep,
        rng=random.Random(),
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.stop)
    running = asyncio.create_task(supervisor.run())
    complete = asyncio.create_task(supervisor.ready())
    await asyncio.wait([running, complete], return_when=asyncio.FIRST_COMPLETED)
    if complete.done():
        log.info("serving", addresses=addresses, workers=settings.workers)
        show_urls(addresses)
    complete.cancel()
    await running
    log.info("stopped")


class Process:
    """A `Child` that runs `service.processes.worker`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def report(self) -> Report | None:
        """See `Child`."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        return decode_report(line) if line else None

    async def wait(self) -> int:
        """See `Child`."""
        return await self._process.wait()

    def terminate(self) -> None:
        """See `Child`."""
        with suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """See `Child`."""
        with suppress(ProcessLookupError):
            self._process.kill()


async def spawn(place: Place, settings: Settings, folder: Path) -> Process:
    """Start a process and give it its orders. Its lines go where this one's go."""
    own = {"jobs": "embedded" if place.work == "jobs" else "none"}
    orders = Orders(place.name, place.work, str(folder), {**settings.model_dump(), **own})
    process = await asyncio.create_subprocess_exec(
        *_COMMAND, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    with suppress(ConnectionError):  # it has ended already, which its exit code tells
        process.stdin.write(encode_line(orders) + b"\n")
        await process.stdin.drain()
    return Process(process)


def supervisor_limits(settings: Settings) -> SupervisorLimits:
    """The supervisor's part of the settings."""
    return SupervisorLimits(
        worker_backoff_base_s=settings.worker_backoff_base_s,
        worker_backoff_s_max=settings.worker_backoff_s_max,
        worker_steady_s=settings.worker_steady_s,
        worker_crashes_max=settings.worker_crashes_max,
        stop_s_max=stop_s_max(settings),
    )
