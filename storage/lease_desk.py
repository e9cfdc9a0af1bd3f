"""Where requests for leases come in: few statements for many keys that have theirs, few transactions for the others.

The rule: a key is never in two transactions of this process at once, and its requests are taken in the order they came.
What is read is enough where a key has its resource for long enough; everything else goes through a transaction, which
is one statement where what was read decides it, and those that come while one is under way share the next. Another one
beside it is for a crowd: two small ones cost more than one, and everyone waits for both.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from .coalesce import Coalescer
from .errors import LostRace, NoResource, OutcomeUnknown, QueueFull, StorageError, WaitTooLong
from .lease_findings import Findings, gathered, lease_findings
from .lease_group import LeaseGroups, Outcome
from .lease_records import Ask, GiveBack, Given, Request
from .store import Program, Store

log = structlog.get_logger(__name__)

CROWD = 32  # another transaction begins when at least so many wait,
CROWD_TIMES = 8  # and so many times those under way
GATHER_TURNS = 2  # turns of the event loop between the first request and its transaction, as `Coalescer` has them
FRESH_S = 0.25  # what was found longer ago is looked for again: a lease begins when it was looked for
Key = tuple[str, str, str]  # client, pool and key


@dataclass(frozen=True, slots=True)
class LeaseDeskLimits:
    """The desk's bounds; each is a setting of the same name."""

    lease_group_max: int  # requests in one transaction
    lease_groups_in_flight_max: int
    lease_requests_waiting_max: int
    lease_wait_s_max: float
    point_read_lanes: int


class LeaseObserver(Protocol):
    """What the desk tells its operators."""

    def lease_answered(self, outcome: str) -> None:
        """A request: "kept", "extended", "acquired", "released", "no_resource", or "refused" for another reason."""

    def lease_requests_waiting(self, requests: int) -> None:
        """Requests that wait for a transaction, after a change."""

    def lease_group_written(self, requests: int, seconds: float) -> None:
        """A transaction was committed."""


@dataclass(slots=True, eq=False)
class _Waiting:
    request: Request
    done: asyncio.Future[Given]
    found: Findings | None  # for its key,
    asked_s: float  # by a read that began then, on the loop's clock


class LeaseDesk:
    """Answers the requests of one process."""

    def __init__(self, store: Store, groups: LeaseGroups, limits: LeaseDeskLimits, observer: LeaseObserver) -> None:
        self._store, self._groups, self._limits, self._observer = store, groups, limits, observer
        self._loop = asyncio.get_running_loop()
        self._in_flight_max = min(limits.lease_groups_in_flight_max, store.writes_at_once)
        self._waiting: deque[_Waiting] = deque()
        self._busy: set[Key] = set()  # keys in a transaction
        self._in_flight = 0
        self._under_way = 0  # requests in transactions
        self._ended_s: dict[Key, float] = {}  # when the last transaction of each key was over
        self._forgotten_s = 0.0  # and the time before which those of other keys were
        self._tasks: set[asyncio.Task[None]] = set()
        self._looking = False
        self._closing = False
        self._reads: Coalescer[Ask, Findings] = Coalescer(
            self._find,
            batch_max=limits.lease_group_max,
            waiting_max=limits.lease_requests_waiting_max,
            # Where readers are threads of this process two only take the interpreter from each other.
            lanes=1 if store.sole_writer else limits.point_read_lanes,
        )

    async def _find(self, asked: list[Ask]) -> Sequence[Findings]:
        return [await lease_findings(self._store.dialect).read(self._store, asked)] * len(asked)

    async def ask(self, ask: Ask) -> Given:
        """What a key has from now on.

        Raises:
            UnknownPool, NoResource, LeaseInPast: it has nothing, or nothing more.
            QueueFull, WaitTooLong, StoreBusy: what it has is not known; to ask again settles that.
        """
        asked_s = self._loop.time()
        found = await self._reads.ask(None, ask)
        running = found.running(ask)
        if running is not None and running.expires_at_us >= _expiry(ask, running):
            self._observer.lease_answered("kept")
            return running
        given = await self._in_group(ask, found, asked_s)
        self._observer.lease_answered("acquired" if given.acquired else "extended")
        return given

    async def look(self, client_id: str, pool_id: str, key: str) -> Given:
        """What a key has, as long as it is not over.

        Raises:
            UnknownPool, UnknownLease: nothing.
        """
        ask = Ask(client_id, pool_id, key, "")
        running = (await self._reads.ask(None, ask)).running(ask)
        if running is None:
            return await self._store.read(lambda: self._groups.look(client_id, pool_id, key))
        return running

    async def give_back(self, request: GiveBack) -> Given:
        """Let a key's resource be free; answers which it was.

        Raises:
            UnknownPool, UnknownLease: there is none.
            QueueFull, WaitTooLong, StoreBusy: whether it was done is not known; to ask again settles that.
        """
        given = await self._in_group(request)
        self._observer.lease_answered("released")
        return given

    async def _in_group(self, request: Request, found: Findings | None = None, asked_s: float = 0.0) -> Given:
        if self._closing:
            raise QueueFull("shutting down")
        if len(self._waiting) >= self._limits.lease_requests_waiting_max:
            raise QueueFull(f"{len(self._waiting)} requests for leases are waiting")
        waiting = _Waiting(request, self._loop.create_future(), found, asked_s)
        self._waiting.append(waiting)
        self._observer.lease_requests_waiting(len(self._waiting))
        self._begin()
        try:
            async with asyncio.timeout(self._limits.lease_wait_s_max):
                return await waiting.done
        except TimeoutError as error:
            raise WaitTooLong("the lease took too long: ask again") from error
        except StorageError as error:
            self._observer.lease_answered("no_resource" if isinstance(error, NoResource) else "refused")
            raise
        finally:
            if not waiting.done.done():
                waiting.done.cancel()

    def _begin(self) -> None:
        crowded = not self._in_flight or len(self._waiting) >= max(CROWD, CROWD_TIMES * self._under_way)
        if self._waiting and crowded and self._in_flight < self._in_flight_max:
            self._in_flight += 1
            self._start(self._write_groups(), "lease group")

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        # A context of its own: it works for whoever asks, and what it logs is not the first one's.
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
                    return  # nobody waits, or whose key is in another transaction: that one goes on with it
                self._under_way += len(group)
                try:
                    await self._write(group)
                finally:
                    self._under_way -= len(group)
                    self._end({waiting.request[:3] for waiting in group})
        finally:
            self._in_flight -= 1
            self._begin_again()

    def _end(self, keys: set[Key]) -> None:
        self._busy -= keys
        now_s = self._loop.time()
        if len(self._ended_s) + len(keys) > self._limits.lease_requests_waiting_max:
            self._ended_s.clear()
            self._forgotten_s = now_s
        self._ended_s.update(dict.fromkeys(keys, now_s))

    def _found(self, group: list[_Waiting]) -> Findings | None:
        """What was found for all of a group, lately, as long as none of their keys was in a transaction since."""
        oldest_s = self._loop.time() - FRESH_S
        found = [
            waiting.found
            for waiting in group
            if waiting.found is not None
            and max(oldest_s, self._ended_s.get(waiting.request[:3], self._forgotten_s)) < waiting.asked_s
        ]
        return gathered([waiting.request for waiting in group], found) if len(found) == len(group) else None

    def _begin_again(self) -> None:
        if any(waiting.request[:3] not in self._busy for waiting in self._waiting):
            self._begin()

    def _take(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        stepped_over: list[_Waiting] = []
        keys = set(self._busy)
        while self._waiting and len(group) < self._limits.lease_group_max:
            waiting = self._waiting.popleft()
            if waiting.done.done():
                continue  # who asked has gone
            key = waiting.request[:3]
            (stepped_over if key in keys else group).append(waiting)
            keys.add(key)
        self._waiting.extendleft(reversed(stepped_over))
        self._busy |= {waiting.request[:3] for waiting in group}
        self._observer.lease_requests_waiting(len(self._waiting))
        return group

    async def _write(self, group: list[_Waiting]) -> None:
        started_s = self._loop.time()
        try:
            outcomes = await self._outcomes([waiting.request for waiting in group], self._found(group))
        except Exception as error:
            for waiting in group:
                if not waiting.done.done():
                    waiting.done.set_exception(_own(error))
            return
        self._observer.lease_group_written(len(group), self._loop.time() - started_s)
        for waiting, outcome in zip(group, outcomes, strict=True):
            if waiting.done.done():
                continue
            if isinstance(outcome, StorageError):
                waiting.done.set_exception(outcome)
            else:
                waiting.done.set_result(outcome)

    async def _outcomes(self, requests: list[Request], found: Findings | None) -> list[Outcome]:
        at_once = self._groups.at_once(requests, found) if found is not None else None
        if at_once is not None:
            try:
                await self._store.write_one(at_once.query)
            except (LostRace, OutcomeUnknown):  # to look again settles either
                self._groups.lost(at_once)
                found = None
            else:
                self._look_on(at_once.now_us)
                return at_once.outcomes

        def program() -> Program[list[Outcome]]:
            nonlocal found
            before, found = found, None  # if it runs again, another process has changed what was found
            return self._groups.run(requests, before)

        return await self._store.write(program)

    def _look_on(self, now_us: int) -> None:
        if self._groups.should_look_on and not self._looking:
            self._looking = True
            self._start(self._look(now_us), "leases that come next")

    async def _look(self, now_us: int) -> None:
        try:
            await self._groups.look_on(self._store, now_us)
        except StorageError as error:
            log.info("lease_look_failed", detail=error.detail)  # whoever needs more looks then
        finally:
            self._looking = False

    async def close(self) -> None:
        """Take nothing more, and return when what was taken is answered."""
        self._closing = True
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)


def _own(error: Exception) -> Exception:
    """An error for each who waits: one that several raise would gather all their tracebacks."""
    if isinstance(error, OutcomeUnknown):
        return WaitTooLong("the connection to the store was lost before it said what became of the lease: ask again")
    if isinstance(error, StorageError):
        own = type(error)(error.detail)
        own.__cause__ = error
        return own
    return error


def _expiry(ask: Ask, known: Given) -> int:
    return known.now_us + ask.lease_us if ask.expires_at_us is None else ask.expires_at_us
