"""A client for a list of memcached servers. The servers together hold values, and any value may vanish at any time.

    event loop ── one call at a time ──> a thread ── HashClient: key -> server ──> a server, behind its breaker

A call never raises. It ends within `memcached_timeout_s` unless a host name has to be resolved. If a server fails, the
failure is counted, and the server's values are treated as absent.

A key always belongs to the same server. While that server is down, its values are missing. If its values were stored on
another server during this time, they would stay there and become stale.

Each server has a circuit breaker (`Breaker`), so that a server that fails several times in a row is not called:

    closed ── failures_max in a row ──> open ── pause_s later ──> one trial call ── failed: open again, answered: closed

The result of every call that the breaker allowed must be reported to the breaker, so that it can close or open again.

A `Budget` limits the time and the bytes of a whole call. A socket's own timeout starts anew with every piece that
arrives, so without a budget, a server that sends a few bytes at a time could make a call last for ever.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar

import structlog
from pymemcache.client.base import Client
from pymemcache.client.hash import HashClient
from pymemcache.exceptions import MemcacheServerError

from config.settings import MemcachedSettings

T = TypeVar("T")
log = structlog.get_logger(__name__)
_LINE_BYTES = 512  # bytes allowed for the protocol lines around one value of a server's answer
_THREAD_TIMEOUTS_MAX = 4  # give up a call after this many times `memcached_timeout_s`: resolving a name has no timeout
# Bytes to receive at a time, far more than the 4 KiB of pymemcache: the thread may wait for the interpreter lock after
# each piece.
RECV_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class CacheAnswer:
    values: Mapping[str, bytes] = field(default_factory=dict)
    stored: bool = False
    errors: int = 0  # number of servers that failed


class Memcached:
    """The client of all servers. Calls run one after the other on a thread of their own."""

    def __init__(self, limits: MemcachedSettings, *, monotonic: Callable[[], float]) -> None:
        self.limits = limits
        bytes_max = limits.memcached_batch_max * (limits.memcached_value_bytes_max + _LINE_BYTES) + RECV_BYTES
        self._budget = Budget(limits.memcached_timeout_s, bytes_max, monotonic)
        # The client uses this in place of the module `socket`.
        sockets = SimpleNamespace(**(vars(socket) | {"socket": partial(BudgetSocket, self._budget)}))
        # Without a serializer, values stay bytes and the flags that a server sends with them are ignored.
        make_ring: Any = HashClient  # Any, because the methods of HashClient have no annotations
        self._ring = make_ring([], socket_module=sockets, no_delay=True)
        self._ring.client_class = partial(_Server, limits, self._budget, monotonic)
        for server in limits.memcached_servers:
            host, _, port = server.rpartition(":")
            self._ring.add_server((host.strip("[]"), int(port)))
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="memcached")
        self._given_up: asyncio.Future[tuple[Any, int]] | None = None  # a call that may still run on the thread
        self._closed = False

    @property
    def servers_left_alone(self) -> int:
        """Return how many servers have an open breaker."""
        return sum(server.breaker.open for server in self._ring.clients.values())

    async def get_many(self, keys: Sequence[str]) -> CacheAnswer:
        """Return the values of at most `memcached_batch_max` keys, by key. Leave out absent and late values."""
        values, errors = await self._call(lambda: self._ring.get_many(keys))
        return CacheAnswer(values=values or {}, errors=errors)

    async def store_value(self, key: str, value: bytes) -> CacheAnswer:
        expiry_s = self.limits.memcached_expiry_s
        stored, errors = await self._call(lambda: self._ring.set(key, value, expire=expiry_s))
        return CacheAnswer(stored=bool(stored), errors=errors)

    async def _call(self, work: Callable[[], Any]) -> tuple[Any, int]:
        """Return the result of `work` (None if it was not run or given up), and how many servers failed."""
        if self._closed:
            return None, 0
        if self._given_up is not None and not self._given_up.done():
            return None, 1
        future = asyncio.get_running_loop().run_in_executor(self._thread, self._within_budget, work)
        done, _ = await asyncio.wait([future], timeout=_THREAD_TIMEOUTS_MAX * self.limits.memcached_timeout_s)
        if not done:
            self._given_up = future
            return None, 1
        return future.result()

    def _within_budget(self, work: Callable[[], Any]) -> tuple[Any, int]:
        self._budget.begin()
        return work(), self._budget.errors

    async def close(self) -> None:
        """Close the connections. Later calls reach no server and return an empty result."""
        await self._call(self._ring.close)
        self._closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)


class _Server(Client):
    """The client of one server, with a circuit breaker. To HashClient, a failed call looks like an absent value."""

    def __init__(
        self, limits: MemcachedSettings, budget: Budget, monotonic: Callable[[], float], server: Any, **options: Any
    ) -> None:
        super().__init__(server, **options)
        self._budget = budget
        self.breaker = Breaker(
            failures_max=limits.memcached_failures_max, pause_s=limits.memcached_pause_s, monotonic=monotonic
        )

    def get_many(self, keys: Any) -> dict[Any, Any]:
        return self._guarded(lambda: super(_Server, self).get_many(keys), {})

    def set(self, key: Any, value: Any, expire: int = 0, noreply: Any = False, flags: Any = None) -> bool | None:
        return self._guarded(lambda: super(_Server, self).set(key, value, expire, noreply, flags), None)

    def _guarded(self, call: Callable[[], T], nothing: T) -> T:
        if not self.breaker.allows() or not self._budget.fair():
            return nothing
        try:
            answer = call()
        except Exception as error:  # if an answer makes no sense, pymemcache's parser may raise any exception
            self._budget.errors += 1
            self.close()
            # "SERVER_ERROR object too large for cache" is an answer of a working server. A subclass of
            # `MemcacheServerError` means a lost connection.
            if type(error) is MemcacheServerError:
                self.breaker.succeeded()
            else:
                was_open = self.breaker.open
                self.breaker.failed()
                if self.breaker.open and not was_open:
                    log.warning("memcached_server_paused", server=str(self.server), detail=repr(error))
            return nothing
        self.breaker.succeeded()
        return answer


class Breaker:
    """The circuit breaker of one server, used by one thread."""

    def __init__(self, *, failures_max: int, pause_s: float, monotonic: Callable[[], float]) -> None:
        self._failures_max, self._pause_s, self._monotonic = failures_max, pause_s, monotonic
        self._failures = 0  # failures in a row
        self._closed_again_s = 0.0  # until this time of `monotonic`, no call is allowed while the breaker is open

    @property
    def open(self) -> bool:
        """Return whether the server has failed so often that it is not called for now. A later trial call tests it."""
        return self._failures >= self._failures_max

    def allows(self) -> bool:
        return not self.open or self._monotonic() >= self._closed_again_s

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self) -> None:
        """Record that the server did not answer, or that its answer made no sense."""
        self._failures += 1
        self._closed_again_s = self._monotonic() + self._pause_s


class Budget:
    """The time and bytes that are left for the current call."""

    def __init__(self, timeout_s: float, bytes_max: int, monotonic: Callable[[], float]) -> None:
        self._timeout_s, self._bytes_max, self._monotonic = timeout_s, bytes_max, monotonic
        self._ends_s = 0.0
        self._bytes = 0
        self.errors = 0

    def begin(self) -> None:
        self._ends_s = self._monotonic() + self._timeout_s
        self._bytes = self._bytes_max
        self.errors = 0

    def fair(self) -> bool:
        """Return whether half of the time is left. If not, the servers asked before may be to blame for a timeout."""
        return self._ends_s - self._monotonic() >= self._timeout_s / 2

    def left_s(self) -> float:
        """Return the seconds that are left, or raise TimeoutError if there are none."""
        left_s = self._ends_s - self._monotonic()
        if left_s <= 0:
            raise TimeoutError("the call took too long")
        return left_s

    def received(self, count: int) -> None:
        """Count received bytes. Raise OSError if the call has received more bytes than any correct answer has."""
        self._bytes -= count
        if self._bytes < 0:
            raise OSError("the response is too long")


class BudgetSocket(socket.socket):
    """A socket that raises an error when the call's budget is used up."""

    def __init__(self, budget: Budget, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.budget = budget

    def connect(self, address: Any) -> None:
        self.settimeout(self.budget.left_s())
        super().connect(address)

    def sendall(self, data: Any, flags: int = 0) -> None:
        self.settimeout(self.budget.left_s())
        super().sendall(data, flags)

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        self.settimeout(self.budget.left_s())
        data = super().recv(max(bufsize, RECV_BYTES), flags)
        self.budget.received(len(data))
        return data
