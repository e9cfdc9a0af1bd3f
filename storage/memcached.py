"""A list of memcached servers as one place for values that may be gone at any time.

    event loop ── one call at a time ──> a thread ── HashClient: key -> server ──> a server, behind its breaker

The one rule: a call ends within `memcached_timeout_s` and never raises: whatever goes wrong is counted, and its values
are as good as absent. A key belongs to one server for good: those of a server that is down are missing, and no other
server collects what would be stale later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog
from pymemcache.client.base import Client
from pymemcache.client.hash import HashClient
from pymemcache.exceptions import MemcacheServerError

from .breaker import Breaker
from .call_budget import RECV_BYTES, Budget, BudgetSockets

T = TypeVar("T")
log = structlog.get_logger(__name__)

_LINE_BYTES = 512  # around a value of an answer
_THREAD_TIMEOUTS_MAX = 4  # resolving a name knows no timeout: after so many a call is given up, not only its sockets


@dataclass(frozen=True, slots=True)
class MemcachedLimits:
    """The cache's bounds; each is a setting of the same name."""

    memcached_servers: tuple[str, ...]  # host:port
    memcached_timeout_s: float  # of a call, whatever it asks
    memcached_failures_max: int
    memcached_pause_s: float
    memcached_batch_max: int  # keys of a call
    memcached_value_bytes_max: int
    memcached_expiry_s: int


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of one call."""

    values: Mapping[str, bytes] = field(default_factory=dict)
    stored: bool = False
    errors: int = 0  # servers that failed


class _Server(Client):
    """One server behind its breaker: HashClient sees it answer always, with nothing where it failed."""

    def __init__(self, server: Any, *, breaker: Breaker, budget: Budget, **options: Any) -> None:
        super().__init__(server, **options)
        self._breaker, self._budget = breaker, budget

    def get_many(self, keys: Any) -> dict[Any, Any]:
        return self._guarded(lambda: super(_Server, self).get_many(keys), {})

    def set(self, key: Any, value: Any, expire: int = 0, noreply: Any = False, flags: Any = None) -> bool | None:
        return self._guarded(lambda: super(_Server, self).set(key, value, expire, noreply, flags), None)

    def _guarded(self, call: Callable[[], T], nothing: T) -> T:
        if not self._breaker.allows() or not self._budget.fair():
            return nothing
        try:
            answer = call()
        except Exception as error:  # a server that speaks nonsense raises whatever pymemcache's parser stumbles over
            self._budget.errors += 1
            self.close()
            # "SERVER_ERROR object too large for cache" is an answer; its subclass says that the connection ended.
            if type(error) is MemcacheServerError:
                self._breaker.succeeded()
            else:
                was_open = self._breaker.open
                self._breaker.failed()
                if self._breaker.open and not was_open:
                    log.warning("memcached_left_alone", server=str(self.server), detail=repr(error))
            return nothing
        self._breaker.succeeded()
        return answer


class Memcached:
    """The servers. Calls run one after the other on a thread of its own."""

    def __init__(self, limits: MemcachedLimits, *, monotonic: Callable[[], float]) -> None:
        self.limits = limits
        bytes_max = limits.memcached_batch_max * (limits.memcached_value_bytes_max + _LINE_BYTES) + RECV_BYTES
        self._budget = Budget(limits.memcached_timeout_s, bytes_max, monotonic)
        self._monotonic = monotonic
        self._breakers: list[Breaker] = []
        # Values are bytes: no serializer, so what a server calls them means nothing.
        make_ring: Any = HashClient  # its methods have no annotations
        self._ring = make_ring([], socket_module=BudgetSockets(self._budget), no_delay=True)
        self._ring.client_class = self._server
        for server in limits.memcached_servers:
            host, _, port = server.rpartition(":")
            self._ring.add_server((host.strip("[]"), int(port)))
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="memcached")
        self._given_up: asyncio.Future[Answered] | None = None
        self._closed = False

    def _server(self, server: Any, **options: Any) -> _Server:
        limits = self.limits
        breaker = Breaker(
            failures_max=limits.memcached_failures_max, pause_s=limits.memcached_pause_s, monotonic=self._monotonic
        )
        self._breakers.append(breaker)
        return _Server(server, breaker=breaker, budget=self._budget, **options)

    @property
    def servers_left_alone(self) -> int:
        """Servers whose breaker is open."""
        return sum(breaker.open for breaker in self._breakers)

    async def get_many(self, keys: Sequence[str]) -> Answered:
        """Values by key, up to `memcached_batch_max`; what is absent or did not come in time is left out."""
        return await self._call(lambda: Answered(values=self._ring.get_many(keys), errors=self._budget.errors))

    async def put(self, key: str, value: bytes) -> Answered:
        """Store a value, which expires some time or other."""
        expiry_s = self.limits.memcached_expiry_s
        return await self._call(
            lambda: Answered(stored=bool(self._ring.set(key, value, expire=expiry_s)), errors=self._budget.errors)
        )

    async def _call(self, work: Callable[[], Answered]) -> Answered:
        if self._closed:
            return Answered()
        if self._given_up is not None and not self._given_up.done():
            return Answered(errors=1)
        future = asyncio.get_running_loop().run_in_executor(self._thread, self._within_budget, work)
        done, _ = await asyncio.wait([future], timeout=_THREAD_TIMEOUTS_MAX * self.limits.memcached_timeout_s)
        if not done:
            self._given_up = future
            return Answered(errors=1)
        return future.result()

    def _within_budget(self, work: Callable[[], Answered]) -> Answered:
        self._budget.begin()
        return work()

    async def close(self) -> None:
        """Let the connections go; calls after this one ask nobody."""
        await self._call(self._close)
        self._closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _close(self) -> Answered:
        self._ring.close()
        return Answered()
