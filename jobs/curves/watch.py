"""Polls the store for curves that other processes stored, and for the live counts of the folding process.

If the store fails, this process keeps its present curves, and the job polls again at the next interval.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from jobs.controls import Sleep
from storage.curves.stored_curves import CurveBook

log = structlog.get_logger(__name__)


class WatchJob:
    def __init__(self, book: CurveBook, *, curve_poll_s: float, live_poll_s: float, sleep: Sleep) -> None:
        self._book, self._curve_poll_s, self._live_poll_s, self._sleep = book, curve_poll_s, live_poll_s, sleep

    async def run_forever(self) -> None:
        await self._poll(self._book.poll, self._curve_poll_s)

    async def run_live(self) -> None:
        await self._poll(self._book.poll_live, self._live_poll_s)

    async def _poll(self, poll: Callable[[], Awaitable[int]], interval_s: float) -> None:
        while True:
            await self._sleep(interval_s)
            try:
                await poll()
            except Exception as error:
                log.error("curve_poll_failed", exc_info=error)
