"""A small HTTP/1.1 client, for benchmarks whose requests need logic that wrk cannot run.

The client sends one request at a time on a connection and always declares the length of the body. It understands only
the kinds of answers that the measured servers send.
"""

import asyncio
import http.client
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

HOST = "127.0.0.1"
_TIMEOUT_S = 60.0
_HEAD_BYTES_MAX = 64 * 1024

T = TypeVar("T")


class BadAnswerError(Exception):
    """A request got a wrong or failed answer, so the benchmark cannot continue."""


class Connection:
    """One keep-alive connection to a loopback port. It opens with the first request, and again after a failure."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, method: str, path: str, body: bytes = b"", *, authorization: str = "") -> tuple[int, bytes]:
        """Return the answer's status and body. Raises OSError, EOFError or TimeoutError if no answer comes."""
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                return await self._call(method, path, body, authorization)
        except BaseException:
            self.close()
            raise

    async def _call(self, method: str, path: str, body: bytes, authorization: str) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(HOST, self.port, limit=_HEAD_BYTES_MAX)
        reader, writer = self._streams
        headers_sent = "Content-Type: application/json\r\n" if body else ""
        if authorization:
            headers_sent += f"Authorization: {authorization}\r\n"
        head = f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\n{headers_sent}Content-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        answer = await reader.readexactly(int(headers.get("content-length", "0")))
        if headers.get("connection", "").lower() == "close":
            self.close()
        return int(lines[0].split(" ", 2)[1]), answer

    async def call_ok(self, method: str, path: str, body: object = None, *, authorization: str = "") -> Any:
        """Send a request, and return the decoded answer. Raises BadAnswerError if the request did not succeed."""
        sent = b"" if body is None else json.dumps(body).encode()
        status, answer = await self.call(method, path, sent, authorization=authorization)
        if not 200 <= status < 300:
            raise BadAnswerError(f"{method} {path[:200]}: {status} {answer[:300]!r}")
        return json.loads(answer) if answer else None

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def call_service(port: int, method: str, path: str, body: object = None) -> Any:
    """Send one request on a connection of its own, as `Connection.call_ok` does."""
    connection = Connection(port)
    try:
        return await connection.call_ok(method, path, body)
    finally:
        connection.close()


async def for_each(
    port: int, items: Iterable[T], work: Callable[[Connection, T], Awaitable[None]], *, connections: int
) -> None:
    """Call `work` for each item, over `connections` parallel connections. The first exception ends all of them."""
    left = iter(items)

    async def worker() -> None:
        connection = Connection(port)
        try:
            for item in left:
                await work(connection, item)
        finally:
            connection.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(worker())


def call_once(port: int, method: str, path: str) -> tuple[int, bytes]:
    """Send one request without an event loop, and return the answer's status and body. Raises OSError."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5.0)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except http.client.HTTPException as error:
        raise ConnectionError(str(error)) from error
    finally:
        connection.close()


def read_metrics(port: int) -> dict[str, float]:
    """Return the values of the service's metrics, keyed by their names with labels."""
    lines = call_once(port, "GET", "/metrics")[1].decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}
