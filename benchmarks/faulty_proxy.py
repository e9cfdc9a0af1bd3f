"""An HTTP proxy that loses, delays, repeats and answers what it should carry, at random.

It loses some requests with a body before the service gets them. It loses the answers of some, and cuts others short. It
delivers some requests twice at the same time, and holds some back. It answers some itself, as a proxy does whose
service is away. It carries all others unchanged.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

from benchmarks.client import HOST

# The percentages of the faults. The rest of the requests is carried unchanged.
FAULTS = {
    "request lost": 8,
    "answer lost": 8,
    "delivered twice": 8,
    "cut short": 4,
    "delayed": 12,
    "answered itself": 6,
}
_OWN_STATUSES = (200, 302, 400, 401, 403, 404, 408, 413, 422, 429, 502, 503)
_DELAY_S_MAX = 0.3
_TIMEOUT_S = 20.0
_BODY_BYTES_MAX = 1 << 26


class FaultyProxy:
    """The proxy and what it did: how many requests each fault met."""

    def __init__(self, target: int, rng: random.Random) -> None:
        """`target` is the port of the service."""
        self.counts = Counter[str]()
        self.port = 0
        self._target = f"http://{HOST}:{target}"
        self._rng = rng

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
        drawn = self._rng.uniform(0, 100)
        for fault, percentage in FAULTS.items():
            drawn -= percentage
            if drawn < 0:
                return fault
        return "carried"


def cut_connection(request: web.Request) -> web.Response:
    """End the connection without an answer. The client may have ended it before."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
