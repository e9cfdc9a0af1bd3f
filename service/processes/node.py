"""Runs `rankcurve serve --workers N`: it reserves the port, creates the folder for metrics, and starts the supervisor.

The port is reserved before any process starts, so that two nodes can't share it unnoticed.
"""

import asyncio
import signal
import socket
import time
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import structlog

from config import Settings
from service.own_packages import python_command
from service.stores import OwnerSockets, is_shared
from service.telemetry.logs import configure_logging, log_serving
from service.telemetry.metrics.metric_families import FAMILIES
from service.telemetry.metrics.node_metrics import SUPERVISOR, NodeMember, leave_node, make_folder, write_pid
from service.telemetry.metrics.numbers import Numbers

from .supervisor import Orders, ProcessSlot, Supervisor, encode_line, stop_s_max

log = structlog.get_logger(__name__)
_COMMAND = python_command("service.processes.worker")


def run(settings: Settings) -> None:
    """Serve with several processes until SIGTERM or SIGINT.

    Raises:
        NodeFailedError: the processes can't run.
        OSError: the address can't be bound.
    """
    lines = configure_logging(level=settings.log_level, form=settings.log_form, process=SUPERVISOR)
    try:
        with ExitStack() as stack:
            addresses = _reserve(settings, stack)
            folder = Path(stack.enter_context(make_folder()))
            chosen = settings.model_copy(update={"port": addresses[0][1]})
            asyncio.run(_supervise(chosen, folder, [f"{host}:{port}" for host, port in addresses]))
    finally:
        lines.close()


def _reserve(settings: Settings, stack: ExitStack) -> list[tuple[str, int]]:
    found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    addresses: list[tuple[str, int]] = []
    port = settings.port
    for family, _, _, _, address in dict.fromkeys(found):
        # Bind first without SO_REUSEPORT. Otherwise another node of the same user would silently share the port.
        with _bound(family, str(address[0]), port, reuse_port=False) as probe:
            port = probe.getsockname()[1]
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
    numbers = Numbers(FAMILIES, NodeMember(folder, SUPERVISOR).numbers_path)

    def count_end(place: ProcessSlot) -> None:
        leave_node(folder, place.name)
        numbers.add("rankcurve_process_ends", 1, place.work)

    shared = is_shared(settings.store)
    slots = [ProcessSlot(f"worker{number + 1}", "serve" if shared else "front") for number in range(settings.workers)]
    listening: list[socket.socket] = []
    if not shared:
        slots.append(ProcessSlot("owner", "own"))
        listening += map(listen_on, OwnerSockets.in_folder(folder))
    elif settings.jobs == "embedded":  # one process only runs jobs, so that no request waits while a curve is fitted
        slots.append(ProcessSlot("jobs1", "jobs"))
    supervisor = Supervisor(
        slots,
        lambda place: spawn(place, settings, folder, listening),
        stop_s_max=stop_s_max(settings),
        hang_s_max=settings.hang_s_max,
        ready=partial(log_serving, settings, addresses, workers=settings.workers),
        ended=count_end,
        sleep=asyncio.sleep,
        monotonic=time.monotonic,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.stop)
    await supervisor.run()
    log.info("stopped")


def listen_on(path: Path) -> socket.socket:
    """Listen on a path on behalf of the owner. Connections wait here while an owner starts or is being replaced."""
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen()
    return made


async def spawn(
    place: ProcessSlot, settings: Settings, folder: Path, listening: Sequence[socket.socket] = ()
) -> Process:
    """Start a process and send it its orders. The process logs to the supervisor's standard error.

    Only the owner of a SQLite store inherits the sockets in `listening`.
    """
    jobs = settings.jobs if place.work in ("jobs", "own") else "none"
    inherited = [made.fileno() for made in listening] if place.work == "own" else []
    orders = Orders(place.name, place.work, str(folder), {**settings.model_dump(), "jobs": jobs}, inherited)
    process = await asyncio.create_subprocess_exec(
        *_COMMAND, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, pass_fds=inherited
    )
    assert process.stdin is not None
    with suppress(ConnectionError):  # the process has already ended, and its exit code shows why
        process.stdin.write(encode_line(orders) + b"\n")
        await process.stdin.drain()
    return process
