"""A client for a list of memcached servers. The servers together hold values, and any value may vanish at any time.

    a call ── key -> server ──> a connection to the server, behind its breaker ──> values, and how many servers failed

A call never raises, and ends within `memcached_timeout_s`, whatever the servers send. If a server fails, the failure is
counted, and the server's values are treated as absent.

A key always belongs to the same server. While that server is down, its values are missing. If its values were stored on
another server meanwhile, they would stay there and become stale.

Each server has a circuit breaker (`Breaker`), so that a server that fails several times in a row is not called:

    closed ── failures_max in a row ──> open ── pause_s later ──> a trial ── failed: open again, answered: closed
"""

import asyncio
from asyncio import StreamReader
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import TypeVar

import structlog

from config.settings import MemcachedSettings

T = TypeVar("T")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CacheAnswer:
    values: Mapping[str, bytes] = field(default_factory=dict)
    stored: bool = False
    errors: int = 0  # number of servers that failed


class Memcached:
    """The client of all servers. Each call opens connections of its own, because calls are seconds apart."""

    def __init__(self, limits: MemcachedSettings, *, monotonic: Callable[[], float]) -> None:
        self.limits = limits
        self._servers = [_Server(address, limits, monotonic) for address in limits.memcached_servers]

    @property
    def servers_left_alone(self) -> int:
        """Return how many servers have an open breaker."""
        return sum(server.breaker.open for server in self._servers)

    async def get_many(self, keys: Sequence[str]) -> CacheAnswer:
        """Return the values of at most `memcached_batch_max` keys, by key; absent and late values are left out."""
        by_server: dict[_Server, list[str]] = {}
        for key in keys:
            by_server.setdefault(self._find_server(key), []).append(key)
        read = partial(_read_values, bytes_max=self.limits.memcached_value_bytes_max)
        answers = await asyncio.gather(
            *[
                server.ask(f"get {' '.join(theirs)}\r\n".encode(), partial(read, keys=theirs))
                for server, theirs in by_server.items()
            ]
        )
        values = {key: value for found, _ in answers if found is not None for key, value in found.items()}
        return CacheAnswer(values=values, errors=sum(errors for _, errors in answers))

    async def store_value(self, key: str, value: bytes) -> CacheAnswer:
        head = f"set {key} 0 {self.limits.memcached_expiry_s} {len(value)}\r\n".encode()
        stored, errors = await self._find_server(key).ask(head + value + b"\r\n", _read_stored)
        return CacheAnswer(stored=bool(stored), errors=errors)

    def _find_server(self, key: str) -> "_Server":
        # Every process finds the same server, and if servers are added or removed, few keys get another one.
        return max(self._servers, key=lambda server: blake2b(f"{server.address} {key}".encode()).digest())


class _ServerRefusedError(Exception):
    """The server works, but it refused the request. For example, it takes no value of this size."""


class _Server:
    def __init__(self, address: str, limits: MemcachedSettings, monotonic: Callable[[], float]) -> None:
        self.address, self._timeout_s = address, limits.memcached_timeout_s
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self.breaker = Breaker(
            failures_max=limits.memcached_failures_max, pause_s=limits.memcached_pause_s, monotonic=monotonic
        )

    async def ask(self, request: bytes, read: Callable[[StreamReader], Awaitable[T]]) -> tuple[T | None, int]:
        """Send a request. Return what `read` returns, or None, and how many servers failed."""
        if not self.breaker.allows():
            return None, 0
        try:
            async with asyncio.timeout(self._timeout_s):
                reader, writer = await asyncio.open_connection(self._host, self._port)
                try:
                    writer.write(request)
                    answer = await read(reader)
                finally:
                    writer.transport.abort()
        except _ServerRefusedError:
            self.breaker.succeeded()
            return None, 1
        except (OSError, EOFError, ValueError) as error:  # a timeout is an OSError
            was_open = self.breaker.open
            self.breaker.failed()
            if self.breaker.open and not was_open:
                log.warning("memcached_server_paused", server=self.address, detail=repr(error))
            return None, 1
        self.breaker.succeeded()
        return answer, 0


async def _read_line(reader: StreamReader) -> bytes:
    """Return a line, which is shorter than the limit of a reader, 64 KiB. Raises ValueError for a longer one."""
    line = await reader.readline()
    if line.startswith(b"SERVER_ERROR"):
        raise _ServerRefusedError
    return line


async def _read_values(reader: StreamReader, *, keys: Sequence[str], bytes_max: int) -> dict[str, bytes]:
    """Return values by key. Raises ValueError or EOFError if the answer is not one to a request for these keys."""
    values: dict[str, bytes] = {}
    while (line := await _read_line(reader)) != b"END\r\n":
        word, name, _, size_text = line.split()
        key, size = name.decode(), int(size_text)
        if word != b"VALUE" or key not in keys or key in values or not 0 <= size <= bytes_max:
            raise ValueError("the answer is not one to this request")
        values[key] = (await reader.readexactly(size + 2))[:-2]
    return values


async def _read_stored(reader: StreamReader) -> bool:
    line = await _read_line(reader)
    if line not in (b"STORED\r\n", b"NOT_STORED\r\n"):
        raise ValueError("the answer is not one to this request")
    return line == b"STORED\r\n"


class Breaker:
    """The circuit breaker of one server."""

    def __init__(self, *, failures_max: int, pause_s: float, monotonic: Callable[[], float]) -> None:
        self._failures_max, self._pause_s, self._monotonic = failures_max, pause_s, monotonic
        self._failures = 0  # failures in a row
        self._closed_again_s = 0.0

    @property
    def open(self) -> bool:
        """Return whether the server has failed so often that only trials may call it."""
        return self._failures >= self._failures_max

    def allows(self) -> bool:
        return not self.open or self._monotonic() >= self._closed_again_s

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self) -> None:
        """Record that the server did not answer, or that its answer made no sense."""
        self._failures += 1
        self._closed_again_s = self._monotonic() + self._pause_s
