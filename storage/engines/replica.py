"""Sends heavy reads to a read replica, with the same guarantee as on the primary server.

    heavy read ──> the primary's log position ──> the replica has replayed it in time? ── yes ──> read on the replica
                                                                                        └─ no ──> read on the primary

The most important rule: if the replica lags, can't be reached or is no replica, reads become slower, but never wrong.
On both servers, the snapshot of a read holds every write that was acknowledged before the read.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from querybuilder import Bound
from storage.errors import StoreBusyError
from storage.store import Program, Rows, StoreSize

from .postgres import PostgresStore

T = TypeVar("T")
log = structlog.get_logger(__name__)
POLL_S = 0.02


class ReplicaFirst:
    """A `Store` that sends heavy reads to a replica. Other reads and all writes go to the primary."""

    def __init__(
        self,
        primary: PostgresStore,
        replica: PostgresStore,
        *,
        lag_s_max: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._primary, self._replica = primary, replica
        self._lag_s_max, self._sleep = lag_s_max, sleep
        self.dialect, self.sole_writer, self.writes_at_once = primary.dialect, False, primary.writes_at_once
        self.damaged = primary.damaged
        self._views: dict[PostgresStore, ReplicaFirst] = {primary: self}

    @property
    def partitions(self) -> int:
        return self._primary.partitions

    def at(self, partition: int) -> ReplicaFirst:
        return self._view_of(self._primary.at(partition), partition)

    def _view_of(self, primary: PostgresStore, partition: int) -> ReplicaFirst:
        view = self._views.get(primary)
        if view is None:
            view = self._views[primary] = copy.copy(self)
            view._primary, view._replica, view.dialect = primary, self._replica.at(partition), primary.dialect
        return view

    async def read(self, program: Callable[[], Program[T]], *, heavy: bool = False) -> T:
        if not heavy:
            return await self._primary.read(program)
        position = await self._primary.read_log_position()
        try:
            if await self._caught_up(position):
                return await self._replica.read(program, heavy=True)
            detail = f"the replica did not replay {position} in {self._lag_s_max:g} s, or the server is no replica"
        except StoreBusyError as error:
            detail = error.detail
        log.warning("replica_passed_over", detail=detail)
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

    async def read_query(self, query: Bound) -> Rows:
        return await self._primary.read_query(query)

    async def write(self, program: Callable[[], Program[T]]) -> T:
        return await self._primary.write(program)

    async def size(self) -> StoreSize:
        return await self._primary.size()

    async def close(self) -> None:
        """Close the replica. The primary stays open, and the code that opened it has to close it."""
        await self._replica.close()
