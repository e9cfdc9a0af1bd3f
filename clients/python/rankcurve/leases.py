"""Leases of resources, which are remembered until shortly before they end and extended while they are held.

    leases = client.leases("eu")
    with leases.hold("acme", "numbers", "call-8812") as lease:
        dial_from(lease.resource)  # lease.version is its fencing number

A lease must never be trusted beyond its end, because its resource may then belong to somebody else. The client
therefore measures a lease's time on the monotonic clock, starting before the request is sent, and sets `lost` when that
time is over, whether an answer arrives or not. The wall clock is only used to decide whether a remembered lease lasts
until a time that the caller names.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime

from .answers import ENCODER, LeaseAnswer, check_name, decode
from .errors import ApiError, RankcurveError, UnreachableError, one_line
from .programs import Acquire, Lock, Program, Reply, Send, Signal, Wait, operation
from .retries import Retries, Sender
from .transport import AsyncRunner, AsyncTransport, PerProcess, SyncRunner, SyncTransport, path_of

Name = tuple[str, str, str]  # client, pool, key
Term = datetime | float  # the end of a lease, or how many seconds it lasts
LEASE_S = 60.0
EXTEND_S_MIN = 0.001  # the least remaining time assumed when the next attempt to extend is scheduled
LEAVE_S = 2.0  # when a block ends: the longest wait for an attempt to extend, and then for each answer
logger = logging.getLogger("rankcurve")


class Lease:
    """A lease of a resource, whose times are updated while it is held. `version` is its fencing number.

    `good_until_s` is the end of the lease by this process's monotonic clock, and never later than the true end.
    `lease_expires` is the end by the store's clock. `acquired` is true if the key did not already have the resource.
    """

    __slots__ = (
        "_failure", "_lost", "_monotonic", "acquired", "good_until_s", "key", "lease_expires", "region", "resource",
        "version",
    )  # fmt: skip

    def __init__(self, answer: LeaseAnswer, asked_s: float, monotonic: Callable[[], float]) -> None:
        self.key, self.resource, self.acquired = answer.key, answer.resource, answer.acquired
        self._monotonic = monotonic
        self._lost: RankcurveError | None = None
        self._failure: RankcurveError | None = None  # of the newest attempt to extend
        self._take(answer, asked_s)

    @property
    def lost(self) -> RankcurveError | None:
        """The reason why the lease can no longer be extended, or None as long as it can.

        It is set from `good_until_s` on at the latest, because the resource may then belong to somebody else, and never
        becomes None again.
        """
        if self._lost is None and self._monotonic() >= self.good_until_s:
            self._lost = self._failure or RankcurveError(f"the lease of {self.key!r} has ended")
        return self._lost

    def extend(self, answer: LeaseAnswer, asked_s: float) -> None:
        """Apply the answer to an attempt to extend.

        The lease is lost if the answer arrives after its end, or is about another lease.
        """
        if self.lost is not None:
            return
        # Each new lease of a resource has the next version, so nobody else had the resource in between.
        if answer.resource == self.resource and answer.version - self.version in (0, 1):
            self._take(answer, asked_s)
        else:
            had, got = ((each.resource, each.version) for each in (self, answer))
            self._lost = RankcurveError(f"the key {self.key!r} now has {got!r}, and had {had!r} (resource, version)")

    def fail(self, error: RankcurveError) -> None:
        """Record that an attempt to extend failed. A final rejection loses the lease at once."""
        self._failure = error
        if isinstance(error, ApiError) and error.final:
            self._lost = self.lost or error

    def _take(self, answer: LeaseAnswer, asked_s: float) -> None:
        self.region, self.version = answer.region, answer.version
        self.lease_expires, self.good_until_s = answer.lease_expires, asked_s + answer.expires_in
        self._failure = None


class _Turn:
    """The right to send requests for one key, which one caller has at a time while the other `callers` wait for it."""

    def __init__(self, lock: Lock) -> None:
        self.lock, self.callers = lock, 0


class _Remembered:
    """The leases that one process remembers. `guard` protects the other attributes, and is never held while waiting."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.known: OrderedDict[Name, Lease] = OrderedDict()
        self.turns: dict[Name, _Turn] = {}


class _Leasing:
    transport: SyncTransport | AsyncTransport

    def __init__(
        self,
        transport: SyncTransport | AsyncTransport,
        sender: Sender,
        region: str,
        *,
        renew_before_s: float,
        enough_ratio: float,
        leases_max: int,
        monotonic: Callable[[], float],
        now: Callable[[], datetime],
    ) -> None:
        self.transport = transport
        self._sender, self._region = sender, region
        self._renew_before_s, self._enough_ratio, self._leases_max = renew_before_s, enough_ratio, leases_max
        self._monotonic, self._now = monotonic, now
        self._mine = PerProcess(_Remembered)

    @operation
    def get(self, client_id: str, pool_id: str, key: str, lease_expires: Term) -> Program[Lease]:
        """Return a lease until about `lease_expires`, of the resource that the key already has or of a new one.

        `lease_expires` is a time, or a number of seconds that the service adds to the time of its own clock. If a
        remembered lease lasts long enough, it is returned without a request. Callers that ask for the same lease at the
        same time share one request.

        Raises:
            NoResourceAvailableError: the region has no free resource.
            ApiError: the service rejected the request.
            UnreachableError: no answer came, so the key may or may not have a resource; call again to find out.
        """
        return (yield from self._get((client_id, pool_id, key), lease_expires))

    @operation
    def give_back(self, client_id: str, pool_id: str, key: str) -> Program[None]:
        """Give back the key's resource, if the key has one.

        Raises UnreachableError if the key may still have its resource, and ApiError if the service rejects the request.
        """
        yield from self._give_back((client_id, pool_id, key))

    def forget(self, client_id: str, pool_id: str, key: str) -> None:
        """Forget a key's lease, so that the next `get` for the key sends a request."""
        mine = self._mine.get()
        with mine.guard:
            mine.known.pop((client_id, pool_id, key), None)

    def _get(self, name: Name, lease_expires: Term) -> Program[Lease]:
        if (known := self._find(name, lease_expires)) is not None:
            return known
        turn = yield from self._begin(name)
        try:
            if (known := self._find(name, lease_expires)) is not None:
                return known  # another caller has sent a request in the meantime
            return (yield from self._ask(name, lease_expires))
        finally:
            self._end(name, turn)

    def _give_back(self, name: Name, sender: Sender | None = None, timeout_s: float | None = None) -> Program[None]:
        turn = yield from self._begin(name)
        try:
            self.forget(*name)
            try:
                sent = Send("DELETE", path_of("v1", "leases", *name), timeout_s=timeout_s)
                yield from (sender or self._sender).send(sent)
            except ApiError as error:
                if error.status != 404:
                    raise
        finally:
            self._end(name, turn)

    def _extend(self, name: Name, lease: Lease, lease_s: float, ended: Signal) -> Program[None]:
        """Extend a lease whenever half of its remaining time is over, until `ended` is set or the lease is lost."""
        once = Sender(self._sender.url, Retries(attempts_max=1), self._sender.on_unreachable)
        while True:
            left_s = max(EXTEND_S_MIN, lease.good_until_s - self._monotonic())
            if (yield Wait(ended, left_s / 2)) or lease.lost is not None:
                return
            try:
                lease.extend(*(yield from self._request(name, lease_s, once, left_s / 4)))
            except RankcurveError as error:
                lease.fail(error)

    def _leave(self, name: Name, *, extending: bool) -> Program[None]:
        """Give back a held lease, unless an attempt to extend is still under way, which could lease it again."""
        until_s = self._monotonic() + LEAVE_S
        asked = self._sender
        sender = Sender(asked.url, asked.retries, asked.on_unreachable, lambda: self._monotonic() >= until_s)
        try:
            if extending:
                raise UnreachableError("no answer to the attempt to extend it")
            yield from self._give_back(name, sender, LEAVE_S)
        except RankcurveError as error:
            self.forget(*name)
            logger.warning("the lease of %s is not given back, and ends by itself: %s", one_line(name[2]), error)

    def _find(self, name: Name, lease_expires: Term) -> Lease | None:
        mine = self._mine.get()
        with mine.guard:
            known = mine.known.get(name)
            if known is None or known.lost is not None:
                return None
            left_s, wanted_s = known.good_until_s - self._monotonic(), lease_expires
            if isinstance(wanted_s, datetime):
                wanted_s = (wanted_s - self._now()).total_seconds()
            if left_s <= self._renew_before_s or left_s < wanted_s * self._enough_ratio:
                return None
            mine.known.move_to_end(name)
            return known

    def _ask(self, name: Name, lease_expires: Term) -> Program[Lease]:
        try:
            answer, asked_s = yield from self._request(name, lease_expires, self._sender)
        except ApiError:
            self.forget(*name)
            raise
        lease, mine = Lease(answer, asked_s, self._monotonic), self._mine.get()
        with mine.guard:
            mine.known[name] = lease
            mine.known.move_to_end(name)
            while len(mine.known) > self._leases_max:
                mine.known.popitem(last=False)
        return lease

    def _request(
        self, name: Name, lease_expires: Term, sender: Sender, timeout_s: float | None = None
    ) -> Program[tuple[LeaseAnswer, float]]:
        body: dict[str, object] = dict(zip(("client_id", "pool_id", "key"), name, strict=True))
        if isinstance(lease_expires, datetime):
            body["lease_expires"] = lease_expires.isoformat()
        else:
            body["lease_seconds"] = lease_expires
        asked_s = self._monotonic()
        content = ENCODER.encode(body | {"region": self._region})
        reply: Reply = yield from sender.send(Send("POST", path_of("v1", "leases"), content, timeout_s=timeout_s))
        answer = decode(reply.content, LeaseAnswer)
        check_name(answer.key, name[2])
        return answer, asked_s

    def _begin(self, name: Name) -> Program[_Turn]:
        mine = self._mine.get()
        with mine.guard:
            turn = mine.turns.setdefault(name, _Turn(self.transport.make_lock()))
            turn.callers += 1
        try:
            yield Acquire(turn.lock)
        except BaseException:
            self._drop(name, turn)
            raise
        return turn

    def _end(self, name: Name, turn: _Turn) -> None:
        turn.lock.release()
        self._drop(name, turn)

    def _drop(self, name: Name, turn: _Turn) -> None:
        mine = self._mine.get()
        with mine.guard:
            turn.callers -= 1
            if not turn.callers:
                del mine.turns[name]


class Leases(_Leasing, SyncRunner):
    """The leases of one program, created with `Client.leases`. They can be shared between threads."""

    transport: SyncTransport

    @contextmanager
    def hold(self, client_id: str, pool_id: str, key: str, *, lease_s: float = LEASE_S) -> Iterator[Lease]:
        """Hold a lease during a `with` block. A thread extends the lease, and the end of the block gives it back.

        Raises the same errors as `get`. A lease that can't be given back within seconds expires by itself. A forked
        process neither extends the lease nor gives it back.
        """
        name = (client_id, pool_id, key)
        lease = self.run(self._get(name, lease_s))
        ended, process = threading.Event(), os.getpid()
        thread = threading.Thread(
            target=self.run, args=(self._extend(name, lease, lease_s, ended),), name=f"lease of {key}", daemon=True
        )
        thread.start()
        try:
            yield lease
        finally:
            ended.set()
            if process == os.getpid():
                thread.join(LEAVE_S)
                self.run(self._leave(name, extending=thread.is_alive()))


class AsyncLeases(_Leasing, AsyncRunner):
    """The leases of one program, created with `AsyncClient.leases`. All tasks of one event loop can share them."""

    transport: AsyncTransport

    @asynccontextmanager
    async def hold(self, client_id: str, pool_id: str, key: str, *, lease_s: float = LEASE_S) -> AsyncIterator[Lease]:
        """Hold a lease during an `async with` block. A task extends the lease, and the end of the block gives it back.

        Raises the same errors as `get`. A lease that can't be given back within seconds expires by itself.
        """
        name = (client_id, pool_id, key)
        lease = await self.run(self._get(name, lease_s))
        ended = asyncio.Event()
        task = asyncio.create_task(self.run(self._extend(name, lease, lease_s, ended)))
        try:
            yield lease
        finally:
            ended.set()
            _, extending = await asyncio.wait({task}, timeout=LEAVE_S)
            task.cancel()
            await self.run(self._leave(name, extending=bool(extending)))
