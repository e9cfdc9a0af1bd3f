"""Runs a serving process, which answers requests, or one that only runs jobs, from its first log line to its last.

    serve_until_stopped ──> run_process (log, interpreter, event loop) ──> run_until_stopped
                                                                           └──> open_service (context, then the port)

At SIGTERM or SIGINT the process accepts no more requests, finishes those that it has begun, and ends with exit code 0.
"""

import asyncio
import gc
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import structlog
from aiohttp import web

from config import Settings
from service.contract.requests import BoardBody
from service.contract.strict_json import decode_strictly
from service.http.malformed import ProblemServer
from service.telemetry.logs import configure_logging, log_serving
from service.telemetry.metrics.process import Metrics
from service.views.boards.specs import make_spec
from storage.posting.post_server import PostServer
from storage.posting.writer import Writers
from storage.records import BoardSpec

from .api import ROUTES
from .app import make_server
from .context import Context
from .stores import OwnerSockets
from .wiring import open_context

log = structlog.get_logger(__name__)
BACKLOG_CONNECTIONS = 1024
# After a call of SQLite, the thread of the store needs the interpreter lock. If the event loop is busy, the thread
# waits up to this many seconds. With Python's default of 5 ms, applying a group of posts takes much longer.
SWITCH_INTERVAL_S = 0.0002
GC_THRESHOLDS = (50_000, 20, 100)  # above Python's defaults, so that garbage collections delay fewer requests


def serve_until_stopped(settings: Settings, *, only_jobs: bool = False) -> None:
    """Serve until SIGTERM or SIGINT. With `only_jobs`, run only the jobs, and let other processes serve the requests.

    Raises:
        StorageError: the store can't be opened.
        ServiceError: the service has no API keys, but other machines could reach it.
        OSError: the address can't be bound.
    """
    open_process = open_jobs if only_jobs else open_service

    async def work(settings: Settings, metrics: Metrics) -> None:
        stop = watch_stop_signals(signal.SIGTERM, signal.SIGINT)
        running = open_process(settings, metrics)
        tell = partial(log.info, "working") if only_jobs else partial(log_serving, settings)
        await run_until_stopped(running, stop, lambda addresses: tell(addresses=addresses))

    run_process(settings, Metrics(), work)


def run_process(
    settings: Settings,
    metrics: Metrics,
    work: Callable[[Settings, Metrics], Coroutine[Any, Any, None]],
    *,
    name: str | None = None,
) -> None:
    """Set up the log and the interpreter, then run `work` in an event loop. Every log line has `name`, if given."""
    lines = configure_logging(
        level=settings.log_level,
        form=settings.log_form,
        on_drop=lambda lines: metrics.meter.add_from_any_thread("rankcurve_log_lines_dropped", lines),
        process=name,
    )
    # Garbage collections may be rare, because they free little: reference counting already frees most objects when
    # their request ends, and the parts of the process stay until its end.
    gc.set_threshold(*GC_THRESHOLDS)
    gc.freeze()  # so that garbage collections skip all objects that the imports have created
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(work(settings, metrics))
    finally:
        lines.close()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # uvloop does not support every platform; the loop of the standard library works, but is slower
        return None
    return uvloop.new_event_loop


async def run_until_stopped(
    running: AbstractAsyncContextManager[list[str]], stop: asyncio.Event, started: Callable[[list[str]], object]
) -> None:
    """Enter the context `running`, call `started` with the addresses that it provides, and leave when `stop` is set.

    If `stop` is set before that, for example while a front process waits for the owner of the store, give up the start.
    """
    starting = asyncio.current_task()
    assert starting is not None
    giving_up = asyncio.create_task(stop.wait())
    giving_up.add_done_callback(lambda done: done.cancelled() or starting.cancel())
    try:
        async with running as addresses:
            if not giving_up.cancel():
                await asyncio.sleep(0)  # raises CancelledError
            started(addresses)
            await stop.wait()
            log.info("stopping")
        log.info("stopped")
    except asyncio.CancelledError:
        if not stop.is_set():
            raise


def watch_stop_signals(*numbers: signal.Signals) -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    return stop


@asynccontextmanager
async def open_service(
    settings: Settings, metrics: Metrics, *, reuse_port: bool = False, owner: OwnerSockets | None = None
) -> AsyncIterator[list[str]]:
    """Run the service within the block, and provide its addresses.

    If `reuse_port` is true, other processes may share the port. `owner` has the sockets of the process that owns the
    SQLite store; if it is None, this process writes to its store itself.
    """
    async with open_context(settings, metrics, owner=owner) as context:
        context.keyring.check_binding(settings.host)
        if context.keyring.open:
            log.warning("open_to_this_machine", detail="no API key is configured: every caller is ops")
        async with (
            _open_door(context, reuse_port=reuse_port, is_front=owner is not None),
            _open_port(make_server(ROUTES, context), settings, settings.port, reuse_port=reuse_port) as addresses,
        ):
            yield addresses


@asynccontextmanager
async def _open_door(context: Context, *, reuse_port: bool = False, is_front: bool = False) -> AsyncIterator[None]:
    """Listen for Redis clients within the block, if the settings ask for it. Front processes do not: the owner does."""
    settings = context.settings
    if not settings.resp_port or is_front:
        yield
        return
    from .resp.door import open_door

    async with open_door(context, make_new_board(context), settings.resp_port, reuse_port=reuse_port):
        yield


def make_new_board(context: Context) -> BoardSpec | None:
    """Return the specification of the boards that Redis clients' posts create, or None if the settings have none.

    Raises:
        ProblemError, SpecInvalidError: the setting `resp_board` is not a valid specification.
    """
    text = context.settings.resp_board.encode()
    return make_spec(decode_strictly(text, msgspec.json.Decoder(BoardBody)), context) if text else None


@asynccontextmanager
async def open_owner(
    settings: Settings, metrics: Metrics, listening: Sequence[socket.socket]
) -> AsyncIterator[list[str]]:
    """Run as the owner process of a SQLite store within the block. Provide an empty list: it opens no port for HTTP."""
    async with open_context(settings, metrics) as context, serve_fronts(context, listening), _open_door(context):
        yield []


@asynccontextmanager
async def serve_fronts(context: Context, listening: Sequence[socket.socket]) -> AsyncIterator[None]:
    """Write on behalf of the front processes within the block. Afterwards, wait until they have ended.

    `listening` has the sockets that are bound to the paths in `OwnerSockets`, in the same order.
    """
    posts, requests = listening
    writers = context.posting.writer
    assert isinstance(writers, Writers)
    server = PostServer(writers.find_writer(context.store.at(0)), context.store.damaged)
    async with _run_server(make_server(ROUTES, context), context.settings, partial(web.SockSite, sock=requests)):
        await server.listen(posts)
        yield
        await server.close(context.settings.shutdown_s)


@asynccontextmanager
async def open_jobs(settings: Settings, metrics: Metrics) -> AsyncIterator[list[str]]:
    """Run the jobs within the block. Provide the addresses for monitoring, or an empty list if `jobs_port` is 0.

    On `jobs_port`, monitoring systems can read health and metrics. The leaderboard API is not served there.
    """
    async with open_context(settings.model_copy(update={"jobs": "embedded"}), metrics) as context:
        if not settings.jobs_port:
            yield []
            return
        context.keyring.check_binding(settings.host)
        async with _open_port(make_server((), context), settings, settings.jobs_port) as addresses:
            yield addresses


@asynccontextmanager
async def _open_port(
    server: ProblemServer, settings: Settings, port: int, *, reuse_port: bool = False
) -> AsyncIterator[list[str]]:
    open_site = partial(web.TCPSite, host=settings.host, port=port, reuse_port=reuse_port)
    async with _run_server(server, settings, open_site) as runner:
        yield [f"{address[0]}:{address[1]}" for address in runner.addresses]


@asynccontextmanager
async def _run_server(
    server: ProblemServer, settings: Settings, open_site: Callable[..., web.BaseSite]
) -> AsyncIterator[web.ServerRunner]:
    # At shutdown aiohttp closes idle connections immediately, and waits up to `shutdown_timeout` for open requests.
    runner = web.ServerRunner(server, shutdown_timeout=settings.shutdown_s)
    await runner.setup()
    gc.collect()
    gc.freeze()
    try:
        await open_site(runner, backlog=BACKLOG_CONNECTIONS).start()
        yield runner
    finally:
        await runner.cleanup()
