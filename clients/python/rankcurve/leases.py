"""Leases of resources, remembered until shortly before their end and extended while they are held.

    leases = client.leases("eu")
    with leases.hold("acme", "numbers", "call-8812") as lease:
        dial_from(lease.resource)  # lease.version is its fencing number

A lease never counts for longer than it lasts: its time is measured on the monotonic clock, from before the request was
sent. The wall clock only decides whether a lease is long enough.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta

from .answers import ENCODER, LeaseAnswer, decode
from .errors import ApiError, RankcurveError
from .paths import path_of
from .programs import Acquire, Lock, Program, Reply, Send, Signal, Wait, operation
from .retries import Sender
from .transport import AsyncRunner, AsyncTransport, SyncRunner, SyncTransport

Name = tuple[str, str, str]  # client, pool, key
LEASE_S = 60.0


class Lease:
    """A lease of a resource. While it is held, its times move on. `version` is its fencing number.

    `good_until_s` is its end by this process's monotonic clock, never later than the true one. `lease_expires` is its
    end by the store's clock. `acquired` is true if the key did not have the resource before. `lost` is None, or the
    reason why the lease could not be extended; from `good_until_s` on, the resource may then be somebody else's.
    """

    __slots__ = ("acquired", "good_until_s", "key", "lease_expires", "lost", "region", "resource", "version")

    def __init__(self, answer: LeaseAnswer, asked_s: float) -> None:
        self.key, self.lost = answer.key, None
        self.acquired = answer.acquired
        self.take(answer, asked_s)

    lost: RankcurveError | None

    def take(self, answer: LeaseAnswer, asked_s: float) -> None:
        self.resource, self.region, self.version = answer.resource, answer.region, answer.version
        self.lease_expires, self.good_until_s = answer.lease_expires, asked_s + answer.expires_in


class _Turn:
    """The right to ask for one key, which one caller at a time has. `callers` have it or wait for it."""

    def __init__(self, lock: Lock) -> None:
        self.lock, self.callers = lock, 0


class _Leasing:
    """The logic of both kinds of leases."""

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
        self._guard = threading.Lock()  # held for what is below, and never while waiting
        self._known: OrderedDict[Name, Lease] = OrderedDict()
        self._turns: dict[Name, _Turn] = {}

    @operation
    def get(self, client_id: str, pool_id: str, key: str, lease_expires: datetime) -> Program[Lease]:
        """Return a lease until about `lease_expires`, of the resource that the key already has, or of a new one.

        A remembered lease that lasts long enough is returned without a request. Callers that want the same lease at the
        same time share one request.

        Raises:
            NoResourceAvailableError: the region has no free resource.
            ApiError: the service refuses the request.
            UnreachableError: no answer came, so the key may have a resource or not; call again to find out.
        """
        return (yield from self._get((client_id, pool_id, key), lease_expires))

    @operation
    def give_back(self, client_id: str, pool_id: str, key: str) -> Program[None]:
        """Give back the key's resource, if it has one. Raises ApiError, or UnreachableError if it may still have it."""
        yield from self._give_back((client_id, pool_id, key))

    def forget(self, client_id: str, pool_id: str, key: str) -> None:
        """Forget the lease of a key, so that the next `get` for it sends a request."""
        with self._guard:
            self._known.pop((client_id, pool_id, key), None)

    def _get(self, name: Name, lease_expires: datetime) -> Program[Lease]:
        if (known := self._find(name, lease_expires)) is not None:
            return known
        turn = yield from self._begin(name)
        try:
            if (known := self._find(name, lease_expires)) is not None:
                return known  # another caller has asked meanwhile
            return (yield from self._ask(name, lease_expires))
        finally:
            self._end(name, turn)

    def _give_back(self, name: Name) -> Program[None]:
        turn = yield from self._begin(name)
        try:
            self.forget(*name)
            try:
                yield from self._sender.send(Send("DELETE", path_of("v1", "leases", *name)))
            except ApiError as error:
                if error.status != 404:
                    raise
        finally:
            self._end(name, turn)

    def _extend(self, name: Name, lease: Lease, lease_s: float, ended: Signal) -> Program[None]:
        """Extend a lease whenever half of its time is over, until `ended` is set or its time is over."""
        while True:
            left_s = lease.good_until_s - self._monotonic()
            if (yield Wait(ended, max(0.0, left_s / 2))):
                return
            try:
                lease.take(*(yield from self._request(name, self._now() + timedelta(seconds=lease_s))))
            except RankcurveError as error:
                if isinstance(error, ApiError) or self._monotonic() >= lease.good_until_s:
                    lease.lost = error
                    return

    def _find(self, name: Name, lease_expires: datetime) -> Lease | None:
        """Return the remembered lease if it lasts long enough."""
        with self._guard:
            known = self._known.get(name)
            if known is None:
                return None
            left_s = known.good_until_s - self._monotonic()
            wanted_s = (lease_expires - self._now()).total_seconds()
            if left_s <= self._renew_before_s or left_s < wanted_s * self._enough_ratio:
                return None
            self._known.move_to_end(name)
            return known

    def _ask(self, name: Name, lease_expires: datetime) -> Program[Lease]:
        try:
            answer, asked_s = yield from self._request(name, lease_expires)
        except ApiError:
            self.forget(*name)
            raise
        lease = Lease(answer, asked_s)
        with self._guard:
            self._known[name] = lease
            self._known.move_to_end(name)
            while len(self._known) > self._leases_max:
                self._known.popitem(last=False)
        return lease

    def _request(self, name: Name, lease_expires: datetime) -> Program[tuple[LeaseAnswer, float]]:
        """Return the service's answer, and the time on the monotonic clock before the first attempt."""
        client_id, pool_id, key = name
        body = {"client_id": client_id, "pool_id": pool_id, "key": key, "region": self._region}
        asked_s = self._monotonic()
        sent = Send(
            "POST", path_of("v1", "leases"), ENCODER.encode(body | {"lease_expires": lease_expires.isoformat()})
        )
        reply: Reply = yield from self._sender.send(sent)
        return decode(reply.content, LeaseAnswer), asked_s

    def _begin(self, name: Name) -> Program[_Turn]:
        with self._guard:
            turn = self._turns.setdefault(name, _Turn(self.transport.make_lock()))
            turn.callers += 1
        try:
            yield Acquire(turn.lock)
        except BaseException:
            self._leave(name, turn)
            raise
        return turn

    def _end(self, name: Name, turn: _Turn) -> None:
        turn.lock.release()
        self._leave(name, turn)

    def _leave(self, name: Name, turn: _Turn) -> None:
        with self._guard:
            turn.callers -= 1
            if not turn.callers:
                del self._turns[name]


class Leases(_Leasing, SyncRunner):
    """The leases of one program. Any thread may use them. Make them with `Client.leases`."""

    transport: SyncTransport

    @contextmanager
    def hold(self, client_id: str, pool_id: str, key: str, *, lease_s: float = LEASE_S) -> Iterator[Lease]:
        """Provide a lease that a thread extends until the end of the block, which gives it back. Raises as `get`."""
        name = (client_id, pool_id, key)
        lease = self.run(self._get(name, self._now() + timedelta(seconds=lease_s)))
        ended = threading.Event()
        thread = threading.Thread(
            target=self.run, args=(self._extend(name, lease, lease_s, ended),), name=f"lease of {key}", daemon=True
        )
        thread.start()
        try:
            yield lease
        finally:
            ended.set()
            thread.join()
            self.run(self._give_back(name))


class AsyncLeases(_Leasing, AsyncRunner):
    """The leases of one program. Any task of one event loop may use them. Make them with `AsyncClient.leases`."""

    transport: AsyncTransport

    @asynccontextmanager
    async def hold(self, client_id: str, pool_id: str, key: str, *, lease_s: float = LEASE_S) -> AsyncIterator[Lease]:
        """Provide a lease that a task extends until the end of the block, which gives it back. Raises as `get`."""
        name = (client_id, pool_id, key)
        lease = await self.run(self._get(name, self._now() + timedelta(seconds=lease_s)))
        ended = asyncio.Event()
        task = asyncio.create_task(self.run(self._extend(name, lease, lease_s, ended)))
        try:
            yield lease
        finally:
            ended.set()
            await task
            await self.run(self._give_back(name))
