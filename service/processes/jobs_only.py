"""A process that only runs jobs, such as refreshing and pruning, for the front ends that share its store.

It serves no leaderboard. If `jobs_port` is set, monitoring systems can read health and metrics on that port.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from config import Settings
from service.app import make_app
from service.serve import open_port, run_process, run_until_stopped
from service.telemetry.metrics.process import Metrics
from service.wiring import open_context


def run(settings: Settings) -> None:
    """Run the jobs until SIGTERM or SIGINT.

    Raises:
        StorageError, ServiceError, OSError: see `serve_until_stopped`; the port is that for monitoring.
    """
    run_process(settings, Metrics(), _keep_working)


async def _keep_working(settings: Settings, metrics: Metrics) -> None:
    await run_until_stopped(keep_jobs_running(settings, metrics), event="working")


@asynccontextmanager
async def keep_jobs_running(settings: Settings, metrics: Metrics) -> AsyncIterator[list[str]]:
    """Run the jobs within the block. Provide the addresses for monitoring; the list is empty if no port is set."""
    async with open_context(settings.model_copy(update={"jobs": "embedded"}), metrics) as context:
        if not settings.jobs_port:
            yield []
            return
        context.keyring.check_binding(settings.host)
        async with open_port(make_app((), context), settings, settings.jobs_port) as addresses:
            yield addresses
