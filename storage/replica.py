"""Long reads on a read replica, as true as on the primary: from a snapshot that holds what was acknowledged before.

The rule: a replica that lags, is gone or is no replica costs time, never truth: the primary is asked instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from querybuilder import Built

from .errors import StoreBusy
from .postgres import PostgresStore
from .store import Program, Rows, StoreSize

T = TypeVar("T")
log = structlog.get_logger(__name__)
POLL_S = 0.02


class ReplicaFirst:
    """A `Store` whose heavy reads go to a replica of it; all others, and all writes, go to the primary."""

    def __init__(
        self,
        primary: PostgresStore,
        replica: PostgresStore,
        *,
        lag_s_max: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_fallback: Callable[[], None] = lambda: None,
    ) -> None:
        self._primary, self._replica = primary, replica
        self._lag_s_max, self._sleep, self._on_fallback = lag_s_max, sleep, on_fallback
        self.dialect, self.sole_writer, self.writes_at_once = primary.dialect, False, primary.writes_at_once
        self.damaged = primary.damaged
        self._views: dict[PostgresStore, ReplicaFirst] = {primary: self}

    def of(self, board_id: str) -> ReplicaFirst:
        """See `Store.of`."""
        primary = self._primary.of(board_id)
        view = self._views.get(primary)
        if view is None:
            view = self._views[primary] = ReplicaFirst(
                primary, self._replica, lag_s_max=self._lag_s_max, sleep=self._sleep, on_fallback=self._on_fallback
            )
        return view

    async def read(self, program: Callable[[], Program[T]], *, heavy: bool = False) -> T:
        """See `Store.read`."""
        if not heavy:
            return await self._primary.read(program)
        position = await self._primary.log_position()
        try:
            if await self._caught_up(position):
                return await self._replica.read(program, heavy=True)
            detail = f"the replica has not got {position} within {self._lag_s_max:g} s, or is none"
        except StoreBusy as error:
            detail = error.detail
        log.warning("replica_passed_over", detail=detail)
        self._on_fallback()
        return await self._primary.read(program, heavy=True)

    async def _caught_up(self, position: str) -> bool:
        waited_s = 0.0
        while True:
            caught_up = await self._replica.has_replayed(position)
            if caught_up is None or waited_s >= self._lag_s_max:
                return False
            if caught_up:
                return True
            await self._sleep(POLL_S)
            waited_s += POLL_S

    async def read_one(self, query: Built) -> Rows:
        """See `Store.read_one`."""
        return await self._primary.read_one(query)

    async def write(self, program: Callable[[], Program[T]]) -> T:
        """See `Store.write`."""
        return await self._primary.write(program)

    async def write_one(self, query: Built) -> Rows:
        """See `Store.write_one`."""
        return await self._primary.write_one(query)

    async def size(self) -> StoreSize:
        """See `Store.size`."""
        return await self._primary.size()

    async def close(self) -> None:
        """Let the replica go; the primary is its opener's."""
        await self._replica.close()
