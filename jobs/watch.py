"""Notices the curves that other processes stored, and the changes that one of them folded into their live counts.

The one rule: a store that fails is logged and asked again at the next interval; the curves that serve go on serving.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from storage.curves import CurveBook

from .runner import Sleep

log = structlog.get_logger(__name__)


class WatchJob:
    """Polls the curve book."""

    def __init__(self, book: CurveBook, *, curve_poll_s: float, live_poll_s: float, sleep: Sleep) -> None:
        self._book, self._curve_poll_s, self._live_poll_s, self._sleep = book, curve_poll_s, live_poll_s, sleep

    async def run(self) -> None:
        """Poll for curves at every interval, for ever."""
        await self._poll(self._book.poll, self._curve_poll_s)

    async def run_live(self) -> None:
        """Poll for live counts at every interval of theirs, for ever."""
        await self._poll(self._book.poll_live, self._live_poll_s)

    async def _poll(self, poll: Callable[[], Awaitable[int]], interval_s: float) -> None:
        while True:
            await self._sleep(interval_s)
            try:
                await poll()
            except Exception as error:
                log.error("curve_poll_failed", exc_info=error)
