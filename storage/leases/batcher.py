"""Batches the lease requests of one process: one read answers many keys, one transaction serves many requests.

    a key asks ──> shared read ──> its lease lasts long enough: answered
                       └── else ──> waiting ──> a group, in one transaction ──> each request answered
    a key gives back ──────────────────┘

A key is never in two transactions of this process at the same time, and its requests are served in order.

Requests that arrive during a transaction share the next one. A second transaction starts beside a running one only when
many requests wait, because two small transactions cost more than a large one. If the read has found everything that is
needed, the transaction is a single statement.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from config.settings import Settings
from storage.coalesce import Coalescer
from storage.errors import (
    LostRaceError,
    NoResourceError,
    OutcomeUnknownError,
    QueueFullError,
    StorageError,
    WaitTooLongError,
)
from storage.store import Store, read_single, write_single

from .lease_records import Grant, LeaseRequest, PoolRequest, Release
from .lease_transaction import Findings, LeaseTransactions, Outcome, read_findings

log = structlog.get_logger(__name__)

# Another transaction starts beside a running one only if at least `CROWD` requests wait, and at least `CROWD_TIMES`
# waiting requests for each request that is in a transaction.
CROWD = 32
CROWD_TIMES = 8
GATHER_TURNS = 2  # turns of the event loop before a transaction takes its requests, as in `Coalescer`
FRESH_S = 0.25  # older findings are not used, because a new lease starts at the time of the findings
RequestKey = tuple[str, str, str]  # client, pool and key


class LeaseObserver(Protocol):
    def lease_answered(self, outcome: str) -> None:
        """Count a request by its outcome.

        The outcome is "kept", "extended", "acquired", "released", "no_resource", or "refused" for any other error.
        """

    def lease_requests_waiting(self, requests: int) -> None:
        """Record the number of waiting requests, after each change of that number."""

    def lease_group_written(self, requests: int, seconds: float) -> None:
        """Record a committed transaction: its number of requests and its duration."""


@dataclass(slots=True, eq=False)
class _Waiting:
    request: PoolRequest
    done: asyncio.Future[Grant]
    found: Findings | None  # the findings for the request's key; None: nothing was read
    asked_s: float  # time at which the caller asked for that read, on the clock of the event loop


class LeaseBatcher:
    def __init__(self, store: Store, groups: LeaseTransactions, limits: Settings, observer: LeaseObserver) -> None:
        self._store, self._groups, self._limits, self._observer = store, groups, limits, observer
        self._loop = asyncio.get_running_loop()
        self._in_flight_max = min(limits.lease_groups_in_flight_max, store.writes_at_once)
        self._waiting: deque[_Waiting] = deque()
        self._busy: set[RequestKey] = set()  # keys in a transaction
        self._in_flight = 0
        self._ended_s: dict[RequestKey, float] = {}  # time at which the last transaction of each key ended
        self._forgotten_s = 0.0  # the last transaction of any key not in `_ended_s` ended by this time
        self._tasks: set[asyncio.Task[None]] = set()
        self._reading_ahead = False
        self._closing = False
        self._reads: Coalescer[LeaseRequest, Findings] = Coalescer(
            self._find,
            batch_max=limits.lease_group_max,
            waiting_max=limits.lease_requests_waiting_max,
            # If reads run in threads of this process, two threads would only compete for the interpreter lock.
            lanes=1 if store.sole_writer else limits.point_read_lanes,
        )

    async def _find(self, asked: list[LeaseRequest]) -> Sequence[Findings]:
        return [await read_single(self._store, lambda: read_findings(asked))] * len(asked)

    async def request_lease(self, ask: LeaseRequest) -> Grant:
        """Give a key a resource, or extend the lease that it has; return the lease.

        Raises:
            UnknownPoolError, NoResourceError, LeaseInPastError: the key has no lease, or its lease was not extended.
            QueueFullError, WaitTooLongError, StoreBusyError: the outcome is not known; the caller should ask again.
        """
        asked_s = self._loop.time()
        found = await self._reads.ask(None, ask)
        running = found.find_running(ask)
        if running is not None and running.expires_at_us >= ask.until_us(running.now_us):
            self._observer.lease_answered("kept")
            return running
        given = await self._in_group(ask, found, asked_s)
        self._observer.lease_answered("acquired" if given.acquired else "extended")
        return given

    async def find_lease(self, client_id: str, pool_id: str, key: str) -> Grant:
        """Return the running lease of a key, even one in another store if this store knows of that lease.

        Raises:
            UnknownPoolError, UnknownLeaseError: there is no such pool, or no running lease.
        """
        ask = LeaseRequest(client_id, pool_id, key, "")
        running = (await self._reads.ask(None, ask)).find_running(ask)
        if running is None:
            return await self._store.read(lambda: self._groups.find_lease(client_id, pool_id, key))
        return running

    async def release_lease(self, request: Release) -> Grant:
        """Free the resource of a key, and return the lease that the key had.

        Raises:
            UnknownPoolError, UnknownLeaseError: there is no such pool, or the key has no lease in it.
            QueueFullError, WaitTooLongError, StoreBusyError: the outcome is not known; the caller should ask again.
        """
        given = await self._in_group(request)
        self._observer.lease_answered("released")
        return given

    async def _in_group(self, request: PoolRequest, found: Findings | None = None, asked_s: float = 0.0) -> Grant:
        if self._closing:
            raise QueueFullError("the service is shutting down")
        if len(self._waiting) >= self._limits.lease_requests_waiting_max:
            raise QueueFullError(f"{len(self._waiting)} requests for leases are waiting")
        waiting = _Waiting(request, self._loop.create_future(), found, asked_s)
        self._waiting.append(waiting)
        self._observer.lease_requests_waiting(len(self._waiting))
        self._begin()
        try:
            async with asyncio.timeout(self._limits.lease_wait_s_max):
                return await waiting.done
        except TimeoutError as error:
            raise WaitTooLongError("the request for the lease took too long: ask again") from error
        except StorageError as error:
            self._observer.lease_answered("no_resource" if isinstance(error, NoResourceError) else "refused")
            raise
        finally:
            if not waiting.done.done():
                waiting.done.cancel()

    def _begin(self) -> None:
        crowded = not self._in_flight or len(self._waiting) >= max(CROWD, CROWD_TIMES * len(self._busy))
        if not crowded or self._in_flight >= self._in_flight_max:
            return
        if any(waiting.request[:3] not in self._busy for waiting in self._waiting):
            self._in_flight += 1
            self._start(self._write_groups(), "lease group")

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        # The context is empty: the task serves many requests, so its log lines must not carry the ids of the first one.
        task = asyncio.create_task(work, name=name, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write_groups(self) -> None:
        try:
            while True:
                for _ in range(GATHER_TURNS):
                    await asyncio.sleep(0)
                group = self._take()
                if not group:
                    return  # if requests wait, their keys are busy: another task serves these requests
                try:
                    await self._write(group)
                finally:
                    self._end({waiting.request[:3] for waiting in group})
        finally:
            self._in_flight -= 1
            self._begin()

    def _end(self, keys: set[RequestKey]) -> None:
        self._busy -= keys
        now_s = self._loop.time()
        if len(self._ended_s) + len(keys) > self._limits.lease_requests_waiting_max:
            self._ended_s.clear()
            self._forgotten_s = now_s
        self._ended_s.update(dict.fromkeys(keys, now_s))

    def _found(self, group: list[_Waiting]) -> Findings | None:
        """Return the merged findings of a group, or None if the findings for any request are missing or outdated.

        Findings are outdated after `FRESH_S`, or if a transaction with the request's key ended after the read.
        """
        oldest_s = self._loop.time() - FRESH_S
        merged, now_us = Findings(0, {}, {}), 0
        for waiting in group:
            request, found = waiting.request, waiting.found
            ended_s = self._ended_s.get(request[:3], self._forgotten_s)
            if found is None or waiting.asked_s <= max(oldest_s, ended_s):
                return None
            now_us = max(now_us, found.now_us)
            if request[:2] in found.pools:
                merged.pools[request[:2]] = found.pools[request[:2]]
                key = found.key(request)
                if key in found.held:
                    merged.held[key] = found.held[key]
        return merged._replace(now_us=now_us)

    def _take(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        stepped_over: list[_Waiting] = []
        keys = set(self._busy)
        while self._waiting and len(group) < self._limits.lease_group_max:
            waiting = self._waiting.popleft()
            if waiting.done.done():
                continue  # the caller gave up
            key = waiting.request[:3]
            (stepped_over if key in keys else group).append(waiting)
            keys.add(key)
        self._waiting.extendleft(reversed(stepped_over))
        self._busy |= {waiting.request[:3] for waiting in group}
        self._observer.lease_requests_waiting(len(self._waiting))
        return group

    async def _write(self, group: list[_Waiting]) -> None:
        started_s = self._loop.time()
        outcomes: Sequence[Grant | Exception]
        try:
            outcomes = await self._outcomes([waiting.request for waiting in group], self._found(group))
        except Exception as error:
            outcomes = [_copy_error(error) for _ in group]
        else:
            self._observer.lease_group_written(len(group), self._loop.time() - started_s)
        for waiting, outcome in zip(group, outcomes, strict=True):
            if waiting.done.done():
                continue
            if isinstance(outcome, Exception):
                waiting.done.set_exception(outcome)
            else:
                waiting.done.set_result(outcome)

    async def _outcomes(self, requests: list[PoolRequest], found: Findings | None) -> list[Outcome]:
        single = self._groups.plan_single_write(requests, found) if found is not None else None
        if single is not None:
            try:
                await write_single(self._store, single.write)
            except (LostRaceError, OutcomeUnknownError):  # the transaction below reads again
                for region in single.regions:  # another process probably took its resources first
                    self._groups.queues.note_lost_race(region, single.now_us)
                found = None
            else:
                self._start_reading_ahead(single.now_us)
                return single.outcomes
        unused = [found]  # a run takes the findings: if the store runs the program again, they are out of date
        return await self._store.write(lambda: self._groups.serve_requests(requests, unused.pop() if unused else None))

    def _start_reading_ahead(self, now_us: int) -> None:
        if self._groups.queues.running_low and not self._reading_ahead:
            self._reading_ahead = True
            self._start(self._read_ahead(now_us), "read leases ahead")

    async def _read_ahead(self, now_us: int) -> None:
        try:
            await self._groups.queues.read_ahead(self._store, now_us)
        except StorageError as error:
            log.info("lease_read_ahead_failed", detail=error.detail)  # the next request reads the rows itself
        finally:
            self._reading_ahead = False

    async def close(self) -> None:
        """Refuse new requests, and return when the accepted requests are answered."""
        self._closing = True
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)


def _copy_error(error: Exception) -> Exception:
    """Return a copy of an error for one request. A shared instance would collect the tracebacks of all requests."""
    if isinstance(error, OutcomeUnknownError):
        return WaitTooLongError("the connection to the store was lost before the store confirmed the lease: ask again")
    if isinstance(error, StorageError):
        own = type(error)(error.detail)
        own.__cause__ = error
        return own
    return error
