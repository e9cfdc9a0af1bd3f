"""A client for several memcached servers, which bounds each call and stops calling a failing server for a while.

The servers together hold values, and any value may vanish at any time.

    event loop ── key -> server ── one call at a time ──> the server's thread ── pymemcache ──> the server
                         └── failed several times in a row ──> left alone for a while ──> one trial call

A cache must never cost more than it saves, so a call never raises an error. It waits for earlier calls to the same
server, and then ends within `memcached_timeout_s` unless a host name has to be resolved. A failed server is counted,
and its values are treated as absent.

A key always belongs to the same server. While that server is down, its values are missing. If other servers stored them
in the meantime, the values would stay there and become stale.

A timeout of pymemcache restarts with every piece of an answer that arrives, so a server that sends a few bytes at a
time could make a call last forever. Therefore the sockets of `_Server` limit the time and the bytes of a whole call.
"""

from __future__ import annotations

import asyncio
import socket
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

import structlog
from pymemcache.client.base import Client
from pymemcache.client.rendezvous import RendezvousHash
from pymemcache.exceptions import MemcacheServerError

from config.settings import MemcachedSettings

T = TypeVar("T")
log = structlog.get_logger(__name__)
_LINE_BYTES = 512  # bytes allowed for the protocol lines around one value of a server's answer
_THREAD_TIMEOUTS_MAX = 4  # give up a call after this many times `memcached_timeout_s`: resolving a name has no timeout
# Bytes to receive at a time, far more than the 4 KiB of pymemcache: the thread may wait for the interpreter lock after
# each piece.
RECV_BYTES = 256 * 1024


class CacheAnswer(NamedTuple):
    values: Mapping[str, bytes] = {}
    stored: bool = False
    errors: int = 0  # number of servers that failed


class Memcached:
    def __init__(self, limits: MemcachedSettings, *, monotonic: Callable[[], float]) -> None:
        self.limits = limits
        self._servers = {address: _Server(address, limits, monotonic) for address in limits.memcached_servers}
        make_hash: Any = RendezvousHash  # Any, because the methods have no annotations
        self._find_address = make_hash([*self._servers]).get_node
        self._closed = False

    @property
    def servers_left_alone(self) -> int:
        """The number of servers that are currently not called, because they failed."""
        return sum(server.is_left_alone for server in self._servers.values())

    async def get_many(self, keys: Sequence[str]) -> CacheAnswer:
        """Get the values of up to `memcached_batch_max` keys, by key. Absent and late values are left out."""
        if self._closed:
            return CacheAnswer()
        asked: dict[_Server, list[str]] = defaultdict(list)
        for key in keys:
            asked[self._servers[self._find_address(key)]].append(key)
        calls = [server.call(partial(server.client.get_many, theirs)) for server, theirs in asked.items()]
        found = await asyncio.gather(*calls)
        values = {key: value for theirs, _ in found for key, value in (theirs or {}).items()}
        return CacheAnswer(values, errors=sum(failed for _, failed in found))

    async def store_value(self, key: str, value: bytes) -> CacheAnswer:
        if self._closed:
            return CacheAnswer()
        server, expiry_s = self._servers[self._find_address(key)], self.limits.memcached_expiry_s
        stored, failed = await server.call(lambda: server.client.set(key, value, expire=expiry_s, noreply=False))
        return CacheAnswer(stored=bool(stored), errors=int(failed))

    async def close(self) -> None:
        """Close the connections. Later calls reach no server and return an empty result."""
        if not self._closed:
            self._closed = True
            await asyncio.gather(*(server.close() for server in self._servers.values()))


class _Server:
    """One server, with its client on a thread of its own, the limits of the current call, and a circuit breaker.

    Only the thread calls the methods that are not asynchronous.
    """

    def __init__(self, address: str, limits: MemcachedSettings, monotonic: Callable[[], float]) -> None:
        self._limits, self._monotonic = limits, monotonic
        host, _, port = address.rpartition(":")
        # The client uses this in place of the module `socket`.
        sockets = SimpleNamespace(**(vars(socket) | {"socket": partial(_LimitedSocket, self)}))
        # Without a serializer, values stay bytes and the flags that a server sends with them are ignored.
        make_client: Any = Client
        self.client = make_client((host.strip("[]"), int(port)), socket_module=sockets, no_delay=True)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="memcached")
        self._given_up: asyncio.Future[Any] | None = None  # a call that may still run on the thread
        self._failures = 0  # failures in a row
        self._trial_s = 0.0  # until this time of `monotonic`, the server is not called while it is left alone
        self._ends_s, self._bytes_left = 0.0, 0  # the limits of the current call

    @property
    def is_left_alone(self) -> bool:
        """Return whether the server has failed so often that it is not called for now, until a trial call tests it."""
        return self._failures >= self._limits.memcached_failures_max

    async def call(self, work: Callable[[], T]) -> tuple[T | None, bool]:
        """Run `work`. Return its result (None if it did not run or failed), and whether the server failed."""
        if self._given_up is not None and not self._given_up.done():
            return None, True
        future = asyncio.get_running_loop().run_in_executor(self._thread, self._work, work)
        done, _ = await asyncio.wait([future], timeout=_THREAD_TIMEOUTS_MAX * self._limits.memcached_timeout_s)
        if not done:
            self._given_up = future
            return None, True
        return future.result()

    def _work(self, work: Callable[[], T]) -> tuple[T | None, bool]:
        limits = self._limits
        if self.is_left_alone and self._monotonic() < self._trial_s:
            return None, False
        self._ends_s = self._monotonic() + limits.memcached_timeout_s
        self._bytes_left = limits.memcached_batch_max * (limits.memcached_value_bytes_max + _LINE_BYTES) + RECV_BYTES
        try:
            answer = work()
        except Exception as error:  # if an answer makes no sense, pymemcache's parser may raise any exception
            self.client.close()
            # "SERVER_ERROR object too large for cache" is an answer of a working server. A subclass of
            # `MemcacheServerError` means a lost connection.
            self._failures = 0 if type(error) is MemcacheServerError else self._failures + 1
            self._trial_s = self._monotonic() + limits.memcached_pause_s
            if self._failures == limits.memcached_failures_max:
                log.warning("memcached_server_paused", server=str(self.client.server), detail=repr(error))
            return None, True
        self._failures = 0
        return answer, False

    def left_s(self) -> float:
        left_s = self._ends_s - self._monotonic()
        if left_s <= 0:
            raise TimeoutError("the call took too long")
        return left_s

    def count_received(self, received: int) -> None:
        """Count received bytes. Raise OSError once a call has received more bytes than any correct answer contains."""
        self._bytes_left -= received
        if self._bytes_left < 0:
            raise OSError("the response is too long")

    async def close(self) -> None:
        await self.call(self.client.close)
        self._thread.shutdown(wait=False, cancel_futures=True)


class _LimitedSocket(socket.socket):
    """A socket that raises an error when its server's current call has reached a limit."""

    def __init__(self, server: _Server, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._server = server

    def connect(self, address: Any) -> None:
        self.settimeout(self._server.left_s())
        super().connect(address)

    def sendall(self, data: Any, flags: int = 0) -> None:
        self.settimeout(self._server.left_s())
        super().sendall(data, flags)

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        self.settimeout(self._server.left_s())
        data = super().recv(max(bufsize, RECV_BYTES), flags)
        self._server.count_received(len(data))
        return data
