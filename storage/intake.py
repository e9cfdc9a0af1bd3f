"""What takes posts in: one task that empties a line of those who wait, from `start` to `close`.

The rule: what was taken in before the close is worked off before it ends; who waits too long is told by one timer.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from .expiry import Expiry

W = TypeVar("W")

# Turns of the event loop before a group is taken: each reads every socket that has a post, so those who were just
# answered and post again come along. It is no delay: an idle loop turns at once.
GATHER_TURNS = 4


class Intake(ABC, Generic[W]):
    """The task, and those who wait for it."""

    def __init__(self, name: str, *, wait_s_max: float) -> None:
        self._name = name  # of the task
        self._expiry: Expiry[W] = Expiry(wait_s_max, self._expire)
        self._wake = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to take what waits."""
        self._task = asyncio.create_task(self._run(), name=self._name)

    @property
    def alive(self) -> bool:
        """Whether posts are taken."""
        return self._task is not None and not self._task.done()

    async def close(self) -> None:
        """Work off what was taken in, then stop."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await self._task
        self._expiry.close()

    @abstractmethod
    async def _run(self) -> None:
        """Take what waits until `_closing` is set and nothing waits any more; `_wake` is set when either changes."""

    @abstractmethod
    def _expire(self, waiting: W) -> None:
        """Tell one of them that it took too long."""
