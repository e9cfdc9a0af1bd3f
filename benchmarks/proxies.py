"""Two proxies that disturb what is measured: `FaultyProxy` in front of the service, `SlowProxy` before a database.

python -m benchmarks.proxies PORT TARGET     (a SlowProxy; each line of standard input is its new factor)
"""

import asyncio
import random
import subprocess
import sys
from asyncio import StreamReader, StreamWriter
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from time import perf_counter
from typing import IO

import aiohttp
import uvloop
from aiohttp import web

from benchmarks.client import HOST
from benchmarks.servers import PROJECT

# How many of `_ROUND` requests meet each fault. The others are carried unchanged.
FAULTS = {
    "request lost": 4,
    "answer lost": 4,
    "delivered twice": 4,
    "cut short": 2,
    "delayed": 6,
    "answered itself": 3,
}
_ROUND = 50
_OWN_STATUSES = (200, 302, 400, 401, 403, 404, 408, 413, 422, 429, 502, 503)
_DELAY_S_MAX = 0.3
_TIMEOUT_S = 20.0
_BODY_BYTES_MAX = 1 << 26
_CHUNK_BYTES = 256 * 1024


class FaultyProxy:
    """An HTTP proxy that loses, delays, repeats and answers requests at random.

    It loses some requests with a body before the service gets them. It loses the answers to others, or cuts them short.
    It delivers some requests twice at the same time, and holds some back. To some it replies itself, as a proxy does
    whose service is unreachable. It forwards all others unchanged. `counts` tells how many requests met each fault.
    """

    def __init__(self, target: int, rng: random.Random) -> None:
        """`target` is the port of the service."""
        self.counts = Counter[str]()
        self.port = 0
        self._target = f"http://{HOST}:{target}"
        self._rng = rng
        self._drawn: list[str] = []  # the fates of the next requests of this round

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FaultyProxy"]:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(_TIMEOUT_S), auto_decompress=False) as session:
            app = web.Application(client_max_size=_BODY_BYTES_MAX)

            async def handle(request: web.Request) -> web.StreamResponse:
                return await self._carry(session, request)

            app.router.add_route("*", "/{path:.*}", handle)
            runner = web.AppRunner(app, shutdown_timeout=0)
            await runner.setup()
            await web.TCPSite(runner, HOST, 0).start()
            self.port = int(runner.addresses[0][1])
            yield self
            await runner.cleanup()

    async def _carry(self, session: aiohttp.ClientSession, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        fault = self._draw_fault() if body else "carried"
        self.counts[fault] += 1
        try:
            if fault == "request lost":
                return cut_connection(request)
            if fault == "answered itself":
                headers = {"Retry-After": "0", "Location": "/"}
                return web.Response(status=self._rng.choice(_OWN_STATUSES), text="<html>", headers=headers)
            if fault == "delayed":
                await asyncio.sleep(self._rng.uniform(0, _DELAY_S_MAX))
            if fault == "delivered twice":
                both = (self._deliver(session, request, body) for _ in range(2))
                first, second = await asyncio.gather(*both, return_exceptions=True)
                if isinstance(first, BaseException):
                    raise first
                answer = first
                self.counts["answered twice"] += not isinstance(second, BaseException)
            else:
                answer = await self._deliver(session, request, body)
        except (aiohttp.ClientError, TimeoutError, OSError):
            return cut_connection(request)  # the service is away
        if fault == "answer lost":
            return cut_connection(request)
        if fault == "cut short" and request.transport is not None:
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
            request.transport.write(head + (answer.body if isinstance(answer.body, bytes) else b"")[:40])
            request.transport.close()
        return answer

    async def _deliver(self, session: aiohttp.ClientSession, request: web.Request, body: bytes) -> web.Response:
        headers = {name: request.headers[name] for name in ("Authorization", "Content-Type") if name in request.headers}
        address = self._target + request.raw_path
        async with session.request(request.method, address, data=body, headers=headers) as answer:
            kept = {name: answer.headers[name] for name in ("Content-Type", "Retry-After") if name in answer.headers}
            return web.Response(body=await answer.read(), status=answer.status, headers=kept)

    def _draw_fault(self) -> str:
        """Return the fate of the next request.

        Every round contains every fault, so that even a short run meets them all.
        """
        if not self._drawn:
            faults = [fault for fault, times in FAULTS.items() for _ in range(times)]
            self._drawn = faults + ["carried"] * (_ROUND - len(faults))
            self._rng.shuffle(self._drawn)
        return self._drawn.pop()


def cut_connection(request: web.Request) -> web.Response:
    """End the connection without an answer. The client may have ended it before."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


class SlowProxy:
    """A TCP proxy that multiplies the time of every answer by `factor`.

    If the database answers after a time t, the client gets the answer after t times the factor. At factor 1 nothing is
    delayed.
    """

    def __init__(self, target: int) -> None:
        self.factor = 1.0
        self._target = target

    async def carry(self, client_reader: StreamReader, client_writer: StreamWriter) -> None:
        """Connect a client to the database, until one of them ends the connection."""
        asked_at: float | None = None  # when the first question after the last answer arrived

        async def pass_questions(reader: StreamReader, writer: StreamWriter) -> None:
            nonlocal asked_at
            while chunk := await reader.read(_CHUNK_BYTES):
                asked_at = asked_at or perf_counter()
                writer.write(chunk)
                await writer.drain()

        async def pass_answers(reader: StreamReader, writer: StreamWriter) -> None:
            nonlocal asked_at
            while chunk := await reader.read(_CHUNK_BYTES):
                # While this piece of an answer is held back, later bytes wait in `reader`. They are sent after it.
                await asyncio.sleep((perf_counter() - asked_at) * (self.factor - 1) if asked_at else 0)
                asked_at = None
                writer.write(chunk)
                await writer.drain()

        with suppress(OSError):
            server_reader, server_writer = await asyncio.open_connection(HOST, self._target)
            ways = [
                asyncio.create_task(pass_questions(client_reader, server_writer)),
                asyncio.create_task(pass_answers(server_reader, client_writer)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            server_writer.close()
        client_writer.close()


@contextmanager
def run_slow_proxy(port: int, target: int) -> Iterator[IO[str]]:
    """Run a SlowProxy at `port` in a process of its own.

    Yield the stream that accepts its factors, one on each line.
    """
    command = [sys.executable, "-m", "benchmarks.proxies", str(port), str(target)]
    process = subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.PIPE, text=True, bufsize=1)
    try:
        assert process.stdin is not None
        yield process.stdin
    finally:
        process.kill()
        process.wait()


async def _serve(port: int, target: int) -> None:
    proxy, lines = SlowProxy(target), asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with await asyncio.start_server(proxy.carry, HOST, port):
        while line := await lines.readline():
            proxy.factor = float(line)


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
