"""One timer for all who wait equally long: a timer each costs a small request a fiftieth of its time.

The rule: who came first expires first, so only the head of the line is ever looked at.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

W = TypeVar("W")


class Expiry(Generic[W]):
    """Calls `expire` with everyone whose future is not done `wait_s` after they were added."""

    def __init__(self, wait_s: float, expire: Callable[[W], None]) -> None:
        self._wait_s, self._expire = wait_s, expire
        self._line: deque[tuple[float, asyncio.Future[Any], W]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._line)

    def add(self, waiting: W, done: asyncio.Future[Any]) -> None:
        """Wait from now on."""
        self._drop_done()  # what is kept is at most what came since the oldest that still waits
        loop = done.get_loop()
        self._line.append((loop.time() + self._wait_s, done, waiting))
        if self._timer is None:
            self._timer = loop.call_later(self._wait_s, self._look, loop)

    def _drop_done(self) -> None:
        line = self._line
        while line and line[0][1].done():
            line.popleft()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        self._drop_done()
        while self._line and self._line[0][0] <= loop.time():
            self._expire(self._line.popleft()[2])
            self._drop_done()
        if self._line:
            self._timer = loop.call_at(self._line[0][0], self._look, loop)

    def close(self) -> None:
        """Expire nobody any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._line.clear()
