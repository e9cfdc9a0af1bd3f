"""Sends requests at random moments at a given rate, even if answers are late, and measures how long each takes.

The time of a request counts from the moment when it was due, so it includes any wait for a free connection and any
delay in this process. The client is as small as possible, because it shares the machine with the measured service.
"""

from __future__ import annotations

import asyncio
import random
import selectors
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from benchmarks.client import HOST, BadAnswerError

CONNECTIONS = 32
_ANSWERS_S_MAX = 30.0

T = TypeVar("T")
Ask = Callable[[], bytes]  # a function that builds a request as bytes, with head and body
Kinds = dict[str, tuple[Ask, int]]  # what to send and how often per second, by kind of request


def run_punctually(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on an event loop that wakes on time. The usual one uses epoll and may wake a millisecond late."""
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        return runner.run(work)


def build_get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()


def build_post(path: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class _Connection(asyncio.Protocol):
    """A connection that has one request under way at a time.

    It calls `answered` after each answer with status 200, and `failed` after any other answer or when the connection is
    lost.
    """

    def __init__(self, answered: Callable[[_Connection], None], failed: Callable[[str], None]) -> None:
        self._answered, self._failed = answered, failed
        self._buffer = b""
        self.asked_s = 0.0
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._buffer[:end].lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r")[0])
        if len(self._buffer) < end + 4 + length:
            return
        answer, self._buffer = self._buffer, b""
        if head[9:12] == b"200":
            self._answered(self)
        else:
            self._failed(repr(answer[:400]))

    def connection_lost(self, exc: Exception | None) -> None:
        self._failed(f"the connection was lost: {exc}")


class PacedClient:
    """Sends requests to one port at a given rate, over `CONNECTIONS` connections."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: deque[_Connection] = deque()  # used in turn, so that the server closes none for being idle
        self._due: deque[tuple[float, bytes]] = deque()  # requests that wait for a connection
        self._took_ms: list[float] = []
        self._failure: str | None = None
        self._again: Ask | None = None
        self._progress = asyncio.Event()
        self._under_way = 0

    async def __aenter__(self) -> PacedClient:
        loop = asyncio.get_running_loop()
        for _ in range(CONNECTIONS):
            _, connection = await loop.create_connection(
                lambda: _Connection(self._answered, self._failed), HOST, self._port
            )
            self._idle.append(connection)
        return self

    async def __aexit__(self, *error: object) -> None:
        for connection in self._idle:
            connection.transport.close()
        await asyncio.sleep(0)

    async def send_at_rate(self, ask: Ask, *, per_s: float, seconds: float, rng: random.Random) -> list[float]:
        """Send requests at random moments for `seconds` seconds. Return the milliseconds of each request."""
        self._took_ms, self._again = [], None
        at = begun = time.perf_counter()
        while True:
            at += rng.expovariate(per_s)
            if at > begun + seconds:
                break
            pause = at - time.perf_counter()
            if pause > 0:
                await asyncio.sleep(pause)
            if self._idle:
                self._send(self._idle.popleft(), at, ask())
            else:
                self._due.append((at, ask()))
                await asyncio.sleep(0)  # without this pause, a client that is behind would never read answers
        await self._finished()
        return self._took_ms

    async def measure_saturation(self, ask: Ask, *, seconds: float) -> float:
        """Return the rate of answers per second if every connection sends its next request right after each answer."""
        self._took_ms, self._again = [], ask
        begun = time.perf_counter()
        while self._idle:
            self._send(self._idle.popleft(), time.perf_counter(), ask())
        await asyncio.sleep(seconds)
        self._again = None
        await self._finished()
        return len(self._took_ms) / (time.perf_counter() - begun)

    def _send(self, connection: _Connection, due_s: float, request: bytes) -> None:
        self._under_way += 1
        connection.asked_s = due_s
        connection.transport.write(request)

    def _answered(self, connection: _Connection) -> None:
        now_s = time.perf_counter()
        self._took_ms.append(1000 * (now_s - connection.asked_s))
        self._under_way -= 1
        if self._due:
            self._send(connection, *self._due.popleft())
        elif self._again is not None:
            self._send(connection, now_s, self._again())
        else:
            self._idle.append(connection)
        self._progress.set()

    def _failed(self, detail: str) -> None:
        self._failure = self._failure or detail
        self._progress.set()

    async def _finished(self) -> None:
        async with asyncio.timeout(_ANSWERS_S_MAX):
            while self._under_way and self._failure is None:
                self._progress.clear()
                await self._progress.wait()
        if self._failure is not None:
            raise BadAnswerError(self._failure)


async def send_kinds(port: int, kinds: Kinds, seconds: float, rng: random.Random) -> dict[str, list[float]]:
    """Send requests of all kinds at the same time. Return the milliseconds that each took, sorted, by kind."""

    async def send(ask: Ask, per_s: int) -> list[float]:
        async with PacedClient(port) as client:
            return sorted(await client.send_at_rate(ask, per_s=per_s, seconds=seconds, rng=rng))

    return dict(zip(kinds, await asyncio.gather(*(send(*kind) for kind in kinds.values())), strict=True))
