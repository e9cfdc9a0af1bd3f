"""A process with jobs only: what refreshes and prunes for the front ends that share its store.

The rule: it serves no leaderboard. Where a port is set, monitors ask it there what they ask a front end.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from config import Settings

from .app import make_app
from .metrics import Metrics
from .serve import listening, run_process, stop_signals
from .wiring import context_of

log = structlog.get_logger(__name__)


def run(settings: Settings) -> None:
    """Run the jobs until SIGTERM or SIGINT.

    Raises:
        StorageError: the store can't be opened.
        ServiceError: the monitors' port would be open to others without a key.
        OSError: the monitors' port can't be bound.
    """
    run_process(settings, Metrics(), _keep_working)


async def _keep_working(settings: Settings, metrics: Metrics) -> None:
    stop = stop_signals(signal.SIGTERM, signal.SIGINT)
    async with working(settings, metrics) as addresses:
        log.info("working", addresses=addresses)
        await stop.wait()
        log.info("stopping")
    log.info("stopped")


@asynccontextmanager
async def working(settings: Settings, metrics: Metrics) -> AsyncIterator[list[str]]:
    """The jobs, running; answers the addresses for monitors, none where no port is set."""
    async with context_of(settings.model_copy(update={"jobs": "embedded"}), metrics) as context:
        if not settings.jobs_port:
            yield []
            return
        context.keyring.check_binding(settings.host)
        async with listening(make_app((), context), settings, settings.jobs_port) as addresses:
            yield addresses
