"""A serving process from its first log line to its last.

The rule: SIGTERM and SIGINT stop taking requests, finish what was accepted, and end with exit code 0.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Callable

import structlog
from aiohttp import web

from config import Settings

from .api import ROUTES
from .app import make_app
from .connections import ProblemRunner
from .logs import configure
from .metrics import Metrics
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
    metrics = Metrics()
    lines = configure(level=settings.log_level, style=settings.log_format, on_drop=metrics.log_line_dropped)
    # Requests make little that lives on, and what the process is made of never dies: fewer and shorter collections.
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(settings, metrics))
    finally:
        lines.close()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not on every platform; the loop of the standard library serves as well, slower
        return None
    return uvloop.new_event_loop


async def _serve(settings: Settings, metrics: Metrics) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with context_of(settings, metrics) as context:
        context.keyring.check_binding(settings.host)
        if context.keyring.open:
            log.warning("open_to_this_machine", detail="no API key is configured: every caller is ops")
        # aiohttp closes what is idle at once and waits for what runs.
        runner = ProblemRunner(
            make_app(ROUTES, context), access_log=None, handle_signals=False, shutdown_timeout=settings.shutdown_s
        )
        await runner.setup()
        gc.collect()
        gc.freeze()
        try:
            site = web.TCPSite(runner, settings.host, settings.port, backlog=BACKLOG_CONNECTIONS)
            await site.start()
            log.info("serving", addresses=[f"{address[0]}:{address[1]}" for address in runner.addresses])
            await stop.wait()
            log.info("stopping")
        finally:
            await runner.cleanup()
    log.info("stopped")
