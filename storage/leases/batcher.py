"""Answers a process's lease requests in batches, with one read for many keys and one transaction for many requests.

    a key asks for a lease ──> shared read ──> the key already has a lease that lasts long enough: answered
                                   └── else ──> shared transaction ──> each request answered
    a key releases its resource ───────────────────┘

Requests that arrive during a transaction share the next one, but two requests for the same key never share one. On
SQLite, requests for the same key are served in order of arrival. On PostgreSQL, two may be served at the same time.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from time import monotonic

from config.settings import Settings
from storage.coalesce import Coalescer
from storage.errors import (
    NoResourceError,
    OutcomeUnknownError,
    QueueFullError,
    StorageError,
    StoreBusyError,
    WaitTooLongError,
)
from storage.meter import Meter
from storage.store import Store, read_single

from .lease_records import Grant, LeaseRequest, PoolRequest, Release
from .lease_transaction import Findings, LeaseTransactions, Outcome, read_findings


class LeaseBatcher:
    def __init__(self, store: Store, groups: LeaseTransactions, limits: Settings, meter: Meter) -> None:
        self._store, self._groups, self._limits, self._meter = store, groups, limits, meter
        self._waiting: Counter[tuple[str, str, str]] = Counter()  # waiting requests by client, pool and key
        self._turns: dict[tuple[str, str, str], int] = {}  # how many requests a key has made since it had none waiting
        self._closing = False
        most, waiting_max = limits.lease_group_max, limits.lease_requests_waiting_max
        # On SQLite, reads run in threads of this process, and two threads would only compete for the interpreter lock.
        read_tasks_max = 1 if store.sole_writer else limits.point_read_tasks_max
        write_tasks_max = min(limits.lease_groups_in_flight_max, store.writes_at_once)
        self._reads = Coalescer(self._find, batch_max=most, waiting_max=waiting_max, tasks_max=read_tasks_max)
        self._writes = Coalescer(self._write, batch_max=most, waiting_max=waiting_max, tasks_max=write_tasks_max)

    async def request_lease(self, ask: LeaseRequest) -> Grant:
        """Lease a resource to a key, or extend the lease that the key has already, and return the lease.

        Raises:
            UnknownPoolError, UnknownRegionError, NoResourceError, LeaseInPastError: nothing was leased or extended.
            QueueFullError, WaitTooLongError, StoreBusyError: the outcome is not known; the caller should ask again.
        """
        running = (await self._reads.ask(None, ask)).find_running(ask)
        if running is not None and running.expires_at_us >= ask.until_us(running.now_us):
            self._meter.add("rankcurve_lease_requests", 1, "kept")
            return running
        given = await self._in_group(ask)
        self._meter.add("rankcurve_lease_requests", 1, "acquired" if given.acquired else "extended")
        return given

    async def find_lease(self, client_id: str, pool_id: str, key: str) -> Grant:
        """Find a key's running lease, which may be in another store if this store has learned of it.

        Raises:
            UnknownPoolError, UnknownLeaseError: there is no such pool, or no running lease.
        """
        ask = LeaseRequest(client_id, pool_id, key, "")
        running = (await self._reads.ask(None, ask)).find_running(ask)
        if running is None:
            return await self._store.read(lambda: self._groups.find_lease(client_id, pool_id, key))
        return running

    async def release_lease(self, request: Release) -> Grant:
        """End a key's lease, which frees its resource, and return the lease that the key had.

        Raises:
            UnknownPoolError, UnknownLeaseError: there is no such pool, or the key has no lease in it.
            QueueFullError, WaitTooLongError, StoreBusyError: the outcome is not known; the caller should ask again.
        """
        given = await self._in_group(request)
        self._meter.add("rankcurve_lease_requests", 1, "released")
        return given

    async def close(self) -> None:
        self._closing = True
        await self._writes.finish_questions()

    async def _in_group(self, request: PoolRequest) -> Grant:
        if self._closing:
            raise QueueFullError("the service is shutting down")
        key = request[:3]
        turn = self._turns.get(key, 0)
        try:
            # Only requests of one kind share a group. While requests of a key wait, each gets another kind.
            asked = self._writes.ask(turn, request)
        except StoreBusyError as error:
            raise QueueFullError(f"{self._waiting.total()} requests for leases are waiting") from error
        self._turns[key] = turn + 1
        self._count_waiting(key, 1)
        try:
            async with asyncio.timeout(self._limits.lease_wait_s_max):
                outcome = await asked
            if isinstance(outcome, StorageError):
                raise outcome
            return outcome
        except TimeoutError as error:
            raise WaitTooLongError("the request for the lease took too long: ask again") from error
        except StorageError as error:
            self._meter.add(
                "rankcurve_lease_requests", 1, "no_resource" if isinstance(error, NoResourceError) else "refused"
            )
            raise
        finally:
            self._count_waiting(key, -1)

    def _count_waiting(self, key: tuple[str, str, str], change: int) -> None:
        self._waiting[key] += change
        if not self._waiting[key]:
            del self._waiting[key], self._turns[key]
        self._meter.set("rankcurve_lease_requests_waiting", self._waiting.total())

    async def _find(self, asked: list[LeaseRequest]) -> Sequence[Findings]:
        return [await read_single(self._store, lambda: read_findings(asked))] * len(asked)

    async def _write(self, requests: list[PoolRequest]) -> Sequence[Outcome]:
        started_s = monotonic()
        try:
            outcomes = await self._store.write(lambda: self._groups.serve_requests(requests))
        except OutcomeUnknownError as error:
            lost = "the connection to the store was lost before the store confirmed the lease: ask again"
            raise WaitTooLongError(lost) from error
        self._meter.observe("rankcurve_lease_write_seconds", monotonic() - started_s)
        self._meter.observe("rankcurve_lease_write_requests", len(requests))
        return outcomes
