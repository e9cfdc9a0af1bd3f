"""Notices the curves that other processes stored, so that all answer from the newest within curve_poll_s.

The one rule: a store that fails is logged and asked again at the next interval; the curves that serve go on serving.
"""

from __future__ import annotations

import structlog

from storage.curves import CurveBook

from .runner import Sleep

log = structlog.get_logger(__name__)


class WatchJob:
    """Polls the curve book."""

    def __init__(self, book: CurveBook, *, curve_poll_s: float, sleep: Sleep) -> None:
        self._book, self._curve_poll_s, self._sleep = book, curve_poll_s, sleep

    async def run(self) -> None:
        """Poll at every interval, for ever."""
        while True:
            await self._sleep(self._curve_poll_s)
            try:
                await self._book.poll()
            except Exception as error:
                log.error("curve_poll_failed", exc_info=error)
