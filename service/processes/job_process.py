"""A process with jobs only: what refreshes, folds, audits and prunes for the front ends that share its store.

The rule: it serves no leaderboard. Where a port is set, monitors ask it there what they ask a front end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from config import Settings

from ..app import make_app
from ..metrics.process import Metrics
from ..serve import listening, run_process, until_stopped
from ..wiring import context_of


def run(settings: Settings) -> None:
    """Run the jobs until SIGTERM or SIGINT.

    Raises:
        StorageError: the store can't be opened.
        ServiceError: the monitors' port would be open to others without a key.
        OSError: the monitors' port can't be bound.
    """
    run_process(settings, Metrics(), _keep_working)


async def _keep_working(settings: Settings, metrics: Metrics) -> None:
    await until_stopped(working(settings, metrics), event="working")


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
