"""Polls the store for curves that other processes stored, and for the live counts of the folding process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from jobs.controls import Sleep

log = structlog.get_logger(__name__)


async def watch_curves(poll: Callable[[], Awaitable[int]], interval_s: float, sleep: Sleep) -> None:
    """Poll for ever. If the store fails, this process keeps its present curves until the next poll."""
    while True:
        await sleep(interval_s)
        try:
            await poll()
        except Exception as error:
            log.error("curve_poll_failed", exc_info=error)
