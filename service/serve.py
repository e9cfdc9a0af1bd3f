"""A serving process from its first log line to its last.

The rule: SIGTERM and SIGINT stop taking requests, finish what was accepted, and end with exit code 0.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import structlog
from aiohttp import web

from config import Settings

from .api import ROUTES
from .app import make_app
from .connections import ProblemRunner
from .logs import configure
from .metrics.process import Metrics
from .terminal import show_urls
from .wiring import context_of

log = structlog.get_logger(__name__)
BACKLOG_CONNECTIONS = 1024
# A store's thread that comes back from SQLite while the loop is busy waits as long for the interpreter lock: with the
# default of 5 ms a group of posts takes twice the time.
SWITCH_INTERVAL_S = 0.0002
GC_THRESHOLDS = (50_000, 20, 100)  # a tenth more requests a second than with the defaults


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        StorageError: the store can't be opened.
        ServiceError: the service would be open to others without a key.
        OSError: the address can't be bound.
    """
    run_process(settings, Metrics(), _serve)


def run_process(
    settings: Settings,
    metrics: Metrics,
    work: Callable[[Settings, Metrics], Coroutine[Any, Any, None]],
    *,
    name: str | None = None,
) -> None:
    """Run `work` with the log and the interpreter of a service; `name` tells its lines from other processes' lines."""
    lines = configure(
        level=settings.log_level, style=settings.log_format, on_drop=metrics.log_lines_dropped, process=name
    )
    # Requests make little that lives on, and what the process is made of never dies: fewer and shorter collections.
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(work(settings, metrics))
    finally:
        lines.close()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not on every platform; the loop of the standard library serves as well, slower
        return None
    return uvloop.new_event_loop


async def _serve(settings: Settings, metrics: Metrics) -> None:
    await until_stopped(serving(settings, metrics), event="serving", show=show_urls)


async def until_stopped(
    running: AbstractAsyncContextManager[list[str]], *, event: str, show: Callable[[list[str]], None] | None = None
) -> None:
    """Run until SIGTERM or SIGINT; `event` tells the log that it runs, and where; `show` tells a person."""
    stop = stop_signals(signal.SIGTERM, signal.SIGINT)
    async with running as addresses:
        log.info(event, addresses=addresses)
        if show is not None:
            show(addresses)
        await stop.wait()
        log.info("stopping")
    log.info("stopped")


def stop_signals(*numbers: signal.Signals) -> asyncio.Event:
    """An event that any of these signals sets."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    return stop


@asynccontextmanager
async def serving(settings: Settings, metrics: Metrics, *, reuse_port: bool = False) -> AsyncIterator[list[str]]:
    """The service, listening; answers its addresses. With `reuse_port` other processes listen there as well."""
    async with context_of(settings, metrics) as context:
        context.keyring.check_binding(settings.host)
        if context.keyring.open:
            log.warning("open_to_this_machine", detail="no API key is configured: every caller is ops")
        async with listening(make_app(ROUTES, context), settings, settings.port, reuse_port=reuse_port) as addresses:
            yield addresses


@asynccontextmanager
async def listening(
    app: web.Application, settings: Settings, port: int, *, reuse_port: bool = False
) -> AsyncIterator[list[str]]:
    """The application on a port; at the end what runs is answered first."""
    # aiohttp closes what is idle at once and waits for what runs.
    runner = ProblemRunner(app, access_log=None, handle_signals=False, shutdown_timeout=settings.shutdown_s)
    await runner.setup()
    gc.collect()
    gc.freeze()
    try:
        site = web.TCPSite(runner, settings.host, port, backlog=BACKLOG_CONNECTIONS, reuse_port=reuse_port)
        await site.start()
        yield [f"{address[0]}:{address[1]}" for address in runner.addresses]
    finally:
        await runner.cleanup()
